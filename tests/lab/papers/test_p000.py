"""The quadratic-gradient paper: its rules, its folds, the optimum by scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from parties.reader.shard import encode_shard
from protocols.errors import DataError, ParameterError
from protocols.rows.curvature import Curvature, largest_row_sum
from protocols.rows.training import PlainGradient, train_plain
from protocols.updates.adaptive import Adagrad, Adam
from protocols.updates.momentum import Nesterov
from protocols.updates.quadratic import QuadraticNesterov
from protocols.updates.quadratic_descent import QuadraticDescent
from sims.lab.papers import rules
from sims.lab.papers.curves import unit_rows
from sims.lab.papers.data import fold_numbers
from sims.lab.papers.folds import LINK, Table, plain_folds, unit_schema
from sims.lab.papers.p000 import fixed_hessian, rates
from sims.lab.papers.p000.table_2 import distance

STEPS = 6


def frame(rows: int = 61) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.uniform([0, -3, 10], [1, 5, 90], (rows, 3))
    score = 4 * (x[:, 0] - 0.5) + 0.5 * (x[:, 1] - 1)
    found = pd.DataFrame(x, columns=["a", "b", "c"])
    found["y"] = (score + rng.logistic(size=rows) > 0).astype(int)
    return found


def course(rule: Any, rows: Any, signs: Any, inverse: Any = 1.0) -> list[Any]:
    """w after every step, of a rule of `protocols.updates` on the mean gradient."""
    seen: list[Any] = []
    noise = np.zeros((rule.rounds, rows.shape[1]))
    gradient = PlainGradient(rows, (signs + 1) / 2, noise, expit, inverse)
    train_plain(rule, gradient, rows.shape[1], lambda t, w: seen.append(w))
    return seen


def test_the_papers_rules_are_those_that_run_under_encryption() -> None:
    """The sum's gradient over B is the mean's over B / n; eps = 1e-8 apart from nothing else."""
    rows, signs = unit_rows(frame(), "y")
    n, d = rows.shape
    bound = rules.curvature(rows)
    given = Curvature.for_rows(largest_row_sum(d, columns=[1.0] * d), offset=1e-2)
    fields: Any = {"rounds": STEPS, "curvature": given}
    inverse = n / bound
    descent = QuadraticDescent(**fields, learning_rate=1.5)
    pairs = [
        (rules.enhanced(rows, signs, STEPS), QuadraticNesterov(**fields), inverse),
        (rules.ascent(rows, signs, STEPS, 1.5, bound), descent, inverse),
        (
            rules.nesterov(rows, signs, STEPS, lambda t: 2.0, first=1.0),
            Nesterov(rounds=STEPS, learning_rate=2.0),
            1.0,
        ),
        # Adagrad and Adam do not see the gradient's scale, but for eps.
        (rules.adagrad(rows, signs, STEPS, 0.01), Adagrad(rounds=STEPS, learning_rate=0.01), 1.0),
        (rules.adam(rows, signs, STEPS, 0.001), Adam(rounds=STEPS, learning_rate=0.001), 1.0),
    ]
    for paper, rule, factor in pairs:
        for ours, theirs in zip(course(rule, rows, signs, factor), paper, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-9)


def test_enhanced_nesterov_reaches_the_optimum_of_scikit_learn() -> None:
    rows, signs = unit_rows(frame(400), "y")
    fitted = LogisticRegression(C=1e9, fit_intercept=False, tol=1e-10, max_iter=1000)
    best = fitted.fit(rows, signs).coef_[0]
    np.testing.assert_allclose(rules.optimum(rows, signs), best, rtol=1e-3)
    least = rules.mean_likelihood(best, rows, signs)
    *_, last = rules.enhanced(rows, signs, 3000)
    assert least - rules.mean_likelihood(last, rows, signs) < 1e-5
    # Four steps are further than four of the plain gradient at the rate 1 / L.
    *_, four = rules.enhanced(rows, signs, 4)
    *_, plain = rules.ascent(rows, signs, 4, 4 / np.linalg.eigvalsh(rows.T @ rows)[-1])
    gaps = [least - rules.mean_likelihood(w, rows, signs) for w in (four, plain)]
    assert gaps[0] < gaps[1]


@pytest.mark.parametrize("rule", [rules.adagrad, rules.adam])
def test_a_constant_bound_cancels_in_adagrad_and_adam(rule: Any) -> None:
    """g / b over the root of (g / b)^2 is g over the root of g^2; not so for Nesterov's steps."""
    rows, signs = unit_rows(frame(100), "y")
    bound = rules.curvature(rows)
    for plain, better in zip(
        rule(rows, signs, 20, 0.05), rule(rows, signs, 20, 0.05, bound), strict=True
    ):
        np.testing.assert_allclose(plain, better, rtol=1e-3, atol=1e-6)


def test_the_link_is_kims() -> None:
    z: Any = np.linspace(-8, 8, 9)
    wanted = 0.5 + 0.19131 * z - 0.0045963 * z**3 + 0.0000412332 * z**5
    assert np.abs(LINK(z) - wanted).max() < 1e-12


