"""What the federated estimators share: parameters, `fit`, the simulated run, rows for prediction.

All owners are simulated in this process, by the same roles, messages and code as in a deployment.
"""

from __future__ import annotations

import math
import numbers
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from parties.data.encode import encode_features, encode_shard
from parties.data.schema import Schema
from parties.data.table import read_table
from protocols.documents import shown
from protocols.errors import ParameterError
from sims import shards
from sims.config import SimulationConfig
from sims.result import AnyRun
from sims.rows import Columns, Rows, load_schema, read_rows
from sims.simulation import Event, noise_root, run

Array = NDArray[np.float64]

NOT_HELD_OUT = "no rows were held out: every score in result_ is on the training rows"
NO_NOISE = (
    "epsilon=None: no privacy noise was added, so the model itself may reveal rows; encryption "
    "protects them during the training only"
)
SEEDED = (
    "NOT PRIVATE: random_state is set, and whoever knows it can repeat the split and subtract the "
    "noise; leave it None for real rows"
)
INSECURE = "INSECURE: profile='fast-insecure' uses a toy ring without security, for tests only"
INFERRED = (
    "the column schema was inferred from the private data, which leaks about them; a deployment "
    "needs a public schema (schema=)"
)


class FederatedEstimator(BaseEstimator, ABC):
    """Fits on the rows of several owners, or splits all rows among simulated ones.

    A subclass says which columns are predicted (`_choose_columns`), how owners' rows become tables
    and a schema (`_tables`), what a run is asked to do beyond the common (`_options`), and what it
    keeps of the result (`_keep`).
    """

    whole: ClassVar[tuple[str, ...]] = ("parties", "iterations", "colluders")
    real: ClassVar[tuple[str, ...]] = ("epsilon", "delta")
    optional: ClassVar[tuple[str, ...]] = ("parties", "iterations", "epsilon")

    parties: int | None
    split: str
    iterations: int | None
    epsilon: float | None
    delta: float
    colluders: int
    schema: Schema | str | os.PathLike[str] | None
    profile: str
    random_state: Any
    verbose: int
    out: str | os.PathLike[str] | None

    @abstractmethod
    def _choose_columns(self, given: Schema | None) -> Columns: ...

    @abstractmethod
    def _tables(
        self, owners: Mapping[str, Rows], given: Schema | None, notes: list[str]
    ) -> tuple[dict[str, pd.DataFrame], Schema]: ...

    @abstractmethod
    def _options(self) -> dict[str, Any]: ...

    @abstractmethod
    def _keep(self, result: AnyRun) -> None: ...

    # -- fit --------------------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any) -> None:
        """See `fit` of the subclasses."""
        self._check_kinds()
        given = load_schema(self.schema)
        self._columns = columns = self._choose_columns(given)
        if y is None and isinstance(X, pd.DataFrame) and columns.are_in(X):
            y = columns.outcome(X)
        config, owners = self._read(X, y)
        shards.check_alike(owners)
        first = next(iter(owners.values()))
        validate_data(self, first.cells, skip_check_array=True)
        notes = self._notes(given)
        tables, schema = self._tables(owners, given, notes)

        root = noise_root(config)
        if y is not None:
            pooled = pd.concat(tables.values(), ignore_index=True)
            encode_shard(pooled, schema)  # complains about rows as given, before they are shuffled
            rng = np.random.default_rng(root)
            label = schema.label.names[0]
            tables = shards.split_by_owner(X, pooled, config, columns, label, rng)
        data = shards.encode(tables, schema, notes)
        result = run(config, data, root, self._report)
        self._keep(result)
        self.n_iter_ = result.plan.rounds
        self.schema_ = result.schema
        self.notes_ = list(result.warnings)
        self.result_ = result

    def _read(self, X: Any, y: Any) -> tuple[SimulationConfig, dict[str, Rows]]:
        """Rows by owner, or one nameless owner of rows that are to be split."""
        columns = self._columns
        if y is not None:
            config = self._config(None if columns.split else self.parties, self.split)
            return config, {"": read_rows(X, y, columns)}
        given = shards.by_name(X, type(self).__name__)
        config = self._config(len(given), "even")
        return config, {name: shards.read_shard(name, s, columns) for name, s in given.items()}

    # -- predict ----------------------------------------------------------------------------------

    def _encoded(self, X: Any) -> Array:
        """Rows as in training, shape (rows, num_features)."""
        check_is_fitted(self)
        cells = self._columns.cells(X)
        validate_data(self, cells, reset=False, skip_check_array=True)
        frame = read_table(cells)
        frame.columns = pd.Index([column.name for column in self.schema_.columns], dtype=object)
        return encode_features(frame, self.schema_)

    def __getstate__(self) -> Any:
        """Leave out `result_`, which holds training rows and the optimum without noise."""
        return {k: v for k, v in super().__getstate__().items() if k != "result_"}

    # -- parameters -------------------------------------------------------------------------------

    def _config(self, parties: int | None, split: str) -> SimulationConfig:
        return SimulationConfig(
            parties=parties,
            split=split,
            rounds=self.iterations,
            epsilon=self.epsilon,
            delta=self.delta,
            colluders=self.colluders,
            seed=_seed(self.random_state),
            profile=self.profile,
            out=None if self.out is None else Path(self.out),
            **self._options(),
        )

    def _notes(self, given: Schema | None) -> list[str]:
        applies = {
            NO_NOISE: self.epsilon is None,
            SEEDED: self.random_state is not None,
            INSECURE: self.profile == "fast-insecure",
            INFERRED: given is None,
            NOT_HELD_OUT: True,
        }
        return [note for note, true in applies.items() if true]

    def _report(self, event: Event) -> None:
        if self.verbose and event.kind == "phase":
            print(f"[{type(self).__name__}] {event.phase}", file=sys.stderr, flush=True)
        elif self.verbose > 1:
            progress = f"{event.phase} {event.done}/{event.total}"
            print(f"[{type(self).__name__}] {progress}", file=sys.stderr, flush=True)

    def _check_kinds(self) -> None:
        for name in (*self.whole, *self.real):
            value: Any = getattr(self, name)
            if value is None and name in self.optional:
                continue
            whole = name in self.whole
            kind = numbers.Integral if whole else numbers.Real
            fine = isinstance(value, kind) and math.isfinite(float(value))
            if isinstance(value, bool) or not fine:
                what = "whole number" if whole else "finite number"
                raise ParameterError(f"{name}={shown(value)} is not a {what}: give one")
        if not isinstance(self.out, (str, os.PathLike, type(None))):
            raise ParameterError(f"out={shown(self.out)} is not a path or None")


def _seed(random_state: Any) -> int | None:
    """None, or a seed of at least 0; a RandomState gives its next number."""
    if random_state is None:
        return None
    if not isinstance(random_state, numbers.Integral):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if random_state < 0:
        raise ParameterError(f"random_state={random_state} is negative: give 0 or more, or None")
    return int(random_state)
