"""The twin is the papers' iteration, and tends to scikit-learn's solution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.polynomial import Chebyshev
from sklearn.datasets import load_linnerud
from sklearn.metrics import r2_score

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import figures_of
from parties.kernel.gram.sums import GramSums
from protocols.gram.contributions import INVERSE_ERROR
from protocols.gram.pace import Pace
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.whitened import Moment
from sims.gram_twin import run_gram_twin, unlearnt
from sims.prepare import prepare
from sims.twin import ridge_solution
from tests.protocols.gram_session import make_rows, make_task


def scaled(values: np.ndarray) -> np.ndarray:
    """Columns on [0, 1]."""
    low, high = values.min(axis=0), values.max(axis=0)
    return (values - low) / (high - low)


def linnerud() -> tuple[np.ndarray, np.ndarray]:
    """20 rows, 3 columns and the bias, 3 targets."""
    data = load_linnerud()
    x = 2 * scaled(data.data) - 1
    return np.hstack([x, np.ones((len(x), 1))]), scaled(data.target)


def textbook(x: np.ndarray, y: np.ndarray, rounds: int, floor: float, ridge: float) -> np.ndarray:
    """Section 3.1 row by row: w_k -= dL/dw_k / b_k with the gradient of the summed loss."""
    (n, d), weights = x.shape, np.zeros((x.shape[1], y.shape[1]))
    b = np.array([2 * sum(abs(r[j] * r[k]) for r in x for j in range(d)) for k in range(d)])
    b += n * (floor + 2 * ridge)
    for _ in range(rounds):
        gradient = 2 * n * ridge * weights
        for row, target in zip(x, y, strict=True):
            gradient += 2 * np.outer(row, row @ weights - target)
        weights = weights - gradient / b[:, None]
    return weights


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_the_twin_is_the_textbooks(ridge: float) -> None:
    """The same iterates, but for the inverse's certified error."""
    task = make_task(features=4, outputs=3, rounds=8, rows=20, ridge=ridge, accelerated=False)
    x, y = linnerud()
    floor = task.floor * (task.curvature_bound + 2 * ridge)
    twin, exact = run_gram_twin(task, GramSums.of(x, y)), textbook(x, y, 8, floor, ridge)
    error = np.abs(twin * (1 + INVERSE_ERROR) - exact).max() / np.abs(exact).max()
    assert 1e-9 < error < 8 * INVERSE_ERROR


def chebyshev(x: np.ndarray, y: np.ndarray, rounds: int, floor: float, ridge: float) -> np.ndarray:
    """W* - p(K) W* by eigenvalues and numpy's polynomials: no recursion, no encryption's units."""
    n, d = x.shape
    b = 2 * (np.abs(x).T @ np.abs(x).sum(axis=1)) / n + floor + 2 * ridge
    root = np.sqrt(b * (1 + INVERSE_ERROR))
    values, vectors = np.linalg.eigh(
        (2 * x.T @ x / n + 2 * ridge * np.eye(d)) / np.outer(root, root)
    )
    low = 1 / (10 * rounds)
    at = Chebyshev.basis(rounds, domain=[low, 1])
    left = at(values) / at(0.0)
    assert np.abs(left[values >= low]).max() <= 1.001 / np.cosh(2 * np.sqrt(rounds / 10))
    phi = vectors @ np.diag((1 - left) / values) @ vectors.T
    return phi @ (2 * x.T @ y / n / root[:, None]) / root[:, None]


@pytest.mark.parametrize(("rounds", "ridge"), [(1, 0.0), (2, 0.1), (3, 0.0), (400, 0.1)])
def test_accelerated_steps_are_chebyshevs(rounds: int, ridge: float) -> None:
    task = make_task(features=4, outputs=3, rounds=rounds, rows=20, ridge=ridge)
    x, y = linnerud()
    floor = task.floor * (task.curvature_bound + 2 * ridge)
    course: list[np.ndarray] = []
    twin = run_gram_twin(task, GramSums.of(x, y), lambda t, w: course.append(w))
    exact = chebyshev(x, y, rounds, floor, ridge)
    # The inverse is better than its bound; what it lacks changes the speed alone.
    assert np.abs(twin - exact).max() < 2e-3 * np.abs(exact).max()
    assert len(course) == rounds and np.array_equal(course[-1], twin)


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("flat", [0.0, 0.003, 0.1])
def test_reach_bounds_every_polynomial(accelerated: bool, flat: float) -> None:
    """The largest sqrt(k - k_min) phi_t and phi_t, by running the recursion on numbers k."""
    pace, k = Pace.of(24, accelerated), np.linspace(max(flat, 1e-6), 1, 20_001)
    length, steepest = pace.reach(flat)
    before = moved = np.zeros_like(k)
    seen = [0.0, 0.0]
    for factor, size in zip(pace.targets, pace.sizes, strict=True):
        new = pace.level * moved - pace.gain * k * moved - pace.pull * before + factor
        before, moved = moved, new
        assert 0.5 <= size <= 1
        phi = np.abs(moved) / size
        seen = [max(seen[0], (np.sqrt(k - flat) * phi).max()), max(seen[1], phi.max())]
    assert length / 2.5 < seen[0] <= length and seen[1] <= steepest * (1 + 1e-9)
    if not flat:
        assert seen[1] > steepest / 2.5


