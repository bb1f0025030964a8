"""What a hospital has of a finished run: the documents of the centre that follow from its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ciphercohort.after.inference import Inference, infer_by
from ciphercohort.after.sums import SumSeries, sums_wanted
from ciphercohort.deploy.deployed import has_maximum, release_of, write_documents
from ciphercohort.job.config import DEFAULT_DELTA
from ciphercohort.job.layout import INFERENCE, PLAN, read_file
from ciphercohort.report.release import Release
from ciphercohort.results.result import Array
from parties.agent.settings import OUTCOME, RESULTS, SCHEMA
from parties.reader.schema import Schema
from parties.reader.views import by_range
from protocols.errors import CohortError, ParameterError
from protocols.plan.kinds import plan_from_dict
from protocols.plan.run_plan import RunPlan
from protocols.sums.one_sum import OneSum
from protocols.sums.plan import GradientPlan

CLOSE = 1e-9
"""Between points of a sum as two machines compute them."""


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
        found, its = None, (session.plan, session.opened, schema, session.transcript)
        if has_maximum(session.plan) and not (session.folder / INFERENCE).exists():
            trained = release_of(*its)
            found = at_maximum(trained, kept_sums(trained, kept))
        if found is not None or not (session.folder / PLAN).exists():
            write_documents(session.folder, release_of(*its, table=found))
        yield session.folder


def is_sum(plan: Any) -> bool:
    """Whether a plan opens a sum, and trains no model."""
    return isinstance(getattr(plan, "task", None), OneSum)


@dataclass(frozen=True, kw_only=True)
class Session:
    """What a folder's outcome.json holds, at an owner or at the centre.

    opened: weights or sums; transcript: its head, at an owner; costs, missing: at the centre.
    """

    folder: Path
    plan: Any
    opened: Array
    transcript: str = ""
    costs: Mapping[str, Any] | None = None
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path) -> Session:
        """Read it."""
        held = read_file(folder / OUTCOME)
        return cls(
            folder=folder,
            plan=plan_from_dict(held["plan"]),
            opened=_numbers(held["weights"], folder),
            transcript=str(held.get("transcript", "")),
            costs=held.get("costs"),
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


def _numbers(found: Any, folder: Path) -> Array:
    """As JSON has them: a text that looks like one is none."""
    array = np.array(found)
    if array.dtype.kind not in "if":
        raise ParameterError(f"{folder.name}/{OUTCOME}, field weights: not numbers")
    return array.astype(np.float64)


def sessions_of(folder: Path) -> list[Session]:
    """Those that finished; folder: of all sessions."""
    return [Session.of(path.parent) for path in sorted(folder.glob(f"*/{OUTCOME}"))]


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
                and _rows_of(plan) == _rows_of(self.trained)
                and (apart := _apart(plan.task, template.task)) <= CLOSE
            ):
                found.append((apart, each))
        if not found:
            raise ParameterError("no such sum was opened")
        least, nearest = min(found, key=lambda each: each[0])
        if any(a == least and not np.array_equal(s.opened, nearest.opened) for a, s in found):
            raise ParameterError("several such sums were opened, and they differ")
        return nearest.plan, nearest.opened, ""


def _rows_of(plan: RunPlan) -> list[tuple[str, int, str]]:
    return [(each.name, each.rows, each.verify_key) for each in plan.members]


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


def at_maximum(trained: Release, sums: KeptSums) -> Inference | None:
    """The table that exact sums from the trained model on end at; None: they were not opened."""
    try:
        return infer_by(sums, trained.encoding, trained.weights, trained.plan.model)
    except CohortError:
        return None
