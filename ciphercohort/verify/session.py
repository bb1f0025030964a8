"""A session across machines: its documents, written again from what it agreed on and opened.

outcome.json has that, at the centre and at an owner; exact sums of a table are in the sessions
beside it. At the centre outcome.json, and those of the sums, are held against the messages; at an
owner they are what the centre told it. What no other document tells is named as not checked: when,
how often and on whose wish a session ran, and costs that no report shows.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ciphercohort.after.sums import SpentError, sums_wanted
from ciphercohort.deploy.check import CHECK, missing_by
from ciphercohort.deploy.deployed import (
    Session,
    goes_on_by,
    has_maximum,
    trained_release,
    training_plans,
    transcript_head,
)
from ciphercohort.deploy.evaluation import evaluated
from ciphercohort.deploy.inference import DeployedSums, table_document
from ciphercohort.deploy.results import (
    DifferingSumsError,
    at_maximum,
    kept_sums,
    sessions_of,
)
from ciphercohort.job.layout import (
    CERTIFICATE,
    EVALUATION,
    FACTS,
    INFERENCE,
    MESSAGES,
    MISSING,
    MODEL,
    PLAN,
    REPORT,
    STUDIES,
    TABLE,
    UNREADABLE,
    WRITES,
    read_file,
)
from ciphercohort.report.release_report import render_release
from ciphercohort.results.documents import ABSENT, compare, to_json
from ciphercohort.results.predict import ReleasedModel
from coordinator.costs import Costs
from coordinator.deployment import OUTCOME, SESSION
from coordinator.log import TRANSCRIPT
from coordinator.replay import Check, replay
from coordinator.settings import FILE as CENTRE_FILE
from coordinator.settings import SCHEMA, Settings
from coordinator.status import FILE as STATUS
from parties.agent.settings import ROWS
from parties.reader.schema import Schema
from parties.reader.views import missing_schema
from protocols.errors import CohortError, ParameterError, SchemaError
from protocols.names import RANGES_VIEW
from protocols.plan.kinds import plan_from_dict
from protocols.plan.run_plan import ENROLLED, RunPlan
from protocols.words import count

Rewritten = tuple[dict[str, str], list[Session]]
"""Text by file name, and the sessions beside that it follows from."""
VERSION = (
    r"\d{1,4}(?:\.\d{1,6}){1,6}(?:(?:a|b|rc)\d{1,3})?(?:\.post\d{1,4})?(?:\.dev\d{1,4})?"
    r"(?:\+(?:g[0-9a-f]{7,12})?(?:\.d\d{8})?)?"
)
"""Numbers, what is before or after a release, and the state of a repository: room for no word."""
SOFTWARE = re.compile(
    rf"(?<=<tr><td>Software</td><td>)Python {VERSION}(?:, ciphercohort {VERSION})?"
    rf"(?:, openfhe {VERSION})?(?:, flwr {VERSION})?(?=</td></tr>)",
    re.ASCII,
)
"""Of a report: by which releases it was written, at its one place."""

ANOTHER = "which release wrote it"
WRITTEN = (PLAN, MODEL, CERTIFICATE, FACTS, INFERENCE, TABLE, EVALUATION, MISSING, REPORT)
"""Documents of a session, each of some sessions."""
INTERRUPTED = "its series was interrupted"
MADE = frozenset({".csv", ".tex", ".svg", ".html"})
"""Of tables, pictures and pages: a file of such a name is made by what opened, or by nobody."""
WHICH = {"": "as trained", RANGES_VIEW: "at the maximum"}
"""Of a training's models, by the view of its documents."""
SAID_OF_TRAINING = {
    INFERENCE: {"trained_in", "privacy_with_training"},
    EVALUATION: {"trained_in", "rows_of", "held_out"},
}
"""What documents of a sum say of the training of its model."""
SAME_ROWS = (
    "that its sums are of the training's rows: owners' agents refuse others where they have a "
    "record"
)
ONE_SERIES = (
    "that its sums are of the same rows: owners' agents refuse others where they have a record"
)
CENTRE = (SESSION, STATUS, OUTCOME, TRANSCRIPT, MESSAGES)
"""What a session at the centre has, whatever it opened."""


BROUGHT = (
    "whether the documents are of what was opened: they were brought away from their session, as "
    "by a Flower run; verify it where it was made"
)


