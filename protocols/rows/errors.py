"""How much noise an encrypted model has: on encrypted rows."""

from __future__ import annotations

import math

from protocols.ckks.circuits.errors import MARGIN, error_std, few_margin, scatter
from protocols.ckks.circuits.rows import MASK_VALUE
from protocols.numerics.approximation import is_symmetric, range_bound
from protocols.rows.plan import RowsPlan
from protocols.steps.precondition import relative_error


def model_error_std(plan: RowsPlan) -> float:
    """Bound on the noise of the encrypted model before its decryption, per coefficient.

    The last refresh adds one rounding for each part, and leaves of what was there before the
    heads, S / B slots of S for each part; what the inverse's error makes is where a feature
    is. Few slots, of two numbers each, scatter about their average, of which `error_std` has
    MARGIN.
    """
    layout, count = plan.layout, plan.num_features
    few = max(1.0, scatter(2 * count) / MARGIN)
    heads = few * math.sqrt(layout.num_parts / layout.block_size)
    features = few * math.sqrt(count / layout.num_slots)
    return _error_std(plan, heads, features, _last(plan, few))


def shown_error_std(plan: RowsPlan) -> float:
    """All that a head has, and the last refresh's roundings; see `model_error_std`."""
    return _error_std(plan, 1.0, 1.0, _last(plan, 1.0), few_margin(plan.num_features))


def iterate_error_std(plan: RowsPlan) -> float:
    """All slots of an iterate hold weights."""
    return _error_std(plan, 1.0, 1.0, 0.0)


def _last(plan: RowsPlan, few: float) -> float:
    # Columns hold noise as well, which the refresh sums up.
    return math.sqrt(plan.layout.num_parts) * (1 + MASK_VALUE * few)


def _error_std(
    plan: RowsPlan, rest: float, inverse: float, last: float, margin: float = MARGIN
) -> float:
    """last: roundings beside; rest, inverse: parts of what the inverse makes, and of all else.

    Noise in a row moves its gradient by |q(z)| + |x| |q'(z)| |w| of it: `_row_gain`. One round
    moves w / R by eta / (R N) times the sum over rows, in which it adds as sqrt(N). Noise in a
    side column passes the refresh's mask, once.
    """
    rule = plan.rule
    moved = plan.link.radius * math.sqrt(plan.num_rows) * plan.units.row_scale
    side = MASK_VALUE * rule.noise_gain()
    gain = rest * rule.noise_gain()
    if plan.curvature is not None:
        relative = relative_error(plan.curvature, plan.ckks, len(plan.members))
        gain += inverse * rule.inverse_gain * relative / plan.link.radius
    return error_std(
        plan.ckks,
        len(plan.members),
        rounding_gain=math.hypot(gain, last),
        row_gain=rest * math.hypot(_row_gain(plan) * rule.row_path / moved, side),
        margin=margin,
    )


def _row_gain(plan: RowsPlan) -> float:
    """Bound on |q| + |q'| R, for a sigmoid's polynomial 1/2 and about as much again."""
    p, radius = plan.link, plan.link.radius
    if is_symmetric(p):
        return 1.0
    values = (abs(end - p.coefficients[0]) for end in range_bound(p, -radius, radius))
    slopes = map(abs, range_bound(p.derivative(), -radius, radius))
    return max(values) + radius * max(slopes)
