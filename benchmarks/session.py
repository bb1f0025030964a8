"""One real run in this process: coordinator, parties, signed messages, no transport between them.

What it measures is `Costs`, as every run does: the coordinator's own seconds per iteration, and the
bytes of every message.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from benchmarks.cases import Array, Case
from ciphercohort.job.config import SimulationConfig
from coordinator.costs import Costs
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.rows.plan import RowsPlan
from protocols.steps import refresh
from tests.support.helpers import open_session


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A finished run.

    plan: with placeholders of the usual length; twin: the same weights in plaintext; share_seconds:
    of one party for each refreshed ciphertext, its messages read and signed.
    """

    plan: RowsPlan
    costs: Costs
    weights: Array
    twin: Array
    share_seconds: float


def plan_of(case: Case) -> RowsPlan:
    """The plan that a run of this shape would have, without privacy noise."""
    profile = "secure" if case.secure else "fast-insecure"
    config = SimulationConfig(
        protocol=case.protocol,
        parties=case.parties,
        update=case.update,
        rounds=case.rounds,
        degree=case.degree,
        profile=profile,
    )
    figures = PublicFigures.even(rows=case.rows, features=case.features, parties=case.parties)
    return cast(RowsPlan, calibrate(figures, config.wanted()).template)


def run(case: Case, plan: RowsPlan | None = None) -> Measured:
    """The whole protocol on the case's data."""
    plan = plan or plan_of(case)
    rows = shards(case, [member.rows for member in plan.members])

    def make_plan(common: dict[str, Any]) -> RowsPlan:
        return replace(plan, **{**common, "schema": {**plan.schema, **common["schema"]}})

    session = open_session(make_plan, rows, secure=case.secure, row_norm=1.0)
    laps: list[float] = []

    def deliver(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """One after the other: the coordinator's costs tell the slowest from all."""
        for name, data in outgoing.items():
            started = time.perf_counter()
            reply = session.parties[name].handle(data)
            if step.startswith(refresh.STEP):
                laps.append(time.perf_counter() - started)
            yield name, reply

    weights = session.run(deliver).weights
    return Measured(
        plan=plan,
        costs=session.coordinator.costs,
        weights=weights,
        twin=session.twin(),
        share_seconds=sum(laps) / (case.parties * sum(plan.refreshes)),
    )


def shards(case: Case, rows: Sequence[int]) -> list[tuple[Array, Array]]:
    """Rows and labels of each party, once in memory: read-only arrays, which a `Shard` keeps."""
    cuts = np.cumsum(rows)[:-1]
    found = [
        (x.copy(), y.copy())
        for x, y in zip(*(np.split(part, cuts) for part in case.data()), strict=True)
    ]
    for array in (array for pair in found for array in pair):
        array.setflags(write=False)
    return found
