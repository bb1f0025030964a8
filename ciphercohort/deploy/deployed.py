"""What a deployment shares with `cohort simulate`: how a plan is chosen, how a model is written."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ciphercohort.deploy.asked import Asked
from ciphercohort.job.config import WITH_INFERENCE, SimulationConfig
from ciphercohort.job.figures import check_kind, figures_of, new_draw, settled
from ciphercohort.job.inputs import GIVEN, with_cover, with_inputs
from ciphercohort.job.layout import INFERENCE, REPORT, UNREADABLE, read_file
from ciphercohort.report.release import Release, with_limits
from ciphercohort.report.release_report import render_release
from ciphercohort.results.documents import write_text
from ciphercohort.results.plan_figures import run_words
from ciphercohort.results.predict import ReleasedModel, load_model
from ciphercohort.results.promise import Promise
from ciphercohort.results.shown import Shown
from coordinator.costs import Costs
from coordinator.deployment import OUTCOME, SERIES, SESSION
from coordinator.log import TRANSCRIPT
from coordinator.replay import evidence as read_evidence
from coordinator.settings import FILE, SCHEMA, SESSIONS, Settings
from coordinator.status import ABORTED, read_status
from parties.reader.schema import Schema
from protocols.errors import CohortError, ParameterError
from protocols.exchange.private_files import write_private
from protocols.exchange.serialise import from_plain
from protocols.exchange.transcript import verify
from protocols.plan.kinds import plan_from_dict
from protocols.plan.published import published, reach_words
from protocols.plan.run_plan import Member, RunPlan
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import Wanted
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.sums.one_sum import OneSum

UNKNOWN = "00" * 32
MESSAGE_BYTES = 100_000_000
RUN, ASKED = "run", "asked"
"""A command, and the field of session.json with what was asked for, see `Asked`."""


def plan_template(settings: Settings, before: str | None = None) -> tuple[RunPlan, Wanted]:
    """As `next_run`, with what was asked for."""
    plan, found = next_run(settings, before)
    return plan, found.wanted


def next_run(settings: Settings, before: str | None = None) -> tuple[RunPlan, Calibration]:
    """The plan of the next run, but for session and commitments, and what it follows from.

    before: the finished session whose second moment it whitens rows by; without it, where rows are
    to be whitened, the next run is the one that sums it.

    Raises:
        CohortError: too few parties, or no certified setting for their rows.
    """
    cards, schema = settings.owners(), Schema.load(settings.folder / SCHEMA)
    for card in cards.values():
        if card.schema != schema.digest():
            raise ParameterError(f"party {card.name!r} uses another schema than {SCHEMA}")
    try:
        config = SimulationConfig(parties=len(cards), **settings.training)
        check_kind(schema, config.model)
    except (TypeError, CohortError) as error:
        raise ParameterError(f"[training] of {settings.folder / FILE}: {error}") from None
    rows = [card.rows for card in cards.values()]
    if before is None:
        found = calibrate(figures_of(schema, rows, new_draw(config)), config.wanted())
    else:
        wanted = from_plain(Wanted, session_fields(settings, before)["wanted"])
        shown = read_evidence(settings.session_folder(before))
        found = settled(schema, rows, wanted, shown)
    plan = found.first_plan if found.first is not None else found.plan
    return plan("template", members_of(settings)).fit_messages(MESSAGE_BYTES), found


def members_of(settings: Settings) -> tuple[Member, ...]:
    """All admitted parties, but for their commitments."""
    return tuple(
        Member(name=card.name, rows=card.rows, verify_key=card.identity, commitment=UNKNOWN)
        for card in settings.cards().values()
    )


def whitened_after(settings: Settings, session: str) -> str | None:
    """The session that whitens rows by the second moment of this one, if there is one already."""
    for path in settings.session_folder(session).parent.glob(f"*/{SESSION}"):
        if session_fields(settings, path.parent.name).get("before") == session:
            return path.parent.name
    return None


def is_sum(plan: Any) -> bool:
    """Whether a plan opens a sum, and trains no model."""
    return isinstance(getattr(plan, "task", None), OneSum)


def session_fields(settings: Settings, session: str) -> dict[str, Any]:
    """What a session was created with, see `create_session`.

    Raises:
        ParameterError: there is none of this name.
    """
    path = settings.session_folder(session) / SESSION
    if not path.is_file():
        raise ParameterError(f"there is no session {session!r}: cohort coordinator status")
    fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return fields


def planned(settings: Settings, session: str) -> RunPlan:
    """What a session was created for; without its name and commitments."""
    return plan_from_dict(session_fields(settings, session)["plan"])


def first_of(settings: Settings, session: str) -> str:
    """The session that began the series of this one; else itself."""
    return session_fields(settings, session).get("wanted", {}).get(SERIES) or session


def asked_of(settings: Settings, session: str) -> Asked | None:
    """What a session, or the first of its series, was asked for; None: an earlier release's."""
    fields = session_fields(settings, first_of(settings, session)).get(ASKED)
    return Asked(**fields) if fields else None


