"""The multi-output paper: its curves against derivatives, scikit-learn, and what runs encrypted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit
from sklearn.linear_model import LinearRegression

from parties.kernel.gram.sums import GramSums
from protocols.models.improved_lffr import ImprovedLffr
from sims.gram_twin import run_gram_twin
from sims.lab.papers import lffr_rules as rules
from sims.lab.papers.p001.mse_curves import random_data
from sims.lab.papers.p001.wide_tables import made
from tests.protocols.gram_session import make_task


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    found = random_data(3, rows=80, columns=4)
    y = found[:, -1:]
    return found[:, :-1], rules.unit_targets(np.column_stack([y, y**2]))


def test_every_rule_falls_and_linear_ends_at_least_squares(data: tuple[Any, Any]) -> None:
    x, y = data
    best = LinearRegression(fit_intercept=False).fit(x, y).predict(x)
    np.testing.assert_allclose(rules.least_squares(x, y), best, atol=1e-10)
    for rule in (rules.linear, rules.lffr):
        course = [rules.mse(found, y) for found in rule(x, y, 60)]
        assert all(a >= b for a, b in pairwise(course))
    *_, last = rules.linear(x, y, 4000)
    np.testing.assert_allclose(last, best, atol=1e-6)
    *_, scores = rules.improved(x, y, 4000)
    logits = ImprovedLffr().encode(y)
    wanted = LinearRegression(fit_intercept=False).fit(x, logits).predict(x)
    np.testing.assert_allclose(scores, ImprovedLffr().decode(wanted), atol=1e-6)


def test_the_first_step_is_down_the_gradient_over_the_bound(data: tuple[Any, Any]) -> None:
    """By finite differences of the sums of squares; the paper prints a plus in (3)."""
    x, y = data
    d, c = x.shape[1], y.shape[1]
    sums = rules.row_sums(x)

    def loss(weights: Any, squash: Any) -> float:
        return float(np.sum((squash(x @ weights.reshape(d, c)) - y) ** 2))

    for rule, squash, constant in ((rules.linear, lambda z: z, 2.0), (rules.lffr, expit, 0.155)):
        slope = approx_fprime(np.zeros(d * c), loss, 1e-7, squash).reshape(d, c)
        (found,) = rule(x, y, 1)
        np.testing.assert_allclose(found, squash(-x @ (slope / (constant * sums))), atol=1e-4)


def test_a_floor_slows_and_does_not_move_the_end(data: tuple[Any, Any]) -> None:
    x, y = data
    *_, quick = rules.linear(x, y, 10)
    *_, slow = rules.linear(x, y, 10, floor=len(x))
    assert rules.mse(slow, y) > rules.mse(quick, y)
    *_, end = rules.linear(x, y, 9000, floor=len(x))
    np.testing.assert_allclose(end, rules.least_squares(x, y), atol=1e-6)


def test_the_linear_rule_is_the_twin_of_the_encrypted_one(data: tuple[Any, Any]) -> None:
    """Plain steps; the floor is a part of the curvature's bound, per row."""
    x, y = data
    task = make_task(x.shape[1], y.shape[1], rounds=7, rows=len(x), accelerated=False)
    weights = run_gram_twin(task, GramSums.of(x, y))
    floor = len(x) * task.floor * task.curvature_bound
    *_, last = rules.linear(x, y, 7, floor=floor)
    np.testing.assert_allclose(x @ weights, last, rtol=1e-2, atol=2e-3)


def test_wide_tables_have_the_shape_and_a_law() -> None:
    frame, names = made(337, 411, 6)
    assert frame.shape == (337, 417) and len(names) == 6
    x, y = frame.drop(columns=list(names)).to_numpy(), frame[list(names)].to_numpy()
    assert np.abs(x).max() <= 1
    # Ten columns each explain nearly all: with more columns than rows nothing else would show it.
    for k in range(6):
        strongest = np.argsort(-np.abs(x.T @ y[:, k]))[:40]
        fit = LinearRegression().fit(x[:, strongest], y[:, k])
        assert fit.score(x[:, strongest], y[:, k]) > 0.5
