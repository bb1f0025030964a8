"""What the certificates of training on encrypted rows have in common, from a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocols import arithmetic
from protocols.approximation import Approximation
from protocols.privacy.budget import Budget

if TYPE_CHECKING:
    from protocols.rows import RowsPlan


def row_setting(plan: RowsPlan, norm_bound: float) -> dict[str, Any]:
    """Fields of a setting; a run without privacy has no noise, and counts no arithmetic.

    Raises:
        ParameterError: a figure is out of range, or the arithmetic is worse than is counted.
    """
    promise, counted = plan.privacy, {"encryption_error": 0.0}
    if promise:
        arithmetic.check(plan, norm_bound)
        counted = arithmetic.counted(plan, norm_bound)
    return {
        "encryption_error": counted.pop("encryption_error"),
        "rows": plan.num_rows,
        "features": plan.num_features,
        "norm_bound": norm_bound,
        "sigmoid": Approximation.unchecked(plan.link),
        "sigma": promise.sigma if promise else 0.0,
        "budget": Budget.of(promise, plan.split, **counted),
    }
