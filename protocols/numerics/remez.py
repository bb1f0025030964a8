"""Numerics on bare arrays behind `numerics.approximation`: fits, and maxima that are certain.

Fits live in the scaled variable t of [-1, 1]. sigmoid - 1/2 is odd, so the sigmoid's fits return
odd powers only: entry i is the coefficient of t^(2i+1), shape (k,), k = (degree + 1)/2.
The exchange: E. Remez (1934); R. Pachón, L. Trefethen, BIT 49 (2009), section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev, legendre, polynomial

from protocols.errors import ParameterError

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]
Scaled = tuple[FloatArray, float, float]  # coefficients of t^k, center, radius

GAUSS = np.array(legendre.leggauss(32), dtype=np.float64)  # nodes, weights: error 3.8^-64
MAX_EXCHANGES = 60
LEVEL_TOLERANCE = 1e-9  # (max |e| - level) / level at which the exchange stops
NOISE = 1e-14  # below this level float64 sees no error curve; the first levelled fit is as good
UNIT = 2.0**-53  # unit roundoff
CELLS = 48  # first partition of an interval
TERMS = 6  # Taylor terms of f kept in each cell
MAX_HALVINGS = 60


def odd_part(x: FloatArray) -> FloatArray:
    """Return sigmoid(x) - 1/2 = tanh(x/2) / 2, elementwise, without cancellation at 0."""
    return np.asarray(0.5 * np.tanh(0.5 * x), dtype=np.float64)


def odd_minimax(degree: int, radius: float) -> FloatArray:
    """Return the odd polynomial of least maximum error to sigmoid(radius t) - 1/2 on [-1, 1].

    t, t^3, …, t^degree are a Chebyshev system on (0, 1], so the optimum has k + 1 alternation
    points there.

    Raises: ParameterError: the exchange did not level; not seen for radius <= 1000.
    """
    count = (degree + 1) // 2
    # an equal-angle grid, and one that sees the first extremum in the sigmoid's bend, |x| < 30
    wide = np.cos(np.linspace(0.5 * np.pi, 0.0, 12 * degree + 1)[1:])
    grid = np.unique([*wide, *np.linspace(0.0, min(1.0, 30.0 / radius), 97)[1:]])
    # start: the extrema of T_(degree + 2), the optimum as radius -> 0
    points = np.cos(np.pi * np.arange(count, -1, -1) / (degree + 2))

    def error(t: FloatArray, fit: FloatArray) -> FloatArray:
        return odd_part(radius * t) - t * polynomial.polyval(t**2, fit)

    return _exchange(degree, 1, 2, lambda t: odd_part(radius * t), error, grid, points)


def exponential_minimax(degree: int, radius: float) -> FloatArray:
    """Return the polynomial of least maximum error to exp(radius (t - 1)) on [-1, 1], in powers.

    Raises: ParameterError: the exchange did not level; not seen for radius <= 10.
    """

    def value(t: FloatArray) -> FloatArray:
        return np.asarray(np.exp(radius * (t - 1.0)))

    def error(t: FloatArray, fit: FloatArray) -> FloatArray:
        return value(t) - polynomial.polyval(t, fit)

    grid = np.cos(np.linspace(np.pi, 0.0, 24 * degree + 1))
    # the extrema of T_(degree + 1), the optimum as radius -> 0
    points = np.cos(np.pi * np.arange(degree + 1, -1, -1) / (degree + 1))
    return _exchange(degree, 0, 1, value, error, grid, points)


def _exchange(
    degree: int,
    first: int,
    step: int,
    value: Callable[[FloatArray], FloatArray],
    error: Callable[[FloatArray, FloatArray], FloatArray],
    grid: FloatArray,
    points: FloatArray,
) -> FloatArray:
    """Level f = value over T_first, T_(first + step), …, from `points` on.

    error: of a fit at t, f - p.

    Raises: ParameterError: it did not level.
    """
    values, basis = value(grid), chebyshev.chebvander(grid, degree)[:, first::step]
    for _ in range(MAX_EXCHANGES):
        # unknowns: the series and the level, sum_k a_k T_k(t_j) + (-1)^j level = f(t_j)
        system = chebyshev.chebvander(points, degree)[:, first::step]
        system = np.column_stack([system, (-1.0) ** np.arange(points.size)])
        *series, level = np.linalg.solve(system, value(points))
        fit = _powers("chebyshev", degree, first, step) @ series
        if abs(level) < NOISE:
            return np.asarray(fit)
        peaks = _run_peaks(values - basis @ series)
        if peaks.size != points.size:
            break
        points = _polish(grid, peaks, fit, error)
        excess = np.max(np.abs(error(points, fit))) - abs(level)
        if excess <= LEVEL_TOLERANCE * abs(level) + 0.1 * NOISE:
            return np.asarray(fit)
    message = f"degree={degree}: Remez did not level to {LEVEL_TOLERANCE}"
    raise ParameterError(f"{message}: take a smaller radius")


def _run_peaks(error: FloatArray) -> IndexArray:
    """Return the index of the largest |error| in each run of equal sign, in order."""
    runs = np.split(np.abs(error), np.flatnonzero(np.diff(np.signbit(error))) + 1)
    starts = np.cumsum([0, *(run.size for run in runs[:-1])])
    return np.asarray(starts + [int(np.argmax(run)) for run in runs], dtype=np.intp)


def _polish(
    grid: FloatArray,
    peaks: IndexArray,
    fit: FloatArray,
    error: Callable[[FloatArray, FloatArray], FloatArray],
) -> FloatArray:
    """Narrow each peak's bracket to 2/32 of itself, four times; |e| is then flat to 1e-10 of it."""
    # two neighbours on either side: the grid's two parts may meet within rounding
    low, high = grid[np.maximum(peaks - 2, 0)], grid[np.minimum(peaks + 2, grid.size - 1)]
    peak = np.arange(peaks.size)
    for _ in range(4):
        points = np.linspace(low, high, 33)  # shape (33, peaks)
        best = np.argmax(np.abs(error(points, fit)), axis=0)
        low, high = points[np.maximum(best - 1, 0), peak], points[np.minimum(best + 1, 32), peak]
    return np.asarray(points[best, peak])


