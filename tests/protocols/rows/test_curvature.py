"""The diagonal bound: additive, above the Hessian, within its public range."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.kernel.rows.curvature import LIFT, curvature_share
from protocols.errors import ParameterError
from protocols.rows.curvature import Curvature, largest_row_sum, row_sums

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
    shares = sum(curvature_share(CURVATURE.range, part, len(x)) for part in parts)
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


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"offset": 0.0}, "need 0 < offset < high"),
        ({"high": 0.01}, "high=0.01"),
        ({"constant": 0.0}, "constant=0.0"),
        ({"error": 2.0}, "error=2.0"),
        ({"offset": 1e-6}, "larger offset"),
    ],
)
def test_refusals(change: dict[str, float], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        replace(CURVATURE, **change)


def test_bounds_are_required() -> None:
    for given_ in ({}, {"norm": 0.0}, {"columns": [1.0]}, {"norm": math.nan}):
        with pytest.raises(ParameterError):
            largest_row_sum(D, **given_)
