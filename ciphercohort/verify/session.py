"""A session across machines: its documents, written again from what it agreed on and opened.

outcome.json has that, at the centre and at an owner; exact sums of a table are in the sessions
beside it. At the centre `again` holds outcome.json against the messages. What no other document
tells is not looked at: when, how often and on whose wish a session ran, and costs that no report
shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from ciphercohort.deploy.check import missing_by
from ciphercohort.deploy.deployed import release_of, transcript_head
from ciphercohort.deploy.evaluation import evaluated
from ciphercohort.deploy.inference import DeployedSums, table_document
from ciphercohort.deploy.results import Session, at_maximum, sessions_of
from ciphercohort.job.layout import (
    EVALUATION,
    INFERENCE,
    MISSING,
    MODEL,
    REPORT,
    TABLE,
    read_file,
)
from ciphercohort.report.release_report import render_release
from ciphercohort.results.documents import compare, to_json
from ciphercohort.results.predict import ReleasedModel, load_model
from coordinator.costs import Costs
from coordinator.deployment import SESSION
from coordinator.log import TRANSCRIPT
from coordinator.settings import SCHEMA, Settings
from coordinator.status import FILE as STATUS
from parties.reader.schema import Schema
from parties.reader.views import missing_schema
from protocols.errors import CohortError, ParameterError, SchemaError
from protocols.plan.kinds import plan_from_dict
from protocols.privacy.calibrate.figures import Wanted

SOFTWARE = re.compile(r"Python \d+\.\d+\.\d+[^<]*")
"""Of a report: by which releases it was written."""


def session_problems(folder: Path) -> Iterator[str]:
    """Where a document of a session's folder is not what its outcome makes of it.

    Raises:
        CohortError: a document cannot be written again; says why.
    """
    session = Session.of(folder)
    yield from differences(folder, written_again(session))
    if (folder / SESSION).exists():
        yield from centre_problems(session)


def written_again(session: Session) -> dict[str, str]:
    """Text by file name.

    Raises:
        CohortError: the sums, or the model, that they follow from are not in the sessions beside.
    """
    if not session.is_sum:
        return _of_training(session)
    folder, found = session.folder, dict[str, str]()
    if not (folder / SESSION).exists():
        return found  # an owner has no documents of a sum
    settings = Settings.load(folder.parent.parent)
    if (folder / INFERENCE).exists():
        found |= _inference(settings, folder)
    if (folder / EVALUATION).exists():
        found[EVALUATION] = _evaluation(settings, session)
    if (folder / MISSING).exists():
        schema = missing_schema(Schema.load(settings.folder / SCHEMA))
        found[MISSING] = to_json(missing_by(_series(settings, session, schema)))
    return found


def _of_training(session: Session) -> dict[str, str]:
    folder, model = session.folder, read_file(session.folder / MODEL)
    schema = Schema.from_dict(model["schema"])
    if schema.digest() != dict(session.plan.schema)["digest"]:
        raise SchemaError(f"{MODEL}, field schema: not that of the plan")
    at_centre = (folder / TRANSCRIPT).exists()
    head = transcript_head(folder) if at_centre else session.transcript
    costs = None if session.costs is None else Costs(**session.costs)
    rest: dict[str, Any] = {"costs": costs, "missing": session.missing}
    release = release_of(session.plan, session.opened, schema, head, **rest)
    if "view" in model or (folder / INFERENCE).exists():
        table = at_maximum(release, sessions_of(folder.parent))
        if table is None:
            raise ParameterError(
                f"{INFERENCE} cannot be computed again: the sessions of its sums are not beside "
                f"{folder.name}; verify it where it was made"
            )
        release = release_of(session.plan, session.opened, schema, head, table=table, **rest)
    return {**release.documents(), REPORT: render_release(release)}


def differences(folder: Path, due: Mapping[str, str]) -> Iterator[str]:
    """Between the documents of a folder and what they should be, text by file name.

    A report that another release of ciphercohort wrote is not compared.
    """
    for name, text in due.items():
        path = folder / name
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        if not found:
            yield f"{name} is missing"
        elif path.suffix == ".json":
            fields, expected = json.loads(found), json.loads(text)
            for field in {**expected, **fields}:
                pair = (each.get(field, "nothing") for each in (fields, expected))
                yield from compare(name, field, *pair)
        elif found != text and (
            name != REPORT or SOFTWARE.findall(found) == SOFTWARE.findall(text)
        ):
            yield f"{name}: not as the other documents make it"


def _series(settings: Settings, session: Session, schema: Schema) -> DeployedSums:
    """Sums that began with this session, as they were opened."""
    plan, privacy = session.plan, session.plan.privacy
    wanted = Wanted(
        protocol=plan.protocol,
        update="gd",
        epsilon=privacy and privacy.epsilon,
        delta=privacy.delta if privacy else 1e-5,
        colluders=privacy.colluders if privacy else 0,
    )
    return DeployedSums.of(settings, None, schema, wanted, plan.session, plan.held_out)


def _inference(settings: Settings, folder: Path) -> dict[str, str]:
    held = read_file(folder / INFERENCE)
    promise = held["privacy"] or {"epsilon": None}
    for model in _models(settings, held["trained_in"]):
        try:
            body, found = table_document(settings, model, None, first=folder.name, **promise)
        except CohortError as error:  # at another model
            last = error
            continue
        return {INFERENCE: to_json(body), TABLE: found.latex()}
    raise last


def _models(settings: Settings, session: str) -> Iterator[ReleasedModel]:
    """Of a training: as it is now, and as trained where exact sums have moved it since."""
    folder = settings.session_folder(session)
    yield load_model(folder)
    trained, schema = Session.of(folder), Schema.load(settings.folder / SCHEMA)
    release = release_of(trained.plan, trained.opened, schema, "")
    yield ReleasedModel.from_dict(json.loads(release.documents()[MODEL]))


def _evaluation(settings: Settings, session: Session) -> str:
    trained = session.folder.parent.glob(f"*/{MODEL}")
    for model in chain.from_iterable(_models(settings, path.parent.name) for path in trained):
        weights = model.weights[None] if model.weights.ndim == 1 else model.weights.T
        if tuple(map(tuple, weights.tolist())) == session.plan.task.weights:
            return to_json(evaluated(settings, session.folder.name, model).released())
    raise ParameterError(f"{EVALUATION}: its model is not in the sessions beside it")


def centre_problems(session: Session) -> Iterator[str]:
    """session.json and status.json, beside what was agreed and what it cost."""
    fields, status = (read_file(session.folder / name) for name in (SESSION, STATUS))
    plan, costs = session.plan, Costs(**(session.costs or {}))
    template = plan_from_dict(fields["plan"])
    keys = {each.verify_key: each.commitment for each in plan.members}
    members = tuple(
        replace(each, commitment=keys.get(each.verify_key, "")) for each in template.members
    )
    traffic = costs.traffic.values()
    expected = {
        "session": plan.session,
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
    for field, value in expected.items():
        yield from compare(STATUS, field, status.get(field), value)
    yield from compare(SESSION, "session", fields["session"], plan.session)
    found = replace(template, session=plan.session, members=members).to_dict()
    yield from compare(SESSION, "plan", found, plan.to_dict())