def odd_least_squares(degree: int, radius: float) -> FloatArray:
    """Return the continuous least-squares fit; sigmoid - 1/2 is odd, so t > 0 is enough."""
    nodes, weights = dyadic_rule(0.0, min(1.0, 4.0 / radius), 1.0)
    basis = legendre.legvander(nodes, degree)[:, 1::2]  # nearly orthogonal: Gram is safe
    weighted = (weights[:, None] * basis).T
    series = np.linalg.solve(weighted @ basis, weighted @ odd_part(radius * nodes))
    return np.asarray(_powers("legendre", degree, 1, 2) @ series)


def odd_powers(degree: int) -> FloatArray:
    """The change of basis from T_1, T_3, … to t, t^3, …."""
    return _powers("chebyshev", degree, 1, 2)


@lru_cache(maxsize=32)
def _powers(basis: str, degree: int, first: int, step: int) -> FloatArray:
    """Return the change of basis from T_k (or P_k), k = first, first + step, …, to t^k."""
    convert = chebyshev.cheb2poly if basis == "chebyshev" else legendre.leg2poly
    orders = range(first, degree + 1, step)
    columns = [convert([0.0] * k + [1.0])[first::step] for k in orders]
    return np.array([np.pad(c, (0, len(columns) - c.size)) for c in columns]).T


