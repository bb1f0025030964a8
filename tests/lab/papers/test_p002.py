"""Paper 002: published curves at the published noise, T', schedules, the Laplace scale, rates."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from protocols.updates.strongly_convex import MultiStage
from sims.lab.papers.accelerated import (
    METHODS,
    NEGATIVES,
    ROUNDS,
    Cell,
    Problem,
    Study,
    Trace,
    run_cells,
    synthetic_problem,
)
from sims.lab.papers.heavy_ball import (
    exact_error,
    heavy_ball_rate,
    printed_bound,
    printed_rate,
    stationary_variances,
)
from sims.lab.papers.item import Settings
from sims.lab.papers.p002 import figure_1 as p002_figure_1
from sims.lab.papers.p002 import figure_2 as p002_figure_2
from sims.lab.papers.p002 import figure_3 as p002_figure_3
from sims.lab.papers.p002 import figure_4 as p002_figure_4
from sims.lab.papers.p002 import proposition_3_3, proposition_3_4, theorem_4_1
from tests.protocols.privacy.checks import laplace_accepted


@lru_cache
def _study() -> Study:
    """n = 5000 at epsilon = 20 has the noise, S_1 / (n eps), of n = 1e5 at epsilon = 1."""
    return p002_figure_3.study_of(5000)


@lru_cache
def _traces(rounds: int, published: bool = False, batch: int | None = None) -> list[Trace]:
    study = _study().as_published() if published else _study()
    cells = [Cell(method=m, rounds=rounds, step_scale=1.0, batch=batch) for m in METHODS]
    return run_cells(study, cells, runs=6, seed=1)


def _last(traces: list[Trace]) -> dict[str, float]:
    return {x.cell.method: float(x.log_mean[-1]) for x in traces}


def test_the_optimum_is_scikit_learn_s() -> None:
    problem = _study().problem
    labels = np.sign(problem.signed[:, 0])
    model = LogisticRegression(
        C=1 / (2 * problem.penalty * len(labels)), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(problem.signed * labels[:, None], labels)
    assert np.abs(model.coef_[0] - problem.optimum()).max() < 1e-5
    assert _study().best <= float(problem.objective(model.coef_)[0]) + 1e-12


def test_both_labels_are_drawn_and_the_curves_begin_where_the_paper_s_do() -> None:
    for seed in range(3):
        problem = synthetic_problem(np.random.default_rng(seed), rows=20_000)
        share = float((problem.signed[:, 0] < 0).mean())
        assert NEGATIVES[0] - 0.01 <= share <= NEGATIVES[1] + 0.01
        study = Study.of(problem, epsilon=5.0)
        start = problem.objective(np.full((1, 20), 10.0))[0] - study.best
        assert abs(math.log10(start) - 1.46) < 0.03


@pytest.mark.parametrize(("rounds", "batch"), [(100, None), (1000, None), (100, 1000)])
def test_published_ends_at_the_published_noise(rounds: int, batch: int | None) -> None:
    """Figures 3 and 4 at c = 1; a subsample of 5000 instead of 100,000 rows leaves 10 % less noise.

    At epsilon's noise the methods that noise stops are log10(2) = 0.30 higher.
    """
    table = (p002_figure_4 if batch else p002_figure_3).ENDS[1.0]
    column = [row[ROUNDS.index(rounds)] for row in table]
    found = _last(_traces(rounds, published=True, batch=batch))
    for method, paper in zip(METHODS, column, strict=True):
        assert abs(found[method] - paper) < 0.2, (method, found[method], paper)
    right = _last(_traces(rounds, batch=batch))
    for method in METHODS[not (rounds > 100) :]:
        assert 0.08 < right[method] - found[method] < 0.5, method


def test_many_iterations_hurt_momentum_without_division() -> None:
    few, many = _last(_traces(100)), _last(_traces(1000))
    assert sorted(many, key=many.__getitem__)[2:4] == ["MASG", "GD"]
    assert all(many[method] > few[method] + 0.5 for method in ("HB", "NAG", "MASG"))
    assert max(few, key=few.__getitem__) == "GD"
    assert {min(METHODS, key=x.__getitem__) for x in (few, many)} <= {"NAG-opt", "MASG-opt"}


def test_t_prime_is_the_formula_s_and_the_published_search_s() -> None:
    """(32): 106, 303, 89; the published search, four times E_0: 136, 396, 89."""
    smoothness = 20 / 4 + 1 / 12 + 0.02
    problem = Problem(signed=np.ones((100_000, 20)), penalty=0.01, l1_bound=20.0)
    study = replace(_study(), problem=problem, smoothness=smoothness, sensitivity=40.0, epsilon=1.0)
    for each, wanted in ((study, (106, 303, 89)), (study.as_published(), (136, 396, 89))):
        cells = (("NAG-opt", 1.0), ("NAG-opt", 0.1), ("MASG-opt", 1.0))
        found = [each.rule(Cell(method=m, rounds=1000, step_scale=c))[0].rounds for m, c in cells]
        assert tuple(found) == wanted


@pytest.mark.parametrize("batch", [None, 250])
def test_the_budget_is_spent_exactly(batch: int | None) -> None:
    """sum_t ln(1 + q (e^(S / (m b_t)) - 1)) = epsilon."""
    rows = len(_study().problem.signed)
    m = batch or rows
    for method in METHODS:
        cell = Cell(method=method, rounds=1000, step_scale=1.0, batch=batch)
        rule, scales = _study().rule(cell)
        spent = np.log1p(m / rows * np.expm1(_study().sensitivity / (m * scales))).sum()
        assert math.isclose(spent, 20.0, rel_tol=1e-12)
        assert rule.rounds == len(scales)
        assert (rule.rounds < 1000) == method.endswith("-opt")
        assert isinstance(rule, MultiStage) == method.startswith("MASG")
        assert (np.ptp(scales) > 0) == method.endswith("-opt")


def test_a_batch_is_drawn_without_replacement() -> None:
    """All rows give the full gradient; half of them another one, its mean the full one."""
    problem = synthetic_problem(np.random.default_rng(5), rows=400, features=3)
    weights = np.random.default_rng(6).standard_normal((2, 3))
    full = problem.data_gradient(weights)
    rng = np.random.default_rng(7)
    np.testing.assert_allclose(problem.batch_gradient(weights, 400, rng), full, rtol=1e-12)
    found = np.array([problem.batch_gradient(weights, 200, rng) for _ in range(2000)])
    assert np.ptp(found[:, 0, 0]) > 0.01
    assert np.abs(found.mean(axis=0) - full).max() < 5 * found.std() / math.sqrt(2000)


def test_sensitivity_bounds_replacing_a_row() -> None:
    """2 sup ||u||_1: random neighbours stay below it, opposite corners attain it."""
    rng, study = np.random.default_rng(4), _study()
    bound = study.problem.l1_bound
    w = rng.standard_normal((2000, 4))
    rows = rng.dirichlet(np.ones(4), (2, 2000)) * rng.choice([-bound, bound], (2, 2000, 4))
    residual = 1 / (1 + np.exp(-np.einsum("ijk,jk->ij", rows, w))) - rng.integers(0, 2, (2, 2000))
    gap = np.abs(residual[0, :, None] * rows[0] - residual[1, :, None] * rows[1]).sum(axis=1)
    assert gap.max() <= study.sensitivity
    corner = np.array([bound, 0, 0, 0])
    gradient = corner / (1 + np.exp(-300.0 * bound))  # the label is wrong with certainty
    assert math.isclose(np.abs(2 * gradient).sum(), study.sensitivity, rel_tol=1e-9)


class _Still(Problem):
    """No data: the released weight itself is the objective."""

    def data_gradient(self, weights: np.ndarray) -> np.ndarray:
        return np.zeros_like(weights)

    def objective(self, weights: np.ndarray) -> np.ndarray:
        return weights[:, 0]


def test_the_noise_has_the_laplace_scale_not_its_std() -> None:
    """One step of GD is (1 - alpha mu) 10 - alpha noise; b as std, sqrt(2) too small, is caught."""
    still = _Still(signed=_study().problem.signed, penalty=0.01, l1_bound=20.0)
    study = replace(_study(), problem=still, best=0.0)
    cell = Cell(method="GD", rounds=1, step_scale=1.0)
    trace = study.run(cell, runs=20_000, rng=np.random.default_rng(4))
    alpha = 1 / study.smoothness
    noise = (10 * (1 - alpha * study.mu) - trace.suboptimality[-1]) / alpha
    scale = 2 * 20 / (5000 * 20)
    assert laplace_accepted(noise, scale)
    assert not laplace_accepted(noise, scale / math.sqrt(2))
    assert not laplace_accepted(noise, 1.05 * scale)


def test_the_schedule_of_figure_2() -> None:
    found = {
        (row.quantity.split(",")[0], int(row.quantity.split("= ")[-1])): row
        for row in p002_figure_2.run(Settings(quick=True)).rows
    }
    ends = {("K = 2", 1): 65.291, ("K = 2", 53): 43.187, ("K = 4", 1): 343.447}
    for key, value in {**ends, ("K = 4", 293): 205.276}.items():
        assert found[key].ours == pytest.approx(value, abs=1e-3)
    # the published curve jumps one iteration early, which moves all by 1 % and t = 13 by a quarter
    assert found["K = 4", 13].published == pytest.approx(
        2 ** (1 / 3) * found["K = 4", 13].ours, rel=4e-3
    )
    assert found["K = 4", 1].published == pytest.approx(342.24, abs=0.01)


def test_figure_1_is_the_published_curve() -> None:
    rows = p002_figure_1.run(Settings(quick=True)).rows
    assert len(rows) == 9
    for row in rows:
        assert row.paper is not None and row.published is not None and row.ours is not None
        assert abs(row.published - row.paper) < (0.006 if "momentum" in row.quantity else 1e-3)
        assert row.ours < row.published  # the true rate wants less momentum; the bound is above


def test_heavy_ball_s_rate_is_measured_and_the_printed_one_is_nesterov_s() -> None:
    eigenvalues, alpha = (0.1, 1.0), 1.0
    for beta in (0.2, 0.7):
        quiet = [
            exact_error(eigenvalues, alpha, beta, rounds=t, std=0.0, start=10.0) for t in (400, 440)
        ]
        measured = (quiet[1] / quiet[0]) ** (1 / 80)
        true = heavy_ball_rate(eigenvalues, alpha, beta)
        assert measured == pytest.approx(true, abs=0.01)
        assert printed_rate(eigenvalues, alpha, beta) < true - 0.03 or beta < 0.3
    assert heavy_ball_rate(eigenvalues, alpha, 0.7) == pytest.approx(math.sqrt(0.7))
    assert printed_rate(eigenvalues, alpha, 0.7) == pytest.approx(math.sqrt(0.7 * 0.9))


def test_noise_ends_at_the_stationary_variance_and_below_the_bound() -> None:
    eigenvalues = (0.1, 1.0)
    for alpha, beta in ((0.1, 0.3), (0.5, 0.6), (1.0, 0.7)):
        setting = {"rounds": 1500, "std": 0.3}
        variances = stationary_variances(eigenvalues, alpha, beta, 0.3)
        error = exact_error(eigenvalues, alpha, beta, start=0.0, **setting)
        assert error == pytest.approx(float(variances @ eigenvalues) / 2, rel=1e-6)
        bound = printed_bound(eigenvalues, alpha, beta, start=10.0, **setting)
        assert bound >= 2 * error * (1 - 1e-9)


def test_proposition_3_3_bounds_what_is_drawn() -> None:
    """Batches of 50 of 200 rows: the covariance by (39) is that of many draws; bounds hold."""
    problem = synthetic_problem(np.random.default_rng(5), rows=200, features=3)
    weights = np.array([0.5, -1.0, 0.2])
    gradients = proposition_3_3.row_gradients(problem, weights)
    np.testing.assert_allclose(gradients.mean(axis=0), problem.data_gradient(weights[None])[0])
    rng = np.random.default_rng(6)
    drawn = np.array([gradients[rng.permutation(200)[:50]].mean(axis=0) for _ in range(20_000)])
    found = proposition_3_3.sampling_covariance(gradients, 50)
    np.testing.assert_allclose(np.cov(drawn.T), found, rtol=0.1, atol=1e-5)
    bound = proposition_3_3.Spread.of(6.0, batch=50, rows=200, features=3)
    assert np.linalg.eigvalsh(found)[-1] + 2 * bound.scale**2 <= bound.norm < bound.printed
    assert np.trace(found) + 6 * bound.scale**2 <= bound.second_moment


def test_the_matrix_inequality_certifies_gradient_descent_s_rate_and_momentum_s() -> None:
    """Known: 1 - alpha mu for alpha <= 2 / (mu + L); whatever is certified has positive blocks."""
    for alpha, beta in ((0.5, 0.0), (1.0, 0.1)):
        lmi = proposition_3_4.HeavyBallLmi(alpha=alpha, beta=beta)
        rate, true = lmi.rate(), heavy_ball_rate((0.1, 1.0), alpha, beta)
        assert rate is not None and true <= rate < true + 2e-4
        inside = lmi.inside(rate)
        assert inside is not None and lmi.inside(true - 1e-3) is None
        blocks = lmi.blocks(rate)
        whole = blocks[0] + sum(x * block for x, block in zip(inside, blocks[1:], strict=True))
        assert np.linalg.eigvalsh(whole)[0] > 0
        printed, mended = proposition_3_4.bounds(lmi, rate, 2)
        end = exact_error((0.1, 1.0), alpha, beta, rounds=250, std=0.01, start=10.0)
        assert end <= mended <= printed
    assert proposition_3_4.HeavyBallLmi(alpha=1.0, beta=0.7).rate() is None


def test_the_inequality_says_what_a_step_does_to_the_lyapunov_function() -> None:
    """On logistic-like F with noise-free steps: V+ <= rho^2 V from random pairs, B = -alpha."""
    lmi = proposition_3_4.HeavyBallLmi(alpha=0.5, beta=0.1)
    rate = lmi.rate()
    assert rate is not None
    inside = lmi.inside(rate)
    assert inside is not None
    one, both, two, _ = inside

    def objective(x: np.ndarray) -> np.ndarray:
        return np.asarray(0.05 * x**2 + 3.6 * (np.logaddexp(x / 2, -x / 2) - math.log(2)))

    def lyapunov(x: np.ndarray, last: np.ndarray) -> np.ndarray:
        return one * x**2 + 2 * both * x * last + two * last**2 + objective(x)

    x, last = np.random.default_rng(3).normal(scale=4, size=(2, 5000))
    gradient = 0.1 * x + 1.8 * np.tanh(x / 2)
    after = lyapunov(1.1 * x - 0.1 * last - 0.5 * gradient, x)
    assert (after <= rate**2 * lyapunov(x, last) * (1 + 1e-9)).all()


def test_theorem_4_1_fails_as_printed_and_holds_with_twice_the_start() -> None:
    broken = 0
    for alpha in theorem_4_1.STEPS:
        for rounds in (1, 5, 20, 200):
            end = theorem_4_1.truth(alpha, rounds, 0.01)
            assert end <= theorem_4_1.bound(alpha, rounds, 0.01, 2)
            broken += end > theorem_4_1.bound(alpha, rounds, 0.01, 1)
    assert broken
    quiet = [theorem_4_1.truth(1.0, t, 0.0) for t in (0, 1)]
    assert quiet[1] / quiet[0] == pytest.approx((1 - theorem_4_1.MU) ** 2)
