"""Last iterates of contractions: exact where all is Gaussian, never below the truth elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from protocols.approximation import Polynomial, sigmoid_approximation
from protocols.errors import ParameterError
from protocols.privacy.contraction import effective_rounds, lipschitz
from protocols.privacy.gdp import delta_for_mu

LINE = Polynomial(coefficients=(0.5, 0.25), center=0.0, radius=100.0)
"""p(z) = 1/2 + z / 4: training is a linear recursion, and w_T exactly Gaussian."""


def rounds_of(
    x: np.ndarray, y: np.ndarray, eta: float, lam: float, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance, over sigma^2, of w_T on these rows, by the recursion itself."""
    n, d = x.shape
    jacobian = (1 - eta * lam) * np.eye(d) - eta * x.T @ x / (4 * n)
    mean, cover = np.zeros(d), np.zeros((d, d))
    for _ in range(rounds):
        mean = jacobian @ mean - eta * x.T @ (0.5 - y) / n
        cover = jacobian @ cover @ jacobian + eta**2 * np.eye(d)
    return mean, cover


def claimed(eta: float, lam: float, rounds: int, rows: int, moved: float, norm: float) -> float:
    """mu at sigma 1."""
    c = lipschitz(LINE, eta=eta, ridge=lam, norm_bound=norm, radius=50.0, spectrum=norm**2)
    return moved / rows * math.sqrt(effective_rounds(c, rounds))


@pytest.mark.parametrize("rounds", [1, 2, 7, 60, 400])
@pytest.mark.parametrize("c", [0.0, 0.3, 0.9, 0.999, 1.0])
def test_a_line_attains_it(c: float, rounds: int) -> None:
    """phi = c x, phi' = c x + 1: two Gaussians of one variance, whose distance is mu."""
    mean = sum(c**k for k in range(rounds))
    std = math.sqrt(sum(c ** (2 * k) for k in range(rounds)))
    assert effective_rounds(c, rounds) == pytest.approx((mean / std) ** 2, rel=1e-8)
    assert effective_rounds(c, rounds) >= (mean / std) ** 2 * (1 - 1e-12)


