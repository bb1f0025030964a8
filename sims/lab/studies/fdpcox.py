"""How near the truth are hazard ratios with noise, beside FDPCox's at its own settings?

    python -m sims.lab.studies.fdpcox [--studies 50] [--out FILE]

FDPCox (Hung and Yu, arXiv:2508.19640) descends the gradient of Cox's partial likelihood, with noise
for its sensitivity. Its experiments: covariates uniform on (-1, 1) / sqrt(3), log hazard ratios
(0, .5, .8), hazard 1, censoring of rate .3, followed to time 1; delta .001; 20 ln(n / d^2)
iterations with step .5 in the unit ball. Squared errors |b - beta|^2, means over studies.

    ours         seven sums of `ciphercohort.study.private_cox`, in float64
    published    their noise for the sensitivity at each iterate,
                 4 / n + 3 e^{2 |b|} ln(n + 1) / n, composed by Renyi's divergence
    package      their R code's: it takes the sensitivity at 0 in all iterations, which is less than
                 its own bound asks for

Of several servers each adds noise for its own rows, and means of their gradients are taken; ours
opens one sum over all.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sims.lab.studies.curves import arguments
from sims.lab.studies.hazards import fitted

Array = NDArray[np.float64]
EFFECTS, DELTA, CENSORED, STEP = (0.0, 0.5, 0.8), 1e-3, 0.3, 0.5
SETTINGS = (
    *((1, 20_000, epsilon) for epsilon in (0.75, 1.0, 3.0, 6.0)),
    *((1, 50_000, epsilon) for epsilon in (0.75, 1.0, 3.0)),
    *((8, 80_000, epsilon) for epsilon in (1.0, 3.0)),
)
"""Servers, rows of all, epsilon."""


def people(rng: np.random.Generator, rows: int) -> tuple[Array, Array]:
    """Covariates, shape (rows, 3), then time and event up to time 1."""
    beta = np.array(EFFECTS)
    x = rng.uniform(-1, 1, (rows, len(beta))) / math.sqrt(len(beta))
    death = rng.exponential(np.exp(-x @ beta))
    leaves = np.minimum(rng.exponential(1 / CENSORED, rows), 1.0)
    return x, np.column_stack([np.minimum(death, leaves), death <= leaves])


def gradient(beta: Array, x: Array, event: Array) -> Array:
    """Of the mean log partial likelihood; rows rise in time, without ties."""
    w = np.exp(x @ beta)[::-1]
    sets = np.cumsum(w)[::-1]
    means = np.cumsum(w[:, None] * x[::-1], axis=0)[::-1] / sets[:, None]
    return np.asarray(event @ (x - means) / len(x))


def descended(
    rng: np.random.Generator, x: Array, y: Array, epsilon: float, servers: int, *, package: bool
) -> Array:
    """Their estimate; package: with the sensitivity at 0 alone."""
    parts = []
    for own, stay in zip(np.split(x, servers), np.split(y, servers), strict=True):
        order = np.argsort(stay[:, 0])
        parts.append((own[order], stay[order, 1]))
    n, beta = len(x) // servers, np.zeros(x.shape[1])
    steps = int(20 * math.log(len(x) / x.shape[1] ** 2))
    for _ in range(steps):
        far = 0.0 if package else float(np.linalg.norm(beta))
        sensitivity = 4 / n + 3 * math.exp(2 * far) * math.log(n + 1) / n
        std = sensitivity * math.sqrt(steps / epsilon * (2 * math.log(1 / DELTA) / epsilon + 1))
        noise = std / math.sqrt(servers) * rng.standard_normal(len(beta))
        beta = beta + STEP * (np.mean([gradient(beta, *part) for part in parts], axis=0) + noise)
        beta = beta / max(1.0, float(np.linalg.norm(beta)))
    return beta


def ours(rng: np.random.Generator, x: Array, y: Array, epsilon: float) -> Array:
    """Of covariates on [-1, 1], as a schema with their ranges has them."""
    d, scale = x.shape[1], math.sqrt(x.shape[1])
    rows = np.column_stack([scale * x, np.ones(len(x))])
    found, start = fitted(rng, rows, y, epsilon, DELTA)
    matrix = np.array(start.matrix).reshape(d, d)
    return np.asarray(scale * matrix.T @ found.theta[len(start.base) :])


def compare(servers: int, rows: int, epsilon: float, studies: int) -> dict[str, Any]:
    """Mean squared errors, and their standard errors."""
    rng = np.random.default_rng([servers, rows, round(100 * epsilon)])
    found: dict[str, list[float]] = {"ours": [], "published": [], "package": []}
    for _ in range(studies):
        x, y = people(rng, rows)
        each = {
            "ours": ours(rng, x, y, epsilon),
            "published": descended(rng, x, y, epsilon, servers, package=False),
            "package": descended(rng, x, y, epsilon, servers, package=True),
        }
        for name, beta in each.items():
            found[name].append(float(np.sum((beta - EFFECTS) ** 2)))
    line: dict[str, Any] = {"servers": servers, "rows": rows, "epsilon": epsilon}
    for name, errors in found.items():
        line[name] = round(float(np.mean(errors)), 5)
        line[f"{name}_se"] = round(float(np.std(errors) / math.sqrt(studies)), 5)
    return line


def main() -> None:
    """Each setting, as JSON."""
    asked = arguments(__doc__)
    lines = []
    for setting in SETTINGS:
        lines.append(compare(*setting, asked.studies))
        print(json.dumps(lines[-1]), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
