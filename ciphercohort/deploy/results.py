"""What a hospital has of a finished run: the documents of the centre that follow from its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ciphercohort.after.inference import Inference, infer_by
from ciphercohort.after.sums import SumSeries, sums_wanted
from ciphercohort.deploy.deployed import has_maximum, release_of, write_documents
from ciphercohort.job.config import DEFAULT_DELTA
from ciphercohort.job.layout import INFERENCE, PLAN
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
    schema = Schema.load(folder / SCHEMA)
    paths = sorted((folder / RESULTS).glob(f"*/{OUTCOME}"), key=lambda p: p.stat().st_mtime)
    kept = [(path.parent, *_read(path)) for path in paths]
    sums = [(plan, opened) for _, plan, opened, _ in kept if _is_sum(plan)]
    for session, plan, opened, transcript in kept:
        if _is_sum(plan):
            continue
        found = None
        if has_maximum(plan) and not (session / INFERENCE).exists():
            found = _at_maximum(release_of(plan, opened, schema, transcript), sums)
        if found is not None or not (session / PLAN).exists():
            write_documents(session, release_of(plan, opened, schema, transcript, table=found))
        yield session


def _is_sum(plan: Any) -> bool:
    return isinstance(getattr(plan, "task", None), OneSum)


def _read(path: Path) -> tuple[RunPlan, Array, str]:
    """Plan, what was opened, and the head of the transcript."""
    held = json.loads(path.read_text(encoding="utf-8"))
    opened = np.array(held["weights"], np.float64)
    return plan_from_dict(held["plan"]), opened, str(held["transcript"])


@dataclass(frozen=True, kw_only=True)
class KeptSums(SumSeries):
    """Exact sums that this party took part in: what it signed, and was told, of each.

    trained: the plan whose parties they are of; kept: sums of the folder, with what each opened.
    """

    trained: RunPlan
    kept: Sequence[tuple[Any, Array]]

    def ran(self, template: GradientPlan) -> tuple[GradientPlan, Array, str]:
        """The one at the same point, over the same rows of the same parties.

        Raises:
            ParameterError: there is none.
        """
        for plan, values in self.kept:
            if (
                plan.privacy is None
                and plan.held_out == self.trained.held_out
                and _rows_of(plan) == _rows_of(self.trained)
                and _same(plan.task, template.task)
            ):
                return plan, values, ""
        raise ParameterError("no such sum was opened")


def _rows_of(plan: RunPlan) -> list[tuple[str, int, str]]:
    return [(each.name, each.rows, each.verify_key) for each in plan.members]


def _same(one: Any, other: Any) -> bool:
    """Whether two sums are the same, but for the rounding of the point."""
    if type(one) is not type(other) or not hasattr(one, "theta"):
        return bool(one == other)
    same = replace(one, theta=other.theta) == other and len(one.theta) == len(other.theta)
    return same and bool(np.allclose(one.theta, other.theta, rtol=CLOSE, atol=CLOSE))


def _at_maximum(trained: Release, kept: Sequence[tuple[Any, Array]]) -> Inference | None:
    """The table that exact sums from the trained model on end at; None: they were not opened."""
    plan, schema = trained.plan, trained.schema
    sums = KeptSums(
        schema=by_range(schema, private=False),
        sizes={each.name: each.rows for each in plan.members},
        wanted=sums_wanted(None, DEFAULT_DELTA, 0),
        trained=plan,
        kept=kept,
    )
    try:
        return infer_by(sums, trained.encoding, trained.weights, plan.model)
    except CohortError:
        return None
