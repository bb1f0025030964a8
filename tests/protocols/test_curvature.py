"""The diagonal bound: additive, above the Hessian, within its public range; the fixed Hessian."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.curvature import LIFT, Curvature, largest_row_sum, row_sums
from protocols.errors import DataError, MessageError, ParameterError
from protocols.fixed_hessian import fixed_hessian

D = 5


def rows(count: int, seed: int) -> np.ndarray:
    """Entries in [-1, 1], the bias last, column 1 zero."""
    x = np.random.default_rng(seed).uniform(-1, 1, (count, D))
    x[:, 1], x[:, -1] = 0.0, 1.0
    return x


CURVATURE = Curvature.for_rows(largest_row_sum(D, columns=[1.0] * D), offset=0.02)


@given(st.integers(0, 2**32), st.lists(st.integers(0, 30), max_size=4))
def test_any_partition_gives_the_same_bound(seed: int, cuts: list[int]) -> None:
    """Parties' shares add up to (b - offset) / high, however the rows are divided."""
    x = rows(30, seed)
    parts = np.split(x, sorted(cuts))
    shares = sum(CURVATURE.share(part, len(x)) for part in parts)
    bound = CURVATURE.offset + CURVATURE.high * shares / LIFT
    np.testing.assert_allclose(bound, CURVATURE.bound(x), rtol=1e-12)


def test_the_bound_entry_by_entry() -> None:
    """Against the double sum of the definition."""
    x = rows(7, 1)
    for k in range(D):
        total = sum(abs(x[i, k]) * abs(x[i, j]) for i in range(7) for j in range(D))
        assert CURVATURE.bound(x)[k] == pytest.approx(0.02 + 0.25 * total / 7)


def test_the_bound_lies_above_the_hessian() -> None:
    """B - X^T D X / N is positive definite for the largest D, with negative entries too.

    The row sums without absolute values fail it on the same rows.
    """
    x = rows(40, 2) * np.array([1, 1, -1, -1, 1])
    hessian = 0.25 * x.T @ x / len(x)
    assert np.linalg.eigvalsh(np.diag(CURVATURE.bound(x)) - hessian).min() >= 0.02 - 1e-12
    assert np.linalg.eigvalsh(np.diag(0.02 + hessian.sum(axis=1)) - hessian).min() < 0


def test_never_below_the_papers_bound_and_equal_without_negative_entries() -> None:
    """b against offset + sum_j |(X^T X)_kj| / (4 N)."""
    for x, equal in ((rows(40, 3), False), (np.abs(rows(40, 3)), True)):
        papers = 0.02 + 0.25 * np.abs(x.T @ x).sum(axis=1) / len(x)
        assert (CURVATURE.bound(x) >= papers - 1e-12).all()
        assert np.allclose(CURVATURE.bound(x), papers) == equal


def test_a_zero_column_stays_within_the_range() -> None:
    """b is the offset, its inverse 1 / offset to the stated error."""
    x = rows(20, 4)
    assert CURVATURE.bound(x)[1] == 0.02
    inverse = CURVATURE.preconditioner(x)
    np.testing.assert_allclose(inverse * CURVATURE.bound(x), 1, atol=CURVATURE.error)
    assert 49 < inverse[1] <= CURVATURE.inverse.largest < 51


@given(st.integers(1, 12), st.integers(0, 2**32), st.floats(0.1, 5))
def test_public_bounds_hold_for_every_row(d: int, seed: int, norm: float) -> None:
    """Rows of the largest norm, and rows at the columns' bounds."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(200, d)) * rng.choice([0.05, 1.0], d)
    x *= norm / np.linalg.norm(x, axis=1, keepdims=True)
    each = np.abs(x) * np.abs(x).sum(axis=1, keepdims=True)
    assert each.max() <= largest_row_sum(d, norm=norm) * (1 + 1e-12)
    assert each.max() <= largest_row_sum(d, columns=list(np.abs(x).max(axis=0))) * (1 + 1e-12)


def test_the_norm_bound_is_attained() -> None:
    """By the form's leading eigenvector."""
    form = np.zeros((D, D))
    form[0] += 0.5
    form[:, 0] += 0.5
    x = 3.0 * np.linalg.eigh(form)[1][:, -1]
    assert row_sums(x[None]).max() == pytest.approx(largest_row_sum(D, norm=3.0))
    assert largest_row_sum(D, norm=3.0, columns=[0.1] * D) == pytest.approx(0.05)