def note_asked(settings: Settings, session: str, asked: Asked) -> None:
    """For whoever goes on with a session that has just begun."""
    fields = session_fields(settings, session)
    if ASKED not in fields:
        text = json.dumps({**fields, ASKED: asdict(asked)})
        write_private(settings.session_folder(session) / SESSION, text.encode())


def options_asked(
    settings: Settings,
    command: str,
    session: str | None,
    given: Mapping[str, Any],
    default: Mapping[str, Any],
    flags: Mapping[str, str] | None = None,
) -> tuple[Asked, dict[str, Any]]:
    """What a command is asked for, and all its options: of a session that goes on, its own.

    given, default, flags: see `Asked.of`.

    Raises:
        ParameterError: the session began with others, or by another command.
    """
    asked = Asked.of(command, given, default, flags)
    if session is None:
        return asked, {**default, **asked.options}
    began = asked_of(settings, session)
    if began is None:  # of an earlier release
        return asked, {**default, **given}
    if other := asked.other(began, default):
        raise ParameterError(
            f"session {session}: {other}: go on with it by {goes_on_by(settings, session)}"
        )
    return began, {**default, **began.options}


def goes_on_by(settings: Settings, session: str) -> str:
    """The command line that goes on with a session, of a series by its first."""
    asked, first = asked_of(settings, session), first_of(settings, session)
    if asked is None:
        with suppress(*UNREADABLE):  # a plan of another release
            asked = Asked(command=RUN) if training_of(settings, session) else None
    if asked is None:
        return f"the command that asked for it, with --session {first}"
    words = ["cohort", "coordinator", *asked.command.split(), str(settings.folder)]
    return shlex.join([*words, *asked.line(), "--session", first])


def training_of(settings: Settings, session: str) -> str | None:
    """The session of the training that `run` goes on with, by one of it or of its exact sums.

    None: another command asked for it.
    """
    plan = planned(settings, session)
    if plan.sums_moment or not is_sum(plan):
        return session
    if not _is_exact_at(plan):
        return None
    for path in sorted((settings.folder / SESSIONS).glob(f"*/{OUTCOME}")):
        with suppress(*UNREADABLE):
            training, _ = agreed_and_opened(settings, path.parent.name)
            if training.digest() == getattr(plan, "of_training", ""):
                return path.parent.name if ends_at_maximum(settings, training) else None
    return None


def sums_begun(settings: Settings, training: RunPlan) -> str | None:
    """The first of exact sums at a training that were begun here; None: none can go on.

    Of several series the latest; one of which a sum was aborted does not go on.
    """
    found, ended = dict[str, float](), set[str]()
    for path in (settings.folder / SESSIONS).glob(f"*/{SESSION}"):
        with suppress(*UNREADABLE):  # of another release
            plan, first = planned(settings, path.parent.name), first_of(settings, path.parent.name)
            if _is_exact_at(plan) and getattr(plan, "of_training", "") == training.digest():
                found[first] = session_fields(settings, first)["created"]
                state = (read_status(path.parent) or {}).get("state")
                ended |= {first} if state == ABORTED else set()
    return max(found.keys() - ended, key=lambda each: found[each], default=None)


