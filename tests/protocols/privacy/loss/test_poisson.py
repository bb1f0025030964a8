"""Secret coins: the worst pair is the worst, a hidden state does not help, noise is inverted."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from protocols.errors import ParameterError
from protocols.privacy.loss import epsilon_for_mu
from protocols.privacy.loss.poisson import poisson_epsilon, poisson_noise_multiplier

Array = NDArray[np.float64]
GRID = np.linspace(-8.0, 8.0, 321)
CELL = (GRID[1] - GRID[0]) ** 2
FACTORS = (1.0, 1.1, 1.5, 3.0)


def hockey_stick(p: Array, q: Array, factor: float) -> float:
    return float(np.maximum(p - factor * q, 0.0).sum() * CELL)


def mixture(rate: float, mean: Array) -> Array:
    """(1 - q) N(0) + q N(m) of unit variance in the plane, on the grid."""
    zero = norm.pdf(GRID)
    moved = np.outer(norm.pdf(GRID - mean[0]), norm.pdf(GRID - mean[1]))
    return (1 - rate) * np.outer(zero, zero) + rate * moved


@pytest.mark.parametrize("rate", [0.05, 0.4, 1.0])
def test_opposite_contributions_are_the_worst(rate: float) -> None:
    """Over a disc of radius C = 1.3 sigma; a pair (C, 0), omit-one, would not dominate."""
    rng = np.random.default_rng(0)
    radius = 1.3
    end = np.array([radius, 0.0])
    worst = [hockey_stick(mixture(rate, end), mixture(rate, -end), g) for g in FACTORS]
    omit = [hockey_stick(mixture(rate, end), mixture(rate, 0 * end), g) for g in FACTORS]
    for _ in range(60):
        angles, radii = rng.uniform(0, 2 * math.pi, 2), radius * rng.uniform(0, 1, 2) ** 0.25
        m, other = (
            r * np.array([math.cos(a), math.sin(a)]) for a, r in zip(angles, radii, strict=True)
        )
        p, q = mixture(rate, m), mixture(rate, other)
        assert all(hockey_stick(p, q, g) <= w + 1e-9 for g, w in zip(FACTORS, worst, strict=True))
    assert all(o < w for o, w in zip(omit, worst, strict=True))


Answer = Callable[[bool, Array], Array]


def two_rounds(rate: float, first: float, second: Answer) -> Array:
    """Joint density of two releases in one dimension; `second(b_1, v_1)` uses the hidden coin."""
    total = np.zeros((GRID.size, GRID.size))
    for drawn in (False, True):
        weight = rate if drawn else 1 - rate
        start = norm.pdf(GRID - first * drawn)[:, None]
        later = norm.pdf(GRID[None, :] - second(drawn, GRID)[:, None])
        rest = norm.pdf(GRID)[None, :]
        total += weight * start * ((1 - rate) * rest + rate * later)
    return total


def hidden_answers(c: float) -> list[Answer]:
    """Second contributions within [-C, C] that depend on the own earlier coin and on v_1."""
    return [
        lambda drawn, v: np.full_like(v, c if drawn else -c),
        lambda drawn, v: np.full_like(v, c if drawn else 0.0),
        lambda drawn, v: c * np.sign(v) * (1 if drawn else -1),
        lambda drawn, v: np.clip(v, -c, c) if drawn else np.full_like(v, c),
        lambda drawn, v: np.full_like(v, c),
    ]


def test_a_hidden_state_gains_nothing() -> None:
    """Exact joint laws of two rounds, every pair of strategies: the accountant covers them."""
    rate, c, epsilon = 0.3, 1.0, 0.4
    one = [two_rounds(rate, c, a) for a in hidden_answers(c)]
    other = [two_rounds(rate, -c, lambda b, v, a=a: -a(b, v)) for a in hidden_answers(c)]
    found = [hockey_stick(p, q, math.exp(epsilon)) for p in one for q in other]
    spent = poisson_epsilon(noise_multiplier=1 / c, rate=rate, rounds=2, delta=max(found))
    assert 0.999 * epsilon <= spent < 1.02 * epsilon  # reached by the constants C and -C


@pytest.mark.parametrize(("rate", "epsilon"), [(1.0, 1.0), (0.25, 0.1), (0.25, 3.0), (0.05, 1.0)])
def test_the_multiplier_keeps_its_promise(rate: float, epsilon: float) -> None:
    rounds, delta = 50, 1e-5
    z = poisson_noise_multiplier(epsilon=epsilon, delta=delta, rate=rate, rounds=rounds)
    spent = poisson_epsilon(noise_multiplier=z, rate=rate, rounds=rounds, delta=delta)
    assert 0.985 * epsilon < spent <= epsilon * (1 + 1e-3)
    plain = epsilon_for_mu(mu=2 * math.sqrt(rounds) / z, delta=delta)
    assert plain == pytest.approx(epsilon, rel=1e-6) if rate == 1.0 else plain > 2 * epsilon


def test_limits_and_refusals() -> None:
    assert poisson_epsilon(noise_multiplier=0, rate=0.5, rounds=1, delta=1e-5) == math.inf
    for change in ({"rate": 0.0}, {"rate": 1.5}, {"rounds": 0}, {"delta": 0.0}):
        query = {"rate": 0.5, "rounds": 2, "delta": 1e-5, **change}
        with pytest.raises(ParameterError, match=next(iter(change))):
            poisson_epsilon(noise_multiplier=1.0, **query)
        with pytest.raises(ParameterError, match=next(iter(change))):
            poisson_noise_multiplier(epsilon=1.0, **query)
    with pytest.raises(ParameterError, match="noise_multiplier"):
        poisson_epsilon(noise_multiplier=-1.0, rate=0.5, rounds=1, delta=1e-5)
