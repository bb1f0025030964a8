"""Polynomials that stand in for the sigmoid, exp and 1/x, with certified errors and ranges.

The privacy theorem needs true bounds (e_f, e_B, max |p'|, m_P, M_P), not sampled ones: those here
come from branch and bound over Taylor expansions, for coefficients as rounded to float64.
Source: arXiv:2605.27782, Theorem 3 and appendix D.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args, overload

import numpy as np

from protocols.errors import ParameterError
from protocols.numerics import remez
from protocols.numerics.push import odd_least_push, saturating_least_push
from protocols.numerics.remez import FloatArray, Scaled

Function = Literal["sigmoid", "exponential", "reciprocal"]
Method = Literal["minimax", "least-squares", "least-push", "saturating"]

SIGMOID_DEGREES = (3, 5, 7, 9, 11, 13, 15)
EXPONENTIAL_DEGREES = tuple(range(3, 16))
RECIPROCAL_DEGREES = (1, 2, 3, 4, 5, 6)
PUSH_ERROR = 1.2  # of the minimax error: allowed to "least-push" and "saturating"
NOTHING = 1e-7  # a minimax error below it leaves no push to save, and no digits to save it in
MAX_RADIUS = 1000.0
MAX_EXPONENT = 10.0  # radius of exp; its least value is then e^-20 of the largest
MAX_RATIO = 1e12  # high / low of 1/x; beyond it center - radius has lost low


@dataclass(frozen=True, kw_only=True, slots=True)
class Polynomial:
    """p(x) = sum_k coefficients[k] * t^k, t = (x - center) / radius.

    coefficients: of t^0, t^1, …, shape (degree + 1,) [units of p].
    center, radius: middle and half width of the intended interval [units of x].

    Raises: ParameterError: no coefficients, a number is not finite, or radius <= 0.
    """

    coefficients: tuple[float, ...]
    center: float
    radius: float

    def __post_init__(self) -> None:
        """Check the fields."""
        values = tuple(map(float, self.coefficients))
        object.__setattr__(self, "coefficients", values)
        object.__setattr__(self, "center", float(self.center))
        object.__setattr__(self, "radius", float(self.radius))
        _require(bool(values), "coefficients=() is empty: give at least the constant")
        _require(all(map(math.isfinite, values)), f"coefficients={values}: all must be finite")
        _require(math.isfinite(self.center), f"center={self.center} must be finite")
        _require(0.0 < self.radius < math.inf, f"radius={self.radius} must be finite and positive")

    @property
    def degree(self) -> int:
        """Number of coefficients less one; the leading one may be zero."""
        return len(self.coefficients) - 1

    @property
    def low(self) -> float:
        """Left end of the intended interval, to rounding [units of x]."""
        return self.center - self.radius

    @property
    def high(self) -> float:
        """Right end of the intended interval, to rounding [units of x]."""
        return self.center + self.radius

    @overload
    def __call__(self, x: float) -> float: ...
    @overload
    def __call__(self, x: FloatArray) -> FloatArray: ...
    def __call__(self, x: FloatArray | float) -> FloatArray | float:
        """Evaluate by Horner's rule in t; the result has the shape of x."""
        t = (x - self.center) / self.radius
        value = 0.0 * t
        for coefficient in reversed(self.coefficients):
            value = value * t + coefficient
        return value

    def derivative(self) -> Polynomial:
        """Return p' [units of p / x]: coefficients k c_k / radius; a constant's is (0.0,)."""
        slopes = tuple(k * c / self.radius for k, c in enumerate(self.coefficients))[1:]
        return Polynomial(coefficients=slopes or (0.0,), center=self.center, radius=self.radius)


@dataclass(frozen=True, kw_only=True, slots=True)
class Approximation:
    """A polynomial and what is certain about it on its interval.

    max_error: upper bound of max |p - f| [units of f]. max_slope: the same of |p'| [units of f/x].
    """

    polynomial: Polynomial
    max_error: float
    max_slope: float

    @classmethod
    def unchecked(cls, polynomial: Polynomial) -> Approximation:
        """Nothing is certain yet: certificates bound the errors of a polynomial themselves."""
        return cls(polynomial=polynomial, max_error=math.nan, max_slope=math.nan)


