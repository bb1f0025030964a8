"""The twin is the papers' iteration, and tends to scikit-learn's solution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_linnerud

from protocols.gram import GramSums
from protocols.models.gram_models import GRAM_MODELS, gram_model
from sims.regression_twin import ridge_solution, run_gram_twin
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
    task = make_task(features=4, outputs=3, rounds=8, rows=20, ridge=ridge)
    x, y = linnerud()
    floor = task.floor * (task.curvature_bound + 2 * ridge)
    twin, exact = run_gram_twin(task, GramSums.of(x, y)), textbook(x, y, 8, floor, ridge)
    error = np.abs(twin - exact).max() / np.abs(exact).max()
    assert 1e-9 < error < 8 * task.inverse.relative_error


@pytest.mark.parametrize("ridge", [0.01, 0.2])
def test_tends_to_scikit_learns_ridge(ridge: float) -> None:
    task = make_task(features=4, outputs=3, rounds=8000, rows=20, ridge=ridge)
    x, y = linnerud()
    twin = run_gram_twin(task, GramSums.of(x, y))
    np.testing.assert_allclose(twin, ridge_solution(x, y, ridge), atol=1e-9)


def test_tends_to_least_squares() -> None:
    """Without a ridge, and with the inverse's error: the fixed point is exact."""
    task = make_task(features=4, outputs=2, rounds=3000, rows=200)
    x, y = make_rows(task, seed=1)
    twin = run_gram_twin(task, GramSums.of(x, y))
    np.testing.assert_allclose(twin, ridge_solution(x, y, 0.0), atol=1e-9)


def test_the_loss_never_rises() -> None:
    """Rate 1 is safe with row sums and with the constant: 2 |x|^2 bounds the curvature."""
    task = make_task(features=6, outputs=2, rounds=100, rows=50)
    x, y = make_rows(task, seed=2)
    x[:, 0] *= 1e-3  # a column far below the floor
    for variant in (task, replace(task, row_sums=False, curvature_bound=2.0 * 6)):
        losses: list[float] = []
        run_gram_twin(
            variant,
            GramSums.of(x, y),
            lambda t, w, losses=losses: losses.append(float(np.sum((x @ w - y) ** 2))),
        )
        assert len(losses) == 100
        assert max(np.diff(losses)) <= 1e-12


@pytest.mark.parametrize("name", GRAM_MODELS)
def test_models_come_close_to_their_least_squares(name: str) -> None:
    """MSE per output after 200 iterations, on the scale of [0, 1], diabetes with two targets."""
    data = load_diabetes()
    columns = 2 * scaled(data.data) - 1
    x = np.hstack([np.delete(columns, 2, axis=1), np.ones((len(columns), 1))])
    y = scaled(np.column_stack([data.target, data.data[:, 2]]))
    model = gram_model(name)
    task = make_task(features=10, outputs=2, rounds=200, rows=len(x))
    errors: list[float] = []
    weights = run_gram_twin(
        task,
        GramSums.of(x, model.encode(y)),
        lambda t, w: errors.append(model.metrics(w, x, y)["mean_relative_mse"]),
    )
    best = ridge_solution(x, model.encode(y), 0.0)
    limit, reached = (np.array(model.metrics(w, x, y)["relative_mse"]) for w in (best, weights))
    assert reached.shape == (2,)
    assert np.all(limit < 0.9 * y.var(axis=0))  # the columns say something
    assert np.all(reached < 1.05 * limit)
    assert errors[0] > 1.2 * errors[-1]