def reciprocal_minimax(degree: int, low: float, high: float) -> FloatArray:
    """Return the minimax polynomial of 1/x on [low, high] in powers of t, shape (degree + 1,).

    g = sqrt(low high), x = center + radius t, a = (sqrt high - sqrt low)/(sqrt high + sqrt low):
    p = 2/g (1/2 + sum_{0<k<n} (-a)^k T_k(t) + (-a)^n T_n(t) / (1 - a^2)), of degree n;
    max |p - 1/x| = a^n radius / g^2, taken n + 2 times with alternating signs: at t = -cos u,
    v = e^(iu), the error is a multiple of Re v^n (v - a)/(1 - a v), of modulus 1, winding n + 1.
    Source: Chebyshev; G. Meinardus, Approximation of Functions (1967), section 4.3.
    """
    root_low, root_high = math.sqrt(low), math.sqrt(high)
    geometric = root_low * root_high
    a = (high - low) / (root_high + root_low) ** 2
    series = (-a) ** np.arange(degree + 1.0)
    series[0] = 0.5
    series[degree] *= (root_high + root_low) ** 2 / (4.0 * geometric)  # 1 / (1 - a^2), exactly
    powers = chebyshev.cheb2poly(2.0 / geometric * series)
    return np.pad(powers, (0, degree + 1 - powers.size))


def dyadic_rule(start: float, first: float, stop: float) -> tuple[FloatArray, FloatArray]:
    """Return Gauss nodes and weights for [start, stop] on panels ending at first, 2 first, ….

    The panels keep their distance from the sigmoid's poles, at +-i pi.
    """
    panels = max(0, math.ceil(math.log2(stop / first)))
    edges: FloatArray = np.array([start, *(first * 2.0 ** np.arange(panels)), stop], dtype=float)
    half: FloatArray = 0.5 * np.diff(edges)[:, None]
    return (edges[:-1, None] + half * (GAUSS[0] + 1.0)).ravel(), (half * GAUSS[1]).ravel()


@np.errstate(over="ignore", invalid="ignore")  # overflow is answered with infinity
def supremum(p: Scaled, ends: tuple[float, float], function: str, slack: float) -> float:
    """Return an upper bound of max |p - function|, or of max p where function is "zero".

    ends: of the interval [units of x], > 0 for "reciprocal". slack: relative excess of the bound;
    on top comes the rounding of float64, (12 size + 32) u sum_k |c_k| max |t|^k + 32 u max |f|:
    Taylor shift (7 size) and Horner's rule (4 size), Higham, Accuracy and Stability, section 5.1.
    Infinite on overflow.

    On a cell x = mid + half s, p - f = d_0 + d_1 s + d_2 s^2 +- tail with an exact maximum of the
    parabola and tail = sum_{j>2} |d_j| + Taylor remainder of f = O(half^3). Loose cells are halved.
    """
    (coefficients, center, radius), size = p, max(p[0].size, TERMS)
    padded, order = np.zeros(2 * size), np.arange(size)
    padded[: coefficients.size] = coefficients
    taylor = _binomials(size) * padded[order[:, None] + order]  # row j: p^(j)(t) / j! in powers
    reach = max(abs(ends[0] - center), abs(ends[1] - center)) / radius
    rounding = (12 * size + 32) * UNIT * float(polynomial.polyval(reach, np.abs(coefficients)))
    largest = {"sigmoid": 1.0, "zero": 0.0, "exponential": math.exp(min(ends[1], 700.0))}
    rounding += 32 * UNIT * largest.get(function, 1.0 / (ends[0] or 1.0))
    low, high = _partition(*ends, function)
    best = proven = rest = -math.inf
    for _ in range(MAX_HALVINGS):
        mid = 0.5 * (low + high)
        half = np.maximum(np.abs(high - mid), np.abs(mid - low)) * (1.0 + 4.0 * UNIT)
        terms = taylor @ np.vander((mid - center) / radius, size, increasing=True).T
        terms *= np.vander(half / radius, size, increasing=True).T
        expansion, tail = _EXPANSIONS[function](mid, half)
        terms[:TERMS] -= expansion
        tail = tail + np.sum(np.abs(terms[3:]), axis=0)
        vertex = np.divide(-terms[1], 2.0 * terms[2], out=np.ones(mid.size), where=terms[2] != 0)
        s = np.stack([0.0 * mid - 1.0, 0.0 * mid + 1.0, np.clip(vertex, -1.0, 1.0)])
        peaks = terms[0] + s * (terms[1] + s * terms[2])
        upper = np.max(peaks if function == "zero" else np.abs(peaks), axis=0) + tail
        if not np.all(np.isfinite(upper)):
            return math.inf
        best = max(best, float(np.max(upper - 2.0 * tail)))
        loose = upper > best + max(slack * abs(best), rounding)
        proven = max(proven, float(np.max(upper[~loose], initial=-math.inf)))
        rest = float(np.max(upper[loose], initial=-math.inf))
        if not np.any(loose):
            break
        low, mid, high = low[loose], mid[loose], high[loose]
        low, high = np.concatenate([low, mid]), np.concatenate([mid, high])
    return float(max(proven, rest) + rounding)


