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

from ciphercohort.job.config import SimulationConfig
from parties.reader.shard import ClampCounts, Shard
from protocols.errors import ParameterError
from sims.lab.studies.noise.grid import Cell
from sims.prepare import PreparedData, prepare, split_rows
from sims.twin import fit_optimum, fit_unclipped, score

RowNumbers = NDArray[np.intp]
_FILES = ("data", "schema", "test")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where rows come from; fields as in `SimulationConfig`. draw: seed of the hold-out."""

    data: str | None = None
    label: str | None = None
    positive: str | None = None
    schema: str | None = None
    test: str | None = None
    test_share: float = 0.2
    exclude: tuple[str, ...] = ()
    draw: int = 0

    def held_out_by(self, draw: int) -> Source:
        """With another hold-out, where there is no test file."""
        return replace(self, draw=draw)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with digests of the files instead of their places."""
        places = {name: getattr(self, name) for name in _FILES}
        digests = {
            name: hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else None
            for name, path in places.items()
        }
        return {**self._options, **digests, "exclude": list(self.exclude)}

    @property
    def _options(self) -> dict[str, Any]:
        """All but the draw, which is no option of a simulation."""
        return {name: value for name, value in asdict(self).items() if name != "draw"}

    @property
    def title(self) -> str:
        """Name of the table."""
        return Path(self.data).stem if self.data else "breast_cancer"

    def config(self, cell: Cell) -> SimulationConfig:
        """A simulation of the cell. One client alone is configured as two: nothing is encrypted."""
        same = ("split", "protocol", "update", "rounds", "weights", "epsilon", "delta", "profile")
        places = {name: getattr(self, name) for name in _FILES}
        return SimulationConfig(
            **{
                **self._options,
                **{name: Path(path) if path else None for name, path in places.items()},
                **{name: getattr(cell, name) for name in (*same, "ring_dim")},
                "parties": max(2, cell.parties),
                "colluders": cell.split_colluders,
            }
        )


@lru_cache(maxsize=4)
def open_pool(source: Source, norm: float | None) -> PreparedData:
    """All rows as the schema says, with its row norm replaced if one is given.

    The hold-out, where there is no test file, is the same for every cell and seed.

    Raises:
        SchemaError, DataError, ParameterError: as `prepare`.
    """
    data = _prepared(source)
    if norm is None or norm == data.schema.row_norm:
        return data
    with TemporaryDirectory() as folder:
        path = Path(folder) / "schema.json"
        path.write_text(json.dumps(replace(data.schema, row_norm=norm).to_dict()))
        return _prepared(replace(source, schema=str(path)))


def _prepared(source: Source) -> PreparedData:
    """All rows as one shard."""
    data = prepare(source.config(Cell(parties=2, epsilon=None)), np.random.default_rng(source.draw))
    if not len(data.test.y):
        raise ParameterError("test_share=0: a study judges models on test rows; 0.2 is usual")
    counts = ClampCounts(rows=len(data.labels))
    whole = Shard(x=data.rows, y=data.labels, counts=counts, schema=data.schema)
    return replace(data, shards={"all": whole})


@lru_cache(maxsize=8)
def levels(source: Source) -> dict[str, float]:
    """What every model of these rows is judged beside, on the same test rows.

    accuracy_optimum, auc_optimum, log_loss_optimum: trained on all rows as they are, without
    privacy; accuracy_majority, log_loss_majority: of the share of positive test rows alone.
    """
    data = _prepared(source)
    best = score(fit_unclipped(fit_optimum, data.raw, data.labels), data.raw_test, data.test.y)
    share = float(data.test.y.mean())
    found = {f"{name}_optimum": best[name] for name in ("accuracy", "auc", "log_loss")}
    return {
        **found,
        "accuracy_majority": max(share, 1 - share),
        "log_loss_majority": best["base_rate_log_loss"],
    }


def draw_groups(cell: Cell, pool: PreparedData, rng: np.random.Generator) -> list[RowNumbers]:
    """Row numbers of every client."""
    labels = pool.labels
    frame = pd.DataFrame({"y": labels, "row": np.arange(len(labels))})
    if cell.mode == "growing":
        frame = frame.iloc[rng.permutation(len(frame))[: cell.rows_per_party * cell.parties]]
    shards, _ = split_rows(frame, cell.parties, cell.split, "y", rng)
    return [shard["row"].to_numpy() for shard in shards]


def shared_out(pool: PreparedData, groups: Sequence[RowNumbers]) -> PreparedData:
    """The same rows as real shards, for an encrypted run."""
    shards = {
        f"party-{k + 1}": Shard(
            x=pool.rows[rows],
            y=pool.labels[rows],
            counts=ClampCounts(rows=len(rows)),
            schema=pool.schema,
        )
        for k, rows in enumerate(groups)
    }
    return replace(pool, shards=shards, notes=())