def sigmoid_approximation(degree: int, radius: float, method: Method = "minimax") -> Approximation:
    """Approximate 1/(1 + e^-x) on [-radius, radius] by exactly 1/2 + an odd polynomial; cached.

    degree: one of SIGMOID_DEGREES. radius: in (0, MAX_RADIUS] [units of x]. method: "minimax",
    "least-squares", continuous, or "least-push", see `push`. "saturating", also there, has no
    symmetry: it stands for the sigmoid above 0, for 1/2 below.

    Raises: ParameterError: an argument is outside its bound.
    """
    _require(degree in SIGMOID_DEGREES, f"degree={degree}: choose one of {SIGMOID_DEGREES}")
    ok = 0.0 < radius <= MAX_RADIUS
    _require(ok, f"radius={radius} is not in (0, {MAX_RADIUS}]: bound rows or weights more tightly")
    _require(method in get_args(Method), f"method={method!r}: choose one of {get_args(Method)}")
    return _sigmoid(int(degree), float(radius), method)


@lru_cache(maxsize=4096)
def _sigmoid(degree: int, radius: float, method: Method) -> Approximation:
    if method == "saturating":
        p = _around_zero(saturating_least_push(degree, radius, PUSH_ERROR), radius)
        slope = max(map(abs, range_bound(p.derivative(), -radius, radius)))
        return Approximation(polynomial=p, max_error=link_error(p, radius), max_slope=slope)
    coefficients = np.zeros(degree + 1)
    coefficients[0] = 0.5
    if method == "least-push":
        best = _sigmoid(degree, radius, "minimax")
        if best.max_error < NOTHING:
            return best
        coefficients[1::2] = odd_least_push(degree, radius, PUSH_ERROR * best.max_error)
    else:
        fit = remez.odd_minimax if method == "minimax" else remez.odd_least_squares
        coefficients[1::2] = fit(degree, radius)
    p = _around_zero(coefficients, radius)
    # p - f is odd and p' even: half the interval is enough
    return _approximation(p, "sigmoid", (0.0, radius))


def _around_zero(coefficients: FloatArray, radius: float) -> Polynomial:
    return Polynomial(coefficients=tuple(coefficients.tolist()), center=0.0, radius=radius)


def exponential_approximation(degree: int, radius: float) -> Approximation:
    """Return the minimax polynomial of exp(x - radius), 1 at most, on [-radius, radius]; cached.

    degree: one of EXPONENTIAL_DEGREES. radius: in (0, MAX_EXPONENT].

    Raises: ParameterError: an argument is outside its bound.
    """
    ok = degree in EXPONENTIAL_DEGREES
    _require(ok, f"degree={degree}: choose one of {EXPONENTIAL_DEGREES}")
    ok = 0.0 < radius <= MAX_EXPONENT
    _require(ok, f"radius={radius} is not in (0, {MAX_EXPONENT}]: take a smaller one")
    return _exponential(int(degree), float(radius))


@lru_cache(maxsize=64)
def _exponential(degree: int, radius: float) -> Approximation:
    coefficients = remez.exponential_minimax(degree, radius)
    p = Polynomial(coefficients=tuple(coefficients), center=0.0, radius=radius)
    slope = max(map(abs, range_bound(p.derivative(), -radius, radius)))
    return Approximation(polynomial=p, max_error=exponential_error(p), max_slope=slope)


def exponential_error(p: Polynomial) -> float:
    """Return a certain bound of max |p(x) - exp(x - high)| on p's interval; see `error_bound`."""
    moved = replace(p, center=p.center - p.high)
    return error_bound(moved, "exponential", moved.low, moved.high)