def session_checks(folder: Path) -> Iterator[Check]:
    """Whatever a session's folder holds is compared, or named as not checked.

    Raises:
        CohortError: a document cannot be written again; says why.
    """
    at_centre = any((folder / name).exists() for name in (SESSION, STATUS, MESSAGES))
    # Where it was made, whatever is gone of it.
    at_centre |= (folder.resolve().parent.parent / CENTRE_FILE).exists()
    if not at_centre and not (folder / OUTCOME).exists() and (folder / TRANSCRIPT).exists():
        yield Check("not checked", True, BROUGHT)
        return
    if (folder / OUTCOME).exists():
        # An owner's names the head of a transcript, and has none.
        at_centre |= "transcript" not in read_file(folder / OUTCOME)
    due = CENTRE if at_centre else (OUTCOME,)
    lost = [f"{name} is missing" for name in due if not (folder / name).exists()]
    yield Check("session", not lost, "; ".join(lost) or f"it has {', '.join(due)}")
    if lost:
        return
    session = Session.of(folder)
    own, folder = session.plan.session, folder.resolve()
    other = f"it is called {folder.name}, and its plan is of session {own}: rename it"
    yield Check("folder", own == folder.name, own if own == folder.name else other)
    documents, beside = written_again(session)
    problems = [*differences(folder, documents), *_unmade(folder, documents)]
    if at_centre:
        problems += centre_problems(session)
    fine = "each written again from what was agreed and opened"
    where = "a series has them at its first session" if at_centre else "the centre has them"
    fine = fine if documents else f"none here: of a sum {where}"
    yield Check("documents", not problems, "; ".join(problems) or fine)
    # An owner has nothing that a sum follows from, but all sums of its series.
    same = _sums_of(session) if session.is_sum else [session, *beside]
    told = sha256(to_json([each.said for each in same]).encode()).hexdigest()
    others = f"{count(len(beside), 'session')} beside it that it follows from"
    if session.is_sum and len(same) > 1:
        others = f"all {len(same)} sums of its series"
    if at_centre:
        problems = [problem for each in beside for problem in _beside_problems(each)]
        fine = "as in its messages" + f" and in those of {others}" * bool(beside)
    else:
        problems = []
        told_here = f", and in {others}," if beside or len(same) > 1 else ""
        fine = (
            f"what was opened{told_here} is as the centre told this party; the messages are at the "
            "centre"
        )
    words = f"{fine}; SHA-256 {told}, to be the same at every party and at the centre"
    yield Check("outcome", not problems, "; ".join(problems) or words)
    if documents.get(EVALUATION):
        yield Check("model judged", True, _judged(session, json.loads(documents[EVALUATION])))
    yield Check("not checked", True, ", ".join(_unchecked(session, documents, at_centre)) or "-")


def _sums_of(session: Session) -> list[Session]:
    """All sums of a series that stand here, the first first; of any other sum it alone."""
    own = session.plan.digest()
    began = getattr(session.plan, "of_series", "") or own
    with_others = sessions_of(session.folder.resolve().parent)
    found = {each.plan.digest(): each for each in with_others if each.is_sum} | {own: session}
    later = sorted(name for name, each in found.items() if each.plan.of_series == began)
    return [found[name] for name in (began, *later) if name in found]


def _judged(session: Session, found: Mapping[str, Any]) -> str:
    """Which of a training's models an evaluation is of: as trained, or at the maximum."""
    trained = found["trained_in"]
    now = read_file(session.folder.parent / trained / MODEL).get("view", "")
    which = WHICH[found["view"]]
    if now == found["view"]:
        return f"that of {trained}, {which}"
    return f"that of {trained} {which}; its {MODEL} is now {WHICH[now]}, and is not what was judged"


def _beside_problems(beside: Session) -> Iterator[str]:
    """Where a session beside is not what its messages open, or another than its folder says."""
    if beside.plan.session != beside.folder.name:
        yield f"{beside.folder.name}/{OUTCOME}: of session {beside.plan.session}"
    yield from (f"{beside.folder.name}/{problem}" for problem in centre_problems(beside))
    replayed, where = replay(beside.folder), f"{beside.folder.name}/{OUTCOME}"
    yield from (f"{where}, {c.name}: {c.detail}" for c in replayed.checks if not c.passed)
    found = {"plan": beside.plan.to_dict(), "weights": beside.opened.tolist()}
    expected = {
        "plan": replayed.plan and replayed.plan.to_dict(),
        "weights": replayed.weights,
    }
    yield from compare(where, "opened", found, expected)


def _unmade(folder: Path, due: Mapping[str, str]) -> Iterator[str]:
    """Documents that nothing in this session makes."""
    for path in sorted(folder.iterdir()):
        named = path.name in (*WRITTEN, *STUDIES) or path.suffix.lower() in MADE
        if named and path.name not in due:
            yield f"{path.name}: nothing that this session opened makes it"


