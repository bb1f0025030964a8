"""Polynomials in the sigmoid's place that push iterates outwards least.

A row with label 1 and score z pushes gradient descent outwards by z (1 - p(z)) (`descent_bound`),
at most .2785 for the sigmoid itself. The minimax polynomial ends below 1, which costs R (1 - p(R))
at the end R of a wide interval: 2.14 of degree 7 on [-20, 20]. A little more error buys that back.

Of all p in a linear space with |p - target| <= `error`, the least maximum of z (1 - p(z)) over 0 <
z <= R is a linear programme in the coefficients: both are linear at every z. (For z < 0 the push of
p = 1/2 + odd is -|z| p(|z|): never above; that of a p <= 1 is negative.) It is solved on a grid;
whatever comes out is certified afterwards, like any other polynomial. The basis are Chebyshev
polynomials, in which degree 15 has a condition number of a few units.

**Saturating** (`saturating_least_push`). Where noise is large, what one row may say has to be
small: the residual 1 - p(z) of a row on the wrong side is held at 1/2, however far it is,
    1 - p(z) = min(1/2, 1 - sigmoid(z)),   p(z) = max(1/2, sigmoid(z)).
Two rows then differ by 1.06 in place of 1.82 (`sensitivity.diameter`, degree 15 on [-10, 10]), and
noise falls as much. Such a p is not 1/2 plus an odd polynomial: rows of label 0 are negated and get
the label 1 (`RowsPlan.signed`). Its loss is convex and classifies as the logistic one does, but a
probability near 1/2 comes out further from it (at z = 0 the loss bends half as much): worth it
where noise, not bias, decides (`calibrate.pace`).
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev

from protocols.errors import ParameterError
from protocols.numerics.remez import FloatArray, odd_part, odd_powers

_BEND = 30.0
"""The sigmoid is flat beyond."""
_TOLERANCE = 1e-10
"""The solver's least: no use where the error allowed is not far above it."""


def odd_least_push(degree: int, radius: float, error: float) -> FloatArray:
    """Coefficients of t, t^3, ... of p - 1/2, t = z / R; shape ((degree + 1) / 2,).

    error: allowed at the grid's points; the minimax error allows a solution, 1.2 times it a better
    one.

    Raises:
        ParameterError: no polynomial has so small an error.
    """
    t = _grid(degree, radius)
    basis: FloatArray = chebyshev.chebvander(t, degree)[:, 1::2].astype(np.float64)
    target = odd_part(radius * t)
    return np.asarray(odd_powers(degree) @ _least_push(t, basis, 0.5, target, error))


def saturating_least_push(degree: int, radius: float, slack: float) -> FloatArray:
    """Coefficients of 1, t, t^2, ... of p, t = z / R; shape (degree + 1,).

    slack: error allowed at the grid's points, in units of the least possible.

    Raises:
        ParameterError: slack is below 1.
    """
    half = _grid(degree, radius)
    t = np.concatenate([-half[::-1], [0.0], half])
    basis: FloatArray = chebyshev.chebvander(t, degree).astype(np.float64)
    target = np.maximum(odd_part(radius * t), 0.0) + 0.5
    ones = np.ones((t.size, 1))
    least = _solved(np.block([[basis, -ones], [-basis, -ones]]), np.concatenate([target, -target]))
    if least is None or not slack >= 1:
        raise ParameterError(f"slack={slack} is below 1: no polynomial has less than the least")
    series = _least_push(t, basis, 0.0, target, slack * float(least[-1]) + _TOLERANCE)
    found = np.zeros(degree + 1)
    powers = chebyshev.cheb2poly(series)
    found[: powers.size] = powers
    return found


def _grid(degree: int, radius: float) -> FloatArray:
    """Of (0, 1]."""
    wide = np.cos(np.linspace(0.5 * np.pi, 0.0, 24 * degree + 1)[1:])
    bend = np.linspace(0.0, min(1.0, _BEND / radius), 201)[1:]
    return np.asarray(np.unique(np.concatenate([wide, bend])), dtype=np.float64)


def _least_push(
    t: FloatArray, basis: FloatArray, start: float, target: FloatArray, error: float
) -> FloatArray:
    """The series a of p = start + q, q = B a, with |q - target| <= error."""
    none = np.zeros((t.size, 1))
    # unknowns: the series and M / R; t (1 - p(t)) <= M / R
    found = _solved(
        np.block([[-t[:, None] * basis, none - 1.0], [basis, none], [-basis, none]]),
        np.concatenate([(start - 1.0) * t, target + error, error - target]),
    )
    if found is None:
        raise ParameterError(
            f"no polynomial is within {error:.3g} of what it stands for; allow more, or take a "
            "smaller radius"
        )
    return found[:-1]


def _solved(rows: FloatArray, bounds: FloatArray) -> FloatArray | None:
    """The x of least last entry with rows x <= bounds; None if there is none."""
    from scipy.optimize import linprog

    found = linprog(
        np.append(np.zeros(rows.shape[1] - 1), 1.0),
        A_ub=rows,
        b_ub=bounds,
        bounds=(None, None),
        method="highs-ds",
        options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": 1e-9},
    )
    return np.asarray(found.x) if found.status == 0 else None
