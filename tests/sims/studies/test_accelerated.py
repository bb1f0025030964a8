"""The accelerated study on a small problem of equal noise: its order, its noise, its files."""

from __future__ import annotations

import csv
import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy.optimize import approx_fprime
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from protocols.updates.strongly_convex import MultiStage
from sims.studies import accelerated
from sims.studies.accelerated import METHODS, Cell, Study, Trace, run_cells, table_lines
from sims.studies.synthetic import Problem, synthetic_problem
from tests.protocols.privacy.checks import laplace_accepted


@lru_cache
def _study() -> Study:
    """n = 5000 at epsilon = 20 has the noise, S_1 / (n eps), of n = 1e5 at epsilon = 1."""
    return Study.of(synthetic_problem(np.random.default_rng(0), rows=5000), epsilon=20.0)


@lru_cache
def _traces(rounds: int) -> list[Trace]:
    cells = [Cell(method=m, rounds=rounds, step_scale=1.0) for m in METHODS]
    return run_cells(_study(), cells, runs=12, seed=1)


def _ordering(rounds: int) -> list[str]:
    """Methods of one setting, the smallest final mean suboptimality first."""
    return [x.cell.method for x in sorted(_traces(rounds), key=lambda x: float(x.log_mean[-1]))]


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_the_objective_and_its_gradient() -> None:
    problem = synthetic_problem(np.random.default_rng(2), rows=9000, features=4)
    weights = np.random.default_rng(3).standard_normal((3, 4)) * 5
    gradients = problem.data_gradient(weights) + 2 * problem.penalty * weights
    for w, value, gradient in zip(weights, problem.objective(weights), gradients, strict=True):
        direct = np.logaddexp(0.0, -problem.signed @ w).mean() + problem.penalty * w @ w
        assert math.isclose(value, direct, rel_tol=1e-12)
        rough = approx_fprime(w, lambda v: float(problem.objective(v[None])[0]), 1e-6)
        assert np.abs(gradient - rough).max() < 1e-4


