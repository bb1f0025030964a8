"""What the certificates of training on encrypted rows have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from protocols.errors import ParameterError
from protocols.numerics import arithmetic
from protocols.numerics.approximation import Approximation
from protocols.numerics.whitening import Whitening
from protocols.privacy.certificates.certificate import Condition, document, require_numbers
from protocols.privacy.certificates.sensitivity import diameter
from protocols.privacy.loss.budget import Budget

if TYPE_CHECKING:
    from protocols.rows.plan import RowsPlan


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
        spectrum: Lambda, bound on the largest eigenvalue of X^T X / N; None: B^2.
        whitening: what Lambda follows from; None: `spectrum` is taken for granted.

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
    spectrum: float | None = None
    whitening: Whitening | None = None

    def __post_init__(self) -> None:
        require_numbers(self, "rows features norm_bound", "sigma encryption_error")
        if self.spectrum is not None:
            require_numbers(self, "spectrum")
        if self.whitening is not None and self.whitening.features != self.features:
            raise ParameterError(
                f"whitening of {self.whitening.features} columns: the rows have {self.features}"
            )

    @property
    def largest_eigenvalue(self) -> float:
        """Lambda."""
        return self.norm_bound**2 if self.spectrum is None else self.spectrum

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Of Lambda."""
        return () if self.whitening is None else self.whitening.check(self.budget.split)

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

    norm_bound: of the rows as the schema gives them; whitened ones are clipped to norm 1.

    Raises:
        ParameterError: a figure is out of range, or the arithmetic is worse than is counted.
    """
    promise, counted = plan.privacy, {"encryption_error": 0.0}
    whitening = plan.whitening
    bound = norm_bound if whitening is None else 1.0
    if promise:
        arithmetic.check(plan, bound)
        counted = arithmetic.counted(plan, bound)
        if whitening is not None:
            counted = whitening.charged(
                counted,
                plan.split,
                rows=plan.num_rows,
                norm_bound=norm_bound,
                epsilon=promise.epsilon,
            )
    return {
        "spectrum": None if whitening is None else min(whitening.spectrum, 1.0),
        "whitening": whitening,
        "encryption_error": counted.pop("encryption_error"),
        "rows": plan.num_rows,
        "features": plan.num_features,
        "norm_bound": bound,
        "sigmoid": Approximation.unchecked(plan.link),
        "sigma": promise.sigma if promise else 0.0,
        "budget": Budget.of(promise, plan.split, **counted),
    }
