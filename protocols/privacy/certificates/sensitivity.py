"""Replace-one l2 sensitivity of one round's sum of per-row gradients.

A row's gradient is (p(<w, x>) - y) x. On the approximation interval |p(z) - y| is at most
phi'max + e_f, so replacing one row by any other moves the sum by at most
D2 = 2 (phi'max + e_f) B_x (arXiv:2605.27782, appendix C.2), where B_x bounds every row's norm,
bias column included.

That bound is not attained: a row with a large residual p(z) - y has a large |z|, hence points along
w, and two such rows cannot point opposite ways. `diameter` bounds what is left, certainly. With
u = -x for y = 1, and u = x for y = 0 (p(z) + p(-z) = 1, or rows are signed, `RowsPlan.signed`, and
x is already negated), a row's gradient is r(<w, u>) u, r(s) = 1 - p(-s). Let phi be the angle of u
and w, |w| <= R and q(s) the maximum of r between 0 and s. For a unit vector e in the plane of w and
u, at the angle theta from w, <r(<w, u>) u, e> <= H(theta), where
H(theta) = B max over phi of q(B R cos phi) cos(phi - theta), or B |min r| if that is larger. (A
shorter u or w only lowers <w, u>, and leaving the plane only shortens the projection.) The distance
of two gradients is the width of the set along their difference, at most
max over theta of H(theta) + H(pi - theta). Cells of a fine partition bound both maxima from above.

Weights of rows, s in [0, s_max] by a public bound, are u = s / s_max here. A row's part is u g, on
the line from 0 to g, and H >= 0, since q >= r(0) > 0 and some phi is theta: all u g, and 0, are
within what H supports, so that D bounds their distances, too. Of the sum of s g the sensitivity is
s_max D, and noise on the sum of u g is s_max times as much on that of s g.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from protocols.errors import ParameterError
from protocols.numerics.approximation import Polynomial, range_bound
from protocols.numerics.remez import FloatArray
from protocols.privacy.certificates.certificate import require_numbers

SIGMOID_SLOPE_MAX = 1.0
"""phi'max for the logistic loss: |sigmoid(z) - y| < 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """What bounds the change of a round's gradient sum when one row is replaced.

    Attributes:
        norm_bound: B_x, bound on every row's l2 norm, bias column included: sqrt(m) for m
            columns in [-1, 1], or the public norm that rows are clipped to.
        approximation_error: e_f, error of the polynomial on the interval that all z stay in.
        features: m, columns including the bias.
        encryption_error: e_ckks, bound on what the arithmetic (fixed point, CKKS) of one round
            adds to each coordinate, in units of the gradient SUM (the update's error times
            N / eta); 0 if there is none. The error depends on the data, so it can differ by
            2 e_ckks per coordinate between neighbours.

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    norm_bound: float
    approximation_error: float
    features: int
    encryption_error: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        require_numbers(self, "", "norm_bound approximation_error encryption_error")
        if self.features < 1:
            raise ParameterError(f"features={self.features} is below 1; count the bias column")

    @property
    def exact(self) -> float:
        """D2 = 2 (phi'max + e_f) B_x, without encryption error."""
        return 2.0 * (SIGMOID_SLOPE_MAX + self.approximation_error) * self.norm_bound

    @property
    def total(self) -> float:
        """D2 + 2 e_ckks sqrt(m); what the noise has to be scaled by."""
        return self.exact + 2.0 * self.encryption_error * math.sqrt(self.features)


def diameter(p: Polynomial, *, norm_bound: float, radius: float, cells: int = 4000) -> float:
    """Certain bound on |g(x, y) - g(x', y')| over all rows and labels, and all |w| <= R.

    Args:
        p: the sigmoid's polynomial; without p(z) + p(-z) = 1 it is of signed rows.
        norm_bound: B, bound on the rows' norms.
        radius: R, bound on |w|.
        cells: partition of the angles, even; the bound exceeds the true diameter by about
            (B R max|p'| + 1) pi / cells of it.

    Returns:
        at most 2 B max |1 - p|; for a sigmoid it tends to B for small R and to 2 B for large R.
    """
    if not 4 <= cells <= 100_000 or cells % 2:
        raise ParameterError(f"cells={cells} is not even, or outside 4 .. 100000")
    ends, r = norm_bound * radius, _mirrored(p)
    slope = max(abs(bound) for bound in range_bound(r.derivative(), -ends, ends))
    low, high = range_bound(r, -ends, ends)
    # angles phi of (0, pi), cell by cell; q is largest at the cell's left end
    edges = np.linspace(0.0, math.pi, cells + 1)
    s = ends * np.cos(edges)
    values = np.maximum(r(s[:-1]), r(s[1:])) + slope * np.abs(np.diff(s)) / 2
    values = np.maximum(values, r(0.0))  # z = 0 is always allowed
    q: FloatArray = np.zeros(cells)
    ahead = np.flatnonzero(s[:-1] > 0)[::-1]  # cells in which u may point along w, z rising
    q[ahead] = np.maximum.accumulate(values[ahead])
    behind = np.flatnonzero(s[:-1] <= 0)
    q[behind] = np.maximum.accumulate(values[behind])
    q = np.minimum(q, high)
    # cos(phi - theta) within a cell exceeds that at its middle by half a cell at most; theta is at
    # every second edge, so that the middles are odd halves of cells away
    cell = math.pi / cells
    reach = np.minimum(1.0, np.cos((np.arange(-cells, cells) + 0.5) * cell) + cell / 2)
    widths = [np.max(q * reach[at : at + cells]) for at in range(cells, -1, -2)]
    support = norm_bound * np.maximum(widths, max(0.0, -low))
    # H is Lipschitz in theta with constant B max q
    width = support + support[::-1] + 2 * norm_bound * high * cell
    return min(float(width.max()), 2 * max(high, -low) * norm_bound) * (1 + 1e-12)


def _mirrored(p: Polynomial) -> Polynomial:
    """1 - p(-s), the same where p is 1/2 plus an odd polynomial around 0."""
    if p.center != 0:
        raise ParameterError(f"center={p.center}: the polynomial must be around 0")
    start, *others = p.coefficients
    turned = (c * (-1.0) ** k for k, c in enumerate(others))
    return replace(p, coefficients=(1.0 - start, *turned))
