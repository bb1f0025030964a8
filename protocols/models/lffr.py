"""LFFR: a logistic function for targets on [0, 1], by squared error (multi-output LFFR, 3.2).

For one output, z = x.w and a link p, the plan's polynomial 1/2 + odd of degree 3,

    g(z, y) = 2 (p - y) p (1 - p),   gradient = mean of x g(z, y).

For the sigmoid this is the gradient of the mean of (p - y)^2. Its slope in z,
(4p - 6p^2 - 2y + 4yp) p (1 - p), is at most 0.15406: the paper bounds the Hessian by 0.155 X^T X.
For a polynomial g is still the derivative in z of a potential, of curvature `curvature(link)`:
0.204 for the paper's polynomial on [-5, 5], near the ends. That is below 2 * 0.155, so steps by
0.155 still descend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import expit

from protocols.errors import ParameterError
from protocols.models.model import Array, TargetModel
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS
from protocols.numerics.approximation import Polynomial, range_bound

# The paper's bound of the second derivative, for the sigmoid itself.
CURVATURE = 0.155
# The paper's sigmoid, in t = z / 5.
PAPER_LINK = Polynomial(
    coefficients=(0.5, 0.19824 * 5, 0.0, -0.0044650 * 125), center=0.0, radius=5.0
)


@dataclass(frozen=True, slots=True)
class Lffr(TargetModel):
    """Targets as they are: the sigmoid of x w stands for the target on [0, 1]."""

    name = "lffr"
    title = "regression with a sigmoid link, fitted by squared error (LFFR)"
    link = (
        "score z = intercept + coef . x; value = low + (high - low) / (1 + exp(-z)), with low and "
        "high of the target in the schema"
    )
    curvature = CURVATURE
    protocols = (ENCRYPTED_ROWS, ENCRYPTED_MODEL)

    def encode(self, targets: Array) -> Array:
        """What is fitted, from targets in [0, 1], shape (rows, c)."""
        return targets

    def loss(self, scores: Array, y: Array) -> Array:
        """(p - y)^2."""
        found: Array = (expit(scores) - y) ** 2
        return found

    def bound(self, outputs: int) -> float:
        """Bound on the Euclidean norm of a row's encoded targets."""
        return math.sqrt(outputs)


def slope_of_loss(link: Polynomial, z: Array, targets: Array) -> Array:
    """g(z, y), entry by entry."""
    p = link(z)
    slope: Array = 2 * (p - targets) * p * (1 - p)
    return slope


def largest_slope(link: Polynomial, radius: float) -> float:
    """Bound of |g(z, y)| for |z| <= radius and y in [0, 1].

    g is linear in y and p(-z) = 1 - p(z), so this is the largest 2 |p^2 (1 - p)| over p's range:
    at an end of it, or at p = 2/3 (8/27, as for the sigmoid).
    """
    low, high = range_bound(link, -radius, radius)
    places = [low, high, *([2 / 3] if low <= 2 / 3 <= high else [])]
    return max(2 * abs(p * p * (1 - p)) for p in places) * (1 + 1e-12)


@lru_cache(maxsize=64)
def curvature(link: Polynomial) -> float:
    """Bound of dg/dz on the link's interval: the largest 2 p' (3p - 1)(1 - p), the case y = 1."""
    p, slope = np.array(link.coefficients), np.array(link.derivative().coefficients)
    one = np.zeros_like(p)
    one[0] = 1.0
    product = 2 * np.convolve(slope, np.convolve(3 * p - one, one - p))
    return _largest(product, link, link.radius)


def push_bound(
    link: Polynomial, *, shrink: float, learning_rate: float, norm_bound: float, radius: float
) -> float:
    """M(R) of `protocols.privacy.certificates.descent_bound` for this loss.

    The largest shrink z r + (eta B^2 / 2) r^2 over |z| <= B R, r = -g(z, y). It is convex in y,
    so y is 0 or 1, and (z, 0) is (-z, 1): r = 2 (1 - p)^2 p.

    Raises:
        ParameterError: p(z) + p(-z) is not 1.
    """
    if link.center != 0 or link.coefficients[0] != 0.5 or any(link.coefficients[2::2]):
        raise ParameterError("p(z) + p(-z) must be 1: give 1/2 plus an odd polynomial")
    p = np.array(link.coefficients)
    rest = -p
    rest[0] += 1.0
    r = 2 * np.convolve(np.convolve(rest, rest), p)
    push = 0.5 * learning_rate * norm_bound**2 * np.convolve(r, r)
    linear = np.convolve(r, [0.0, shrink * link.radius])
    push[: len(linear)] += linear
    return _largest(push, link, norm_bound * radius)


def _largest(coefficients: Array, link: Polynomial, radius: float) -> float:
    """Of a polynomial in t = z / link.radius over |z| <= radius, rounding of products included."""
    product = Polynomial(coefficients=tuple(coefficients), center=0.0, radius=link.radius)
    scale = max(1.0, radius / link.radius) ** product.degree
    slack = 2.0**-45 * float(np.abs(coefficients).sum()) * scale
    return range_bound(product, -radius, radius)[1] + slack
