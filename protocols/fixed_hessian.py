"""Does a loss have a fixed Hessian? The test, step by step.

For a loss phi(z, y) of the linear predictor z = x.w the Hessian of the sum is X^T D X with
D = diag(phi''(z_i, y_i)). A matrix constant * X^T X lies above it for every w if and only if phi''
is bounded above over the predictor's range. Chiang ("Privacy-Preserving Logistic Regression
Training with a Faster Gradient Variant", III-B) tests in three steps, all followed here:

1. build the diagonal bound from the Hessian itself: here through phi'';
2. see whether it has a constant extreme over w. (Step 2 there asks for the least |B_kk|; only the
   largest satisfies the convergence condition that it refers to, and gives its 1/4 X^T X.)
3. see how tight the constant is.

Passing is sufficient for a fixed Hessian, failing does not prove that none exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError

Array = NDArray[np.float64]
# phi''(z, y) for an array of z and one target y.
SecondDerivative = Callable[[Array, float], Array]

POINTS = 20_001
# Half widths that stand for an unbounded range, growing; phi'' must have stopped growing.
WIDTHS = (10.0, 20.0, 40.0, 80.0)
LOOSE = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedHessian:
    """Outcome of the test.

    constant: c with H <= c X^T X over the range, or None; at: the z of the largest phi''; proven:
    whether c is a bound (a Lipschitz constant was given, the range is finite) or the largest of
    the values seen; tightness: c over the mean of max(phi'', 0); reasons: one sentence per step.
    """

    constant: float | None
    at: float
    proven: bool
    tightness: float
    reasons: tuple[str, ...]


def fixed_hessian(
    second_derivative: SecondDerivative,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    targets: Sequence[float] = (0.0,),
    lipschitz: float | None = None,
) -> FixedHessian:
    """Whether phi'' has a constant bound for z in [low, high] (both finite, or neither).

    targets: values of y to try; the two extremes are enough where phi'' is linear or convex in y.
    lipschitz: bound of |d phi'' / dz| on the range, where one is known.

    Raises:
        ParameterError: the range is empty or half open, or phi'' returns another shape.
    """
    if not low < high or math.isinf(low) != math.isinf(high) or not targets:
        raise ParameterError(
            f"low={low}, high={high}: need low < high, both finite or both not, and a target"
        )
    finite = math.isfinite(low)
    ends = [(low, high)] if finite else [(-width, width) for width in WIDTHS]
    scans = [_scan(second_derivative, *end, targets) for end in ends]
    top, at, mean, step = scans[-1]
    reasons = [
        f"1. H = X^T D X, the entries of D in [.., {top:.6g}] at the points tried "
        f"({'the given range' if finite else f'up to |z| = {WIDTHS[-1]:g}'})."
    ]
    if not math.isfinite(top):
        reasons.append(f"2. The second derivative is not finite at z = {at:.6g}: no constant.")
        return _refused(at, reasons)
    if not finite and top > max(scan[0] for scan in scans[:-1]) * (1 + 1e-6) + 1e-12:
        reasons.append(
            f"2. The second derivative still grows at |z| = {WIDTHS[-1]:g}: no constant was found; "
            "bound the predictor and give its range."
        )
        return _refused(at, reasons)
    proven = finite and lipschitz is not None
    constant = max(top + (lipschitz * step / 2 if finite and lipschitz else 0.0), 0.0)
    reasons.append(
        f"2. Its largest value is {constant:.6g}, near z = {at:.6g}: {constant:.6g} X^T X lies "
        f"above H{' (proven)' if proven else ' as far as points show'}."
    )
    tightness = constant / mean if mean > 0 else math.inf
    verdict = "tight" if tightness <= LOOSE else "loose: expect slow convergence"
    reasons.append(f"3. The constant is {tightness:.3g} times the mean curvature: {verdict}.")
    return FixedHessian(
        constant=constant, at=at, proven=proven, tightness=tightness, reasons=tuple(reasons)
    )


def _refused(at: float, reasons: list[str]) -> FixedHessian:
    return FixedHessian(
        constant=None, at=at, proven=False, tightness=math.inf, reasons=tuple(reasons)
    )


def _scan(
    second_derivative: SecondDerivative, low: float, high: float, targets: Sequence[float]
) -> tuple[float, float, float, float]:
    """Largest value (inf where one is not finite), where, mean of the positive part, spacing."""
    z: Array = np.linspace(low, high, POINTS, dtype=np.float64)
    values: Array = np.stack([second_derivative(z, y) for y in targets])
    if values.shape != (len(targets), POINTS):
        raise ParameterError(
            f"the second derivative returned shape {values.shape[1:]} for {z.shape}: one value per "
            "z is needed"
        )
    worst = np.where(np.isfinite(values), values, math.inf).max(axis=0)
    best = int(np.argmax(worst))
    mean = float(np.maximum(worst, 0.0).mean())
    return float(worst[best]), float(z[best]), mean, float(z[1] - z[0])
