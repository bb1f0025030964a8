"""Encrypted arms of the page beside each paper's rule written out in NumPy alone: toy rings.

Equal to 1e-3 of the largest weight, but for enhanced NAG, whose flooding is multiplied by 1 / eps:
its standard deviation is 2.2e-3 of the largest weight, measured, and six of them are allowed.
What sessions do otherwise than the papers is written out too: a larger eps in B, Chebyshev's steps
on sums, rows that a private sum has whitened.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.job.config import PROFILES, SimulationConfig
from protocols.names import ENCRYPTED_ROWS
from sims.lab.papers.data import fold_numbers
from sims.lab.papers.folds import Table, configuration, encrypted_folds
from sims.lab.papers.item import Settings
from sims.lab.papers.p001.wide_tables import made
from sims.lab.papers.p003 import table_2
from sims.prepare import prepare
from sims.simulation import simulate

SHARE, FLOODED = 1e-3, 1.3e-2
SEED, ROUNDS = 3, 8
SLACK = 1.001
"""What the polynomial inverse of b may be too large by, and steps are shortened by."""


def gap(found: Any, wanted: Any) -> float:
    return float(np.abs(np.ravel(found) - np.ravel(wanted)).max() / np.abs(wanted).max())


def circles(x: Any, constant: float) -> Any:
    """constant / N sum_i |x_ik| sum_j |x_ij|."""
    return constant * np.abs(x).T @ np.abs(x).sum(axis=1) / len(x)


def enhanced_nag(x: Any, y: Any, eps: float, steps: int = 4) -> Any:
    """Algorithm 1 of 000, B inverted, N_t = 1 + 0.9^t, on means in place of sums."""
    bound = eps + circles(x, 0.25)
    w = v = np.zeros(x.shape[1])
    a = 0.01
    for t in range(steps):
        z = x @ v
        link = 0.5 + 0.19131 * z - 0.0045963 * z**3 + 0.0000412332 * z**5
        following = (1 + np.sqrt(1 + 4 * a * a)) / 2
        eta = (1 - a) / following
        new = v + (1 + 0.9**t) * x.T @ (y - link) / len(x) / bound
        w, v, a = new, (1 - eta) * new + eta * w, following
    return w


def test_enhanced_nag_under_encryption() -> None:
    """000, Tables I and II."""
    rng = np.random.default_rng(0)
    rows = 400
    frame = pd.DataFrame(rng.uniform([0, -3, 10], [1, 5, 90], (rows, 3)), columns=list("abc"))
    frame["y"] = (frame["a"] + 0.2 * frame["b"] + rng.normal(size=rows) > 0.7).astype(int)
    session = next(encrypted_folds(Table.of("made", frame, "y"), 5, configuration(PROFILES[1], 1)))
    train, _ = next(fold_numbers(rows, 5, np.random.default_rng(1)))
    x = frame[list("abc")].to_numpy()
    x = (x - x.min(axis=0)) / (x.max(axis=0) - x.min(axis=0))
    x, y = np.column_stack([x, np.ones(rows)])[train], frame["y"].to_numpy(float)[train]
    plan: Any = session.plan
    eps = plan.rule.curvature.offset
    assert gap(session.weights, enhanced_nag(x, y, eps)) < FLOODED
    assert gap(session.weights, enhanced_nag(x, y, eps, steps=3)) > 10 * FLOODED


def fixed_hessian(x: Any, y: Any, floor: float, lowest: float, steps: int) -> Any:
    """B^-1 X^T (X W - Y) of 001's section 3.1 in Chebyshev's steps (Golub and Varga, 1961)."""
    bound = (floor + circles(x, 2.0))[:, None]
    rho = (1 - lowest) / (1 + lowest)
    before: Any = np.zeros((x.shape[1], y.shape[1]))
    w, omega = before, 1.0
    for t in range(steps):
        omega = 1.0 if t == 0 else 1 / (1 - rho**2 * omega / (2 if t == 1 else 4))
        push = 2 * x.T @ (y - x @ w) / len(x) / bound / SLACK * 2 / (1 + lowest)
        before, w = w, omega * (w + push - before) + before
    return w


def lffr(x: Any, y: Any, eps: float, steps: int) -> Any:
    """Section 3.2 of 001, the sign of equation (3) mended."""
    w = np.zeros((x.shape[1], y.shape[1]))
    for _ in range(steps):
        z = x @ w
        s = 0.5 + 0.19824 * z - 0.0044650 * z**3
        slope = 2 * x.T @ ((s - y) * s * (1 - s)) / len(x)
        w = w - slope / (eps + circles(x, 0.155))[:, None]
    return w


@pytest.mark.parametrize("model", ["linear", "improved-lffr", "lffr"])
def test_multi_output_regression_under_encryption(model: str) -> None:
    """001, Table 1 and wide tables."""
    frame, names = made(90, 4, 2)
    config = SimulationConfig(
        data=frame,
        targets=names,
        model=model,
        protocol=ENCRYPTED_ROWS,
        rounds=ROUNDS,
        epsilon=None,
        as_trained=True,
        seed=SEED,
        profile=PROFILES[1],
    )
    session = simulate(config)
    data = prepare(config, np.random.default_rng(SEED))
    x, y, found = data.rows, data.labels, session.weights
    free: Any = session.plan
    if model == "lffr":
        assert gap(found, lffr(x, y, free.curvature.offset, ROUNDS)) < SHARE
        return
    if model == "improved-lffr":
        y = y / 2 + 1 / 4
        y = np.log(y / (1 - y))
    matrix = np.eye(x.shape[1]) if free.whitening is None else np.array(free.whitening.matrix)
    assert (free.whitening is None) == (model == "improved-lffr")
    lowest = free.lowest or 1 / (10 * ROUNDS)
    floor = free.floor * free.curvature_bound
    wanted = matrix @ fixed_hessian(x @ matrix, y, floor, lowest, ROUNDS)
    assert gap(found, wanted) < SHARE
    assert gap(found, matrix @ fixed_hessian(x @ matrix, y, floor, lowest, ROUNDS - 1)) > SHARE


Step = Callable[[Any, Any, Any], Any]


def own_steps(name: str, arm: table_2.Arm, rows: Any) -> Step:
    """003: the next weights without noise, polynomials evaluated at z; Algorithms 4 and 5."""
    if name == table_2.CLIPPED:
        clip = table_2.encrypted_clip(table_2.LINK.max_error)[0]

        def clipped(w: Any, x: Any, y: Any) -> Any:
            total = np.zeros_like(w)
            for row, label in zip(x, y, strict=True):
                size = np.linalg.norm(row)
                push = clip(np.array([(arm.link(np.array([row @ w]))[0] - label) * size]))[0]
                total += push * row / size
            return w - table_2.CLIP_RATE * total / len(x)

        return clipped

    def mean(w: Any, x: Any, y: Any) -> Any:
        return x.T @ (arm.link(x @ w) - y) / len(x)

    if name == table_2.OUTPUT:
        return lambda w, x, y: w - table_2.OUTPUT_RATE * mean(w, x, y)
    setting = table_2.certified_batches(rows, table_2.CREDIT.rows, table_2.BATCH, table_2.ROUNDS)[0]
    s: Any = setting.setting

    def barrier(w: Any, x: Any, y: Any) -> Any:
        pull = 2 * s.lam * s.reciprocal.polynomial(np.array([s.theta - w @ w]))[0] * w
        return w - s.learning_rate * (pull + mean(w, x, y))

    return barrier


@pytest.mark.parametrize("name", list(table_2.ARMS))
def test_private_descent_under_encryption(name: str, tmp_path: Path) -> None:
    """003, Tables 2 and 5: an iteration of Algorithm 4, of 5 and of output perturbation."""
    rows = next(
        iter(table_2.short_folds(table_2.CREDIT, Settings(quick=True, data_folder=tmp_path)))
    )
    arm = table_2.ARMS[name](rows, table_2.CREDIT.rows)
    found = table_2.trained(arm, rows, 2, secure=False)
    assert gap(found.weights, found.twin) < SHARE
    rng = np.random.default_rng(1)
    w, picked = rng.normal(size=rows.x.shape[1]), rng.choice(len(rows.x), 40, replace=False)
    x, y = rows.x[picked], rows.y[picked]
    assert gap(arm.plain(w, x, y), own_steps(name, arm, rows)(w, x, y)) < 1e-12