def test_the_optimum_is_scikit_learn_s() -> None:
    problem = _study().problem
    labels = np.sign(problem.signed[:, 0])
    model = LogisticRegression(
        C=1 / (2 * problem.penalty * len(labels)), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(problem.signed * labels[:, None], labels)
    assert np.abs(model.coef_[0] - problem.optimum()).max() < 1e-5
    assert _study().best <= float(problem.objective(model.coef_)[0]) + 1e-12


def test_many_iterations_part_the_methods() -> None:
    """T = 1000: -1.9 (both -opt), -0.7, -0.5, 0.4, 0.4, with standard errors of 0.03 to 0.05."""
    order = _ordering(1000)
    assert set(order[:2]) == {"NAG-opt", "MASG-opt"}
    assert order[2:4] == ["MASG", "GD"]
    last = {x.cell.method: float(x.log_mean[-1]) for x in _traces(1000)}
    for method, expected in zip(METHODS, accelerated.EXPECTED[1000], strict=True):
        assert abs(last[method] - expected) < 0.25, method


def test_few_iterations_suit_momentum() -> None:
    order = _ordering(100)
    assert set(order[:2]) == {"NAG-opt", "MASG-opt"}
    assert order[-1] == "GD"
    last = {x.cell.method: float(x.log_mean[-1]) for x in _traces(100)}
    for method, expected in zip(METHODS[1:], accelerated.EXPECTED[100][1:], strict=True):
        assert abs(last[method] - expected) < 0.25, method


def test_more_iterations_hurt_undivided_momentum() -> None:
    for method in ("HB", "NAG", "MASG"):
        few, many = (
            next(x for x in _traces(t) if x.cell.method == method).log_mean[-1] for t in (100, 1000)
        )
        assert many > few + 0.5


def test_optimised_runs_stop_early_and_the_budget_is_spent_exactly() -> None:
    for method in METHODS:
        rule, scales = _study().rule(Cell(method=method, rounds=1000, step_scale=1.0))
        assert math.isclose((_study().sensitivity / scales).sum(), 20.0, rel_tol=1e-12)
        assert rule.rounds == len(scales)
        assert (rule.rounds < 1000) == method.endswith("-opt")
        assert isinstance(rule, MultiStage) == method.startswith("MASG")
        assert (np.ptp(scales) > 0) == method.endswith("-opt")


def test_sensitivity_bounds_replacing_a_row() -> None:
    """2 sup ||u||_1 / n: random neighbours stay below it, opposite corners attain it."""
    rng, study = np.random.default_rng(4), _study()
    n, bound = len(study.problem.signed), study.problem.l1_bound
    w = rng.standard_normal((2000, 4))
    rows = rng.dirichlet(np.ones(4), (2, 2000)) * rng.choice([-bound, bound], (2, 2000, 4))
    residual = 1 / (1 + np.exp(-np.einsum("ijk,jk->ij", rows, w))) - rng.integers(0, 2, (2, 2000))
    gap = np.abs(residual[0, :, None] * rows[0] - residual[1, :, None] * rows[1]).sum(axis=1) / n
    assert gap.max() <= study.sensitivity
    far = np.array([300.0, 0, 0, 0])  # the label is wrong with certainty
    corner = np.array([bound, 0, 0, 0])
    gradient = corner / (1 + np.exp(-corner @ far))
    moved = np.abs(gradient - (-gradient)).sum() / n
    assert math.isclose(moved, study.sensitivity, rel_tol=1e-9)


class _Still(Problem):
    """No data: the released weight itself is the objective."""

    def data_gradient(self, weights: np.ndarray) -> np.ndarray:
        return np.zeros_like(weights)

    def objective(self, weights: np.ndarray) -> np.ndarray:
        return weights[:, 0]


def test_the_noise_has_the_laplace_scale_not_its_std() -> None:
    """One step of GD is (1 - alpha mu) 10 - alpha noise; b as std, sqrt(2) too small, is caught."""
    whole = _study()
    still = _Still(signed=whole.problem.signed, penalty=0.01, l1_bound=20.0)
    study = Study(
        problem=still,
        mu=whole.mu,
        smoothness=whole.smoothness,
        sensitivity=whole.sensitivity,
        epsilon=whole.epsilon,
        best=0.0,
    )
    cell = Cell(method="GD", rounds=1, step_scale=1.0)
    trace = study.run(cell, runs=20_000, rng=np.random.default_rng(4))
    alpha = 1 / whole.smoothness
    noise = (10 * (1 - alpha * whole.mu) - trace.suboptimality[-1]) / alpha
    scale = 2 * 20 / (5000 * 20)
    assert laplace_accepted(noise, scale)
    assert not laplace_accepted(noise, scale / math.sqrt(2))
    assert not laplace_accepted(noise, 1.05 * scale)


def test_jobs_change_nothing() -> None:
    cells = [Cell(method=m, rounds=8, step_scale=0.1) for m in METHODS]
    once, again = (run_cells(_study(), cells, runs=2, seed=5, jobs=j) for j in (1, 3))
    for a, b in zip(once, again, strict=True):
        assert a.cell == b.cell
        assert np.array_equal(a.suboptimality, b.suboptimality)


def test_the_table_names_what_was_found() -> None:
    lines = list(table_lines(_study(), _traces(100)))
    assert "n=5,000 d=20 epsilon=20" in lines[0]
    gd, masg = (float(_traces(100)[i].log_mean[-1]) for i in (0, 3))
    assert f"{gd:.2f}" in lines[3]
    assert f"{masg:.2f}" in lines[3]
    assert "expected" in lines[4]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerated.all_cells, "__defaults__", ((5, 9), (0.1, 1.0)))
    app = typer.Typer()
    app.command()(accelerated.main)
    flags = ["--out", str(tmp_path / "new"), "--runs", "2", "--rows", "300", "--jobs", "2"]
    result = CliRunner().invoke(app, flags)
    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "new").iterdir()}
    figures = {f"suboptimality_c_{c}.{kind}" for c in ("0.1", "1") for kind in ("svg", "png")}
    assert names == figures | {"traces.csv", "results.csv", "table.txt"}
    rows = _rows(tmp_path / "new" / "results.csv")
    assert len(rows) == 2 * 2 * len(METHODS)
    assert {row["iterations"] for row in rows if row["method"] == "HB"} == {"5", "9"}
    assert (tmp_path / "new" / "table.txt").read_text().strip() in result.stdout.replace("\r", "")
