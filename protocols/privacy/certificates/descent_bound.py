"""How far noisy gradient descent with a shrinking step can get from the origin.

The rule is w <- (1 - alpha) w - eta g(w) - eta chi, alpha = eta lam in [0, 1), from w = 0, with
g(w) = (1/N) sum_i (p(z_i) - y_i) x_i, z_i = <w, x_i>, |x_i| <= B, and chi ~ N(0, tau^2 I_m) the
noise of ALL parties. p is a polynomial: with p(z) + p(-z) = 1, and then y_i in {0, 1}, or any p,
and then y_i = 1 (rows of label 0 are negated, `RowsPlan.signed`). Lambda bounds the largest
eigenvalue of the rows' second moment X^T X / N: B^2, which it never exceeds, or less where it is
known (`whitening`).

**One step.** Let v = (1 - alpha) w - eta g(w) and |w| <= R. With r_i = p(z_i) - y_i, |g|^2 =
r^T (X X^T) r / N^2 <= Lambda |r|^2 / N, since X X^T has the eigenvalues of X^T X. Expanding the
square, |v|^2 <= (1 - alpha)^2 |w|^2 + (1/N) sum_i [2 eta (1 - alpha) (y_i - p(z_i)) z_i
+ eta^2 Lambda (p(z_i) - y_i)^2] <= rho |w|^2 + 2 eta M(R), rho = (1 - alpha)^2,
M(R) = max over |z| <= B R of (1 - alpha) z (1 - p(z)) + (eta Lambda / 2) (1 - p(z))^2.
(With the symmetry, a row with y = 0 and z is one with y = 1 and -z.) No convexity of p is needed.
For the sigmoid z (1 - p(z)) <= 0.2785: a row that is classified well hardly pushes outwards.
Bounding the push by |grad f(0)| |w| instead, as convexity allows, costs a factor of about 0.9 B
|w|. Fewer than N rows only lower the sum, because M >= 0, the value at z = 0; and so do weights u_i
on [0, 1] of the rows: |g|^2 <= Lambda sum_i u_i^2 r_i^2 / N, u^2 <= u, hence u_i times each summand
at most. Arithmetic that puts g off by at most `error` turns |v|^2 into at most (|v| + eta error)^2:
M(R) grows by error |v| + eta error^2 / 2.

**All steps.** |w'|^2 = |v|^2 + D + eta^2 |chi|^2 with D = -2 eta <v, chi>, which is
N(0, 4 eta^2 tau^2 |v|^2) given the past. Unrolled, as long as no iterate has left the ball,
|w_t|^2 <= sum_{i<t} rho^(t-1-i) (2 eta M(R) + D_i + eta^2 |chi_i|^2), and |v_i|^2 <= U^2 =
rho R^2 + 2 eta M(R). With A = sum_{i<T} rho^i and Q = sum_{i<T} rho^(2i):
- sum_i rho^(t-1-i) D_i is a martingale transform, stopped at the first exit, hence
  sub-Gaussian with variance 4 eta^2 tau^2 U^2 Q: above 2 eta tau U sqrt(Q) c with probability
  at most exp(-c^2 / 2);
- sum_i rho^(t-1-i) |chi_i|^2 / tau^2 is a weighted sum of chi^2 variables: above
  m A + 2 sqrt(m Q x) + 2 x with probability at most exp(-x) (Laurent, Massart 2000, Lemma 1).
A union over t = 1 .. T and both events gives c = sqrt(2 ln(2T / delta_norm)) and
x = ln(2T / delta_norm). For alpha = 0 both sums need no union over t (Doob's inequality for the
first, monotony for the second): c = sqrt(2 ln(2 / delta_norm)), x = ln(2 / delta_norm).

**The ball.** If R^2 >= G(R) = 2 eta M(R) A + 2 eta tau U(R) sqrt(Q) c
+ eta^2 tau^2 (m A + 2 sqrt(m Q x) + 2 x), no iterate w_0 .. w_T leaves the ball of radius R, except
with probability delta_norm: an induction over t. alpha = 0, no regulariser at all, is allowed:
T rounds cannot go further than about sqrt(2 eta T M).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from protocols.errors import ParameterError
from protocols.numerics.approximation import Polynomial, is_symmetric, range_bound


def require_symmetric(p: Polynomial) -> None:
    """Refuse any other sigmoid.

    Raises:
        ParameterError: see `approximation.is_symmetric`.
    """
    if not is_symmetric(p):
        raise ParameterError("sigmoid: p(z) + p(-z) must be 1, 1/2 plus an odd polynomial")


def push_bound(
    p: Polynomial,
    *,
    shrink: float,
    learning_rate: float,
    norm_bound: float,
    radius: float,
    spectrum: float | None = None,
) -> float:
    """M(R), certain: the maximum over |z| <= B R of the push's polynomial, of degree 2 deg p.

    Args:
        p: as in the module: what has no symmetry is for signed rows.
        shrink: 1 - alpha.
        learning_rate: eta.
        norm_bound: B.
        radius: R.
        spectrum: Lambda; None: B^2.
    """
    residual = np.zeros(p.degree + 1)
    residual[: len(p.coefficients)] = p.coefficients
    residual = -residual
    residual[0] += 1.0
    linear = np.convolve(residual, [0.0, shrink * p.radius])
    half_step = 0.5 * learning_rate * (norm_bound**2 if spectrum is None else spectrum)
    square = half_step * np.convolve(residual, residual)
    size = max(linear.size, square.size)
    push = np.pad(linear, (0, size - linear.size)) + np.pad(square, (0, size - square.size))
    ends = norm_bound * radius
    scale = max(1.0, ends / p.radius)
    # the products above are rounded: at most `size` terms per coefficient, 2^-53 each
    magnitude = np.convolve(np.abs(residual), np.abs(residual)) * half_step
    total = float(magnitude.sum()) + shrink * p.radius * float(np.abs(residual).sum())
    slack = 4 * size * 2.0**-53 * total * scale ** (size - 1)
    composed = Polynomial(coefficients=tuple(push), center=0.0, radius=p.radius)
    return range_bound(composed, -ends, ends)[1] + slack


@dataclass(frozen=True, kw_only=True, slots=True)
class DescentBound:
    """The figures of the descent bound; see the module's docstring.

    Attributes:
        learning_rate, alpha, rounds, features, norm_bound: eta, eta lam, T, m, B.
        noise: tau, std of ALL parties' noise.
        failure: delta_norm; not used without noise.
        error: bound on the l2 error of the computed mean gradient, 0 for exact arithmetic.
    """

    learning_rate: float
    alpha: float
    rounds: int
    features: int
    norm_bound: float
    noise: float
    failure: float
    error: float = 0.0

    @property
    def rho(self) -> float:
        """(1 - alpha)^2."""
        return (1 - self.alpha) ** 2

    @property
    def weight(self) -> float:
        """A = sum of rho^i over T rounds."""
        return _geometric(self.rho, self.rounds)

    @property
    def weight_squared(self) -> float:
        """Q = sum of rho^(2i) over T rounds."""
        return _geometric(self.rho**2, self.rounds)

    @property
    def x(self) -> float:
        """Exponent of the failure probability of each event."""
        return math.log((2 if self.alpha == 0 else 2 * self.rounds) / self.failure)

    def squared_bound(self, radius: float, push: float) -> float:
        """G(R), given M(R) = push; the ball of radius R holds if this is at most R^2."""
        e, m, q = self.learning_rate, self.features, self.weight_squared
        exact = math.sqrt(self.rho * radius**2 + 2 * e * push)
        push += self.error * exact + 0.5 * e * self.error**2
        bound = 2 * e * push * self.weight
        if self.noise > 0:
            step = math.sqrt(self.rho * radius**2 + 2 * e * push)
            bound += 2 * e * self.noise * step * math.sqrt(q) * math.sqrt(2 * self.x)
            chi = m * self.weight + 2 * math.sqrt(m * q * self.x) + 2 * self.x
            bound += (e * self.noise) ** 2 * chi
        return bound


def _geometric(ratio: float, count: int) -> float:
    """1 + ratio + … + ratio^(count - 1), rounded up."""
    if ratio >= 1:
        return float(count)
    log = math.log(ratio) if ratio > 0 else -math.inf
    return -math.expm1(count * log) / (1 - ratio) * (1 + 1e-9)
