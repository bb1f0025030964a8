"""The sigmoid's polynomial that pushes iterates outwards least.

A row with label 1 and score z pushes gradient descent outwards by z (1 - p(z)) (`descent_bound`),
at most .2785 for the sigmoid itself. The minimax polynomial ends below 1, which costs R (1 - p(R))
at the end R of a wide interval: 2.14 of degree 7 on [-20, 20]. A little more error buys that back.

Of all p = 1/2 + odd with |p - sigmoid| <= `error`, the least maximum of z (1 - p(z)) over 0 < z <=
R is a linear programme in the coefficients: both are linear at every z. (For z < 0 the push is
-|z| p(|z|), an odd p being 1 - p(-z): never above.) It is solved on a grid; whatever comes out is
certified afterwards, like any other polynomial. The basis are the odd Chebyshev polynomials, in
which degree 15 has a condition number of a few units.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev
from scipy.optimize import linprog

from protocols.errors import ParameterError
from protocols.remez import FloatArray, odd_part, odd_powers

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
    wide = np.cos(np.linspace(0.5 * np.pi, 0.0, 24 * degree + 1)[1:])
    bend = np.linspace(0.0, min(1.0, _BEND / radius), 201)[1:]
    t: FloatArray = np.unique(np.concatenate([wide, bend])).astype(np.float64)
    basis, target = chebyshev.chebvander(t, degree)[:, 1::2], odd_part(radius * t)
    none = np.zeros((t.size, 1))
    # unknowns: the series a and M / R; t (1/2 - q(t)) <= M / R and |q - target| <= error, q = B a
    found = linprog(
        np.append(np.zeros(basis.shape[1]), 1.0),
        A_ub=np.block(
            [[-t[:, None] * basis, np.full_like(none, -1.0)], [basis, none], [-basis, none]]
        ),
        b_ub=np.concatenate([-0.5 * t, target + error, error - target]),
        bounds=(None, None),
        method="highs-ds",
        options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": 1e-9},
    )
    if found.status != 0:
        raise ParameterError(
            f"degree={degree}, radius={radius}: no polynomial is within {error:.3g} of the "
            "sigmoid; allow more, or take a smaller radius"
        )
    return np.asarray(odd_powers(degree) @ found.x[:-1])