def test_rows_beyond_the_public_bound_are_refused() -> None:
    """Their b could leave the inverse's range; rows at the bound pass."""
    CURVATURE.share(np.ones((3, D)), 10)
    with pytest.raises(DataError, match="clamp"):
        CURVATURE.share(1.01 * np.ones((3, D)), 10)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"offset": 0.0}, "need 0 < low <= offset"),
        ({"low": 0.03}, "low=0.03"),
        ({"high": 0.01}, "high=0.01"),
        ({"constant": 0.0}, "constant=0.0"),
        ({"error": 2.0}, "error=2.0"),
        ({"offset": 1e-6, "low": 1e-6}, "larger offset"),
    ],
)
def test_refusals(change: dict[str, float], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        Curvature(**{**CURVATURE.to_dict(), **change})


def test_bounds_are_required() -> None:
    for given_ in ({}, {"norm": 0.0}, {"columns": [1.0]}, {"norm": math.nan}):
        with pytest.raises(ParameterError):
            largest_row_sum(D, **given_)


def test_round_trip() -> None:
    assert Curvature.from_dict(CURVATURE.to_dict()) == CURVATURE
    with pytest.raises(MessageError):
        Curvature.from_dict({**CURVATURE.to_dict(), "offset": "0.02"})


# -- the fixed Hessian ---------------------------------------------------------------------------


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(z / 2))


def logistic(z: np.ndarray, y: float) -> np.ndarray:
    return sigmoid(z) * sigmoid(-z)


def lffr(z: np.ndarray, y: float) -> np.ndarray:
    s = sigmoid(z)
    return (4 * s - 6 * s**2 - 2 * y + 4 * y * s) * s * (1 - s)


def test_logistic_regression_has_a_quarter() -> None:
    """The paper's own example: 1/4 X^T X."""
    found = fixed_hessian(logistic)
    assert found.constant == pytest.approx(0.25, abs=1e-6)
    assert found.at == pytest.approx(0, abs=1e-9)
    assert not found.proven
    assert [reason[0] for reason in found.reasons] == ["1", "2", "3"]


def test_a_lipschitz_constant_makes_it_a_proof() -> None:
    """|phi'''| <= 1 / (6 sqrt 3): the constant exceeds 1/4 by half a grid step of it at most."""
    slope = 1 / (6 * math.sqrt(3))
    found = fixed_hessian(logistic, low=-8.1, high=7.9, lipschitz=slope)
    assert found.proven and found.constant is not None
    assert 0.25 <= found.constant <= 0.25 + slope * 16 / 20_000


def test_squares_of_sigmoid_residuals() -> None:
    """Largest of 4 s^2 - 10 s^3 + 6 s^4, at s = (15 - sqrt 33) / 24: 0.15406 <= 0.155."""
    found = fixed_hessian(lffr, low=-20, high=20, targets=(0.0, 1.0))
    s = (15 - math.sqrt(33)) / 24
    assert found.constant == pytest.approx(4 * s**2 - 10 * s**3 + 6 * s**4, abs=1e-6)
    assert 0.154 < found.constant <= 0.155


def test_linear_regression_is_exactly_tight() -> None:
    found = fixed_hessian(lambda z, y: np.full_like(z, 2.0))
    assert (found.constant, found.tightness) == (2.0, 1.0)


def test_poisson_regression_has_none_unless_the_predictor_is_bounded() -> None:
    """e^z grows without end; on [-2, 2] its bound is e^2."""
    found = fixed_hessian(lambda z, y: np.exp(z))
    assert found.constant is None
    assert "still grows" in found.reasons[-1]
    bounded = fixed_hessian(lambda z, y: np.exp(z), low=-2, high=2)
    assert bounded.constant == pytest.approx(math.e**2)


def test_a_loose_constant_is_called_loose() -> None:
    found = fixed_hessian(lambda z, y: np.exp(-100 * z**2), low=-5, high=5)
    assert "loose" in found.reasons[-1]


def test_a_pole_is_no_constant() -> None:
    def pole(z: np.ndarray, y: float) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return 1 / z**2

    found = fixed_hessian(pole, low=-1, high=1)
    assert found.constant is None and "not finite" in found.reasons[-1]


@pytest.mark.parametrize(
    "range_", [{"low": 1, "high": -1}, {"low": 0}, {"high": 0}, {"targets": ()}]
)
def test_bad_ranges(range_: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        fixed_hessian(logistic, **range_)


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(ParameterError, match="one value per z"):
        fixed_hessian(lambda z, y: np.ones(3))
