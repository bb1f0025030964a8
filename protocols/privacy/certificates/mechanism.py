"""From a plan to its privacy statement: chooser, party and auditor ask this one object.

A mechanism bounds what one row moves of the releases that a plan asks for, and says what the plan's
noise makes of that. Which one it is follows from the plan alone (`RunPlan.accounted_as`).

Another mechanism is one new file, which gives its setting, from a plan, and a check of it; one line
of KINDS; and one case of `tests/protocols/privacy/test_mechanisms_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from protocols.errors import ParameterError, PrivacyError
from protocols.plan.run_plan import PrivacyPlan, RunPlan
from protocols.privacy.certificates.certificate import (
    ROUNDING,
    Certificate,
    Condition,
    Stated,
    explain,
    stated_noise,
)
from protocols.privacy.loss.accounting import Event

KINDS: Mapping[str, str] = {
    "rows/barrier": "barrier",
    "rows/gd": "ridge",
    "rows/nag": "momentum",
    "gram": "gram",
    "lffr": "lffr",
    "gradients": "sums",
}
"""By `RunPlan.accounted_as` a module beside this one, loaded when a plan asks for it.

setting_of(plan, norm_bound): what the certificate is about, a value that can be hashed;
check(setting): its certificate; stated(plan, certificate), if it differs from `stated_noise`:
figures that a plan states beside its epsilon.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mechanism:
    """What a plan releases about rows, and what that costs.

    certificate: with all conditions and figures; promise: the plan's, None without privacy; stated:
    figures of the plan that must be as computed here.
    """

    certificate: Certificate
    promise: PrivacyPlan | None = None
    stated: tuple[Stated, ...] = ()

    @classmethod
    def from_plan(cls, plan: RunPlan, norm_bound: float) -> Mechanism:
        """Of a plan, for rows of norm at most `norm_bound`; nothing that it promises is believed.

        Raises:
            ParameterError: no mechanism is registered for it, or a figure is out of range.
        """
        if not norm_bound > 0:
            raise ParameterError(f"norm_bound={norm_bound} is not above 0")
        if plan.accounted_as not in KINDS:
            raise ParameterError(
                f"{plan.accounted_as!r} has no mechanism that bounds what a row can move: take one "
                f"of {', '.join(KINDS)}"
            )
        home: Any = import_module(f"protocols.privacy.certificates.{KINDS[plan.accounted_as]}")
        certificate = _certified(home.check, home.setting_of(plan, norm_bound))
        promise = plan.privacy
        if promise is None:
            return cls(certificate=certificate)
        cause = (
            f"which sigma={promise.sigma:.6g} over {plan.rounds} rounds gives for sensitivity "
            f"{certificate.sensitivity:.6g} and {plan.num_rows} rows: raise sigma"
        )
        own = certificate.figures["epsilon_exact"]
        epsilon = Stated("epsilon", promise.epsilon, own, cause, exact=False)
        stated = (epsilon, *getattr(home, "stated", stated_noise)(plan, certificate))
        return cls(certificate=certificate, promise=promise, stated=stated)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Of the theorem."""
        return self.certificate.conditions

    @property
    def sensitivity(self) -> float:
        """Replace-one, of the release that a row moves most, in the norm of the noise."""
        return self.certificate.sensitivity

    @property
    def noise(self) -> float:
        """Least scale that any t colluders leave of a release's noise; 0 without a promise."""
        return self.promise.sigma if self.promise else 0.0

    @property
    def epsilon(self) -> float:
        """Exact, at the certificate's delta_mechanism, against the plan's colluders."""
        return self.certificate.figures["epsilon_exact"]

    @property
    def events(self) -> tuple[Event, ...]:
        """The same for a ledger."""
        return self.certificate.events

    @property
    def additive_delta(self) -> float:
        """Beside the events: iterate bound, noise grid, arithmetic."""
        return self.certificate.additive_delta

    @property
    def violated(self) -> tuple[Condition, ...]:
        """Conditions that fail by more than rounding."""
        return tuple(
            condition
            for condition in self.conditions
            if not condition.satisfied and condition.slack < -ROUNDING
        )

    def misstated(self) -> Iterator[str]:
        """What the plan states otherwise than it is."""
        return (figure.problem for figure in self.stated if figure.problem)

    def require(self) -> Mechanism:
        """Return self.

        Raises:
            PrivacyError: the promise does not follow from the plan; the message names every figure
                with both values, and every condition that fails.
        """
        failing = (f"the plan is not certified: {explain(each)}" for each in self.violated)
        problems = "; ".join((*self.misstated(), *failing))
        if problems:
            raise PrivacyError(problems)
        return self


@lru_cache(maxsize=64)
def _certified(check: Callable[[Any], Certificate], setting: Any) -> Certificate:
    return check(setting)
