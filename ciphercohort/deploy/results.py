"""Documents of a finished run: the centre's, and those that a hospital has of what it was told."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ciphercohort.after.inference import Inference, infer_by
from ciphercohort.after.sums import SumSeries, UnopenedError, sums_wanted
from ciphercohort.deploy.deployed import (
    DeployedRun,
    Session,
    has_maximum,
    run_of,
    trained_release,
    transcript_head,
    write_documents,
)
from ciphercohort.job.config import DEFAULT_DELTA
from ciphercohort.job.layout import INFERENCE, PLAN, UNREADABLE
from ciphercohort.report.release import Release
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.results.result import Array
from coordinator.settings import SESSIONS, Settings
from parties.agent.settings import OUTCOME, RESULTS, SCHEMA
from parties.reader.schema import Schema
from parties.reader.views import by_range
from protocols.errors import CohortError, ParameterError
from protocols.names import RANGES_VIEW
from protocols.plan.run_plan import RunPlan
from protocols.sums.plan import GradientPlan

log = logging.getLogger(__name__)

CLOSE = 1e-9
"""Between points of a sum as two machines compute them, and between sums of the same rows."""


def party_results(folder: Path) -> Iterator[Path]:
    """Write them into sessions/ID of a party's folder, and give each session's folder.

    plan.json, model.json, certificate.json, report.html, as of a coordinator, from the plan that
    this party signed and the weights that it was told; of trainings alone. Files that are there
    stay, but for a model as trained of which exact sums have been opened since.
    """
    schema, kept = Schema.load(folder / SCHEMA), sessions_of(folder / RESULTS)
    for session in kept:
        if session.is_sum:
            continue
        try:
            _write_results(session, schema, kept)
        except UNREADABLE as error:
            log.warning("session %s is left out: %s", session.folder.name, error)
        else:
            yield session.folder


def _write_results(session: Session, schema: Schema, kept: Sequence[Session]) -> None:
    release = trained_release(session, schema, session.transcript)
    if not (session.folder / INFERENCE).exists():
        try:
            release = with_maximum(release, kept)
        except DifferingSumsError as error:
            log.warning("%s: the model stays as trained: %s", session.folder.name, error)
    if release.view or not (session.folder / PLAN).exists():
        write_documents(session.folder, release)


def finished_run(settings: Settings, session: str) -> DeployedRun:
    """Write the documents of a finished session, see `Release.documents`, and its report.

    They are those of the maximum where exact sums at its model were opened since: by the rule that
    hospitals and `verify` have. model.json is in the data's own units; certificate.json is of a run
    with privacy; run.json is of a run whose costs were kept.

    Raises:
        ProtocolError: the transcript is broken.
        DifferingSumsError: see `with_maximum`; what is there stays, where nothing is the model as
            trained.
    """
    folder, release = settings.session_folder(session), _trained(settings, session)
    kept = sessions_of(folder.parent) if has_maximum(release.plan) else ()
    try:
        release = with_maximum(release, kept)
    except DifferingSumsError:
        if not (folder / PLAN).exists():
            write_documents(folder, release)
        raise
    write_documents(folder, release)
    return run_of(settings, session)


def _trained(settings: Settings, session: str) -> Release:
    folder, schema = settings.session_folder(session), Schema.load(settings.folder / SCHEMA)
    return trained_release(Session.of(folder), schema, transcript_head(folder))


def opened_table(settings: Settings, model: ReleasedModel) -> tuple[str, Inference] | None:
    """Of a model that was trained here, as trained or at the maximum, whose exact sums are opened.

    The session that began them, and their table; None: they are not, or it is another model.

    Raises:
        DifferingSumsError: see `with_maximum`.
    """
    if not (settings.session_folder(model.session) / INFERENCE).exists():
        return None
    trained = _trained(settings, model.session)
    sums = kept_sums(trained, sessions_of(settings.folder / SESSIONS))
    table = table_of(trained, sums)
    if table is None or not any(
        np.array_equal(model.weights, each) for each in (trained.weights, table.weights)
    ):
        return None
    return sums.done[0].plan.session, table


def sessions_of(folder: Path) -> list[Session]:
    """Those that finished; folder: of all sessions. What cannot be read is left out, and told."""
    found = list[Session]()
    for path in sorted(folder.glob(f"*/{OUTCOME}")):
        try:
            found.append(Session.of(path.parent))
        except UNREADABLE as error:
            log.warning("session %s is left out: %s", path.parent.name, error)
    return found


class DifferingSumsError(UnopenedError):
    """Exact sums at one model, over as many rows, differ."""


@dataclass(frozen=True, kw_only=True)
class KeptSums(SumSeries):
    """Exact sums that this party took part in: what it signed, and was told, of each.

    trained: the plan whose parties they are of; kept: sessions of the folder.
    """

    trained: RunPlan
    kept: Sequence[Session]

    def ran(self, template: GradientPlan) -> tuple[GradientPlan, Array, str]:
        """The one at the same point of this training, over the same rows of the same parties.

        Of several, as of trainings that ended close to one another: the one whose point is nearest.

        Raises:
            ParameterError: there is none.
            DifferingSumsError: there are several, of different values.
        """
        found = list[tuple[float, Session]]()
        for each in self.kept:
            plan = each.plan
            if (
                each.is_sum
                and plan.privacy is None
                and (plan.schema, plan.view) == (template.schema, template.view)
                and plan.of_training == template.of_training
                and plan.held_out == self.trained.held_out
                and plan.cipher == template.cipher
                and _rows_of(plan) == _rows_of(self.trained)
                and (apart := _apart(plan.task, template.task)) <= CLOSE
            ):
                found.append((apart, each))
        if not found:
            raise ParameterError("no such sum was opened")
        _, nearest = min(found, key=lambda each: each[0])  # of several, by their names
        if not all(_is_alike(each.opened, nearest.opened) for _, each in found):
            raise DifferingSumsError(
                f"exact sums at the model of session {self.trained.session} were opened more than "
                "once, over as many rows, and they differ: which of them are of the rows that it "
                "was trained on cannot be told"
            )
        return nearest.plan, nearest.opened, ""


def _rows_of(plan: RunPlan) -> list[tuple[str, int, str]]:
    return [(each.name, each.rows, each.verify_key) for each in plan.members]


def _is_alike(one: Array, other: Array) -> bool:
    """Whether sums are of the same rows, which are added up in another order each time."""
    return np.allclose(one, other, rtol=CLOSE, atol=CLOSE)


def _apart(one: Any, other: Any) -> float:
    """How far two sums' points are apart, by their size; infinity: they are others besides."""
    if type(one) is not type(other) or not hasattr(one, "theta"):
        return 0.0 if one == other else math.inf
    if len(one.theta) != len(other.theta) or replace(one, theta=other.theta) != other:
        return math.inf
    here, there = np.array(one.theta), np.array(other.theta)
    return float(np.max(np.abs(here - there) / (1 + np.abs(there)), initial=0.0))


