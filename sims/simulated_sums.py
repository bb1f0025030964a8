"""Sums over the rows of simulated parties, and the rows that standard errors are made of."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from ciphercohort.after.inference import Inference, infer_by
from ciphercohort.after.sums import SumSeries
from ciphercohort.job.layout import TRANSCRIPT
from ciphercohort.results.result import Array
from coordinator.coordinator import Coordinator
from coordinator.costs import Costs
from parties.kernel.private import order_coins, shuffled
from parties.reader.imputation import drawn
from parties.reader.look import undeclared
from parties.reader.schema import Schema
from parties.reader.shard import ClampCounts, Shard
from parties.reader.views import Views, by_range, shard_by_range
from protocols.exchange.messages import new_signing_key
from protocols.exchange.private_files import FOLDER_MODE
from protocols.exchange.transcript import Transcript
from protocols.plan.kinds import only
from protocols.privacy.calibrate.figures import Wanted
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.sums.objective import Objective
from protocols.sums.plan import GradientPlan
from sims.local import run_parties
from sims.party_process import PartySpec
from sims.prepare import PreparedData


@dataclass(frozen=True, kw_only=True)
class Sums(SumSeries):
    """Of simulated parties.

    specs: parties; folder: where transcripts go, None: nowhere; costs: of all sums so far; views:
    of rows that have missing cells to be drawn, by party.
    """

    sizes: Mapping[str, int] = field(init=False)
    specs: Mapping[str, PartySpec]
    folder: Path | None = None
    processes: bool = False
    costs: list[Costs] = field(default_factory=list)
    views: Mapping[str, Views] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = {name: spec.shard.rows for name, spec in self.specs.items()}
        object.__setattr__(self, "sizes", sizes)

    @property
    def notes(self) -> list[str]:
        """A simulation may say it; in a deployment counts stay with their party."""
        shards = [spec.shard for spec in self.specs.values()]
        outside = ", ".join(sorted({name for shard in shards for name in shard.counts.outside}))
        clamped = f"values beyond the schema's range count as its end, in {outside}"
        return [clamped] * bool(outside) + undeclared(shards)

    def drawn(self, draw: int) -> Sums:
        """Each party answers from the view of its rows."""
        schema = drawn(self.schema, draw)
        shards = {name: views.imputed(schema) for name, views in self.views.items()}
        return replace(self, schema=schema, specs=with_shards(self.specs, shards))

    def ran(self, template: GradientPlan) -> tuple[GradientPlan, Array, str]:
        """In this process, or one for each party."""
        session = uuid.uuid4().hex
        coordinator = Coordinator(
            session=session,
            signing_key=new_signing_key(),
            party_keys={name: spec.verify_key for name, spec in self.specs.items()},
            make_plan=partial(template.among, session),
            transcript=Transcript(self._transcript(template.task)),
        )
        key = coordinator.verify_key
        specs = {name: replace(s, coordinator_key=key) for name, s in self.specs.items()}
        ran = run_parties(coordinator, specs, self.processes)
        self.costs.append(ran.costs)
        return only(GradientPlan, ran.outcome.plan), ran.outcome.weights, ran.head

    def _transcript(self, task: Objective) -> Path | None:
        if self.folder is None:
            return None
        path = self.folder / f"{task.to_dict()['kind']}-{len(self.done) + 1}"
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        return path / TRANSCRIPT


def infer(
    specs: Mapping[str, PartySpec],
    schema: Schema,
    weights: Array,
    model: str,
    wanted: Wanted,
    *,
    spent: tuple[Mechanism, ...] = (),
    folder: Path | None = None,
    processes: bool = False,
) -> Inference:
    """Standard errors at a model, by secure sums.

    specs: parties with rows of `by_range`; schema: of the model; weights: its own, scaled rows;
    wanted: the promise of everything together, `spent` included; folder: for transcripts.

    Raises:
        ParameterError: the model has no inference. PrivacyError: too few rows for the noise.
        CohortError: a sum is refused, or aborted.
    """
    own = by_range(schema, private=wanted.epsilon is not None)
    sums = Sums(
        specs=specs,
        schema=own,
        wanted=wanted,
        folder=folder,
        processes=processes,
        however_noisy=True,
    )
    return infer_by(sums, schema, weights, model, spent=spent)


def shards_by_range(data: PreparedData, *, private: bool) -> dict[str, Shard]:
    """Rows of a simulation, encoded by ranges."""
    schema = by_range(data.schema, private=private)
    kept = np.isin(data.schema.feature_names, schema.feature_names)
    features = {column.name for column in data.schema.columns}
    found, start = {}, 0
    for name, shard in data.shards.items():
        raw = data.raw[start : start + shard.rows]
        start += shard.rows
        x, beyond = ranged(raw[:, [*kept, True]], schema)
        outside = {n: int(c) for n, c in zip(schema.feature_names, beyond, strict=True) if c}
        # Targets are as for training.
        outside |= {n: c for n, c in shard.counts.outside.items() if n not in features}
        found[name] = Shard(
            x=x, y=shard.y, counts=ClampCounts(rows=shard.rows, outside=outside), schema=schema
        )
    return found


def ranged(raw: Array, schema: Schema) -> tuple[Array, Array]:
    """Rows in their own units as `by_range` encodes them; values beyond the range, by column."""
    shift, scale = schema.affine()
    x = (raw[:, :-1] - shift) / scale
    beyond: Array = (np.abs(x) > 1 + 1e-12).sum(axis=0)
    return np.column_stack([np.clip(x, -1.0, 1.0), raw[:, -1]]), beyond


def encoded(
    frames: Mapping[str, pd.DataFrame], schema: Schema, *, private: bool
) -> dict[str, Shard]:
    """Rows of tables, encoded by ranges."""
    return {name: shard_by_range(frame, schema, private=private) for name, frame in frames.items()}


def with_shards(
    specs: Mapping[str, PartySpec], shards: Mapping[str, Shard]
) -> dict[str, PartySpec]:
    """The same parties with these rows."""
    return {name: replace(spec, shard=shards[name]) for name, spec in specs.items()}


def as_parties(shards: Mapping[str, Shard], specs: Mapping[str, PartySpec]) -> dict[str, Shard]:
    """Rows in the order that the parties of these specs give them in a run."""
    return {
        name: shuffled(shard, order_coins(specs[name].noise_source()))
        for name, shard in shards.items()
    }
