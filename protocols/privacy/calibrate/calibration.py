"""The one way to a plan: simulation, deployment and planner ask `calibrate`.

Another kind is one function from (figures, wanted) to a `Draft`, and one line of KINDS.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from protocols.errors import ParameterError, PrivacyError
from protocols.models.registry import model_named
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION, UNDER_CKKS
from protocols.plan.protocol import protocol_of
from protocols.plan.run_plan import Member, RunPlan
from protocols.privacy.calibrate.figures import Draft, PublicFigures, Wanted
from protocols.privacy.calibrate.options import QUIET, check_options
from protocols.privacy.calibrate.pace import pace
from protocols.privacy.calibrate.whitened import (
    MOST_FEATURES,
    RULES,
    Moment,
    announcing,
    draft_whitened,
    expected_moment,
    moment_plan,
)
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.sums.plan import GradientPlan

KINDS: Mapping[str, str] = {
    f"linear {ENCRYPTED_ROWS}": "gram:draft_gram",
    f"linear {ENCRYPTED_MODEL}": "rows:draft_linear",
    f"linear {SECURE_AGGREGATION}": "rules.dual:draft_ridge",
    f"improved-lffr {ENCRYPTED_ROWS}": "gram:draft_gram",
    f"improved-lffr {ENCRYPTED_MODEL}": "rows:draft_linear",
    f"improved-lffr {SECURE_AGGREGATION}": "rules.dual:draft_ridge",
    f"lffr {ENCRYPTED_ROWS}": "lffr:draft_lffr",
    f"lffr {ENCRYPTED_MODEL}": "lffr:draft_at_home",
    "poisson": "rows:draft_poisson",
    "softmax": "sums:draft_sums",
    "one-vs-rest": "sums:draft_sums",
    f"logistic {ENCRYPTED_ROWS}": "rows:draft_rows",
    f"logistic {ENCRYPTED_MODEL}": "rows:draft_rows",
    f"logistic {SECURE_AGGREGATION}": "sums:draft_sums",
}
"""By model and protocol, or one of them; loaded when asked for."""
USUAL_MOMENT = 1.0
"""Epsilon of a second moment that is for a training without noise."""
FAR = 0.02
"""Standard deviation of a score, of targets that are encoded on [0, 1]."""
WHITENED = "quadratic-gd"
"""Where rows are whitened and no update is asked for."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What all parties are to agree to.

    template: the plan, but for session, members' names and keys; certificate: None where no theorem
    is claimed; notes: sentences for the reader; first: the run that has to come before it, whose
    second moment the final plan follows from: until then the template is what it is expected to be;
    wanted: what was asked for, the update chosen.
    """

    template: RunPlan
    certificate: Certificate | None
    notes: tuple[str, ...] = ()
    first: GradientPlan | None = None
    wanted: Wanted = field(default_factory=Wanted)

    def plan(self, session: str, members: tuple[Member, ...]) -> RunPlan:
        """The template for these members, who have the tables it was made for, in its order."""
        return self.template.among(session, members)

    def first_plan(self, session: str, members: tuple[Member, ...]) -> RunPlan:
        """The same of the run before.

        Raises:
            ParameterError: there is none.
        """
        if self.first is None:
            raise ParameterError("nothing has to run before this plan")
        return self.first.among(session, members)


def calibrate(figures: PublicFigures, wanted: Wanted, moment: Moment | None = None) -> Calibration:
    """Rule, polynomial, noise, rounds and parameters, from public figures only.

    moment: the second moment that the run before has opened, see `Calibration.first`.

    Every refusal that depends on them alone comes here, before the first key; so does what every
    party and auditor will say of the plan's privacy.

    Raises:
        PrivacyError: no certified setting exists. ParameterError: options that do not fit.
    """
    check_options(wanted)
    if figures.num_features < 2:
        raise ParameterError("columns=(): a model is of one column or more; add one to the schema")
    chosen = _with_moment(wanted) if wanted.update else _usual(figures, wanted)
    try:
        draft, first = _drafted(figures, chosen, moment)
    except PrivacyError:
        if wanted.update or not _whitens(chosen):
            raise
        chosen = replace(wanted, update=model_named(wanted.model).update)
        draft, first = _drafted(figures, chosen, moment)
    plan, certificate = draft.plan, draft.certificate
    if plan.privacy:
        mechanism = Mechanism.from_plan(plan, figures.norm_bound).require()
        certificate = certificate or mechanism.certificate.require()
    notes = (*draft.notes, *_opened(plan, figures))
    return Calibration(
        template=plan, certificate=certificate, notes=notes, first=first, wanted=chosen
    )


def _opened(plan: RunPlan, figures: PublicFigures) -> Iterator[str]:
    """Where what opening the model adds is more than a reader would take for rounding."""
    std = protocol_of(plan).release_error(plan)
    if std * figures.norm_bound > FAR:
        yield (
            f"opening the model adds noise to every weight ({std:.2g}, standard deviation), and up "
            f"to {std * figures.norm_bound:.2g} to a score, whatever the rows: take fewer rounds "
            "or fewer columns"
        )


def _usual(figures: PublicFigures, wanted: Wanted) -> Wanted:
    """The update where none is asked for; with privacy whitened rows, where that pays.

    Public figures alone decide: whether the data are whitened is known before they are asked.
    """
    model, private = model_named(wanted.model), wanted.epsilon is not None
    in_batches = wanted.batches > 1 and wanted.protocol == ENCRYPTED_MODEL
    quiet_here = wanted.model in QUIET.get(wanted.protocol, ()) and not in_batches
    if not private and not wanted.ridge and quiet_here:
        quiet = replace(wanted, update="nag", moment_epsilon=wanted.moment_epsilon or USUAL_MOMENT)
        if figures.num_features <= MOST_FEATURES:
            return quiet
    usual = replace(wanted, update=(private and model.private_update) or model.update)
    if wanted.model == "logistic" and (figures.offset_reach or in_batches):
        # The barrier's theorem knows of no offsets, and is about all rows.
        return replace(wanted, update="nag")
    whitened = replace(wanted, update=WHITENED)
    if not _whitens(whitened):
        return usual
    if wanted.colluders > figures.parties - 2:
        return usual  # no sum withstands them, see `check_colluders_of_sums`
    if not pace(figures, wanted).whitens:
        return replace(wanted, update="gd")
    return whitened if figures.num_features <= MOST_FEATURES else usual


def _with_moment(wanted: Wanted) -> Wanted:
    """Of the quadratic gradient on an encrypted model, whose public diagonal a noisy sum gives."""
    at_home = wanted.protocol == ENCRYPTED_MODEL and wanted.model == "logistic"
    if wanted.epsilon is None and at_home and wanted.update in RULES:
        return replace(wanted, moment_epsilon=wanted.moment_epsilon or USUAL_MOMENT)
    return wanted


def _drafted(
    figures: PublicFigures, wanted: Wanted, moment: Moment | None
) -> tuple[Draft, GradientPlan | None]:
    """The plan, and the run that has to come before it; moment: what that one has opened."""
    if not _whitens(wanted):
        home = KINDS.get(f"{wanted.model} {wanted.protocol}") or KINDS.get(wanted.model)
        if home is None:
            raise ParameterError(f"model={wanted.model!r} is not of protocol {wanted.protocol}")
        draft: Draft = pkgutil.resolve_name(f"protocols.privacy.calibrate.{home}")(figures, wanted)
        return draft, None
    if moment is not None:
        return draft_whitened(figures, wanted, moment, opened=True), None
    first = moment_plan(figures, wanted)
    private = wanted.epsilon is not None
    expected = (
        expected_moment(figures, first) if private else Moment.of(figures.usual.moment, first)
    )
    draft = draft_whitened(figures, wanted, expected, opened=False)
    return draft, announcing(first, draft.plan)


def _whitens(wanted: Wanted) -> bool:
    if wanted.epsilon is None:
        return wanted.moment_epsilon is not None
    rows = wanted.protocol in UNDER_CKKS and wanted.model == "logistic"
    return rows and wanted.update in RULES