def _partition(low: float, high: float, function: str) -> tuple[FloatArray, FloatArray]:
    """Return the left and the right ends of the first cells."""
    if function == "reciprocal":  # ratios <= 2 keep q = half / mid <= 1/3
        edges = np.geomspace(low, high, max(CELLS, math.ceil(math.log2(high) - math.log2(low))) + 1)
    else:  # error curves bend like T_n: most at the ends
        edges = low + (high - low) * np.sin(np.linspace(0.0, 0.5 * np.pi, CELLS + 1)) ** 2
    edges[0], edges[-1] = low, high
    return np.asarray(edges[:-1], dtype=np.float64), np.asarray(edges[1:], dtype=np.float64)


@lru_cache(maxsize=32)
def _binomials(size: int) -> FloatArray:
    """Return C(j + i, j) at row j, column i, shape (size, size)."""
    return np.array([[math.comb(j + i, j) for i in range(size)] for j in range(size)], dtype=float)


def _sigmoid_terms(mid: FloatArray, half: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return half^j s^(j)(mid) / j!, shape (TERMS, cells), and the remainder's bound.

    s' = 1/4 - (s - 1/2)^2 gives the terms; |s - 1/2| <= 1/2 on a disk of radius pi/2 gives
    |s^(j)| / j! <= (2/pi)^j / 2 (Cauchy). Cells wider than 2 keep the constant: s is monotone.
    """
    terms = np.zeros((TERMS, mid.size))
    terms[0] = odd_part(mid)
    for j in range(TERMS - 1):
        square = np.sum(terms[: j + 1] * terms[j::-1], axis=0)
        terms[j + 1] = half * ((0.25 if j == 0 else 0.0) - square) / (j + 1)
    terms[0] += 0.5
    wide, ratio = half > 1.0, np.minimum(half, 1.0) * (2.0 / math.pi)
    terms[1:, wide] = 0.0
    spread = odd_part(mid + half) - odd_part(mid - half) + 4.0 * UNIT
    return terms, np.where(wide, spread, 0.5 * ratio**TERMS / (1.0 - ratio))


def _reciprocal_terms(mid: FloatArray, half: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return half^j (1/x)^(j)(mid) / j! = (-q)^j / mid, q = half / mid < 1, and the remainder."""
    ratio = half / mid
    terms = (-ratio) ** np.arange(TERMS)[:, None] / mid
    return terms, ratio**TERMS / (mid * (1.0 - ratio))


def _exponential_terms(mid: FloatArray, half: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return half^j exp(mid) / j!, and the remainder, exp(mid + half) half^TERMS / TERMS! at most.

    Wide cells are halved as others are: their remainder is large.
    """
    factorials = np.array([math.factorial(j) for j in range(TERMS + 1)], dtype=float)
    powers = half ** np.arange(TERMS + 1)[:, None] / factorials[:, None]
    return np.exp(mid) * powers[:TERMS], np.exp(mid + half) * powers[TERMS]


def _zero_terms(mid: FloatArray, half: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.zeros((TERMS, mid.size)), 0.0 * half


_EXPANSIONS = {
    "sigmoid": _sigmoid_terms,
    "exponential": _exponential_terms,
    "reciprocal": _reciprocal_terms,
    "zero": _zero_terms,
}
