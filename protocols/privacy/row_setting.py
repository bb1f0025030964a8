"""What the certificates of training on encrypted rows have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from protocols import arithmetic
from protocols.approximation import Approximation
from protocols.privacy.budget import Budget
from protocols.privacy.certificate import document, require_numbers
from protocols.privacy.sensitivity import diameter

if TYPE_CHECKING:
    from protocols.rows import RowsPlan


@dataclass(frozen=True, kw_only=True)
class RowSetting:
    """What every such certificate speaks about.

    Attributes:
        rows: N, all parties' rows together.
        features: m, columns **including** the bias.
        norm_bound: B, bound on every row's norm, bias included.
        sigmoid: p and its interval [-B R, B R].
        sigma: noise std on the mean gradient that is left without any t colluders; 0 without a
            promise.
        budget: epsilon, delta, P, t.
        encryption_error: e_ckks per round and coordinate, see `Sensitivity`; 0: NOT counted.

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    rows: int
    features: int
    norm_bound: float
    sigmoid: Approximation
    sigma: float
    budget: Budget
    encryption_error: float = 0.0

    def __post_init__(self) -> None:
        require_numbers(self, "rows features norm_bound", "sigma encryption_error")

    @property
    def radius(self) -> float:
        """R, the ball that p's interval allows."""
        return self.sigmoid.polynomial.radius / self.norm_bound

    @cached_property
    def gradient_sensitivity(self) -> float:
        """D2 within that ball."""
        return diameter(self.sigmoid.polynomial, norm_bound=self.norm_bound, radius=self.radius)

    @property
    def rounding(self) -> float:
        """What the arithmetic adds to a sensitivity."""
        return 2 * self.encryption_error * math.sqrt(self.features)

    @property
    def gradient_error(self) -> float:
        """What it adds to the computed mean gradient, l2."""
        return self.encryption_error * math.sqrt(self.features) / self.rows

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, polynomials included."""
        return document(self)


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