def _unchecked(session: Session, due: Mapping[str, str], at_centre: bool) -> Iterator[str]:
    """Files of a session's folder that nothing is compared with, and fields of the others."""
    folder = session.folder
    known = {OUTCOME, *due, *(CENTRE if at_centre else (ROWS,))}
    fields = {OUTCOME: set(read_file(folder / OUTCOME)) - {"plan", "digest", "weights", "missing"}}
    if at_centre:
        fields[SESSION] = set(read_file(folder / SESSION)) - {"session", "plan"}
        # Of the template.
        fields[SESSION] |= {"plan.session", *(f"plan.members.{name}" for name in ENROLLED)}
        fields[STATUS] = set(read_file(folder / STATUS)) - set(status_fields(session))
        for name, of_training in SAID_OF_TRAINING.items():
            if session.is_sum and due.get(name) and not _is_tied(session):
                fields[name] = of_training
    else:
        # An owner has the centre's word alone for these.
        fields[OUTCOME] |= {"digest", "missing"} & {*read_file(folder / OUTCOME)}
        fields[OUTCOME] -= {"transcript"}
        yield ROWS  # that is there, and right, its owner's key alone can tell
    if INFERENCE in due and (session.plan.of_training if session.is_sum else True):
        fields[INFERENCE] = {*fields.get(INFERENCE, ()), SAME_ROWS}
    for name in {*STUDIES, INFERENCE} & due.keys():
        several = len(json.loads(due[name]).get("sessions", ())) > 1
        if several and SAME_ROWS not in fields.get(name, ()):
            fields[name] = {*fields.get(name, ()), ONE_SERIES}
    for name, rest in fields.items():
        if rest:
            yield f"{name} ({', '.join(sorted(rest))})"
    if REPORT in due and of_another_release(folder / REPORT, due[REPORT]):
        yield f"{REPORT} ({ANOTHER})"
    yield from strays(folder, known)


def _is_tied(session: Session) -> bool:
    """Whether a sum is of its training for sure: its plan states it, and is at its model.

    Sums of products are at no point, so that their plan may state any training of the parties.
    """
    point = {"theta", "weights"} & session.plan.objective.keys()
    return bool(session.plan.of_training and point)


def _same_owners(one: Session, other: Session) -> bool:
    """Whether they are of the same names and keys."""
    keys = [{(each.name, each.verify_key) for each in s.plan.members} for s in (one, other)]
    return keys[0] == keys[1]


def strays(folder: Path, known: Collection[str]) -> Iterator[str]:
    """Files and folders that are not known; an empty file says nothing."""
    for path in sorted(folder.iterdir()):
        if path.name not in known and (path.is_dir() or path.stat().st_size):
            yield f"{path.name}/" if path.is_dir() else path.name


def written_again(session: Session) -> Rewritten:
    """Text by file name, and the sessions beside that it follows from, each once.

    Raises:
        CohortError: a session that it follows from is not beside it.
    """
    if not session.is_sum:
        _check_written(session)
        return _of_training(session)
    folder, found, beside = session.folder, dict[str, str](), list[Session]()
    if not (folder / SESSION).exists():
        return found, beside  # an owner has no documents of a sum
    settings, name = Settings.load(folder.parent.parent), _due(session.plan)
    if name == EVALUATION:
        if not (folder / name).exists():
            return {name: ""}, beside
        return _evaluation(settings, session)
    if name == INFERENCE:
        if not (folder / name).exists():
            raise _unwritten(settings, session, name, f"{INTERRUPTED}, or it is gone")
        return _inference(settings, session)
    if name:
        try:
            return (_missing if name == MISSING else _study)(settings, session)
        except (CohortError, OSError) as error:
            if (folder / name).exists():
                raise
            why = str(error) if isinstance(error, CohortError) else INTERRUPTED
            raise _unwritten(settings, session, name, why) from None
    return found, beside


def _due(plan: Any) -> str:
    """The document that a sum's plan makes due in its folder; empty: another session has it."""
    if plan.asked:
        study = plan.asked["study"]
        if study == CHECK:
            return MISSING
        kinds = pkgutil.resolve_name("ciphercohort.study.deployed:KINDS")
        return str(kinds[study].name)
    if plan.judges:
        return EVALUATION
    return "" if plan.of_series or plan.sums_moment else INFERENCE


def _unwritten(settings: Settings, session: Session, name: str, why: str) -> ParameterError:
    cure = goes_on_by(settings, session.plan.session)
    return ParameterError(f"{name} and what goes with it are not written ({why}): {cure}")


