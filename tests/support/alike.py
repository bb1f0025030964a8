"""LOOKS AT SECRETS. Noise of the released model where all rows are alike, beside what is flooded.

    python -m tests.support.alike --ring 32768 --protocol model        128-bit parameters; minutes

What follows from the operands alone, such as a rounding, is then the same in every group of rows;
what follows from nothing but the operation is the same in every round. Both add up, and flooding
counts on independent errors. The tests run toy rings.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from protocols.ckks import residues as rns
from protocols.ckks.circuits import projection
from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.circuits.side_by_side import Parts
from protocols.model import protocol as encrypted_model
from protocols.model.plan import ModelPlan
from protocols.plan import kinds
from protocols.rows.plan import RowsPlan
from protocols.steps import decrypt
from tests.support import exact, helpers
from tests.support.helpers import Floats, Session, half_of, make_link, make_rule, make_session

LARGEST = 3.0
"""Norm of a row: descent at the helpers' rates does not expand distances."""


def alike(rows: Sequence[int], features: int, seed: int) -> list[tuple[Floats, Floats]]:
    """Every other row positive: the twin stays at zero."""
    value = min(1.0, LARGEST / features**0.5)
    return [(np.full((size, features), value), np.arange(float(size)) % 2) for size in rows]


def opened(session: Session) -> tuple[Floats, Any]:
    """A whole run's weights; what it releases, decrypted by all key shares without noise.

    Shape (parts, m): of an encrypted model the 2k coefficients of each part that are released; of
    rows all n.
    """
    taken: list[Any] = []

    def watching(release: Any) -> Any:
        def watched(owner: Any, plan: Any, weights: Any, survivors: Any) -> Any:
            parts = isinstance(weights, Parts)
            context = owner if parts else owner.context
            low = context.primes[:2]
            pairs = weights.pairs if parts else map(context.polynomials_of, weights.cts)
            secret = sum(exact.secret(half_of(p).secret) for p in session.parties.values())
            key = np.array([exact.evaluations(secret, q) for q in low], np.uint64)
            for pair in pairs:
                c0, c1 = (each[:2] for each in pair)
                found = rns.add(c0, rns.product(c1, key, low), low)
                taken.append(
                    projection.project(found, low, plan.layout.period)
                    if parts
                    else exact.whole(found, low)
                )
            return (yield from release(owner, plan, weights, survivors))

        return watched

    with (
        patch.object(encrypted_model, "release", watching(encrypted_model.release)),
        patch.object(decrypt, "release", watching(decrypt.release)),
    ):
        weights = session.run().weights
    return weights, np.array(taken, object)


def spread(make: Callable[[], Session], runs: int = 2) -> tuple[float, Any]:
    """Std of the noise of one computation under different keys, and its plan.

    What all runs have in common, the products' distances from the scale, says nothing of a key.
    """
    sessions = [make() for _ in range(runs)]
    found = np.array([opened(session)[1] for session in sessions], object)
    noise = found - np.rint(found.astype(float).mean(axis=0)).astype(object)
    noise = noise.astype(float) - noise.astype(float).mean(axis=0)
    return float(exact.rms(noise) * np.sqrt(runs / (runs - 1))), sessions[0].plan


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=("model", "rows"), default="model")
    parser.add_argument("--update", default="gd")
    defaults = {"ring": 32768, "degree": 7, "features": 8, "parties": 2, "rounds": 4}
    defaults |= {"width": 2, "groups": 2, "runs": 2}
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    make: Any = ModelPlan if a.protocol == "model" else RowsPlan
    levels = make.levels_of(make_link(a.degree), make_rule(a.update, a.rounds))
    secure = a.ring >= 1 << 15
    slots_of_a_row = a.width // 2 if make is ModelPlan else a.width
    rows = [a.groups * (a.ring // 2 // slots_of_a_row)] * a.parties
    given: dict[str, Any] = {
        "parties": a.parties, "rows": rows, "features": a.features, "rounds": a.rounds,
        "degree": a.degree, "update": a.update, "make": make, "privacy": None,
        "features_per_ciphertext": a.width, "ring_dim": a.ring,
        "ckks": choose_parameters(levels, secure=secure, ring_dim=a.ring),
    }  # fmt: skip
    with patch.object(helpers, "make_data", alike):
        std, plan = spread(lambda: make_session(**given), a.runs)
    print(
        f"{vars(a)}: K = {plan.ckks.num_special_towers}, noise {std:.1f}, "
        f"sigma_e {kinds.model_error_std(plan):.1f}, ratio {std / kinds.model_error_std(plan):.3f}"
    )


if __name__ == "__main__":
    main()
