"""The one way to a plan: simulation, deployment and planner ask `calibrate`.

Another protocol is one function from (figures, wanted) to a `Draft`, and one line of KINDS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.plan import Member, RunPlan
from protocols.privacy.calibrate.figures import Draft, PublicFigures, Wanted
from protocols.privacy.calibrate.regression import draft_gram, draft_lffr
from protocols.privacy.calibrate.rows import draft_poisson, draft_rows
from protocols.privacy.calibrate.sums import draft_sums
from protocols.privacy.certificate import Certificate
from protocols.privacy.mechanism import Mechanism

KINDS: Mapping[str, Callable[[PublicFigures, Wanted], Draft]] = {
    "linear": draft_gram,
    "improved-lffr": draft_gram,
    "lffr": draft_lffr,
    "poisson": draft_poisson,
    ENCRYPTED_ROWS: draft_rows,
    SECURE_AGGREGATION: draft_sums,
}
"""By model, or of logistic models by protocol."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What all parties are to agree to.

    template: the plan, but for session, members' names and keys; certificate: None where no theorem
    is claimed; notes: sentences for the reader.
    """

    template: RunPlan
    certificate: Certificate | None
    notes: tuple[str, ...] = ()

    def plan(self, session: str, members: tuple[Member, ...]) -> RunPlan:
        """The template for these members, who have the rows that it was made for, in its order."""
        return replace(self.template, session=session, members=members)


def calibrate(figures: PublicFigures, wanted: Wanted) -> Calibration:
    """Rule, polynomial, noise, rounds and parameters, from public figures only.

    Every refusal that depends on them alone comes here, before the first key; so does what every
    party and auditor will say of the plan's privacy.

    Raises:
        PrivacyError: no certified setting exists. ParameterError: options that do not fit.
    """
    kind = KINDS[wanted.protocol if wanted.model == "logistic" else wanted.model]
    draft = kind(figures, wanted)
    plan, certificate = draft.plan, draft.certificate
    if plan.privacy:
        mechanism = Mechanism.from_plan(plan, figures.norm_bound).require()
        certificate = certificate or mechanism.certificate.require()
    return Calibration(template=plan, certificate=certificate, notes=draft.notes)
