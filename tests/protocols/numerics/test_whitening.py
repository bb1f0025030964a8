"""Whitening: Lambda in exact arithmetic, the tail and the sensitivity of C, clipping, mutants."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from flint import arb_mat, ctx, fmpq, fmpq_mat
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import protocols.numerics.whitening
from parties.kernel.integers import clip_rows
from protocols.errors import ParameterError
from protocols.numerics.whitening import HAIR, Whitening, moment_sensitivity, scaled, whiten
from protocols.privacy.laws.shares import NoiseSplit

Array = NDArray[np.float64]
SPLIT = NoiseSplit(parties=10, colluders=3)


def skewed_rows(rng: np.random.Generator, rows: int, features: int, norm: float = 1.0) -> Array:
    """Rows of norm at most `norm`, whose axes fall off as 1 / k."""
    rows_: Array = 2 * norm * rng.standard_normal((rows, features)) / np.arange(1, features + 1)
    return clip_rows(rows_, norm)[0] * norm


def symmetric_noise(rng: np.random.Generator, size: int, std: float) -> Array:
    """Std on the diagonal; off it std / sqrt(2)."""
    upper = np.triu(rng.standard_normal((size, size)), 1) * std / math.sqrt(2)
    return np.asarray(upper + upper.T + np.diag(std * rng.standard_normal(size)))


def noisy_moment(rng: np.random.Generator, rows: Array, sigma: float) -> Array:
    total = SPLIT.total_std(sigma)
    moment = rows.T @ rows / len(rows)
    return np.asarray((moment + moment.T) / 2 + symmetric_noise(rng, rows.shape[1], total))


def made(seed: int = 0, rows: int = 400, features: int = 6) -> tuple[Whitening, Array]:
    """And the rows themselves."""
    rng = np.random.default_rng(seed)
    x = skewed_rows(rng, rows, features)
    sigma = moment_sensitivity(rows, 1.0) / 0.3
    moment = noisy_moment(rng, x, sigma)
    return whiten(moment, sigma=sigma, split=SPLIT, failure=1e-6), x


def holds(whitening: Whitening) -> bool:
    (condition,) = whitening.check(SPLIT)
    return condition.satisfied


def spectrum_of(rows: Array) -> float:
    return float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1])


# -- Lambda, in exact arithmetic -------------------------------------------------------------------


def exact(values: Array) -> fmpq_mat:
    ratios = [[float(v).as_integer_ratio() for v in row] for row in values]
    return fmpq_mat([[fmpq(*ratio) for ratio in row] for row in ratios])


def noisy_bound(whitening: Whitening) -> Array:
    """C + tau I is exact only as a sum of rationals: C and tau apart."""
    full = np.zeros((whitening.features,) * 2)
    full[np.triu_indices(whitening.features)] = whitening.moment
    return np.asarray(full + np.triu(full, 1).T)


def exceeds(whitening: Whitening, bound: float) -> bool:
    """Whether bound I - A (C + tau I) A is positive definite: every pivot, in rationals."""
    d, tau = whitening.features, Fraction(whitening.tail(SPLIT))
    middle = exact(noisy_bound(whitening))
    for k in range(d):
        middle[k, k] += fmpq(tau.numerator, tau.denominator)
    a = exact(np.array(whitening.matrix))
    rest = -(a * middle * a)
    for k in range(d):
        rest[k, k] += fmpq(*float(bound).as_integer_ratio())
    for k in range(d):
        if not rest[k, k] > 0:
            return False
        for i in range(k + 1, d):
            factor = rest[i, k] / rest[k, k]
            for j in range(k, d):
                rest[i, j] -= factor * rest[k, j]
    return True


@given(
    size=st.integers(1, 7),
    seed=st.integers(0, 10**6),
    falls=st.floats(0, 4),
    scale=st.integers(-12, 12),
    strength=st.sampled_from([0.3, 1.0, 3.0]),
)
@settings(max_examples=40, deadline=None)
def test_lambda_holds_in_rationals_and_by_a_hair(
    size: int, seed: int, falls: float, scale: int, strength: float
) -> None:
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((size, size)))[0]
    moment = 2.0**scale * (axes * 10.0 ** -(falls * np.arange(size))) @ axes.T
    with patch.object(protocols.numerics.whitening, "STRENGTH", strength):
        whitening = whiten(
            (moment + moment.T) / 2,
            sigma=2.0**scale * 10.0 ** rng.uniform(-8, -1),
            split=SPLIT,
            failure=1e-6,
        )
    (condition,) = whitening.check(SPLIT)
    assert condition.satisfied and condition.right == whitening.spectrum
    assert exceeds(whitening, condition.left)
    assert not exceeds(whitening, condition.left * (1 - 4 * HAIR)), "no tighter bound is possible"
    low = replace(whitening, spectrum=whitening.spectrum * (1 - 4 * HAIR))
    assert not holds(low)


def test_lambda_against_ball_arithmetic() -> None:
    """The largest root of the characteristic polynomial, enclosed at 200 bits."""
    ctx.prec, before = 200, ctx.prec
    try:
        whitening, _ = made(features=5)
        a = arb_mat([list(row) for row in whitening.matrix])
        middle = arb_mat(noisy_bound(whitening).tolist())
        tau = whitening.tail(SPLIT) * arb_mat([[float(i == j) for j in range(5)] for i in range(5)])
        roots = (a * (middle + tau) * a).eig(algorithm="approx")
        largest = max(float(root.real.mid()) for root in roots)
    finally:
        ctx.prec = before
    assert largest <= whitening.spectrum <= largest * (1 + 3 * HAIR)


# -- what it promises about rows -------------------------------------------------------------------


@pytest.mark.parametrize("strength", [0.3, 1.0, 3.0])
def test_clipping_keeps_the_bound(strength: float) -> None:
    """Rows only get shorter, hence the second moment smaller in the Loewner order."""
    with patch.object(protocols.numerics.whitening, "STRENGTH", strength):
        whitening, x = made(rows=2000, features=12)
    whole = x @ np.array(whitening.matrix)
    clipped = whitening.encode(x)
    assert 0.05 < np.mean(np.linalg.norm(whole, axis=1) > 1) < 0.95
    assert np.linalg.norm(clipped, axis=1).max() <= 1.0
    fall = (whole.T @ whole - clipped.T @ clipped) / len(x)
    assert np.linalg.eigvalsh(fall)[0] > -1e-12
    assert spectrum_of(clipped) < spectrum_of(whole) <= whitening.spectrum


def test_whitened_rows_are_round() -> None:
    """Axes of all lengths come out within a factor of three of each other."""
    rng = np.random.default_rng(3)
    x = skewed_rows(rng, 20_000, 8)
    sigma = moment_sensitivity(len(x), 1.0) / 0.3
    whitening = whiten(noisy_moment(rng, x, sigma), sigma=sigma, split=SPLIT, failure=1e-6)
    before = np.linalg.eigvalsh(x.T @ x)
    after = np.linalg.eigvalsh(whitening.encode(x).T @ whitening.encode(x))
    assert before[-1] / before[0] > 20
    assert after[-1] / after[0] < 3


def test_scores_are_kept() -> None:
    """Weights of whitened rows, mapped back, score a row that was not clipped the same."""
    whitening, x = made()
    weights = np.random.default_rng(5).standard_normal((4, 6))
    whole = np.linalg.norm(x @ np.array(whitening.matrix), axis=1) < 1
    decoded = whitening.decode(weights)
    assert decoded.shape == (4, 6) and whole.sum() > 20
    np.testing.assert_allclose(
        whitening.encode(x)[whole] @ weights.T, x[whole] @ decoded.T, rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(whitening.decode(weights[1]), decoded[1], rtol=1e-12)


# -- privacy of C ----------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), bound=st.floats(0.1, 5), features=st.integers(2, 9))
@settings(max_examples=60, deadline=None)
def test_one_row_moves_c_by_sqrt_2_at_most(seed: int, bound: float, features: int) -> None:
    rng = np.random.default_rng(seed)
    rows = clip_rows(rng.standard_normal((7, features)), bound)[0] * bound
    other = rows.copy()
    other[3] = bound * clip_rows(rng.standard_normal((1, features)), bound)[0][0]
    moved = float(np.linalg.norm(rows.T @ rows - other.T @ other)) / 7
    assert moved <= moment_sensitivity(7, bound) * (1 + 1e-12)


def test_orthogonal_rows_attain_it() -> None:
    """So that mu is that of the Gaussian release (C_ii, sqrt(2) C_ij) of noise sigma, exactly."""
    rows, bound, d = 50, 1.7, 4
    before = np.zeros((rows, d))
    before[0, 0] = bound
    after = np.zeros((rows, d))
    after[0, 1] = bound
    moved = (before.T @ before - after.T @ after) / rows
    release = np.where(np.eye(d) > 0, moved, math.sqrt(2) * moved)[np.triu_indices(d)]
    whitening = replace(made(features=4)[0], sigma=0.01)
    assert moment_sensitivity(rows, bound) == pytest.approx(math.sqrt(2) * bound**2 / rows)
    spent = whitening.spent(SPLIT, rows=rows, norm_bound=bound)
    assert spent == pytest.approx(float(np.linalg.norm(release)) / 0.01, rel=1e-4)


def test_the_noise_is_below_its_tail_and_a_full_one_is_not() -> None:
    """A failure of 5 % could be seen; sd on every entry, not sd / sqrt(2), is never within it."""
    rng = np.random.default_rng(8)
    whitening = replace(made(features=60)[0], failure=0.05)
    total = SPLIT.total_std(whitening.sigma)
    tau, runs = whitening.tail(SPLIT), 300
    noises = np.array([symmetric_noise(rng, 60, total) for _ in range(runs)])
    norms = np.abs(np.linalg.eigvalsh(noises)).max(axis=1)
    assert np.mean(norms > tau) <= 0.05
    assert np.mean(norms > 0.75 * tau) > 0.9, "the bound is not far above"
    diagonal = np.eye(60) > 0
    full = np.where(diagonal, noises, math.sqrt(2) * noises)
    assert np.mean(np.abs(np.linalg.eigvalsh(full)).max(axis=1) > tau) > 0.76


def test_the_tail_counts_every_partys_noise() -> None:
    whitening, _ = made()
    alone = whitening.tail(NoiseSplit(parties=7, colluders=0))
    assert whitening.tail(SPLIT) / alone == pytest.approx(math.sqrt(10 / 7), rel=1e-3)
    s, d = SPLIT.total_std(whitening.sigma), whitening.features
    formula = s * (math.sqrt(2 * d) + math.sqrt(2 * math.log(2 / whitening.failure)))
    assert formula < whitening.tail(SPLIT) < 1.001 * formula


# -- mutants ---------------------------------------------------------------------------------------


def _round_population(seed: int) -> tuple[Whitening, Array]:
    """Equal axes, 200 columns: noise alone makes one look shorter than it is."""
    rng, d = np.random.default_rng(seed), 200
    x = np.tile(np.eye(d), (3, 1))
    sigma = 0.02 / d
    return whiten(noisy_moment(rng, x, sigma), sigma=sigma, split=SPLIT, failure=0.01), x


@pytest.mark.parametrize("part", [0.0, 0.5], ids=["without tau", "tau halved"])
def test_mutant_less_than_tau(part: float) -> None:
    """Lambda of C + part tau I is refused, and it would be wrong about the rows."""
    whitening, x = _round_population(1)
    a, middle = np.array(whitening.matrix), noisy_bound(whitening)
    middle = middle + part * whitening.tail(SPLIT) * np.eye(len(a))
    claimed = float(np.linalg.eigvalsh(a @ middle @ a)[-1])
    assert not holds(replace(whitening, spectrum=claimed * (1 + HAIR)))
    true = spectrum_of(x @ a)
    assert claimed < true <= whitening.spectrum


def test_mutant_another_matrix() -> None:
    """The check is about A as given, not about how it should have been made."""
    whitening, _ = made()
    longer = tuple(tuple(1.01 * v for v in row) for row in whitening.matrix)
    assert not holds(replace(whitening, matrix=longer))
    assert holds(replace(whitening, matrix=longer, spectrum=whitening.spectrum * 1.0202))


def test_mutant_more_noise_than_stated() -> None:
    whitening, _ = made()
    assert not holds(replace(whitening, sigma=1.1 * whitening.sigma))
    (condition,) = whitening.check(NoiseSplit(parties=10, colluders=9))
    assert not condition.satisfied


# -- forms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("moment", (1.0, 0.0)),
        ("moment", (1.0, 0.0, math.nan)),
        ("matrix", ()),
        ("matrix", ((1.0, 0.0),)),
        ("matrix", ((1.0, 0.1), (0.2, 1.0))),
        ("matrix", ((1.0, math.inf), (math.inf, 1.0))),
        ("matrix", ((1e200, 0.0), (0.0, 1.0))),
        ("spectrum", 0.0),
        ("spectrum", math.nan),
        ("sigma", -1.0),
        ("failure", 0.0),
        ("failure", 1.0),
    ],
)
def test_impossible_fields_are_refused(field: str, value: Any) -> None:
    good = made(features=2)[0]
    with pytest.raises(ParameterError, match=field):
        replace(good, **{field: value})


def test_impossible_arguments_are_refused() -> None:
    good, x = made()
    with pytest.raises(ParameterError, match="shape"):
        good.encode(x[:, :3])
    with pytest.raises(ParameterError, match="shape"):
        good.decode(np.zeros(5))
    with pytest.raises(ParameterError, match="symmetric"):
        whiten(np.triu(np.ones((3, 3))), sigma=0.1, split=SPLIT, failure=0.1)
    with pytest.raises(ParameterError, match="noise alone"):
        whiten(-np.eye(3), sigma=0.1, split=SPLIT, failure=0.1)
    for rows, bound in ((0, 1.0), (5, 0.0)):
        with pytest.raises(ParameterError):
            moment_sensitivity(rows, bound)
    with pytest.raises(ParameterError, match="norm"):
        clip_rows(x, 0.0)


def test_rows_that_are_scaled_alone() -> None:
    """Of any C, even of noise alone: x / B, with a Lambda that holds."""
    _, x = made()
    sigma = moment_sensitivity(len(x), 2.0) / 0.3
    moment = noisy_moment(np.random.default_rng(1), 2 * x, sigma)
    plain = scaled(moment, norm_bound=2.0, sigma=sigma, split=SPLIT, failure=1e-6)
    np.testing.assert_allclose(plain.encode(2 * x), clip_rows(x, 1.0)[0], atol=1e-12)
    assert holds(plain) and spectrum_of(plain.encode(2 * x)) <= plain.spectrum
    assert holds(scaled(-np.eye(3), norm_bound=1.0, sigma=1e-3, split=SPLIT, failure=0.1))