def kept_sums(trained: Release, kept: Sequence[Session]) -> KeptSums:
    """Exact sums at a trained model; kept: sessions of the folder."""
    plan = trained.plan
    return KeptSums(
        schema=by_range(trained.schema, private=False),
        sizes={each.name: each.rows for each in plan.members},
        wanted=sums_wanted(None, DEFAULT_DELTA, 0),
        trained=plan,
        of_training=plan.digest(),
        kept=kept,
    )


def at_maximum(trained: Release, sums: KeptSums) -> Release:
    """A training at the maximum that exact sums from its model on end at.

    As it is where they were not opened, or end at none.

    Raises:
        DifferingSumsError: it cannot be told which of them are of its rows.
    """
    table = table_of(trained, sums)
    if table is None:
        return trained
    return replace(
        trained, weights=table.weights, view=RANGES_VIEW, inference=table.released(), notes=()
    )


def table_of(trained: Release, sums: KeptSums) -> Inference | None:
    """What `at_maximum` ends at; None: the sums were not opened, or end at none.

    None, too, of a training with noise or weights: exact sums at it are a table of their own.

    Raises:
        DifferingSumsError: see there.
    """
    if not has_maximum(trained.plan):
        return None
    try:
        return infer_by(
            sums,
            trained.encoding,
            trained.weights,
            trained.plan.model,
            insecure=trained.insecure,
        )
    except DifferingSumsError:
        raise
    except CohortError:
        return None


def with_maximum(trained: Release, kept: Sequence[Session]) -> Release:
    """See `at_maximum`; kept: sessions of the folder."""
    return at_maximum(trained, kept_sums(trained, kept))
