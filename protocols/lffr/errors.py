"""How much noise encrypted weights of LFFR have."""

from __future__ import annotations

import math
from typing import Any

from parties.kernel.rows.curvature import LIFT
from protocols.ckks.circuits.errors import MARGIN, error_std, few_margin
from protocols.ckks.circuits.lffr import KINDS, cubic
from protocols.ckks.circuits.rows import MASK_VALUE, RowUnits
from protocols.ckks.factored import Link
from protocols.ckks.lffr import lffr_slope
from protocols.lffr.home_plan import LffrModelPlan
from protocols.lffr.plan import LffrPlan
from protocols.model import errors as model_errors
from protocols.models.lffr import CURVATURE
from protocols.steps.precondition import relative_error


def model_error_std(plan: LffrPlan) -> float:
    """Bound on the noise of the encrypted model before its decryption, per coefficient.

    As in `rows`, but the last refresh, which adds one rounding, keeps one of B columns of what
    was there before: k of S slots. An iteration rounds once in the refresh, and in each column
    the product, the noise and the ridge's share, MASK_VALUE sqrt(B) each in the sum.
    Where b_k >= low + 0.155 t, t the mean |x_k|:

    - 1 / b_k errs by a few roundings relative to itself (`precondition`), |grad_k| <= 8/27 t,
      so that a step errs by at most 2 of them;
    - a rounding of c x moves z by |w| / c <= R / c of it, a slope by 0.2 of that, and a step by
      at most sqrt(t) / b_k <= 1 / (2 sqrt(0.155 low)) of its mean over rows; the noise of its
      encryption as much, over LIFT;
    - noise in the lifted c x moves a step by at most (1/2) / low / LIFT / c of its mean, and in
      the lifted label terms by |A| / c as much, A that of `units`, empty columns included;
    - noise in a side column moves a step by MASK_VALUE of it.
    """
    return _error_std(plan, 1 / math.sqrt(plan.layout.block_size))


def shown_error_std(plan: LffrPlan) -> float:
    """All that a head has, of which there are few."""
    return _error_std(plan, 1.0, few_margin(plan.model_size))


def iterate_error_std(plan: LffrPlan) -> float:
    """Of which the last refresh keeps one of B columns."""
    return math.sqrt(plan.layout.block_size) * model_error_std(plan)


def _error_std(plan: LffrPlan, kept: float, margin: float = MARGIN) -> float:
    """kept: of what was there before the last refresh."""
    size, units, rows = plan.layout.block_size, plan.units, plan.num_rows
    path, root = plan.learning_rate * plan.rounds, math.sqrt(plan.rounds)
    rounding = root * math.hypot(1.0, 2 * MASK_VALUE * math.sqrt(size))
    weight, side = 1.0, MASK_VALUE * root
    if plan.curvature:
        relative = relative_error(plan.curvature, plan.ckks, len(plan.members))
        rounding += 2 * path * relative / plan.unit
        weight, side = 1 / (2 * math.sqrt(CURVATURE * plan.curvature.offset)), 0.0
    lifted = plan.largest_step / (2 * LIFT * plan.unit * plan.learning_rate)
    columns = size * (plan.layout.num_data_ciphertexts // KINDS)
    terms = lifted * units.leading * math.sqrt(columns) / rows
    reach, slope = path / units.row_scale, 0.2 * weight / math.sqrt(rows)
    moved = reach * math.hypot(slope / LIFT + lifted / math.sqrt(rows), terms)
    rounding = math.hypot(rounding, reach * slope)
    return error_std(
        plan.ckks,
        len(plan.members),
        rounding_gain=math.hypot(1.0, rounding * kept),
        row_gain=math.hypot(moved, side) * kept,
        margin=margin,
    )


# -- where rows stay home -------------------------------------------------------------------------


def steepest(units: RowUnits, z: Any) -> Any:
    """Slope of a row whose target is 0; that of 1 is the same at -z."""
    link = Link.of(units.link.coefficients)
    return lffr_slope(link, z, lambda t: t + 0.5 / cubic(units.link)[0])


def home_model_error_std(plan: LffrModelPlan) -> float:
    """As of any encrypted model."""
    return model_errors.model_error_std(plan, steepest)


def home_iterate_error_std(plan: LffrModelPlan) -> float:
    """As of any encrypted model."""
    return model_errors.iterate_error_std(plan, steepest)
