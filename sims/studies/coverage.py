"""How often nominal 95 % intervals of private inference hold the truth, and how wide they are.

    python -m sims.studies.coverage --studies 1000 --out coverage.json

Every study draws rows from a generator whose coefficients are known, trains a private model with
half of the budget (noisy gradient descent, a plaintext twin of `--protocol secure-aggregation
--update gd`), and infers with the rest: the same objectives, steps and covariances as `cohort
simulate --inference`, with Gaussian noise of the same std in place of encryption. Studies in which
no interval is given are counted apart, as `refused`.

Generators. `gaussian`: 10,000 rows, four normal columns cut off at three standard deviations.
`rare`: 20,000 rows, four correlated flags, an outcome of some 6 %. `small`: 1,000 rows, two uniform
columns. `linear`: 5,000 rows, two uniform columns, a numeric target.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from protocols.errors import PrivacyError
from protocols.inference.budget import training_part
from protocols.inference.estimate import (
    Estimate,
    Noisy,
    least_squares,
    noisy_least_squares,
    private_steps,
)
from protocols.inference.objective import InformationObjective, ProductsObjective
from protocols.privacy.gdp import mu_for_epsilon
from protocols.privacy.sum_certificate import MECHANISM_SHARE

Array = NDArray[np.float64]
DELTA = 1e-5
EPSILONS = (1.0, 4.0)
ROUNDS = 25
REACH = float(norm.ppf(0.975))


class Study(NamedTuple):
    """Rows on [-1, 1], the bias last; outcomes; what made them."""

    x: Array
    y: Array
    truth: Array


def _with_bias(x: Array) -> Array:
    return np.column_stack([x, np.ones(len(x))])


def _labels(x: Array, truth: Array, rng: np.random.Generator) -> Study:
    rows = _with_bias(x)
    return Study(rows, (rng.random(len(rows)) < expit(rows @ truth)).astype(np.float64), truth)


def gaussian(rng: np.random.Generator) -> Study:
    """Well specified, well balanced."""
    x: Array = np.clip(rng.standard_normal((10_000, 4)), -3, 3) / 3.0
    return _labels(x, np.array([2.4, -1.5, 0.9, 0.0, -0.3]), rng)


def rare(rng: np.random.Generator) -> Study:
    """Correlated flags and a rare outcome."""
    shared = rng.standard_normal((20_000, 1))
    own = rng.standard_normal((20_000, 4))
    flags = 0.6 * shared + 0.8 * own > np.array([0.0, 0.3, 0.6, 0.9])
    return _labels(np.where(flags, 1.0, -1.0), np.array([0.35, 0.2, -0.25, 0.3, -2.6]), rng)


def small(rng: np.random.Generator) -> Study:
    """Few rows."""
    return _labels(rng.uniform(-1, 1, (1_000, 2)), np.array([1.0, -0.7, 0.2]), rng)


def linear(rng: np.random.Generator) -> Study:
    """A numeric target, on [0, 1]."""
    rows = _with_bias(rng.uniform(-1, 1, (5_000, 2)))
    truth = np.array([0.15, -0.05, 0.5])
    return Study(rows, rows @ truth + np.clip(rng.normal(0, 0.06, len(rows)), -0.3, 0.3), truth)


GENERATORS: Mapping[str, Callable[[np.random.Generator], Study]] = {
    "gaussian": gaussian,
    "rare": rare,
    "small": small,
    "linear": linear,
}


def trained(study: Study, mu: float, rng: np.random.Generator) -> Array:
    """Private gradient descent from zero: clipped sums, noise for mu over all rounds."""
    x, y, _ = study
    bound = math.sqrt(x.shape[1])
    std = 2 * bound * math.sqrt(ROUNDS) / mu
    theta = np.zeros(x.shape[1])
    for _ in range(ROUNDS):
        gradient = x.T @ (expit(x @ theta) - y) + std * rng.standard_normal(len(theta))
        theta = theta - 4 / bound**2 * gradient / len(x)
    return theta


def budgets(epsilon: float, delta: float = DELTA) -> tuple[float, float]:
    """mu of training and of inference, as a run divides them."""
    own, part = training_part(epsilon, delta)
    training = mu_for_epsilon(epsilon=own, delta=MECHANISM_SHARE * part)
    whole = mu_for_epsilon(epsilon=epsilon, delta=MECHANISM_SHARE * delta)
    return training, math.sqrt(whole**2 - training**2)


def symmetric_noise(rng: np.random.Generator, d: int, tau: float) -> Array:
    """E_ii ~ N(0, tau^2), E_ij ~ N(0, tau^2 / 2)."""
    upper = np.triu(rng.standard_normal((d, d)), 1) * tau / math.sqrt(2)
    return np.asarray(upper + upper.T + np.diag(rng.standard_normal(d)) * tau)


def inferred(study: Study, epsilon: float, rng: np.random.Generator) -> Estimate:
    """What the private protocol says of a study.

    Raises:
        PrivacyError: it gives no interval.
    """
    x, y, _ = study
    rows, d = x.shape
    bound = math.sqrt(d)
    training, mu = budgets(epsilon)
    if not np.isin(y, (0.0, 1.0)).all():
        products = ProductsObjective(row_norm=bound, outputs=1)
        tau = products.diameter(products.kind) / mu
        exact = products.read(products.of_rows(x, y, "") / rows, rows)
        return noisy_least_squares(exact + symmetric_noise(rng, d + 1, tau), 1, rows, tau)[0]

    def ask(theta: Array, cost: float) -> Noisy:
        task = InformationObjective(model="logistic", theta=tuple(theta.tolist()), row_norm=bound)
        sigma = task.diameter(task.kind) / cost
        score, information = task.read(task.of_rows(x, y, "") / rows, rows)
        tau = sigma / task.kappa
        return Noisy(
            score + sigma * rng.standard_normal(d),
            information + symmetric_noise(rng, d, tau),
            sigma,
            tau,
        )

    return private_steps(trained(study, training, rng), mu, ask)[0]


def without_privacy(study: Study) -> Array:
    """Standard errors of the same rows, at the truth."""
    x, y, truth = study
    if not np.isin(y, (0.0, 1.0)).all():
        u = np.column_stack([x, y])
        return np.asarray(np.sqrt(np.diag(least_squares(u.T @ u, 1, len(y))[0].covariance)))
    mean = expit(x @ truth)
    return np.asarray(np.sqrt(np.diag(np.linalg.inv((x.T * (mean * (1 - mean))) @ x))))


def cover(
    name: str,
    epsilon: float,
    studies: int,
    seed: int = 0,
    infer: Callable[[Study, float, np.random.Generator], Estimate] = inferred,
) -> dict[str, Any]:
    """Coverage by coefficient and in all, width beside that without privacy, bias, refusals."""
    rng = np.random.default_rng([seed, list(GENERATORS).index(name), int(1000 * epsilon)])
    hits, widths, plain, errors, refused = [], [], [], [], 0
    for _ in range(studies):
        study = GENERATORS[name](rng)
        try:
            found = infer(study, epsilon, rng)
        except PrivacyError:
            refused += 1
            continue
        se = np.sqrt(np.diag(found.covariance))
        errors.append(found.theta - study.truth)
        hits.append(np.abs(errors[-1]) <= REACH * se)
        widths.append(se)
        plain.append(without_privacy(study))
    return {
        "generator": name,
        "epsilon": epsilon,
        "studies": studies,
        "refused": refused,
        "coverage": float(np.mean(hits)),
        "coverage_by_coefficient": np.mean(hits, axis=0).tolist(),
        "width_over_plain": (np.mean(widths, axis=0) / np.mean(plain, axis=0)).tolist(),
        "bias_over_se": (np.mean(errors, axis=0) / np.mean(widths, axis=0)).tolist(),
    }


def main() -> None:
    """All generators at all epsilons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = []
    for name in GENERATORS:
        for epsilon in EPSILONS:
            found.append(cover(name, epsilon, asked.studies, asked.seed))
            line = {
                key: np.round(value, 3).tolist() if isinstance(value, (list, float)) else value
                for key, value in found[-1].items()
            }
            print(json.dumps(line), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