def is_training(folder: Path) -> bool:
    """Whether a session's outcome is of one, as far as it can be read."""
    with suppress(*UNREADABLE):
        return not Session.of(folder).is_sum
    return False


def _check_written(session: Session) -> None:
    """There are documents of a training, and not those before the sums that moved its model."""
    folder, cure = session.folder, WRITES
    if not (folder / MODEL).exists():
        raise ParameterError(f"{MODEL} and what goes with it are not written yet: {cure}")
    model = read_file(folder / MODEL)
    if "view" in model or (folder / INFERENCE).exists() or not has_maximum(session.plan):
        return
    release = trained_release(session, Schema.from_dict(model["schema"]), "")
    with suppress(DifferingSumsError):
        if at_maximum(release, kept_sums(release, sessions_of(folder.parent))).view:
            raise ParameterError(
                f"{MODEL} is as trained, and sums that end at the maximum were opened since: {cure}"
            )


def _of_training(session: Session) -> Rewritten:
    folder, model = session.folder, read_file(session.folder / MODEL)
    schema = Schema.from_dict(model["schema"])
    if schema.digest() != dict(session.plan.schema)["digest"]:
        raise SchemaError(f"{MODEL}, field schema: not that of the plan")
    at_centre = (folder / TRANSCRIPT).exists()
    head = transcript_head(folder) if at_centre else session.transcript
    release = trained_release(session, schema, head)
    beside = list[Session]()
    if "view" in model or (folder / INFERENCE).exists():
        sums = kept_sums(release, sessions_of(folder.parent))
        release = at_maximum(release, sums)
        used = {each.plan.session for each in sums.done}
        beside = [each for each in sums.kept if each.plan.session in used]
        if not release.view:
            raise ParameterError(
                f"{INFERENCE} cannot be computed again: the sessions of its sums are not beside "
                f"{folder.name}; verify it where it was made"
            )
    return {**release.documents(), REPORT: render_release(release)}, beside


def differences(folder: Path, due: Mapping[str, str]) -> Iterator[str]:
    """Between the documents of a folder and what they should be, text by file name.

    But for the releases that a report says it was written by, where it says so.
    """
    for name, text in due.items():
        path = folder / name
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        if not found:
            yield f"{name} is missing"
        elif path.suffix == ".json":
            fields, expected = read_file(path), json.loads(text)
            for field in {**expected, **fields}:
                pair = (each.get(field, ABSENT) for each in (fields, expected))
                yield from compare(name, field, *pair)
        elif found == text or (name == REPORT and found == _by_the_releases_of(found, text)):
            continue
        elif name == REPORT and of_another_release(path, text):
            yield (
                f"{name}: not what this release writes of the same documents; it says that "
                f"{SOFTWARE.findall(found)[0]} wrote it: verify it with that release"
            )
        else:
            yield f"{name}: not as the other documents make it"


def _by_the_releases_of(found: str, text: str) -> str:
    """The text of a report, with the releases that another one has at the same place."""
    own = SOFTWARE.search(text)
    other = SOFTWARE.match(found, own.start()) if own else None
    return text[: own.start()] + other[0] + text[own.end() :] if own and other else text


def of_another_release(report: Path, expected: str) -> bool:
    """Whether other releases wrote a report than would write it here."""
    written = SOFTWARE.findall(report.read_text(encoding="utf-8")) if report.exists() else []
    return bool(written) and written != SOFTWARE.findall(expected)


def _series(settings: Settings, session: Session, schema: Schema) -> DeployedSums:
    """Sums that began with this session, as they were opened."""
    plan = session.plan
    wanted = sums_wanted(*(plan.asked[name] for name in ("epsilon", "delta", "colluders")))
    return DeployedSums.of(settings, None, schema, wanted, plan.session, asked=plan.asked)


def _inference(settings: Settings, session: Session) -> Rewritten:
    held = read_file(session.folder / INFERENCE)
    first, promise = session.folder.name, held["privacy"] or {"epsilon": None}
    sums = [Session.of(settings.session_folder(each)) for each in held["sessions"][1:]]
    strangers = [each.folder.name for each in sums if not _same_owners(each, session)]
    if strangers:
        raise ParameterError(f"{', '.join(strangers)}: sums of other parties than the first one's")
    for model, beside in _models(settings, held["trained_in"], session):
        try:
            body, found = table_document(settings, model, None, first=first, **promise)
        except CohortError as error:  # at another model
            last = error
            continue
        known = {each.folder for each in beside}
        beside += [each for each in sums if each.folder not in known]
        table = {} if isinstance(found, SpentError) else {TABLE: found.latex()}
        return {INFERENCE: to_json(body), **table}, beside
    raise last