def reciprocal_approximation(degree: int, low: float, high: float) -> Approximation:
    """Return the minimax polynomial of 1/x on [low, high], 0 < low < high, in closed form; cached.

    degree: one of RECIPROCAL_DEGREES. low, high: kappa Theta and Theta of the barrier.

    Raises: ParameterError: an argument is outside its bound.
    """
    _require(degree in RECIPROCAL_DEGREES, f"degree={degree}: choose one of {RECIPROCAL_DEGREES}")
    _check_interval(low, high, "reciprocal")
    ok = low < high <= MAX_RATIO * low
    _require(ok, f"high={high} is not in (low, {MAX_RATIO} low], low={low}: change kappa")
    return _reciprocal(int(degree), float(low), float(high))


@lru_cache(maxsize=4096)
def _reciprocal(degree: int, low: float, high: float) -> Approximation:
    coefficients = remez.reciprocal_minimax(degree, low, high)
    center, radius = 0.5 * low + 0.5 * high, 0.5 * (high - low)
    p = Polynomial(coefficients=tuple(coefficients), center=center, radius=radius)
    return _approximation(p, "reciprocal", (low, high))


def _approximation(p: Polynomial, function: Function, ends: tuple[float, float]) -> Approximation:
    return Approximation(
        polynomial=p,
        max_error=error_bound(p, function, *ends),
        max_slope=max(map(abs, range_bound(p.derivative(), *ends))),
    )


def error_bound(polynomial: Polynomial, function: Function, low: float, high: float) -> float:
    """Return a certain upper bound of max |p - function| on [low, high], not a sampled one.

    It holds for the exact polynomial with these float64 coefficients and for its evaluation, and
    is too high by 1e-6 of the maximum and the rounding that `remez.supremum` derives, at most.

    Raises: ParameterError: not low <= high, not finite, or low <= 0 for the reciprocal.
    """
    functions = get_args(Function)
    _require(function in functions, f"function={function!r}: choose one of {functions}")
    _check_interval(low, high, function)
    return remez.supremum(_bare(polynomial), (low, high), function, 1e-6)


def range_bound(polynomial: Polynomial, low: float, high: float) -> tuple[float, float]:
    """Return (m, M), m <= p <= M certain on [low, high]; each within 1e-9 of the attained extreme.

    Raises: ParameterError: not low <= high, or not finite.
    """
    _check_interval(low, high)
    coefficients, center, radius = _bare(polynomial)
    negative = remez.supremum((-coefficients, center, radius), (low, high), "zero", 1e-9)
    return -negative, remez.supremum((coefficients, center, radius), (low, high), "zero", 1e-9)


def link_error(p: Polynomial, ends: float) -> float:
    """Return a certain bound of |p(z) - f(z)| over |z| <= ends.

    f: the sigmoid, or where p is not symmetric max(sigmoid, 1/2).
    """
    if is_symmetric(p):
        return error_bound(p, "sigmoid", -ends, ends)
    low, high = range_bound(p, -ends, 0.0)
    return max(error_bound(p, "sigmoid", 0.0, ends), high - 0.5, 0.5 - low)


def is_symmetric(p: Polynomial) -> bool:
    """Whether p(z) + p(-z) = 1 as an identity: centre 0, constant 1/2, no other even term."""
    even = p.coefficients[2::2]
    return p.center == 0.0 and p.coefficients[0] == 0.5 and not any(even)


def is_decreasing(polynomial: Polynomial, low: float, high: float) -> bool:
    """Return whether p' <= 0 on [low, high] is proven; False also where rounding leaves doubt."""
    _check_interval(low, high)
    # a relative slack of 1/2 leaves the maximum's sign certain
    return remez.supremum(_bare(polynomial.derivative()), (low, high), "zero", 0.5) <= 0.0


def _bare(polynomial: Polynomial) -> Scaled:
    return np.array(polynomial.coefficients), polynomial.center, polynomial.radius


def _check_interval(low: float, high: float, function: str = "") -> None:
    ok = math.isfinite(low) and math.isfinite(high) and low <= high
    _require(ok, f"low={low}, high={high} must be finite, low <= high: swap or bound them")
    _require(function != "reciprocal" or low > 0.0, f"low={low} is not > 0: 1/x has a pole there")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ParameterError(message)
