"""Standard errors across machines: the sums of `after.inference`, each a session of its own.

The first session's name stands for all: its folder gets inference.json and inference.tex, and an
interrupted series goes on by it, opening no sum twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ciphercohort.after.inference import Inference, infer_by
from ciphercohort.after.sums import SpentError, SumSeries, spent_is_told, sums_wanted
from ciphercohort.deploy.deployed import (
    agreed_and_opened,
    digest_of,
    first_of,
    goes_on_by,
    members_of,
    session_fields,
    shared_schema,
    training_plans,
    transcript_head,
)
from ciphercohort.job.config import DEFAULT_DELTA
from ciphercohort.job.layout import INFERENCE, TABLE
from ciphercohort.results.documents import to_json, write_text
from ciphercohort.results.exact_sums import exact_fields, insecure_fields
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.results.result import Array
from coordinator.deployment import NUMBER, SERIES, SESSION, create_session
from coordinator.settings import SESSIONS, Settings
from coordinator.status import Status, is_over
from parties.reader.schema import Schema
from parties.reader.views import by_range
from protocols.errors import ParameterError, ProtocolError
from protocols.plan.held_out import HeldOut
from protocols.plan.kinds import only
from protocols.plan.run_plan import RunPlan
from protocols.privacy.calibrate.figures import Wanted
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.loss.accounting import compose
from protocols.sums.plan import GradientPlan

Tell = Callable[[str], None]
Drive = Callable[[str], dict[str, Any]]
"""Sees a session through, and returns its final status."""


@dataclass(frozen=True, kw_only=True)
class DeployedSums(SumSeries):
    """Over the rows of all admitted parties.

    sessions: of the sums so far, in order; those that are there already are read or gone on with;
    drive: None: these alone are read.
    """

    settings: Settings
    drive: Drive | None
    sessions: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        settings: Settings,
        drive: Drive | None,
        schema: Schema,
        wanted: Wanted,
        first: str | None,
        held_out: HeldOut | None = None,
        of_training: str = "",
        columns: tuple[str, ...] = (),
        asked: Mapping[str, Any] | None = None,
    ) -> DeployedSums:
        """first: of a series to go on with any session, to read the first; see `SumSeries`."""
        if first and drive:
            first = first_of(settings, first)
        sizes = {card.name: card.rows for card in settings.owners().values()}
        return cls(
            schema=schema,
            sizes=sizes,
            wanted=wanted,
            held_out=held_out,
            columns=columns,
            of_training=of_training,
            asked=asked or {},
            settings=settings,
            drive=drive,
            sessions=_series(settings, first) if first else [],
        )

    @property
    def begun(self) -> bool:
        """Whether there are sessions of it."""
        return bool(self.sessions)

    def ran(self, template: GradientPlan) -> tuple[GradientPlan, Array, str]:
        """A session of its own, or the one that is there."""
        plan = template.among("template", members_of(self.settings))
        number = len(self.done)
        if number == len(self.sessions) and self.drive is None:
            raise ParameterError("the series has no further session")
        if number == len(self.sessions):
            series: dict[str, Any] = {SERIES: next(iter(self.sessions), None), NUMBER: number}
            self.sessions.append(create_session(self.settings, plan, series))
        session = self.sessions[number]
        fields = session_fields(self.settings, session)
        if fields["plan"] != json.loads(json.dumps(plan.to_dict())):
            raise ParameterError(
                f"session {session!r} is of another series: go on with it by "
                f"{goes_on_by(self.settings, session)}"
            )
        status = self.drive(session) if self.drive else {"state": "finished"}
        if status["state"] != "finished":
            raise ProtocolError(str(status["reason"]), culprit=status.get("culprit"))
        agreed, values = agreed_and_opened(self.settings, session)
        signed = {member.verify_key: member for member in agreed.members}
        due = replace(
            plan,
            session=session,
            members=tuple(signed.get(each.verify_key, each) for each in plan.members),
        )
        if agreed.to_dict() != due.to_dict() or agreed.roster != plan.roster:
            raise ParameterError(f"session {session!r} agreed on another plan than its own")
        return (
            only(GradientPlan, agreed),
            values,
            transcript_head(self.settings.session_folder(session)),
        )


def _series(settings: Settings, first: str) -> list[str]:
    """Sessions of a series, in order."""
    if SERIES not in session_fields(settings, first).get("wanted", {}):
        if is_over(settings.session_folder(first)):
            raise ParameterError(
                f"session {first!r} is over, and began no series of sums: leave --session out, or "
                "give one of a series; cohort coordinator status names them"
            )
        raise ParameterError(
            f"session {first!r} began no series of sums: go on with it by "
            f"{goes_on_by(settings, first)}"
        )
    found = {0: first}
    for path in (settings.folder / SESSIONS).glob(f"*/{SESSION}"):
        wanted = session_fields(settings, path.parent.name)["wanted"]
        if wanted.get(SERIES) == first:
            found[wanted[NUMBER]] = path.parent.name
    return [found[number] for number in sorted(found)]


def infer_deployed(
    settings: Settings,
    model: ReleasedModel,
    drive: Drive,
    *,
    epsilon: float | None,
    delta: float = DEFAULT_DELTA,
    colluders: int = 0,
    first: str | None = None,
    however_noisy: bool = False,
    tell: Tell = lambda words: None,
) -> tuple[Path, Inference]:
    """A table of coefficients at a model, over the rows of all admitted parties.

    Of a model that was trained in this folder, over the rows that it was trained on.

    drive: sees a session through; epsilon, delta: of all its sums together; first: a session of the
    series to go on with; however_noisy: see `SumSeries`; tell: see `check_sums`.

    Raises:
        ParameterError: the model is for another schema, or has no inference. PrivacyError: too few
            rows for the noise. SpentError: noise left no interval, which the file then says, and
            the session's status. ProtocolError: a sum was aborted.
    """
    body, found = table_document(
        settings,
        model,
        drive,
        epsilon,
        delta,
        colluders,
        first,
        however_noisy=however_noisy,
        tell=tell,
    )
    folder = settings.session_folder(body["sessions"][0])
    write_text(folder / INFERENCE, to_json(body))
    if isinstance(found, SpentError):
        raise noted(folder, found)
    write_text(folder / TABLE, found.latex())
    return folder / INFERENCE, found


def noted(session: Path, error: SpentError) -> SpentError:
    """The same; session: folder of the first sum, whose status says it from now on."""
    Status(session, {}).save(reason=str(error))
    return error


def table_document(
    settings: Settings,
    model: ReleasedModel,
    drive: Drive | None,
    epsilon: float | None,
    delta: float = DEFAULT_DELTA,
    colluders: int = 0,
    first: str | None = None,
    *,
    however_noisy: bool = False,
    tell: Tell = lambda words: None,
) -> tuple[dict[str, Any], Inference | SpentError]:
    """What inference.json holds, and the table in it, or why there is none; see `DeployedSums`."""
    schema = shared_schema(settings, model)
    own, before = (
        by_range(schema, private=epsilon is not None),
        training_plans(settings, model.session),
    )
    held_out = before[0].held_out if before else None
    wanted = sums_wanted(epsilon, delta, colluders)
    sums = DeployedSums.of(settings, drive, own, wanted, first, held_out, digest_of(before))
    sums = replace(sums, however_noisy=however_noisy)
    found: Inference | SpentError
    told: dict[str, Any]
    try:
        with spent_is_told(sums):
            found = infer_by(
                sums,
                model.encoding,
                model.weights,
                model.model,
                insecure=model.insecure,
                tell=tell,
            )
        told = {"inference": found.rows(), "inference_about": found.about()}
    except SpentError as error:
        found, told = error, error.documented
    promise = {"epsilon": epsilon, "delta": delta, "colluders": colluders}
    body = {
        **insecure_fields(model.insecure),
        **exact_fields(epsilon is None),
        **told,
        "privacy": promise if epsilon is not None else None,
        "privacy_with_training": _together(before, schema, sums),
        "trained_in": model.session,
        "sessions": sums.sessions,
        "plans": [opened.plan.digest() for opened in sums.done],
        "transcripts": [opened.head for opened in sums.done],
    }
    return body, found


def _together(before: list[RunPlan], schema: Schema, sums: DeployedSums) -> Any:
    """epsilon and delta of training and inference; None: one has no promise, or is not known."""
    first = before[0].privacy if before else None
    if first is None or sums.wanted.epsilon is None:
        return None
    spent = [Mechanism.from_plan(plan, schema.norm_bound) for plan in before]
    spent += sums.mechanisms
    whole = first.delta + sums.wanted.delta
    rest = whole - sum(each.additive_delta for each in spent)
    events = [event for each in spent for event in each.events]
    return {"epsilon": compose(events, delta=rest), "delta": whole}
