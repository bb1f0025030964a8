"""Paper 004: its variants of coordinate descent, real targets, Theorem 2, the comparison."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from ciphercohort.job.config import SimulationConfig
from parties.kernel.sums.dual_steps import targets_of
from parties.reader.infer import REGRESSION_SCALING
from protocols.errors import DataError, ParameterError
from protocols.names import SECURE_AGGREGATION
from protocols.privacy.loss import mu_for_epsilon
from protocols.sums.plan import GradientPlan
from protocols.updates.coordinate import DualPlan
from sims.lab.baselines import DpSgd, dp_sgd, optimum, output_sensitivity
from sims.lab.papers.coordinate import (
    AGAIN,
    METHODS,
    Finding,
    Method,
    best_of,
    best_without_privacy,
    dual_plan,
    exact,
    published_std,
    run_method,
)
from sims.lab.papers.coordinate_baselines import (
    PrimalPlan,
    train_primal,
    train_published,
    train_sequential,
    widest,
)
from sims.lab.papers.coordinate_problems import (
    Part,
    Problem,
    from_table,
    make_problem,
    ridge_problem,
    stands_in,
    unit_rows,
)
from sims.lab.papers.data import ADULT, PHISHING, YEARS
from sims.lab.papers.item import Settings
from sims.lab.papers.p004 import figure_1 as p004_figure_1
from sims.lab.papers.p004 import figure_2 as p004_figure_2
from sims.lab.papers.p004 import figure_3 as p004_figure_3
from sims.lab.papers.p004 import table_1
from sims.lab.papers.p004 import theorem_2 as p004_theorem_2
from sims.prepare import prepare
from sims.simulation import simulate
from tests.sims.model_runs import public_schema

Array = NDArray[np.float64]


@lru_cache
def small() -> Problem:
    """Ternary columns around five hidden traits, about 6 % label noise."""
    rng, rows, columns = np.random.default_rng(0), 800, 30
    score = rng.standard_normal((rows, 5)) @ rng.standard_normal((5, columns)) / np.sqrt(5)
    score += rng.standard_normal((rows, columns)) + 0.7 * rng.standard_normal(columns)
    ternary = np.sign(score) * (np.abs(score) > 0.4)
    truth = ternary @ rng.standard_normal(columns)
    clean = np.where(truth > np.median(truth), 1.0, -1.0)
    y = np.where(rng.random(rows) < 0.06, -clean, clean)
    x = unit_rows(np.column_stack([ternary, np.ones(rows)]))
    train, test = Part(x=x[200:], y=y[200:]), Part(x=x[:200], y=y[:200])
    return make_problem("made", "logistic", "ternary", train, test, rng)


@lru_cache
def regression(rows: int = 60, features: int = 5) -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    x = unit_rows(rng.normal(size=(rows, features)))
    return x, 3 * x @ rng.normal(size=features) + 0.3 * rng.normal(size=rows) + 5


# --- real targets ---------------------------------------------------------------------------


def on_targets(**options: Any) -> SimulationConfig:
    """Sums of coordinate steps on a table with two numeric columns to predict."""
    x, y = regression()
    frame = pd.DataFrame(x, columns=list("abcde")).assign(y=y, z=-y)
    fields: dict[str, Any] = {"targets": "y", "exclude": ("z",), "update": "scd", "ridge": 0.5}
    if options.get("epsilon"):
        fields["schema"] = public_schema(frame, ["y"], exclude=("z",), **REGRESSION_SCALING)
    fields |= {"data": frame, "model": "linear", "protocol": SECURE_AGGREGATION, "seed": 3}
    return SimulationConfig(**{**fields, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"rounds": 30},
        {"rounds": 3, "epsilon": 5.0, "update": ""},
        {"rounds": 3, "epsilon": 5.0, "batches": 2, "clip": 0.2},
    ],
    ids=["no privacy", "private", "batches"],
)
def test_ridge_of_numeric_targets_by_encrypted_sums(options: dict[str, Any]) -> None:
    """Equal to its twin; without noise scikit-learn's, the penalty on rows of norm 1."""
    config = on_targets(**options)
    result = simulate(config)
    plan, private = result.plan, config.epsilon is not None
    assert isinstance(plan, GradientPlan) and plan.objective["loss"] == "ridge"
    assert result.weights.shape == plan.shape == (6, 1)
    assert result.max_abs_diff_to_twin < 1e-8
    assert (result.certificate or {}).get("satisfied", False) is private
    if private:
        return
    data = prepare(config, np.random.default_rng(3))
    assert len(np.unique(data.labels)) == len(data.rows) == 48  # numbers, not signs
    strength = 0.5 * len(data.rows) * data.schema.norm_bound**2
    best = Ridge(alpha=strength, fit_intercept=False).fit(data.rows, data.labels[:, 0]).coef_
    np.testing.assert_allclose(result.weights[:, 0], best, atol=1e-5)
    # The clip of a step: what one from zero is at most.
    curvature = DualPlan(loss="ridge", lam=0.5, rows=48, batches=1, rounds=1, clip=1.0).curvature
    assert plan.objective["clip"] == pytest.approx(1 / (1 + curvature))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"targets": "y,z", "exclude": ()}, "target=2: .* one target: run once for each"),
        ({"update": "gd"}, "update=gd: model linear by secure-aggregation takes scd"),
        ({"loss": "svm"}, "loss=svm: .* takes ridge"),
        ({"floor": 0.1}, "floor=0.1: .* inverts no curvature"),
        (
            {"model": "logistic", "targets": (), "label": "y", "learning_rate": 0.1},
            "steps of its own",
        ),
        ({"model": "improved-lffr"}, "does not train model improved-lffr"),
        ({"update": "", "batches": 2}, "batches=2 is an option of --update scd"),
    ],
)
def test_what_sums_of_numeric_targets_refuse(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        simulate(on_targets(**options))


def test_numeric_targets_of_another_loss_are_refused() -> None:
    with pytest.raises(DataError, match="logistic"):
        targets_of("logistic", np.zeros((3, 1)))
    with pytest.raises(DataError, match="one target"):
        targets_of("ridge", np.zeros((3, 2)))


# --- variants -------------------------------------------------------------------------------


def test_sequential_rows_see_each_other() -> None:
    """One row in a batch: Algorithm 1. All rows: plain coordinate ascent, at the optimum sooner."""
    x, y = regression()
    one = DualPlan(loss="ridge", lam=0.05, rows=60, batches=60, rounds=200, clip=math.inf)
    found = [
        train(one, x, y, 0.0, np.random.default_rng(2))
        for train in (train_sequential, train_published)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)
    best = Ridge(alpha=0.05 * 60, fit_intercept=False).fit(x, y).coef_
    whole = replace(one, batches=1, rounds=20)
    errors = [
        np.abs(train(whole, x, y, 0.0, np.random.default_rng(2)) - best).max()
        for train in (train_sequential, train_published)
    ]
    assert errors[0] < 1e-3 < 0.1 < errors[1]


def test_the_sequential_sensitivity_bounds_a_turned_batch() -> None:
    """Every zeta of a batch turned around: 2 C sqrt(L (L + 1)) is reached by equal rows."""
    clip, size = 0.3, 7
    moved_alpha = np.full(size, 2 * clip)
    moved_v = np.array([2 * clip * size, 0.0])
    assert math.hypot(np.linalg.norm(moved_alpha), np.linalg.norm(moved_v)) == pytest.approx(
        widest(clip, size)
    )
    rng = np.random.default_rng(3)
    for _ in range(200):
        zeta, other = (np.clip(rng.normal(size=size), -clip, clip) for _ in range(2))
        rows, others = (unit_rows(rng.normal(size=(size, 3))) for _ in range(2))
        moved = math.hypot(
            np.linalg.norm(zeta - other), np.linalg.norm(zeta @ rows - other @ others)
        )
        assert moved <= widest(clip, size)


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_the_primal_variant_reaches_the_optimum(loss: str) -> None:
    x, y = regression()
    y = y if loss == "ridge" else np.where(y > np.median(y), 1.0, -1.0)
    plan = PrimalPlan(loss=loss, lam=0.05, size=2, rounds=4000, clip=1e9)  # type: ignore[arg-type]
    found = train_primal(plan, x, y, 0.0, np.random.default_rng(4))
    if loss == "ridge":
        best = Ridge(alpha=0.05 * 60, fit_intercept=False).fit(x, y).coef_
    else:
        model = LogisticRegression(C=1 / (0.05 * 60), fit_intercept=False, tol=1e-10, max_iter=5000)
        best = model.fit(x, y).coef_[0]
    np.testing.assert_allclose(found, best, atol=1e-5)
    clipped = train_primal(replace(plan, clip=1e-3, rounds=10), x, y, 0.0, np.random.default_rng(4))
    norms = np.linalg.norm(x, axis=0)
    assert 0 < np.abs(clipped * norms).max() <= 10 * 1e-3 + 1e-12


def test_descent_without_noise_finds_the_support_vector_machine() -> None:
    problem, lam = replace(small(), loss="svm"), 0.1
    plan = DpSgd(loss="svm", lam=lam, batches=1, rounds=4000, clip=10.0, rate=0.05)
    theta = dp_sgd(plan, problem.fit.x, problem.fit.y, 0.0, np.random.default_rng(0))
    model = LinearSVC(
        C=1 / (lam * len(problem.fit.x)), loss="hinge", fit_intercept=False, max_iter=100_000
    )
    best = model.fit(problem.fit.x, problem.fit.y).coef_[0]
    least = problem.objective(best, lam)
    assert least * (1 - 1e-6) < problem.objective(theta, lam) < least * 1.01
    np.testing.assert_array_equal(exact(problem, lam), exact(problem, lam))
    assert problem.objective(exact(problem, lam), lam) < least * 1.001


# --- Theorem 2 ------------------------------------------------------------------------------


def test_theorem_2_s_lemmas() -> None:
    """Lemma 2 holds; Lemma 3 is too small by 1 + lambda N, and the recursion's floor with it."""
    plan, x, y = p004_theorem_2.problem()
    best = p004_theorem_2.least(x, y, plan.lam)
    at_best = p004_theorem_2.dual_objective(x, y, plan.lam, best)
    rng = np.random.default_rng(0)
    for _ in range(20):
        moved = best + 0.01 * rng.normal(size=best.size)
        assert p004_theorem_2.dual_objective(x, y, plan.lam, moved) > at_best
    primal = Ridge(alpha=plan.lam * plan.rows, fit_intercept=False).fit(x, y)
    np.testing.assert_allclose(plan.theta(x.T @ best), primal.coef_, atol=1e-10)
    found = p004_theorem_2.run(Settings(quick=True)).rows
    fell, rise, noisy = found[0], found[1], found[2]
    assert fell.ours is not None and fell.paper is not None and fell.ours >= fell.paper
    true = p004_theorem_2.true_increase(plan, p004_theorem_2.SIGMA)
    assert rise.ours == pytest.approx(true, rel=0.05)
    assert rise.ours is not None and rise.paper is not None and rise.ours > 10 * rise.paper
    start = p004_theorem_2.courses(replace(plan, rounds=1), x, y, 0.0, 1, noisy_v=False)[0]
    right = p004_theorem_2.bound(plan, float(start), true)[-1]
    assert noisy.ours is not None and noisy.paper is not None
    assert noisy.paper < noisy.ours <= right


# --- the comparison -------------------------------------------------------------------------


def test_problems_have_unit_rows_in_disjoint_parts(tmp_path: Path) -> None:
    settings = Settings(quick=True, data_folder=tmp_path)
    tables = (from_table(ADULT, "age", settings), from_table(ADULT, None, settings))
    for problem in (small(), *tables):
        for part in (problem.fit, problem.validation, problem.test):
            np.testing.assert_allclose(np.linalg.norm(part.x, axis=1), 1.0, atol=1e-12)
        tuned = len(problem.validation.x) / (len(problem.fit.x) + len(problem.validation.x))
        assert abs(tuned - 0.25) < 0.01
        # a made table has nothing to say of its first column
        assert problem.loss == "ridge" or best_without_privacy(problem) < problem.trivial()
        seen = {row.tobytes() for row in problem.fit.x}
        shared = sum(row.tobytes() in seen for row in problem.test.x)
        assert problem.name == "made" or shared == 0
    assert [p.loss for p in tables] == ["ridge", "svm"]
    assert np.abs(tables[0].fit.y).max() <= 3 and set(tables[1].fit.y) == {-1.0, 1.0}
    ternary = pd.DataFrame(np.random.default_rng(0).integers(-1, 2, (40, 2)), columns=["a", "y"])
    ternary["y"] = ternary["y"].where(ternary["y"] != 0, 1)
    ternary.to_csv(tmp_path / "phishing.csv", index=False)
    given = from_table(PHISHING, None, Settings(data_folder=tmp_path), "logistic")
    assert given.fit.x.shape[1] == 4 and len(given.test.x) == 10  # three values and a bias
    assert not unit_rows(np.zeros((2, 3))).any()


def test_years_of_songs_are_read_as_published_where_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UCI's file: no header, the year first, the last tenth to judge by."""
    monkeypatch.setattr("sims.lab.papers.coordinate_problems.YEARS", replace(YEARS, train=30))
    settings = Settings(quick=True, data_folder=tmp_path)
    assert stands_in(ridge_problem(settings)) and not YEARS.found(tmp_path)
    values = np.random.default_rng(0).normal(size=(40, 90))
    years = 1960 + np.arange(40)
    lines = (",".join([str(y), *map(str, x)]) for y, x in zip(years, values, strict=True))
    (tmp_path / YEARS.file).write_text("\n".join(lines))
    problem = ridge_problem(settings)
    assert stands_in(problem) == () and problem.loss == "ridge"
    assert problem.name == "YearPredictionMSD-year" and problem.fit.x.shape[1] == 91
    spread = years[:30].std(ddof=1)
    np.testing.assert_allclose(problem.test.y, np.minimum((years[30:] - 1974.5) / spread, 3))
    assert len(problem.fit.x) + len(problem.validation.x) == 30


@pytest.mark.parametrize("method", [m for m in METHODS if m.effort == 1], ids=lambda m: m.name)
def test_with_little_noise_every_method_learns(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But those of the widest sensitivity, which are near a constant, as the paper says.

    Secret batches at q times the noise of full ones, which is nearly theirs in many rounds: exact
    accounting, minutes of it, has tests of its own.
    """

    def amplified(*, rate: float, rounds: int, **promise: float) -> float:
        return 2 * rate * math.sqrt(rounds) / mu_for_epsilon(**promise)

    for user in ("sims.lab.baselines", "protocols.updates.coordinate"):
        monkeypatch.setattr(f"{user}.poisson_noise_multiplier", amplified)
    problem = small()
    found = run_method(problem, method, 4.0, delta=1e-2, tries=5, seeds=3)
    assert found.errors.shape == (3,)
    weak = method.name in ("seqDP-SCD", "primal DP-SCD")
    assert (found.errors.mean() > 0.7 * problem.trivial()) == weak
    assert found.tried == min(5 * method.effort, found.available)


def test_choices_are_distinct_and_repeat() -> None:
    for method in METHODS:
        once, again = (method.choices(30, np.random.default_rng(3)) for _ in range(2))
        assert once == again
        assert len({tuple(c.values()) for c in once}) == len(once)
        assert all(c[k] in v for c in once for k, v in method.values.items())
    drawn = {m.name: m.choices(9, np.random.default_rng(0)) for m in METHODS}
    assert drawn["DP-SCD, secret coins"] == drawn["DP-SCD as published"]  # the same for all of them
    assert drawn["DP-SGD"] == drawn["DP-SGD, 4 x the tries"][:9]
    problem, method = small(), METHODS[1]
    others = (run_method(problem, m, 1.0, delta=1e-5, tries=1, seeds=2) for m in METHODS[1:3])
    assert len({tuple(found.choice.items()) for found in others}) == 1
    one, two = (run_method(problem, method, 1.0, delta=1e-5, tries=2, seeds=2) for _ in range(2))
    np.testing.assert_array_equal(one.errors, two.errors)
    assert one.errors[0] != one.errors[1]


def test_a_lucky_run_is_not_chosen() -> None:
    """Least in its first run alone; beyond the first few nothing is run again."""
    courses = {k: iter([0.3 + 0.01 * k, *[0.5] * AGAIN]) for k in range(5)}
    courses[1] = iter([0.31, *[0.2] * AGAIN])
    courses[0] = iter([0.1, *[0.9] * AGAIN])
    courses[4] = iter([math.nan])
    choices = [{"k": float(k)} for k in courses]
    assert best_of(choices, lambda choice: next(courses[int(choice["k"])])) == {"k": 1.0}
    assert [len(list(course)) for course in courses.values()] == [0, 0, 0, AGAIN, 0]


def test_errors_that_grow_with_epsilon_are_counted() -> None:
    def finding(method: Method, epsilon: float, *errors: float) -> Finding:
        return Finding(
            method=method, epsilon=epsilon, errors=np.array(errors), tried=1, available=1, choice={}
        )

    first, second = METHODS[:2]
    found = [finding(first, 0.1, 0.3, 0.3), finding(first, 1.0, 0.4, 0.4)]
    found += [finding(second, 0.1, 0.2, 0.2), finding(second, 1.0, 0.1, 0.5)]
    steps = p004_figure_1.rises(found)
    np.testing.assert_allclose(steps, [(0.1, 0.0), (0.1, 0.2)], atol=1e-12)
    words = p004_figure_1.rising([*steps, (-0.1, 0.0)])
    assert "in 2 of 3 places" in words and "two standard errors in 1:" in words


def test_the_clip_is_in_units_of_a_step() -> None:
    choice = {"lambda": 1e-3, "batches": 4.0, "epochs": 3.0, "clip": 0.3}
    plan = dual_plan(small(), choice, "poisson")
    assert plan.rounds == 12
    assert plan.clip * (1 + plan.curvature) == pytest.approx(0.3)


def test_figures_2_and_3_say_what_the_paper_says_of_noise(tmp_path: Path) -> None:
    settings = Settings(quick=True, data_folder=tmp_path)
    ends = {r.quantity.split(":")[0]: r.ours for r in p004_figure_2.run(settings).rows}
    assert list(ends) == [
        *("SCD", "SGD", "DP-SCD, epsilon 0.1", "DP-SGD, epsilon 0.1"),
        *("DP-SCD, epsilon 1", "DP-SGD, epsilon 1"),
    ]
    found = [value for value in ends.values() if value is not None]
    assert 0 <= found[0] < found[4] < found[2]
    assert 0 <= found[1] < found[5] < found[3]
    rows = p004_figure_3.run(settings).rows
    assert len(rows) == 5 and all(row.ours and row.ours > 0 for row in rows)


# --- Table 1 --------------------------------------------------------------------------------


def test_the_noise_of_output_perturbation_costs_what_its_curvature_says() -> None:
    """Half of trace(H Sigma), H of the optimum: the excess that the factors of Table 1 are of."""
    size = replace(table_1.BASE, rows=4000, epsilon=2.0)
    x, y, _ = table_1.problem(size)
    best = optimum("logistic", table_1.RIDGE, x, y)
    p = expit(x @ best)
    bend = (x.T * (p * (1 - p))) @ x / len(x) + table_1.RIDGE * np.eye(size.columns)
    mu = mu_for_epsilon(epsilon=size.epsilon, delta=table_1.DELTA)
    std = output_sensitivity("logistic", table_1.RIDGE, size.rows) / mu
    found = table_1.excess(table_1.by_output, size, 400)
    assert found.mean() == pytest.approx(std**2 * np.trace(bend) / 2, rel=0.1)


def test_alpha_of_coordinate_descent_gains_nothing_from_rows() -> None:
    """Within the noise of all rounds by the derived increase, far beyond the printed one."""
    for size in (replace(table_1.BASE, rows=200), replace(table_1.BASE, rows=800)):
        plan = table_1.coordinate_plan(size)
        std = published_std(plan, size.epsilon, table_1.DELTA)
        dual, released = table_1.coordinate_excess(size, 20)
        most = plan.rounds * p004_theorem_2.true_increase(plan, std)
        assert 10 * plan.rounds * p004_theorem_2.printed_increase(plan, std) < dual.mean() < most
        assert (released > 0).all()
    orders = {name: order(table_1.BASE) for name, order in table_1.ORDERS.items()}
    assert orders[table_1.UPDATES] == pytest.approx(1e-5 * math.log(1000))
    assert orders[table_1.OUTPUT] == orders[table_1.OBJECTIVE] == pytest.approx(1e-5)
    assert orders[table_1.DUAL] == pytest.approx(math.log(4) / 1000)
