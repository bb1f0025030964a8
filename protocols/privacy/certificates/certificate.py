"""What a privacy certificate is: named inequalities with both sides, and every figure in them."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from protocols.errors import ParameterError, PrivacyError
from protocols.exchange.serialise import to_plain
from protocols.privacy.loss.accounting import Event
from protocols.words import HOLDS

if TYPE_CHECKING:
    from protocols.plan.run_plan import RunPlan

Relation = Literal["<=", "<", ">=", ">"]
_COMPARE = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt}
ROUNDING = 1e-9
"""Relative slack of every comparison: a plan holds its figures as rounded numbers."""

ASSUMPTIONS = (
    "every row's norm, bias column included, is at most norm_bound: owners clip to it",
    "all N rows enter every round, and neighbours differ in one row (replace-one)",
    "what the arithmetic leaves below one grid unit is masked by the decryption's flooding noise",
)


@dataclass(frozen=True, slots=True)
class Condition:
    """One inequality, `left relation right`.

    Attributes:
        name: a short identifier.
        left, right: the two sides, as evaluated.
        relation: how they have to compare.
        meaning: the inequality in words and symbols, with its source.
        by_design: the setting aims at equality (noise as much as the budget needs), so that a
            small slack says nothing about how tight the setting is.
    """

    name: str
    left: float
    relation: Relation
    right: float
    meaning: str
    by_design: bool = False

    @property
    def satisfied(self) -> bool:
        """Whether the inequality holds; never if a side is not a number."""
        return bool(_COMPARE[self.relation](self.left, self.right))

    @property
    def slack(self) -> float:
        """Distance to equality relative to the larger side; negative if violated.

        At most 1 for sides of one sign; -inf if a side is not a number.
        """
        larger, smaller = self.left, self.right
        if self.relation in ("<=", "<"):
            larger, smaller = smaller, larger
        if math.isnan(larger) or math.isnan(smaller):
            return -math.inf
        if larger == smaller:
            return 0.0
        if math.isinf(larger) or math.isinf(smaller):
            return 1.0 if larger > smaller else -math.inf
        return (larger - smaller) / max(abs(larger), abs(smaller))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        own = asdict(self) | {"satisfied": self.satisfied}
        del own["by_design"]
        return own


@dataclass(frozen=True, slots=True)
class Stated:
    """A figure that a plan states, and what it must be.

    field: of the plan; stated: there; own: as computed; meaning: of `own`, in words; exact: more
    than `own` is wrong as well.
    """

    field: str
    stated: float
    own: float
    meaning: str
    exact: bool = True

    @property
    def problem(self) -> str | None:
        """In words; None if the figure is as computed, to rounding."""
        if not self.stated >= self.own * (1 - ROUNDING):
            relation = "below"
        elif self.exact and not self.stated <= self.own * (1 + ROUNDING):
            relation = "above"
        else:
            return None
        return (
            f"{self.field}={self.stated:.6g} of the plan is {relation} {self.own:.6g}, "
            f"{self.meaning}"
        )


def stated_noise(plan: RunPlan, found: Certificate) -> tuple[Stated, ...]:
    """What a plan states where one sigma serves all releases."""
    promise = plan.privacy
    if promise is None:
        return ()
    share, moved = plan.split.share_std(promise.sigma), found.sensitivity
    return (
        Stated("share_std", promise.share_std, share, "sigma / sqrt(P - t)"),
        Stated("sensitivity", promise.sensitivity, moved, "the bound for one replaced row"),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """A setting, the inequalities that make it private, and all figures in between.

    Attributes:
        method: what bounds the sensitivity: iterates kept in a ball by "barrier", "ridge" or a
            few steps of "momentum", "sums" of rows that their owners clip, their "gram" matrix, or
            "lffr" iterates of several outputs.
        setting: the checked setting (`BarrierSetting`, `RidgeSetting`, `MomentumSetting`,
            `SumSetting`, `LffrSetting` or `GramRelease`).
        conditions: every condition of the theorem.
        figures: every intermediate figure, by the name that the meanings use.
        epsilon_by_coalition: entry k is epsilon at the mechanism's delta against k colluders;
            empty without noise.
        epsilon_composed: the same of all rounds composed, see `composed`.
        assumptions: what is taken for granted, in words.
        events: what the run costs each owner, for the accountant; empty without noise.
    """

    method: str
    setting: Any
    conditions: tuple[Condition, ...]
    figures: Mapping[str, float]
    epsilon_by_coalition: tuple[float, ...] = ()
    epsilon_composed: tuple[float, ...] = ()
    assumptions: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def satisfied(self) -> bool:
        """Whether every condition holds."""
        return all(condition.satisfied for condition in self.conditions)

    @property
    def binding(self) -> Condition:
        """The condition with the least relative slack: a violated one, else one not `by_design`."""
        violated = [condition for condition in self.conditions if not condition.satisfied]
        free = [condition for condition in self.conditions if not condition.by_design]
        return min(violated or free, key=lambda condition: condition.slack)

    @property
    def sensitivity(self) -> float:
        """Replace-one, of the release that a row moves most, rounding and arithmetic included."""
        return self.figures["sensitivity"]

    @property
    def additive_delta(self) -> float:
        """What the run costs in delta beside the events: iterate bound, grid, CKKS tail."""
        names = ("delta_norm_bound", "delta_grid", "delta_other")
        return sum(self.figures.get(name, 0.0) for name in names)

    def require(self) -> Certificate:
        """Return self.

        Raises:
            PrivacyError: a condition is violated; the message names the binding one.
        """
        if not self.satisfied:
            raise PrivacyError(explain(self.binding))
        return self

    def to_dict(self) -> dict[str, Any]:
        """Everything that a reader needs to recompute the certificate, JSON-ready."""
        return {
            "method": self.method,
            "satisfied": self.satisfied,
            "setting": self.setting.to_dict(),
            "figures": dict(self.figures),
            "conditions": [condition.to_dict() for condition in self.conditions],
            "binding": self.binding.name,
            "epsilon": list(self.epsilon_by_coalition),
            "epsilon_composed": list(self.epsilon_composed),
            "epsilon_holds": HOLDS if self.epsilon_composed else None,
            "assumptions": list(self.assumptions),
        }


def explain(condition: Condition) -> str:
    """Which condition binds, with its two sides, for an error message."""
    return (
        f"condition {condition.name} fails: {condition.left:.6g} {condition.relation} "
        f"{condition.right:.6g} does not hold ({condition.meaning})"
    )


def document(setting: Any) -> dict[str, Any]:
    """Fields of a setting, JSON-ready; of an approximation the polynomial alone."""
    found = {field.name: getattr(setting, field.name) for field in fields(setting)}
    bare = {name: getattr(value, "polynomial", value) for name, value in found.items()}
    return {n: v.to_dict() if hasattr(v, "to_dict") else to_plain(v) for n, v in bare.items()}


def require_numbers(setting: Any, positive: str, not_negative: str = "") -> None:
    """Refuse figures of a setting, by name.

    Raises:
        ParameterError: names the field.
    """
    for name in (*positive.split(), *not_negative.split()):
        value, least = getattr(setting, name), name in not_negative.split()
        if not (math.isfinite(value) and (value > 0 or (least and value == 0))):
            raise ParameterError(
                f"{name}={value} is not a finite number {'>=' if least else '>'} 0"
            )