def lacks_more(settings: Settings, status: Mapping[str, Any]) -> bool:
    """Whether a session is finished, and what `run` does after it is not there.

    The training that its second moment is for, or exact sums at its model. status: of it.
    """
    session = status["session"]
    if status["state"] != "finished":
        return False
    plan = planned(settings, session)
    if plan.sums_moment:
        return whitened_after(settings, session) is None
    if is_sum(plan) or not ends_at_maximum(settings, plan):
        return False
    return not load_model(settings.session_folder(session)).view


def _is_exact_at(plan: RunPlan) -> bool:
    """Whether it is an exact sum at a training's model, that judges nothing."""
    return bool(getattr(plan, "of_training", "")) and plan.privacy is None and not plan.judges


@dataclass(frozen=True, kw_only=True)
class Session:
    """What a folder's outcome.json holds, at an owner or at the centre.

    opened: weights or sums; transcript: its head, at an owner; costs, missing: at the centre;
    costs: None where an earlier version kept none.
    """

    folder: Path
    plan: Any
    opened: NDArray[np.float64]
    transcript: str = ""
    costs: Costs | None = None
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path) -> Session:
        """Read it."""
        held = read_file(folder / OUTCOME)
        plan: Any = plan_from_dict(held["plan"])
        opened, costs = _numbers(held["weights"], folder), held.get("costs")
        if is_sum(plan) and opened.shape != plan.shape:
            raise ParameterError(
                f"{folder.name}/{OUTCOME}, field weights: of shape {opened.shape}, not {plan.shape}"
            )
        return cls(
            folder=folder,
            plan=plan,
            opened=opened,
            transcript=str(held.get("transcript", "")),
            costs=None if costs is None else Costs(**costs),
            missing=tuple(held.get("missing", ())),
        )

    @property
    def said(self) -> dict[str, Any]:
        """What every party of it was told, and the centre opened."""
        return {"plan": self.plan.digest(), "opened": self.opened.tolist()}

    @property
    def is_sum(self) -> bool:
        """See `is_sum`."""
        return is_sum(self.plan)


def _numbers(found: Any, folder: Path) -> NDArray[np.float64]:
    """As JSON has them: a text that looks like one is none."""
    array = np.array(found)
    if array.dtype.kind not in "if":
        raise ParameterError(f"{folder.name}/{OUTCOME}, field weights: not numbers")
    return array.astype(np.float64)


def agreed_and_opened(settings: Settings, session: str) -> tuple[RunPlan, NDArray[np.float64]]:
    """The plan of a finished session, as all parties signed it, and what it opened."""
    held = Session.of(settings.session_folder(session))
    return held.plan, held.opened


def training_plans(settings: Settings, session: str) -> list[RunPlan]:
    """Plans of the training in this folder and of the sum before it; none: it was elsewhere.

    Raises:
        ParameterError: the session that summed a plan's second moment is not in the folder.
    """

    def plan_of(name: str) -> RunPlan | None:
        there = name and (settings.session_folder(name) / OUTCOME).is_file()
        return agreed_and_opened(settings, name)[0] if there else None

    training = plan_of(session)
    moment = getattr(training, "moment_plan", "")
    if training is None or not moment:
        return [training] if training else []
    first = plan_of(session_fields(settings, session).get("before") or "")
    if first is None or first.digest() != moment:
        raise ParameterError(
            f"the second moment that plan {moment[:16]} summed is not in the session before "
            f"{training.session}: what both spent together cannot be computed"
        )
    return [training, first]


def digest_of(training: Sequence[RunPlan]) -> str:
    """What sums at its model state; training: see `training_plans`."""
    return training[0].digest() if training else ""


def shared_schema(settings: Settings, model: ReleasedModel) -> Schema:
    """The schema of the folder, by which parties encode their rows.

    Raises:
        ParameterError: the model has another one.
    """
    schema = Schema.load(settings.folder / SCHEMA)
    if model.schema.digest() != schema.digest():
        raise ParameterError(
            f"the model has another schema than {SCHEMA}: parties encode their rows by the latter"
        )
    return schema


