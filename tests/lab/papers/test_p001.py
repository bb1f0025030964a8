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


@pytest.mark.parametrize(("constant", "link"), [(2.0, None), (0.155, expit)])
@pytest.mark.parametrize("batches", [1, 3])
def test_mini_batches_are_enhanced_nag_on_one_batch_after_the_other(
    data: tuple[Any, Any], constant: float, link: Any, batches: int
) -> None:
    """Written out: Algorithm 1 of the quadratic gradient's paper with a B of every batch."""
    x, y = data
    found = list(rules.batched(x, y, 4, batches, link))
    w = v = np.zeros((x.shape[1], y.shape[1]))
    a, t = 0.01, 0
    for seen in found:
        for rows, wanted in zip(
            np.array_split(x, batches), np.array_split(y, batches), strict=True
        ):
            z = rows @ v
            s = z if link is None else 1 / (1 + np.exp(-z))
            slope = 2 * rows.T @ ((s - wanted) * (1 if link is None else s * (1 - s)))
            bound = constant * np.abs(rows).T @ np.abs(rows).sum(axis=1)
            following = (1 + np.sqrt(1 + 4 * a * a)) / 2
            eta = (1 - a) / following
            new = v - (1 + 0.9**t) * slope / bound[:, None]
            w, v, a, t = new, (1 - eta) * new + eta * w, following, t + 1
        scores = x @ w
        np.testing.assert_allclose(
            seen, scores if link is None else 1 / (1 + np.exp(-scores)), rtol=1e-6
        )
    errors = [rules.mse(seen, y) for seen in found]
    whole = [rules.mse(seen, y) for seen in (rules.linear if link is None else rules.lffr)(x, y, 4)]
    assert errors[-1] < whole[-1]


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
