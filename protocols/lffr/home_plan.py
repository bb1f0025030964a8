"""LFFR where rows stay home: the plan of an encrypted model with a sigmoid of the targets' range.

    W <- W - eta (grad(W) + noise + 2 ridge W),   grad(W) = X^T g(XW, Y) / N      `models.lffr`

Parties evaluate g on their own rows (`parties.kernel.model.clear_rows`); gd with privacy, whose
certificate is that of encrypted rows (`privacy.certificates.lffr`); gd or nag without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from protocols.ckks.circuits.lffr import LFFR_LEVELS, LffrUnits, cubic
from protocols.ckks.circuits.rows import REFRESH_LEVEL
from protocols.errors import ParameterError
from protocols.model.plan import Array, ModelPlan
from protocols.models.lffr import Lffr, slope_of_loss
from protocols.numerics.approximation import Polynomial
from protocols.plan.run_plan import Checks
from protocols.privacy.certificates.lffr import LffrSetting, of_plan, row_bound
from protocols.updates.momentum import GradientDescent, Nesterov
from protocols.updates.update import Update


def check_link(plan: LffrModelPlan) -> None:
    """Before anything is packed."""
    if plan.model != Lffr.name:
        raise ParameterError(f"model={plan.model!r} is not {Lffr.name!r}")
    cubic(plan.link)


def check_rule(plan: LffrModelPlan) -> None:
    """The certificate is about gd."""
    kinds = (GradientDescent,) if plan.privacy else (GradientDescent, Nesterov)
    if not isinstance(plan.rule, kinds):
        raise ParameterError(
            f"update={plan.update['kind']!r}: model {plan.model} takes "
            f"{' or '.join(kind.kind for kind in kinds)} with protocol {plan.protocol}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LffrModelPlan(ModelPlan):
    """Gradient training of LFFR; parties multiply the encrypted model with their own rows.

    link: 1/2 plus an odd polynomial of degree 3; update: gd, whose ridge is 2 ridge, or nag.

    Raises:
        ParameterError: see `ModelPlan`; or another rule, link or model.
    """

    kind: ClassVar[str] = "model-lffr"
    circuit: ClassVar[str] = "lffr"
    certifies_targets: ClassVar[bool] = True
    checks: ClassVar[Checks] = (check_link, *ModelPlan.checks, check_rule)

    model: str = Lffr.name

    @property
    def accounted_as(self) -> str:
        """As on encrypted rows."""
        return "lffr"

    @staticmethod
    def levels_of(link: Polynomial, rule: Update) -> int:
        """As on encrypted rows."""
        _ = link
        return max(LFFR_LEVELS, REFRESH_LEVEL + rule.levels() + 1)

    def drops(self, term: str) -> str:
        """Weights meet rows in the clear; no bound knows of offsets."""
        return "" if term == "weight" else "leave it out: LFFR has no proof with offsets"

    @property
    def learning_rate(self) -> float:
        """eta."""
        return self.rule.largest_learning_rate

    @property
    def ridge(self) -> float:
        """Weight of |W|^2 beside the mean squared error."""
        return float(self.update.get("ridge", 0.0)) / 2

    @property
    def units(self) -> LffrUnits:
        """See `ModelPlan`."""
        return LffrUnits.of(self.link, self.largest_gradient_factor)

    def slope(self, z: Array, targets: Array) -> Array:
        """Of the squared error, in the score."""
        return slope_of_loss(self.link, z, targets)

    def row_bound(self, norm_bound: float) -> float:
        """Of x g^T."""
        return row_bound(self.link, norm_bound, self.targets)

    def privacy_setting(self, norm_bound: float) -> LffrSetting:
        """What `certificates.lffr` judges, for rows of this norm.

        Raises:
            ParameterError: the plan has no privacy, or a figure is out of range.
        """
        return of_plan(self, self.targets, norm_bound)
