"""Federated logistic regression with scikit-learn's interface: `fit(shards)`, then `predict`.

All owners are simulated in this process, by the same roles, messages and code as in a deployment.
"""

from __future__ import annotations

import math
import numbers
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from parties.checks import shown
from parties.schema import Schema
from parties.shard import encode_features, encode_shard
from parties.tables import cell_text, read_table
from protocols.errors import ParameterError
from sims import shards
from sims.config import SimulationConfig
from sims.result import RunResult
from sims.rows import Rows, choose_columns, load_schema, read_rows
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
        given = load_schema(self.schema)
        self._columns = choose_columns(self.label, self.split, given)
        label = self._columns.label
        if y is None and isinstance(X, pd.DataFrame) and label in X.columns:
            y = X[label]
        config, owners = self._read(X, y)
        shards.check_alike(owners)
        first = next(iter(owners.values()))
        validate_data(self, first.cells, skip_check_array=True)
        classes = shards.two_classes(owners)
        label = label or shards.free_name(first.frame)
        texts = tuple(cell_text(value) for value in classes)
        tables = {name: owner.table(label, classes, texts) for name, owner in owners.items()}
        pooled = pd.concat(tables.values(), ignore_index=True)
        notes = self._notes(given)
        schema = given or shards.infer(pooled, label, texts[1], notes)
        sign = shards.sign_of(schema.label, texts, notes)

        root = noise_root(config)
        if y is not None:
            encode_shard(pooled, schema)  # complains about rows as given, before they are shuffled
            rng = np.random.default_rng(root)
            tables = shards.split_by_owner(X, pooled, config, self._columns, label, rng)
        data = shards.encode(tables, schema, notes)
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
        cells = self._columns.cells(X)
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

    def _read(self, X: Any, y: Any) -> tuple[SimulationConfig, dict[str, Rows]]:
        """Rows by owner, or one nameless owner of rows that are to be split."""
        columns = self._columns
        if y is not None:
            config = self._config(None if columns.split else self.parties, self.split)
            return config, {"": read_rows(X, y, columns)}
        given = shards.by_name(X)
        config = self._config(len(given), "even")
        return config, {name: shards.read_shard(name, s, columns) for name, s in given.items()}

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