def is_first(settings: Settings, session: str) -> bool:
    """Whether a session sums a second moment, for one that comes after it."""
    return planned(settings, session).sums_moment


@dataclass(frozen=True, kw_only=True, repr=False)
class DeployedRun(Shown):
    """What the centre has of a finished run: a model and its promise; no row, and no score.

    folder: of the session: model.json, plan.json and the log of messages; plan; model: what was
    released, in the data's own units too; status: as `Coordinator.status` has it.
    """

    folder: Path
    plan: RunPlan
    model: ReleasedModel
    status: Mapping[str, Any]

    @property
    def session(self) -> str:
        """Its name."""
        return self.folder.name

    @property
    def insecure(self) -> bool:
        """Whether a toy ring was used."""
        return self.model.insecure

    @property
    def inference(self) -> Mapping[str, Any] | None:
        """Rows of the table of coefficients, and what they rest on; None: its folder has none."""
        path = self.folder / INFERENCE
        return with_limits(read_file(path)) if path.exists() else None

    def __repr__(self) -> str:
        return f"DeployedRun({self.session}: {run_words(self.plan)})"


def run_of(settings: Settings, session: str) -> DeployedRun:
    """A finished run, by the documents that its session has."""
    folder = settings.session_folder(session)
    return DeployedRun(
        folder=folder,
        plan=agreed_and_opened(settings, session)[0],
        model=load_model(folder),
        status=read_status(folder) or {},
    )


def ends_at_maximum(settings: Settings, plan: RunPlan) -> bool:
    """Whether exact sums follow a training: it has no noise, and nothing else was asked for."""
    parties = len(plan.members)
    config = SimulationConfig(parties=parties, **settings.training)
    return config.ends_at_maximum and has_maximum(plan)


def has_maximum(plan: RunPlan) -> bool:
    """Whether exact sums at its model make it the maximum likelihood: without noise and weights."""
    return plan.privacy is None and not plan.row_terms and plan.model in WITH_INFERENCE


def trained_here(settings: Settings, model: ReleasedModel) -> bool:
    """Whether a model is of this folder, and exact sums at it would make it another one."""
    there = bool(model.session) and (settings.session_folder(model.session) / OUTCOME).is_file()
    return there and has_maximum(agreed_and_opened(settings, model.session)[0])


def write_documents(folder: Path, release: Release) -> None:
    """See `Release.documents`, and the report."""
    for name, text in release.documents().items():
        write_text(folder / name, text)
    write_text(folder / REPORT, render_release(release))


def trained_release(session: Session, schema: Schema, head: str) -> Release:
    """Of a finished training across machines; head: of its transcript."""
    plan, released = session.plan, session.opened
    private = plan.privacy is not None
    found = Mechanism.from_plan(plan, schema.norm_bound).certificate if private else None
    weights, scaling = published(plan, released, schema.bias)
    told = reach_words(plan, released)
    return Release(
        plan=plan,
        schema=schema,
        schema_from=GIVEN,
        weights=weights,
        released=released,
        scaling=scaling,
        transcript_head=head,
        promise=_promise(plan),
        noise="system" if private else "none",
        certificate=with_inputs(with_cover(found, plan), GIVEN, private=private),
        costs=session.costs,
        missing=session.missing,
        exact_sums=plan.opens_exact_sums,
        notes=(told,) if told else (),
    )


def _promise(plan: RunPlan) -> Promise | None:
    """Of a training, the sum that whitened its rows included; what follows says its own."""
    if plan.privacy is None:
        return None
    epsilon, delta = plan.privacy.epsilon, plan.privacy.delta
    return Promise(epsilon=epsilon, delta=delta, training=(epsilon, delta))


def transcript_head(folder: Path) -> str:
    """Head of a session's hash chain.

    Raises:
        ProtocolError: the chain is broken.
    """
    lines = (folder / TRANSCRIPT).read_text(encoding="utf-8").splitlines()
    return verify(map(json.loads, lines))