def _evaluation(settings: Settings, session: Session) -> Rewritten:
    trained = read_file(session.folder / EVALUATION)["trained_in"]
    for model, beside in _models(settings, trained, session):
        weights = model.weights[None] if model.weights.ndim == 1 else model.weights.T
        if tuple(map(tuple, weights.tolist())) == session.plan.task.weights:
            found = evaluated(settings, session.folder.name, model).released()
            return {EVALUATION: to_json(found)}, beside
    raise ParameterError(f"{EVALUATION}: its model is not that of session {trained}")


def _missing(settings: Settings, session: Session) -> Rewritten:
    schema = missing_schema(Schema.load(settings.folder / SCHEMA))
    return {MISSING: to_json(missing_by(_series(settings, session, schema)))}, []


def _study(settings: Settings, session: Session) -> Rewritten:
    again = pkgutil.resolve_name("ciphercohort.study.deployed:written_again")
    texts, sessions = again(settings, session.folder, session.plan.asked)
    sums = [Session.of(settings.session_folder(each)) for each in sessions[1:]]
    strangers = [each.folder.name for each in sums if not _same_owners(each, session)]
    if strangers:
        raise ParameterError(f"{', '.join(strangers)}: sums of other parties than the first one's")
    return texts, sums


def _check_training(session: Session, trained: RunPlan) -> None:
    """Of a sum that states its training: it is this one, and rows held back are those of it."""
    stated, held_out = session.plan.of_training, session.plan.held_out
    if stated and stated != trained.digest():
        raise ParameterError(
            f"its sums are of the training by plan {stated[:16]}, not of session {trained.session}"
        )
    back = held_out and replace(held_out, judged=False)
    if stated and held_out and held_out.judged and back != trained.held_out:
        raise ParameterError(f"session {trained.session} did not hold back the rows that it judges")


def _models(
    settings: Settings, session: str, of: Session
) -> Iterator[tuple[ReleasedModel, list[Session]]]:
    """Of a training: as it is now, and as trained where exact sums have moved it since.

    From what the training opened, not from its documents; with the sessions that it rests on. of:
    the sum at its model.

    Raises:
        ParameterError: the training is not in the sessions beside.
    """
    folder = settings.session_folder(session)
    if not (folder / OUTCOME).is_file():
        raise ParameterError(
            f"the training that it names, {session}, is not in the sessions beside it"
        )
    trained = Session.of(folder)
    if trained.plan.session != session:
        raise ParameterError(f"session {session} has the outcome of {trained.plan.session}")
    _check_training(of, trained.plan)
    documents, sums = _of_training(trained)
    before = [each.session for each in training_plans(settings, session)]
    beside = [Session.of(settings.session_folder(each)) for each in before]
    model = ReleasedModel.from_dict(json.loads(documents[MODEL]))
    yield model, [*beside, *sums]
    own = trained_release(trained, model.schema, "").documents()[MODEL]
    yield ReleasedModel.from_dict(json.loads(own)), beside


def status_fields(session: Session) -> dict[str, Any]:
    """What status.json of a finished session has of what was agreed and what it cost."""
    plan, costs = session.plan, session.costs or Costs()
    traffic = costs.traffic.values()
    return {
        "session": plan.session,
        "purpose": plan.purpose,
        "state": "finished",
        "iteration": plan.rounds,
        "rounds": plan.rounds,
        "missing": list(session.missing),
        "parties": {
            each.name: {"rows": each.rows, "bytes": sum(by.get(each.name, 0) for by in traffic)}
            for each in plan.members
        },
        "seconds": {phase: round(value, 3) for phase, value in costs.seconds.items()},
        "bytes_per_party": costs.bytes_per_party,
        "waiting_seconds": round(costs.waiting_seconds, 3),
    }


def centre_problems(session: Session) -> Iterator[str]:
    """session.json and status.json, beside what was agreed and what it cost."""
    fields, status = (read_file(session.folder / name) for name in (SESSION, STATUS))
    plan = session.plan
    template = plan_from_dict(fields["plan"])
    said = {each.verify_key: each for each in plan.members}
    members = tuple(each.enrolled(said.get(each.verify_key, each)) for each in template.members)
    for field, value in status_fields(session).items():
        yield from compare(STATUS, field, status.get(field, ABSENT), value)
    yield from compare(SESSION, "session", fields["session"], plan.session)
    found = replace(template, session=plan.session, members=members).to_dict()
    yield from compare(SESSION, "plan", found, plan.to_dict())
