"""How often nominal 95 % intervals of private inference hold the truth, and how wide they are.

    python -m sims.lab.studies.coverage --studies 1000 --out coverage.json

Every study draws rows from a generator whose coefficients are known, trains a private model with
half of the budget (noisy gradient descent, a plaintext twin of `--protocol secure-aggregation
--update gd`), and infers with the rest: the same objectives, steps and covariances as `cohort
simulate --inference`, with Gaussian noise of the same std in place of encryption. Studies in which
no interval is given are counted apart, as `refused`.

Generators. `gaussian`: 10,000 rows, four normal columns cut off at three standard deviations.
`rare`: 20,000 rows, four correlated flags, an outcome of some 6 %. `small`: 1,000 rows, two uniform
columns. `linear`: 5,000 rows, two uniform columns, a numeric target. `counts`: 8,000 rows, three
uniform columns, a count of 2 on average in a range up to 10. For the last two no private training
comes before: `linear` starts from no model, `counts` from one of 1,000 other rows, known to all,
and takes the whole budget.
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
from protocols.privacy.certificates.sums import MECHANISM_SHARE
from protocols.privacy.loss import mu_for_epsilon
from protocols.statistics.inference.budget import TRAINING_SHARE, training_part
from protocols.statistics.inference.estimate import (
    Estimate,
    Noisy,
    least_squares,
    noisy_least_squares,
    private_steps,
)
from protocols.statistics.inference.objective import InformationObjective, ProductsObjective

Array = NDArray[np.float64]
DELTA = 1e-5
EPSILONS = (1.0, 4.0)
ROUNDS = 25
REACH = float(norm.ppf(0.975))


class Study(NamedTuple):
    """Rows on [-1, 1], the bias last; outcomes; what made them.

    high: of a count's range; start: a model that is known before.
    """

    x: Array
    y: Array
    truth: Array
    model: str = "logistic"
    high: float = 1.0
    start: Array | None = None


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
    noise = np.clip(rng.normal(0, 0.06, len(rows)), -0.3, 0.3)
    return Study(rows, rows @ truth + noise, truth, "linear")


def counts(rng: np.random.Generator) -> Study:
    """Counts, on [0, 1] by their range; started from what 1,000 other rows gave."""
    high, truth = 10.0, np.array([0.4, -0.3, 0.0, 0.7])

    def some(size: int) -> tuple[Array, Array]:
        rows = _with_bias(rng.uniform(-1, 1, (size, 3)))
        return rows, np.minimum(rng.poisson(np.exp(rows @ truth)), high) / high

    scaled = truth - np.log(high) * np.array([0.0, 0.0, 0.0, 1.0])
    x, y = some(1_000)
    return Study(*some(8_000), scaled, "poisson", high, maximum(Study(x, y, scaled, "poisson")))


GENERATORS: Mapping[str, Callable[[np.random.Generator], Study]] = {
    "gaussian": gaussian,
    "rare": rare,
    "small": small,
    "linear": linear,
    "counts": counts,
}


def curvature(study: Study, theta: Array) -> tuple[Array, Array]:
    """Means, and the information in parts of the range, without privacy."""
    z = study.x @ theta
    mean = np.exp(z) if study.model == "poisson" else expit(z)
    w = mean if study.model == "poisson" else mean * (1 - mean)
    return mean, np.asarray((study.x.T * w) @ study.x)


def maximum(study: Study) -> Array:
    """By Newton's method from the truth."""
    theta = study.truth
    for _ in range(8):
        mean, information = curvature(study, theta)
        theta = theta - np.linalg.solve(information, study.x.T @ (mean - study.y))
    return theta


def trained(study: Study, mu: float, rng: np.random.Generator) -> Array:
    """Private gradient descent from zero: clipped sums, noise for mu over all rounds."""
    x, y = study.x, study.y
    bound = math.sqrt(x.shape[1])
    std = 2 * bound * math.sqrt(ROUNDS) / mu
    theta = np.zeros(x.shape[1])
    for _ in range(ROUNDS):
        gradient = x.T @ (expit(x @ theta) - y) + std * rng.standard_normal(len(theta))
        theta = theta - 4 / bound**2 * gradient / len(x)
    return theta


def budgets(epsilon: float, delta: float = DELTA) -> tuple[float, float]:
    """mu of training and of inference, as a run divides them."""
    own, part = training_part(epsilon, delta, TRAINING_SHARE)
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
    x, y = study.x, study.y
    rows, d = x.shape
    bound = math.sqrt(d)
    training, mu = budgets(epsilon)
    if study.model == "linear":
        products = ProductsObjective(row_norm=bound, outputs=1, epsilon_in_all=epsilon)
        tau = products.diameter(products.kind) / mu
        exact = products.read(products.of_rows(x, y, "") / rows, rows)
        return noisy_least_squares(exact + symmetric_noise(rng, d + 1, tau), 1, rows, tau)[0]

    def ask(theta: Array, cost: float) -> Noisy:
        task = InformationObjective(
            model=study.model, theta=tuple(theta.tolist()), row_norm=bound, epsilon_in_all=epsilon
        )
        sigma = task.diameter(task.kind) / cost
        score, information = task.read(task.of_rows(x, y, "") / rows, rows)
        tau = sigma / task.row_function.kappa
        return Noisy(
            theta,
            score + sigma * rng.standard_normal(d),
            information + symmetric_noise(rng, d, tau),
            sigma,
            tau,
        )

    start = study.start
    if start is None:
        start = trained(study, training, rng)
    else:
        mu = math.hypot(training, mu)
    return private_steps(start, mu, ask, 1 / study.high)[0]


def without_privacy(study: Study) -> Array:
    """Standard errors of the same rows, at the truth."""
    if study.model == "linear":
        u = np.column_stack([study.x, study.y])
        return np.asarray(np.sqrt(np.diag(least_squares(u.T @ u, 1, len(u))[0].covariance)))
    _, information = curvature(study, study.truth)
    return np.asarray(np.sqrt(np.diag(np.linalg.inv(information)) / study.high))


def wald(study: Study, epsilon: float, rng: np.random.Generator) -> Estimate:
    """The same without any privacy: maximum likelihood, and its information there."""
    theta = maximum(study)
    covariance = np.asarray(np.linalg.inv(curvature(study, theta)[1])) / study.high
    return Estimate(theta=theta, covariance=covariance, noise=np.zeros_like(covariance))


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
    parser.add_argument("--generators", nargs="+", choices=GENERATORS, default=list(GENERATORS))
    parser.add_argument("--without-privacy", action="store_true", help="Wald intervals instead.")
    asked = parser.parse_args()
    found = []
    for name in asked.generators:
        for epsilon in EPSILONS:
            how = wald if asked.without_privacy else inferred
            found.append(cover(name, epsilon, asked.studies, asked.seed, how))
            line = {
                key: np.round(value, 3).tolist() if isinstance(value, (list, float)) else value
                for key, value in found[-1].items()
            }
            print(json.dumps(line), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