def test_responses_are_those_of_the_recursion() -> None:
    """At K = 0, where they are largest: one unit, put into V_t, arrives in W_T."""
    pace = Pace.of(7, True)
    for t, response in enumerate(pace.responses, 1):
        before, moved = 0.0, 1.0
        for _ in range(t, 7):
            before, moved = moved, (1 + pace.pull) * moved - pace.pull * before
        assert moved / pace.last == pytest.approx(response, rel=1e-12)


def test_what_is_unlearnt_is_told() -> None:
    """The gap to the minimum is that of the losses, and vanishes."""
    task = make_task(features=4, outputs=3, rounds=5, rows=20, ridge=0.01)
    x, y = linnerud()

    def loss(w: np.ndarray) -> np.ndarray:
        return np.mean((x @ w - y) ** 2, axis=0) + 0.01 * np.sum(w**2, axis=0)

    sums = GramSums.of(x, y)
    for rounds in (1, 5, 40):
        w = run_gram_twin(replace(task, rounds=rounds), sums)
        gap = loss(w) - loss(ridge_solution(x, y, 0.01))
        np.testing.assert_allclose(unlearnt(task, sums, w), gap, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_tends_to_scikit_learns_ridge(ridge: float) -> None:
    """With the inverse's error: the fixed point is exact."""
    task = make_task(features=4, outputs=2, rounds=3000, rows=200, ridge=ridge)
    x, y = make_rows(task, seed=1)
    twin = run_gram_twin(task, GramSums.of(x, y))
    np.testing.assert_allclose(twin, ridge_solution(x, y, ridge), atol=1e-9)


def test_the_loss_never_rises() -> None:
    """Rate 1 is safe with row sums and with the constant: 2 |x|^2 bounds the curvature."""
    task = make_task(features=6, outputs=2, rounds=100, rows=50)
    x, y = make_rows(task, seed=2)
    x[:, 0] *= 1e-3  # a column far below the floor
    task = replace(task, accelerated=False)
    for variant in (task, replace(task, row_sums=False, curvature_bound=2.0 * 6)):
        losses: list[float] = []
        run_gram_twin(
            variant,
            GramSums.of(x, y),
            lambda t, w, losses=losses: losses.append(float(np.sum((x @ w - y) ** 2))),
        )
        assert len(losses) == 100
        assert max(np.diff(losses)) <= 1e-12


def correlated(rows: int = 300) -> pd.DataFrame:
    """Locations, two sets of one-hot columns, and metals that go together, as soil samples have."""
    rng = np.random.default_rng(3)
    common = rng.lognormal(0, 0.6, rows)
    table = {f"metal{k}": common * rng.lognormal(0, 0.25, rows) for k in range(4)}
    table |= {f"soil{k}": np.zeros(rows) for k in range(4)}
    for k, soil in enumerate(rng.integers(0, 4, rows)):
        table[f"soil{soil}"][k] = 1.0
    table["place"] = rng.uniform(0, 5, rows)
    table["copper"] = 2 * table["metal0"] - 1.5 * table["metal1"] + rng.normal(0, 0.2, rows)
    return pd.DataFrame(table)


def noisy_moment(rows: np.ndarray, first: Any, seed: int) -> Moment:
    """What the first of two runs opens."""
    d, rng = rows.shape[1], np.random.default_rng(seed)
    e = np.triu(rng.normal(size=(d, d)), 1) / np.sqrt(2)
    e += e.T + np.diag(rng.normal(size=d))
    std = first.split.total_std(first.noise_scales[0])
    return Moment.of(rows.T @ rows / len(rows) + std * e, first)


@pytest.mark.parametrize(
    ("model", "seed", "near"),
    [("improved-lffr", 0, 0.02), *(("linear", seed, 0.04) for seed in range(3))],
)
def test_default_settings_converge(model: str, seed: int, near: float) -> None:
    """R^2 within .02 of least squares on test rows; a quarter of the rounds misses it.

    Within .04 of rows that are whitened by a moment with noise, 240 for 10 columns that go
    together, in a fifth of the iterations; the seed is the noise's.
    """
    config = SimulationConfig(data=correlated(), model=model, targets=("copper",), epsilon=None)
    data = prepare(config, np.random.default_rng(1))
    figures = figures_of(data.schema, (s.rows for s in data.shards.values()))
    found = calibrate(figures, config.wanted())
    if found.first:
        moment = noisy_moment(np.asarray(data.rows), found.first, seed)
        found = calibrate(figures, config.wanted(), moment)
    plan: Any = found.template
    sums = plan.contribution(data.rows, data.labels, plan.draw_noise(None))

    def r2(weights: np.ndarray) -> float:
        return r2_score(data.test.y, plan.fitted.decode(data.test.x @ plan.decode(weights)))

    exact = ridge_solution(data.rows, plan.fitted.encode(data.labels), 0.0)
    best = r2_score(data.test.y, plan.fitted.decode(data.test.x @ exact))
    assert best > 0.6
    assert r2(run_gram_twin(plan.task, sums)) > best - near
    fewer = replace(plan.task, rounds=plan.rounds // 4)
    for slower in (fewer, replace(plan.task, accelerated=False)):
        assert r2(run_gram_twin(slower, sums)) < best - near
