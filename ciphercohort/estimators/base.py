"""What scikit-learn estimators of several owners share: `fit(shards)`, then `predict`.

All owners are simulated in this process, by the same roles, messages and code as in a deployment.
"""

from __future__ import annotations

import numbers
import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.inputs import GIVEN, INFERRED, InferredSchemaWarning, unmet
from ciphercohort.results.result import FAR, UNCONVERGED, RunResult, encoding_of
from parties.reader.schema import Schema
from parties.reader.shard import encode_scored, encode_shard
from parties.reader.table import read_table
from protocols.errors import DataError, ParameterError
from sims import owners as shards
from sims import row_terms
from sims.owners import Columns, Rows, load_schema
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


class FederatedEstimator(BaseEstimator, ABC):
    """Fits on the rows of several owners, or splits all rows among simulated ones.

    A subclass says which columns are predicted (`_choose_columns`), how owners' rows become tables
    and a schema (`_tables`), what a run is asked to do beyond the common (`_options`), and what it
    keeps of the result (`_keep`).
    """

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
    ledger: str | os.PathLike[str] | None

    @abstractmethod
    def _choose_columns(self, given: Schema | None) -> Columns: ...

    @abstractmethod
    def _tables(
        self, owners: Mapping[str, Rows], given: Schema | None, notes: list[str]
    ) -> tuple[dict[str, pd.DataFrame], Schema]: ...

    @abstractmethod
    def _options(self) -> dict[str, Any]: ...

    @abstractmethod
    def _keep(self, result: RunResult) -> None: ...

    # -- fit --------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, offset: Any = None) -> Any:
        """Train on the rows of several owners, each checked before any key is made.

        Args:
            X: one shard per owner, in a list, or in a dict by name. A shard is a pair (X, y), a
                DataFrame with the columns `label` or `targets`, or the path of a table's file
                with them. Or, to simulate, all rows: array or frame, shape (rows, columns),
                to be split.
            y: labels of all rows, shape (rows,), or targets, (rows,) or (rows, targets); None for
                shards, and for a frame that holds them.
            sample_weight: how much each row counts, 0 or more, shape (rows,); of shards one array
                each, in a list or a dict as they are. Not with protocol "encrypted-rows", but of
                regressions on sums. A `schema` declares their bound, or has their column.
            offset: added to each row's score, with coefficient 1, as of sample_weight: the
                logarithm of exposures for "poisson".

        Returns:
            self.

        Raises:
            DataError: rows or labels cannot be used; the message names the shard.
            SchemaError: no schema can be inferred, or the given one does not fit.
            ParameterError: a parameter is out of range.
            PrivacyError: no setting is certified for this epsilon and delta.
            ValueError, TypeError: scikit-learn's own, for an X or y that is to be split.
        """
        given = load_schema(self.schema)
        self._columns = columns = self._choose_columns(given)
        if y is None and isinstance(X, pd.DataFrame) and columns.are_in(X):
            y = columns.outcome(X)
        config, owners = self._read(X, y)
        shards.check_alike(owners)
        first = next(iter(owners.values()))
        validate_data(self, first.cells, skip_check_array=True)
        notes = self._notes(given)
        beside: dict[str, str | None] = {}
        for term, values in (("weight", sample_weight), ("offset", offset)):
            owners, beside[term] = row_terms.attached(owners, given, term, values)
        factors = self._class_factors(owners, beside["weight"])
        if factors:
            owners, given, beside["weight"] = row_terms.class_weighted(
                owners, given, beside["weight"], factors
            )
        self._beside = {term: name for term, name in beside.items() if name is not None}
        tables, schema = self._tables(owners, given, notes)
        config = self._penalised(config, sum(map(len, tables.values())), schema)

        root = noise_root(config)
        if y is not None:
            pooled = pd.concat(tables.values(), ignore_index=True)
            encode_shard(pooled, schema)  # complains about rows as given, before they are shuffled
            rng = np.random.default_rng(root)
            label = schema.label.names[0]
            tables = shards.split_by_owner(X, pooled, config, columns, label, rng)
        self.schema_from_ = INFERRED if given is None else GIVEN
        for told in unmet(self.schema_from_, private=self.epsilon is not None):
            warnings.warn(told, InferredSchemaWarning, stacklevel=2)
        data = shards.encode(tables, schema, self.schema_from_, notes)
        result = run(config, data, root, self._report)
        # With a penalty the maximum likelihood is not what was asked for.
        short = (UNCONVERGED,) if config.ridge else (FAR, UNCONVERGED)
        for told in (w for w in result.warnings if w.startswith(short)):
            warnings.warn(told, ConvergenceWarning, stacklevel=2)
        self._keep(result)
        self.n_iter_ = result.plan.rounds
        self.schema_, self._view = result.schema, result.view
        self.notes_ = list(result.notes)
        self.result_ = result
        return self

    def _read(self, X: Any, y: Any) -> tuple[SimulationConfig, dict[str, Rows]]:
        """Rows by owner, or one nameless owner of rows that are to be split."""
        columns = self._columns
        if y is not None:
            config = self._config(None if columns.split else self.parties, self.split)
            return config, {"": Rows.read(X, y, columns)}
        given = shards.by_name(X, type(self).__name__)
        config = self._config(len(given), "even")
        return config, {name: shards.read_shard(name, s, columns) for name, s in given.items()}

    # -- predict ----------------------------------------------------------------------------------

    def _scores(self, X: Any, offset: Any) -> Array:
        """Of rows as in training, shape (rows,) or (rows, targets); offset: None: of the frame.

        Raises:
            DataError: the model was trained with offsets, and there are none; or others.
        """
        check_is_fitted(self)
        cells = self._columns.cells(X)
        validate_data(self, cells, reset=False, skip_check_array=True)
        frame = read_table(cells)
        frame.columns = pd.Index([column.name for column in self.schema_.columns], dtype=object)
        known = self.schema_.offset
        if known is not None:
            if offset is None and isinstance(X, pd.DataFrame) and known.name in X.columns:
                offset = X[known.name]
            if offset is None:
                raise DataError("the model was trained with offsets: give offset=, one per row")
            frame[known.name] = np.asarray(offset)
        elif offset is not None:
            raise DataError("the model was trained without offsets: leave offset out")
        x, added = encode_scored(frame, encoding_of(self.schema_, self._view))
        scores: Array = (x @ self._weights).T + added
        return scores.T

    def _class_factors(self, owners: Mapping[str, Rows], weight: str | None) -> dict[Any, float]:
        """Of the rows of each label; empty: all alike. weight: name of the weights' column."""
        return {}

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
            out=self.out,  # type: ignore[arg-type]
            ledger=None if self.epsilon is None else self.ledger,  # type: ignore[arg-type]
            **self._options(),
        )

    def _penalised(self, config: SimulationConfig, rows: int, schema: Schema) -> SimulationConfig:
        """The configuration, now that the number of all training rows is known."""
        return config

    def _notes(self, given: Schema | None) -> list[str]:
        applies = {
            NO_NOISE: self.epsilon is None,
            SEEDED: self.random_state is not None,
            INSECURE: self.profile == "fast-insecure",
            NOT_HELD_OUT: True,
        }
        return [note for note, true in applies.items() if true]

    def _report(self, event: Event) -> None:
        if self.verbose and event.kind == "phase":
            print(f"[{type(self).__name__}] {event.phase}", file=sys.stderr, flush=True)
        elif self.verbose > 1 and event.kind == "progress":
            progress = f"{event.phase} {event.done}/{event.total}"
            print(f"[{type(self).__name__}] {progress}", file=sys.stderr, flush=True)


def _seed(random_state: Any) -> int | None:
    """None, or a seed of at least 0; a RandomState gives its next number."""
    if random_state is None:
        return None
    if not isinstance(random_state, numbers.Integral):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if random_state < 0:
        raise ParameterError(f"random_state={random_state} is negative: give 0 or more, or None")
    return int(random_state)
