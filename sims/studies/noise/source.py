"""The rows of a study: read once per process, shared out to clients by each cell and seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.data.schema import Schema
from parties.data.shard import ClampCounts, Shard
from sims.config import SimulationConfig
from sims.datasets import split_rows
from sims.prepare import PreparedData, prepare
from sims.studies.noise.grid import Cell

Floats = NDArray[np.float64]
RowNumbers = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where rows come from; fields as in `SimulationConfig`."""

    data: str | None = None
    label: str | None = None
    positive: str | None = None
    schema: str | None = None
    test: str | None = None
    holdout: float = 0.2
    exclude: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with digests of the files instead of their places."""
        body = asdict(self)
        for name in ("data", "schema", "test"):
            path = body[name]
            body[name] = hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else None
        return {**body, "exclude": list(self.exclude)}

    @property
    def title(self) -> str:
        """Name of the table."""
        return Path(self.data).stem if self.data else "breast_cancer"

    def config(self, cell: Cell, **changes: Any) -> SimulationConfig:
        """A simulation of the cell. One client alone is configured as two: nothing is encrypted."""
        fields: dict[str, Any] = {
            **asdict(self),
            "parties": max(2, cell.parties),
            "split": cell.split,
            "protocol": cell.protocol,
            "update": cell.update,
            "rounds": cell.rounds,
            "weights": cell.weights,
            "epsilon": cell.epsilon,
            "delta": cell.delta,
            "colluders": cell.split_colluders,
            "profile": cell.profile,
            "ring_dim": cell.ring_dim,
        }
        for name in ("data", "schema", "test"):
            fields[name] = Path(fields[name]) if fields[name] else None
        return SimulationConfig(**{**fields, **changes})


@dataclass(frozen=True, eq=False)
class Pool:
    """All training rows, scaled, and the test rows."""

    schema: Schema
    x: Floats
    y: Floats
    test: Shard
    notes: tuple[str, ...]


@lru_cache(maxsize=4)
def open_pool(source: Source, norm: float | None) -> Pool:
    """Rows as the schema says, with its row norm replaced if one is given.

    The hold-out, where there is no test file, is the same for every cell and seed.

    Raises:
        SchemaError, DataError, ParameterError: as `prepare`.
    """
    data = _prepared(source)
    if norm is not None and norm != data.schema.row_norm:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "schema.json"
            path.write_text(json.dumps(replace(data.schema, row_norm=norm).to_dict()))
            data = _prepared(replace(source, schema=str(path)))
    return Pool(data.schema, data.rows, data.labels, data.test, data.notes)


def _prepared(source: Source) -> PreparedData:
    config = source.config(Cell(parties=2, epsilon=None))
    return prepare(config, np.random.default_rng(0))


def draw_groups(cell: Cell, pool: Pool, rng: np.random.Generator) -> list[RowNumbers]:
    """Row numbers of every client."""
    frame = pd.DataFrame({"y": pool.y, "row": np.arange(len(pool.y))})
    if cell.mode == "growing":
        taken = rng.permutation(len(frame))[: cell.rows_per_party * cell.parties]
        frame = frame.iloc[taken]
    shards, _ = split_rows(frame, cell.parties, cell.split, "y", rng)
    return [shard["row"].to_numpy() for shard in shards]


def prepared_of(pool: Pool, groups: Sequence[RowNumbers]) -> PreparedData:
    """The same as real shards, for an encrypted run."""
    shards = {
        f"party-{k + 1}": Shard(
            x=pool.x[rows],
            y=pool.y[rows],
            counts=ClampCounts(rows=len(rows)),
            schema=pool.schema,
        )
        for k, rows in enumerate(groups)
    }
    return PreparedData(schema=pool.schema, shards=shards, test=pool.test, notes=())