# -- folds ----------------------------------------------------------------------------------------


def test_columns_are_scaled_to_the_unit_interval() -> None:
    table = Table.of("tiny", frame(), "y")
    x = encode_shard(table.frame, table.schema).x
    np.testing.assert_allclose(x[:, :-1].min(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(x[:, :-1].max(axis=0), 1.0, atol=1e-12)
    np.testing.assert_allclose(x[:, :-1], unit_rows(table.frame, "y")[0][:, 1:], atol=1e-12)
    constant = unit_schema(table.frame.assign(c=7.0), "y")
    assert not encode_shard(table.frame.assign(c=7.0), constant).x[:, 2].any()


def test_folds_are_disjoint_and_of_floor_size() -> None:
    table = Table.of("tiny", frame(), "y")
    parts = list(fold_numbers(len(table.frame), 5, np.random.default_rng(1)))
    assert [len(test) for _, test in parts] == [12] * 5
    tested = np.concatenate([test for _, test in parts])
    assert len(set(tested)) == 60
    for train, test in parts:
        assert sorted([*train, *test]) == list(range(61))


def test_refusals_name_the_cure() -> None:
    with pytest.raises(DataError, match="'z' must exist"):
        Table.of("tiny", frame(), "z")
    with pytest.raises(DataError, match="hold 0 and 1"):
        Table.of("tiny", frame(), "a")
    with pytest.raises(ParameterError, match="folds=62"):
        next(fold_numbers(61, 62, np.random.default_rng(1)))


def test_the_distance_is_in_standard_errors_of_a_shuffle() -> None:
    """Of 8 to 12 around 10 with standard deviation 2 in all."""
    column = np.array([8.0, 12.0] * 50) * np.sqrt(99 / 100) + 10 * (1 - np.sqrt(99 / 100))
    assert "is -2.00 standard errors" in distance(6.0, column)
    assert "every shuffle" in distance(1.0, np.ones(5))


def spread(rows: Any, weights: Any) -> Any:
    """X^T S X of Newton's method."""
    mean = expit(rows @ weights)
    return rows.T @ np.diag(mean * (1 - mean)) @ rows


def test_the_search_for_a_fixed_hessian_ends_at_a_quarter_of_the_gram_matrix() -> None:
    """Its maximum, for rows on [0, 1]; the printed minimum is eps. Checked at many weights."""
    rows, _ = unit_rows(frame(), "y")
    quarter = np.abs(rows.T @ rows / 4).sum(axis=1)
    np.testing.assert_allclose(fixed_hessian.searched(rows, 1.0, 2), quarter, rtol=1e-6)
    assert fixed_hessian.searched(rows, -1.0, 3).max() < 1e-3 * quarter.min()
    both = np.column_stack([rows[:, :1], 2 * rows[:, 1:] - 1])
    largest = fixed_hessian.searched(both, 1.0, 3)
    rng = np.random.default_rng(0)
    for weights in rng.normal(0, 3, (200, 4)):
        for signed, bound in ((rows, quarter), (both, largest)):
            sums = np.abs(spread(signed, weights)).sum(axis=1)
            assert (sums <= bound * (1 + 1e-6)).all()
            value, slope = fixed_hessian.diagonal(weights, signed, 2)
            step = 1e-6 * np.eye(4)[1]
            ends = [fixed_hessian.diagonal(weights + s * step, signed, 2)[0] for s in (1, -1)]
            assert value == pytest.approx(sums[2])
            assert slope[1] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-4)


@pytest.mark.parametrize("words", list(rates.RULES))
def test_a_rate_converges_up_to_the_inverse_of_the_largest_eigenvalue(words: str) -> None:
    """Of B^-1 H at scikit-learn's optimum; 4 / 3 with momentum, 2 without."""
    rows, signs = unit_rows(frame(), "y")
    model = LogisticRegression(C=1e9, fit_intercept=False, tol=1e-10, max_iter=1000)
    best = model.fit(rows, signs).coef_[0]
    inverse = np.diag(1 / np.abs(rows.T @ rows / 4).sum(axis=1))
    largest = np.linalg.eigvals(inverse @ spread(rows, best)).real.max()
    assert rates.steepest(rows, signs) == pytest.approx(largest, rel=1e-3)
    factor, rule = rates.RULES[words]
    limit = factor / largest
    assert rates.converges(rule, rows, signs, 0.95 * limit, 1000)
    assert not rates.converges(rule, rows, signs, 1.1 * limit, 1000)


def test_plain_folds_find_the_signal() -> None:
    """A table with a signal ranks well; one without stays at chance."""
    table = Table.of("tiny", frame(300), "y")
    accuracy, auc = plain_folds(table, 5, 1)
    assert accuracy > 0.6 and auc > 0.65
    noise = table.frame.assign(y=np.random.default_rng(3).integers(0, 2, 300))
    assert abs(plain_folds(Table.of("noise", noise, "y"), 5, 1)[1] - 0.5) < 0.1
