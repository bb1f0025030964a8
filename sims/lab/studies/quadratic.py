"""The quadratic gradient on an encrypted model: is it the paper's rule, and how fast beside `nag`?

    python -m sims.lab.studies.quadratic edin.csv lbw.csv [--profile fast-insecure]

Tables have a label y of 0 and 1. Three parties, without privacy, as trained. *Off* is the largest
difference of a weight from Chiang's enhanced Nesterov in float64 on the same noisy B,
b_k = (1/4) sum_j |C_kj|, N_t = 1 + .9^t.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ciphercohort import simulate
from parties.reader.shard import encode_shard
from protocols.models.registry import model_named
from protocols.names import ENCRYPTED_MODEL

Array = NDArray[np.float64]


def paper(x: Array, y: Array, b: Array, link: Callable[[Array], Array], rounds: int) -> Array:
    """Weights after `rounds` iterations on mean gradients; b: diagonal of B, shape (d,)."""
    w: Array = np.zeros(x.shape[1])
    v = w
    alpha = 0.01
    for t in range(rounds):
        new = v - (1 + 0.9**t) * (x.T @ (link(x @ v) - y) / len(y)) / b
        following = (1 + np.sqrt(1 + 4 * alpha**2)) / 2
        momentum = (alpha - 1) / following if t < rounds - 1 else 0.0
        v, w, alpha = new + momentum * (new - w), new, following
    return w


def compared(table: pd.DataFrame, update: str, profile: str) -> dict[str, Any]:
    """One run: iterations, seconds of one, log loss, security bits, and how far off, NaN of nag."""
    run = simulate(
        data=table,
        label="y",
        protocol=ENCRYPTED_MODEL,
        update=update,
        no_privacy=True,
        as_trained=True,
        test_share=0,
        parties=3,
        seed=1,
        profile=profile,
    )
    plan: Any = run.plan
    shard = encode_shard(table, run.schema)
    x, y, off = np.asarray(shard.x), np.asarray(shard.y), np.nan
    if plan.whitening is not None:
        b = np.abs(plan.whitening.square).sum(axis=1) / 4
        due = paper(x, y, b, plan.link, plan.rounds)
        off = float(np.abs(run.weights - due).max())
    return {
        "update": update,
        "iterations": plan.rounds,
        "seconds": float(np.median(run.costs.whole_seconds)),
        "log loss": float(model_named("logistic").loss(x @ run.weights, y).mean()),
        "off": off,
        "bits": plan.security_bits,
    }


def main() -> None:
    """Print a line for each table and update."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--profile", default="secure")
    asked = parser.parse_args()
    for path in asked.tables:
        for update in ("quadratic-nag", "nag"):
            found = compared(pd.read_csv(path), update, asked.profile)
            print(
                path.stem,
                *(
                    f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                    for name, value in found.items()
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