@pytest.mark.parametrize(
    ("eta", "lam", "rounds"), [(4.0, 0.02, 50), (1.0, 0.3, 10), (7.5, 0.01, 9)]
)
def test_labels_that_differ(eta: float, lam: float, rounds: int) -> None:
    """A row of a rare column has the other label: same Jacobians, so mu is exact."""
    rng, n = np.random.default_rng(1), 400
    x = rng.normal(size=(n, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[:, 0] = 0.0
    x[0] = np.eye(5)[0]
    y = rng.integers(0, 2, n).astype(float)
    other = y.copy()
    other[0] = 1 - y[0]
    mean, cover = rounds_of(x, y, eta, lam, rounds)
    apart, _ = rounds_of(x, other, eta, lam, rounds)
    gap = apart - mean
    true = math.sqrt(gap @ np.linalg.solve(cover, gap))
    bound = claimed(eta, lam, rounds, n, 1.0, 1.0)
    assert true <= bound
    # The rare column's own curvature is 1 / 4N.
    assert true > 0.97 * bound or eta > 7
    # Half as much of a contraction is what a mutant would claim too little for.
    steeper = 1.0 / n * math.sqrt(effective_rounds(1 - 2 * eta * lam, rounds))
    assert eta > 7 or true > steeper


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_rows_that_differ(epsilon: float) -> None:
    """One column, one row turned to zero: variances differ as well, so delta is integrated."""
    n, eta, lam, rounds, sigma = 3, 2.0, 0.05, 12, 0.6
    y, x = np.ones(n), np.ones((n, 1))
    less = x.copy()
    less[0] = 0.0
    (mean, cover), (mean2, cover2) = (rounds_of(a, y, eta, lam, rounds) for a in (x, less))
    laws = [
        norm(float(m[0]), sigma * math.sqrt(float(v[0, 0])))
        for m, v in ((mean, cover), (mean2, cover2))
    ]
    # |p - y| |x| <= 1/2 + |w| / 4 here, and |w| <= 14 in all but 1e-9 of runs.
    mu = claimed(eta, lam, rounds, n, 0.5 + 14 / 4, 1.0) / sigma
    for one, two in (laws, laws[::-1]):
        assert one.sf(14) + one.cdf(-14) < 1e-9

        def excess(t: float, one=one, two=two) -> float:
            return max(0.0, one.pdf(t) - math.exp(epsilon) * two.pdf(t))

        delta = quad(excess, -14, 14, limit=400)[0]
        assert delta <= delta_for_mu(mu=mu, epsilon=epsilon)
    assert delta > 0


def test_errors_that_know_the_past_cost_twice_their_size() -> None:
    """Each run's error pushes away from the other one: D + 2 e is attained."""
    c, e, rounds = 0.9, 0.2, 30
    mean = sum((1 + 2 * e) * c**k for k in range(rounds))
    std = math.sqrt(sum(c ** (2 * k) for k in range(rounds)))
    mu = (1 + 2 * e) * math.sqrt(effective_rounds(c, rounds))
    assert mean / std == pytest.approx(mu, rel=1e-8)


@pytest.mark.parametrize("eta", [1.0, 4.0, 9.0])
@pytest.mark.parametrize(("degree", "radius"), [(3, 4.0), (7, 8.0), (7, 20.0)])
def test_no_two_points_come_apart_faster(degree: int, radius: float, eta: float) -> None:
    """Pairs of points of the ball, near and far, on data of one direction and of many."""
    p = sigmoid_approximation(degree, radius).polynomial
    c = lipschitz(p, eta=eta, ridge=0.01, norm_bound=1.0, radius=radius, spectrum=1.0)
    rng, found = np.random.default_rng(2), 0.0
    for x in (np.tile(np.eye(3)[0], (9, 1)), rng.normal(size=(9, 3))):
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        one = rng.normal(size=(4000, 3))
        one *= radius * rng.uniform(size=(4000, 1)) / np.linalg.norm(one, axis=1, keepdims=True)
        for step in (1e-3, 1.0):
            two = one + step * rng.normal(size=one.shape)
            two *= np.minimum(1, radius / np.linalg.norm(two, axis=1, keepdims=True))
            phi = [(1 - 0.01 * eta) * w - eta * p(w @ x.T) @ x / 9 for w in (one, two)]
            found = max(found, (np.linalg.norm(phi[0] - phi[1], axis=1)
                                / np.linalg.norm(one - two, axis=1)).max())  # fmt: skip
    assert 0.9 * min(c, 1.0) < found <= c


def test_a_link_that_falls_is_no_contraction() -> None:
    """Degree 7 on [-20, 20] falls near its turns: all T rounds are paid for."""
    query = {"eta": 4.0, "ridge": 0.01, "norm_bound": 1.0, "spectrum": 1.0}
    wide = lipschitz(sigmoid_approximation(7, 20.0).polynomial, radius=20.0, **query)
    assert wide > 1 and effective_rounds(wide, 50) == 50.0
    narrow = lipschitz(sigmoid_approximation(3, 2.0).polynomial, radius=2.0, **query)
    assert narrow == pytest.approx(0.96, rel=1e-8)
    assert effective_rounds(narrow, 50) == pytest.approx(
        49 * (1 - 0.96**50) / (1 + 0.96**50), rel=1e-6
    )


def test_it_lies_between_one_round_and_all() -> None:
    for c in np.linspace(0, 1, 21):
        values = [effective_rounds(float(c), t) for t in (1, 2, 10, 1000)]
        assert values == sorted(values) and values[0] == 1.0
        assert all(v <= t for v, t in zip(values, (1, 2, 10, 1000), strict=True))
    for bad in ((-0.1, 3), (0.5, 0), (math.nan, 3)):
        with pytest.raises(ParameterError):
            effective_rounds(*bad)
    with pytest.raises(ParameterError, match="eta=0"):
        lipschitz(LINE, eta=0.0, ridge=0.1, norm_bound=1.0, radius=1.0, spectrum=1.0)
