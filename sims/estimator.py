"""Federated logistic regression with scikit-learn's interface: `fit(shards)`, then `predict`.

All owners are simulated in this process, by the same roles, messages and code as in a deployment.
"""

from __future__ import annotations

import math
import numbers
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    check_random_state,
    column_or_1d,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from parties.checks import shown, suggest
from parties.encode import check_columns
from parties.schema import Label, Schema, infer_schema
from parties.shard import ClampCounts, Shard, encode_features, encode_shard
from parties.tables import cell_text, read_table
from protocols.errors import CohortError, DataError, ParameterError, SchemaError
from protocols.messages import COORDINATOR
from sims.config import SimulationConfig
from sims.datasets import split_rows
from sims.prepare import PreparedData
from sims.result import RunResult
from sims.simulation import Event, noise_root, run

Array = NDArray[np.float64]
_WHOLE = ("parties", "iterations", "degree", "colluders")
_REAL = ("epsilon", "delta", "learning_rate", "interval")
_OPTIONAL = ("parties", "iterations", "degree", "epsilon", "learning_rate", "interval")

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


class FederatedLogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression that several data owners train on encrypted rows.

    Every owner encrypts its rows and its share of the noise under a joint key (threshold CKKS);
    the coordinator trains on ciphertexts; the owners decrypt the final model together.

    Privacy: with `epsilon`, the model is (epsilon, delta)-differentially private against everyone
    who sees it, and against the coordinator together with `colluders` owners; not so if
    `random_state` is set, the schema is inferred or the profile is "fast-insecure". `notes_` says
    what of this applies. `result_` is never private: it holds training rows and the optimum
    without noise, for the person who simulates. Pickles and copies of the estimator leave it out.

    parties: owners among whom `fit(X, y)` splits the rows, at least 2. split: how: "even",
    "dirichlet:ALPHA", or "by:COLUMN" of a frame, one owner per value whatever `parties` says.
    Neither counts for `fit(shards)`.
    update: "barrier", "gd" (gradient descent; with epsilon, with a certified ridge term) or "nag"
    (Nesterov, epsilon=None only). iterations, degree of the sigmoid polynomial: None: chosen.
    learning_rate, interval (the polynomial is good on [-interval, interval]): of gd and nag with
    epsilon=None; None: chosen.
    epsilon: privacy loss, > 0; None: NO privacy noise. delta: in (0, 1). colluders: owners that
    may conspire with the coordinator, below the number of owners.
    label: label column of frames; None: the schema's. schema: Schema or path of a schema file;
    None: inferred from the data, which a deployment may not do.
    profile: "secure" (128 bits) or "fast-insecure" (toy ring, for tests).
    random_state: None: the operating system's randomness; otherwise the split and the noise can be
    repeated and the run is NOT PRIVATE. Keys and encryption are random in any case, so two runs
    differ by the error of CKKS.
    verbose: 0 silent, 1 phases, 2 iterations, on stderr. out: folder for plan, model, transcript
    and report; None: none is written.

    Attributes:
        coef_: float64 array, shape (1, features), over `schema_.feature_names` (categories are
            one-hot), log-odds of `classes_[1]` in the data's own units.
        intercept_: float64 array, shape (1,).
        classes_: the two labels as given, sorted.
        n_features_in_: number of columns; feature_names_in_: their names, for frames.
        n_iter_: iterations done.
        schema_: the column schema in use.
        notes_: list of sentences that whoever uses the model should know.
        result_: RunResult: the plaintext twin, costs, plan, scores on the training rows.

    Predictions scale, clamp and clip rows exactly as in training: a row within the schema's bounds
    scores coef_ @ x + intercept_, any other is moved to the bounds first.

    >>> import numpy as np
    >>> rng = np.random.default_rng(7)
    >>> def ward(rows):
    ...     X = rng.normal(size=(rows, 2))
    ...     return X, np.where(X[:, 0] > X[:, 1], "ill", "well")
    >>> model = FederatedLogisticRegression(
    ...     update="gd", iterations=3, degree=3, epsilon=None,  # epsilon=1.0 for real rows
    ...     profile="fast-insecure",  # "secure" for real rows: 128 bits
    ... )
    >>> model = model.fit({"north": ward(30), "south": ward(50)})
    >>> model.classes_.tolist(), model.coef_.shape
    (['ill', 'well'], (1, 2))
    >>> model.predict([[2.0, -2.0], [-2.0, 2.0]]).tolist()
    ['ill', 'well']
    """

    def __init__(
        self,
        *,
        parties: int | None = 3,
        split: str = "even",
        update: str = "barrier",
        iterations: int | None = None,
        degree: int | None = None,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        colluders: int = 0,
        learning_rate: float | None = None,
        interval: float | None = None,
        label: str | None = None,
        schema: Schema | str | os.PathLike[str] | None = None,
        profile: str = "secure",
        random_state: Any = None,
        verbose: int = 0,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        self.parties = parties
        self.split = split
        self.update = update
        self.iterations = iterations
        self.degree = degree
        self.epsilon = epsilon
        self.delta = delta
        self.colluders = colluders
        self.learning_rate = learning_rate
        self.interval = interval
        self.label = label
        self.schema = schema
        self.profile = profile
        self.random_state = random_state
        self.verbose = verbose
        self.out = out

    def fit(self, X: Any, y: Any = None) -> FederatedLogisticRegression:
        """Train on the rows of several owners, each checked before any key is made.

        X: one shard per owner, in a list, or in a dict by name. A shard is a pair (X, y), a
            DataFrame with the column `label`, or the path of a CSV or Parquet file with it. Or,
            to simulate, all rows: array or frame, shape (rows, columns), to be split.
        y: labels of all rows, shape (rows,); None for shards, and for a frame that holds them.

        Returns: self.

        Raises:
            DataError: rows or labels cannot be used; the message names the shard.
            SchemaError: no schema can be inferred, or the given one does not fit.
            ParameterError: a parameter is out of range.
            PrivacyError: no setting is certified for this epsilon and delta.
            ValueError, TypeError: scikit-learn's own, for an X or y that is to be split.
        """
        _check_kinds(self)
        given = _load_schema(self.schema)
        label = self._choose_columns(given)
        if y is None and isinstance(X, pd.DataFrame) and label in X.columns:
            y = X[label]
        config, owners = self._read(X, y, label)
        _check_alike(owners)
        first = next(iter(owners.values()))
        validate_data(self, first.cells, skip_check_array=True)
        classes = _two_classes(np.concatenate([owner.labels for owner in owners.values()]))
        label = label or _free_name(first.frame)
        texts = tuple(cell_text(value) for value in classes)
        tables = {name: owner.table(label, classes, texts) for name, owner in owners.items()}
        pooled = pd.concat(tables.values(), ignore_index=True)
        notes = self._notes(given)
        schema = given or _infer(pooled, label, texts[1], notes)
        sign = _sign(schema.label, texts, notes)

        root = noise_root(config)
        if y is not None:
            encode_shard(pooled, schema)  # complains about rows as given, before they are shuffled
            tables = self._split(X, pooled, config, label, np.random.default_rng(root))
        data = _prepare(tables, schema, notes)
        self._keep(run(config, data, root, self._report), classes, sign)
        return self

    def decision_function(self, X: Any) -> Array:
        """Log-odds of `classes_[1]`, shape (rows,).

        X: array or frame with the columns of the training, shape (rows, columns). In a frame, the
            label and the column of split="by:COLUMN" are left out, and so is, with `schema`
            given, every column that it does not name.

        Raises:
            NotFittedError: `fit` comes first.
            SchemaError, DataError: see `parties.shard.encode_features`.
            ValueError: scikit-learn's own, for wrong columns or a wrong shape.
        """
        check_is_fitted(self)
        cells = self._cells(X)
        validate_data(self, cells, reset=False, skip_check_array=True)
        frame = read_table(cells)
        frame.columns = pd.Index([column.name for column in self.schema_.columns], dtype=object)
        scores: Array = encode_features(frame, self.schema_) @ self._weights
        return scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The more likely label of each row, shape (rows,); see `decision_function`."""
        chosen = (self.decision_function(X) > 0).astype(np.intp)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of `classes_`, shape (rows, 2); see `decision_function`."""
        scores = self.decision_function(X)
        return np.column_stack([expit(-scores), expit(scores)])

    def __getstate__(self) -> Any:
        """Leave out `result_`, which holds training rows and the optimum without noise."""
        return {k: v for k, v in super().__getstate__().items() if k != "result_"}

    def __sklearn_tags__(self) -> Any:
        """Two classes only; two runs differ by the error of CKKS."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = True
        return tags

    def _keep(self, result: RunResult, classes: NDArray[Any], sign: int) -> None:
        self._weights = sign * result.weights
        coef, intercept = result.schema.model_in_data_units(self._weights)
        self.coef_, self.intercept_ = coef[None, :], np.array([intercept])
        self.classes_ = classes
        self.n_iter_ = result.plan.rounds
        self.schema_ = result.schema
        self.notes_ = list(result.warnings)
        self.result_ = result

    # -- parameters -----------------------------------------------------------------------------

    @property
    def _split_column(self) -> str | None:
        kind, _, column = str(self.split).partition(":")
        return column if kind == "by" and column else None

    def _config(self, parties: int | None, split: str) -> SimulationConfig:
        return SimulationConfig(
            parties=parties,
            split=split,
            update=self.update,
            rounds=self.iterations,
            degree=self.degree,
            learning_rate=self.learning_rate,
            radius=self.interval,
            epsilon=self.epsilon,
            delta=self.delta,
            colluders=self.colluders,
            seed=_seed(self.random_state),
            profile=self.profile,
            out=None if self.out is None else Path(self.out),
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

    # -- rows -----------------------------------------------------------------------------------

    def _choose_columns(self, given: Schema | None) -> str | None:
        """Settle which columns of frames are features; return the name of the label, if known."""
        label = self.label or (given.label.name if given else None)
        if given and label != given.label.name:
            raise SchemaError(f"label={label!r} is not the schema's label {given.label.name!r}")
        self._no_features = tuple(name for name in (label, self._split_column) if name)
        self._features = tuple(column.name for column in given.columns) if given else None
        if self._features and self._split_column in self._features:
            raise ParameterError(
                f"split={self.split!r} names a column of the schema: split by another column, or "
                "take it out of the schema"
            )
        return label

    def _read(
        self, X: Any, y: Any, label: str | None
    ) -> tuple[SimulationConfig, dict[str, _Owner]]:
        """Shards by owner, or one nameless owner of rows that are to be split."""
        if y is not None:
            config = self._config(None if self._split_column else self.parties, self.split)
            return config, {"": self._read_rows(X, y)}
        shards = _by_name(X)
        config = self._config(len(shards), "even")
        return config, {name: self._read_shard(name, s, label) for name, s in shards.items()}

    def _cells(self, X: Any) -> Any:
        """Features in a frame of their own, or a checked array."""
        if not isinstance(X, pd.DataFrame):
            return _checked_array(X)
        frame = read_table(X)
        if self._features:
            check_columns(frame, self._features)
            return frame[list(self._features)]
        return frame.drop(columns=[name for name in self._no_features if name in frame.columns])

    def _read_rows(self, X: Any, y: Any) -> _Owner:
        cells = self._cells(X)
        frame = _plain(read_table(cells))
        if self._features:
            if frame.shape[1] != len(self._features):
                raise DataError(
                    f"X has {frame.shape[1]} columns where the schema has {len(self._features)}"
                )
            frame.columns = pd.Index(self._features, dtype=object)
        labels = _labels(y)
        check_consistent_length(frame, labels)
        return _Owner(cells, frame, labels)

    def _read_shard(self, name: str, shard: Any, label: str | None) -> _Owner:
        with _naming(name):
            if isinstance(shard, tuple) and len(shard) == 2:
                return self._read_rows(*shard)
            if not isinstance(shard, (pd.DataFrame, str, os.PathLike)):
                raise DataError(
                    f"a {type(shard).__name__} holds no labels: give a pair (X, y), or a DataFrame "
                    "with the column label="
                )
            if label is None:
                raise DataError("label is missing: name the column to predict, such as label='y'")
            frame = read_table(shard)
            if label not in frame.columns:
                raise DataError(
                    f"label={shown(label)} is not a column{suggest(label, frame.columns)}: add it, "
                    "or name the label column"
                )
            return self._read_rows(frame, frame[label])

    def _split(
        self,
        X: Any,
        pooled: pd.DataFrame,
        config: SimulationConfig,
        label: str,
        rng: np.random.Generator,
    ) -> dict[str, pd.DataFrame]:
        column = self._split_column
        if column and isinstance(X, pd.DataFrame) and column in X.columns:
            pooled = pooled.assign(**{column: X[column].to_numpy()})
        tables, names = split_rows(pooled, config.parties, config.split, label, rng)
        return dict(zip(names, tables, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Owner:
    """cells: as read; frame: the same with the schema's column names; labels: shape (rows,)."""

    cells: Any
    frame: pd.DataFrame
    labels: NDArray[Any]

    def table(self, label: str, classes: NDArray[Any], texts: tuple[str, ...]) -> pd.DataFrame:
        """Features and, as text, the label."""
        return self.frame.assign(**{label: np.where(self.labels == classes[1], *texts[::-1])})


def _check_kinds(estimator: FederatedLogisticRegression) -> None:
    for name in (*_WHOLE, *_REAL):
        value: Any = getattr(estimator, name)
        if value is None and name in _OPTIONAL:
            continue
        whole = name in _WHOLE
        kind = numbers.Integral if whole else numbers.Real
        if isinstance(value, bool) or not (isinstance(value, kind) and math.isfinite(float(value))):
            what = "whole number" if whole else "finite number"
            raise ParameterError(f"{name}={shown(value)} is not a {what}: give one")
    if not isinstance(estimator.out, (str, os.PathLike, type(None))):
        raise ParameterError(f"out={shown(estimator.out)} is not a path or None")


def _seed(random_state: Any) -> int | None:
    """None, or a seed of at least 0; a RandomState gives its next number."""
    if random_state is None:
        return None
    if not isinstance(random_state, numbers.Integral):
        return int(check_random_state(random_state).randint(2**31 - 1))
    if random_state < 0:
        raise ParameterError(f"random_state={random_state} is negative: give 0 or more, or None")
    return int(random_state)


def _load_schema(schema: Any) -> Schema | None:
    if schema is None or isinstance(schema, Schema):
        return schema
    if isinstance(schema, (str, os.PathLike)):
        return Schema.load(Path(schema))
    raise ParameterError(f"schema={shown(schema)} is not a Schema, a path or None")


def _by_name(shards: Any) -> dict[str, Any]:
    """Shards by owner; a list's owners are party-1, party-2 and so on."""
    if isinstance(shards, Mapping):
        named = {str(name): shard for name, shard in shards.items()}
        if len(named) < len(shards) or not all(named) or COORDINATOR in named:
            raise DataError(
                f"the names of the shards are not distinct, not empty and not {COORDINATOR!r}: "
                "name each owner differently"
            )
        return named
    kinds = (tuple, pd.DataFrame, np.ndarray, str, os.PathLike)
    if isinstance(shards, (list, tuple)) and all(isinstance(shard, kinds) for shard in shards):
        return {f"party-{k + 1}": shard for k, shard in enumerate(shards)}
    raise DataError(
        "FederatedLogisticRegression requires y to be passed, but the target y is None: give y, "
        "or one shard (X, y) per owner in a list or a dict"
    )


@contextmanager
def _naming(owner: str) -> Iterator[None]:
    """Any complaint as a DataError about this shard; nothing is chained that may quote a cell."""
    try:
        yield
    except CohortError as error:
        raise DataError(f"shard {shown(owner)}: {error}") from None
    except (ValueError, TypeError) as error:
        # scikit-learn quotes arrays, always from the second line on.
        line = str(error).partition("\n")[0].rstrip(":")
        raise DataError(f"shard {shown(owner)}: {line}") from None


def _checked_array(X: Any) -> NDArray[Any]:
    """Numbers; or objects, where some cells are texts, so that the other columns stay numbers."""
    cells = np.array(X, dtype=object) if _may_hold_text(X) else None
    text = cells is not None and cells.ndim == 2 and any(isinstance(c, str) for c in cells.flat)
    try:
        array: NDArray[Any] = check_array(
            cells if text else X,
            dtype=None if text else "numeric",
            ensure_all_finite=False,  # encoding refuses them and names the columns
            input_name="X",
        )
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise DataError("X has text where a number is due: give a DataFrame") from None
    return array


def _may_hold_text(X: Any) -> bool:
    return X.dtype.kind in "OU" if isinstance(X, np.ndarray) else isinstance(X, (list, tuple))


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Categories as texts, objects as numbers where they are numbers; no cell is missing."""
    frame = frame.infer_objects()
    for name in frame.columns:
        cells = frame[name]
        missing = int(cells.isna().sum())
        if missing:
            raise DataError(
                f"column {shown(name)} is missing (NaN) in {missing} of {len(frame)} rows: "
                "fill in or drop these rows"
            )
        if isinstance(cells.dtype, pd.CategoricalDtype):
            frame[name] = cells.astype(object).map(cell_text)
    return frame


def _labels(y: Any) -> NDArray[Any]:
    """Labels as given, shape (rows,)."""
    labels = column_or_1d(y, warn=True)
    missing = int(pd.isna(labels).sum())
    if missing:
        raise DataError(f"y is missing in {missing} of {len(labels)} rows: drop these rows")
    if labels.dtype == object:
        labels = pd.Series(labels).infer_objects().to_numpy()
    assert_all_finite(labels, input_name="y")
    values: NDArray[Any] = labels
    return values


def _is_number(cells: Any) -> bool:
    return is_numeric_dtype(cells) and not is_bool_dtype(cells)


def _check_alike(owners: Mapping[str, _Owner]) -> None:
    """The first shard is the model of the others: names of columns, numbers or texts."""
    first, *others = owners
    model = owners[first]
    for name in others:
        with _naming(name):
            owner = owners[name]
            for one, two, what in (
                (owner.frame, model.frame, f"is missing, which shard {shown(first)} has"),
                (model.frame, owner.frame, f"is not in shard {shown(first)}"),
            ):
                odd = [column for column in two.columns if column not in one.columns]
                if odd:
                    raise DataError(
                        f"column {shown(odd[0])} {what}{suggest(odd[0], one.columns)}: "
                        "give all shards the same columns"
                    )
            for column in model.frame.columns:
                if _is_number(owner.frame[column]) != _is_number(model.frame[column]):
                    raise DataError(
                        f"column {shown(column)} holds numbers here or in shard {shown(first)}, "
                        "and texts in the other: write all in one way"
                    )
            if (owner.labels.dtype.kind in "OU") != (model.labels.dtype.kind in "OU"):
                raise DataError(
                    f"the labels are numbers here or in shard {shown(first)}, and texts in the "
                    "other: write all in one way"
                )


def _two_classes(labels: NDArray[Any]) -> NDArray[Any]:
    check_classification_targets(labels)
    classes: NDArray[Any] = np.unique(labels)
    if len(classes) > 2:
        raise DataError(
            "Only binary classification is supported. The type of the target is multiclass: the "
            f"label has {len(classes)} classes; derive a yes/no label from it"
        )
    if len(classes) < 2:
        raise DataError("the label has 1 class in all rows together: rows of both are needed")
    return classes


def _free_name(frame: pd.DataFrame) -> str:
    name = "y"
    while name in frame.columns:
        name += "_"
    return name


def _infer(pooled: pd.DataFrame, label: str, positive: str, notes: list[str]) -> Schema:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        schema = infer_schema(pooled, label, positive)
    notes += [str(warning.message) for warning in caught]
    return schema


def _sign(label: Label, texts: tuple[str, ...], notes: list[str]) -> int:
    """-1 where the schema's positive label is classes_[0], so its model is the other way round."""
    if {label.negative, label.positive} != set(texts):
        raise DataError(
            f"the labels are not the schema's {label.negative!r} and {label.positive!r}: correct "
            "them or the schema"
        )
    if label.positive == texts[1]:
        return 1
    notes.append(
        f"coef_ and intercept_ are for {texts[1]!r}, the larger label; the schema's positive label "
        f"and a model.json are for {texts[0]!r}, with opposite signs"
    )
    return -1


def _prepare(tables: Mapping[str, pd.DataFrame], schema: Schema, notes: list[str]) -> PreparedData:
    shards = {}
    for name, table in tables.items():
        with _naming(name):
            shards[name] = encode_shard(table, schema)
    x = np.concatenate([shard.x for shard in shards.values()])
    y = np.concatenate([shard.y for shard in shards.values()])
    training = Shard(x=x, y=y, counts=ClampCounts(rows=len(y)), schema=schema)
    return PreparedData(schema=schema, shards=shards, test=training, notes=tuple(notes))
