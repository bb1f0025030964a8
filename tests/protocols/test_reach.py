"""The rows that private standard errors are said to need are those that they need."""

from __future__ import annotations

import math

import numpy as np
import pytest

from protocols.errors import PrivacyError
from protocols.statistics.inference.estimate import Array, Estimate, Noisy, private_steps
from protocols.statistics.inference.objective import InformationObjective
from protocols.statistics.inference.reach import Reach, reach

D = 6
TASK = InformationObjective(
    model="logistic", theta=(0.0,) * D, row_norm=math.sqrt(D), epsilon_in_all=1.0
)
SIGMA = TASK.diameter("")
"""Of a sum that costs mu = 1."""
TRUTH = np.array([*(0.0,) * (D - 1), -math.log(4)])


def told(rows: int) -> Reach:
    return reach(
        "logistic", features=D, rows=rows, sigma=SIGMA, tau=SIGMA / TASK.row_function.kappa
    )


def tried(rows: int, q: float, rate: float, seed: int) -> Estimate | None:
    """Intervals of independent columns of mean square q; rate: of positive rows, in expectation."""
    rng = np.random.default_rng(seed)

    def ask(point: Array, mu: float) -> Noisy:
        # Of many rows the sums are their means: information N v diag(q, ..., 1).
        information = rows * rate * (1 - rate) * np.diag([*(q,) * (D - 1), 1.0])
        sigma, tau = SIGMA / mu, SIGMA / TASK.row_function.kappa / mu
        e = np.triu(rng.normal(0, tau / math.sqrt(2), (D, D)), 1)
        noise = e + e.T + np.diag(rng.normal(0, tau, D))
        score = information @ (point - TRUTH) + rng.normal(0, sigma, D)
        return Noisy(point, score, information + noise, sigma, tau)

    try:
        return private_steps(TRUTH, 1.0, ask)[0]
    except PrivacyError:
        return None


def share(rows: int, q: float, rate: float) -> float:
    """Of 40 studies, that have intervals."""
    return float(np.mean([tried(rows, q, rate, seed) is not None for seed in range(40)]))


def test_below_the_least_no_columns_have_intervals_and_usual_ones_have_above_the_usual() -> None:
    found = told(1)
    assert found.usual > 10 * found.least
    # The best columns of all: every entry at an end of its range, and labels of equal number.
    assert share(found.least // 2, 1.0, 0.5) < 0.1
    assert share(found.least * 3, 1.0, 0.5) > 0.9
    assert share(found.usual // 2, 1 / 9, 0.2) < 0.1
    assert share(found.usual * 2, 1 / 9, 0.2) > 0.9


@pytest.mark.parametrize("times", [2, 8])
def test_intervals_are_as_wide_as_said(times: int) -> None:
    rows = times * told(1).usual
    plain = 1 / math.sqrt(rows * 0.16 / 9)
    wide = [
        math.sqrt(each.covariance[0, 0]) / plain
        for each in (tried(rows, 1 / 9, 0.2, seed) for seed in range(40))
        if each is not None
    ]
    assert told(rows).wider == pytest.approx(np.median(wide), rel=0.25)
    assert math.isnan(told(10).wider)
