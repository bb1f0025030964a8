"""Federated logistic regression with scikit-learn's interface: `fit(shards)`, then `predict`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin

from parties.data.schema import Label, Schema
from parties.data.table import cell_text
from protocols.errors import SchemaError
from sims import shards
from sims.federated import Array, FederatedEstimator
from sims.result import AnyRun
from sims.rows import Columns, Rows, choose_columns


class FederatedLogisticRegression(ClassifierMixin, FederatedEstimator):
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

    whole = (*FederatedEstimator.whole, "degree")
    real = (*FederatedEstimator.real, "learning_rate", "interval")
    optional = (*FederatedEstimator.optional, "degree", "learning_rate", "interval")

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
        self._fit(X, y)
        return self

    def decision_function(self, X: Any) -> Array:
        """Log-odds of `classes_[1]`, shape (rows,).

        X: array or frame with the columns of the training, shape (rows, columns). In a frame, the
            label and the column of split="by:COLUMN" are left out, and so is, with `schema`
            given, every column that it does not name.

        Raises:
            NotFittedError: `fit` comes first.
            SchemaError, DataError: see `parties.data.encode.encode_features`.
            ValueError: scikit-learn's own, for wrong columns or a wrong shape.
        """
        scores: Array = self._encoded(X) @ self._weights
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

    def __sklearn_tags__(self) -> Any:
        """Two classes only; two runs differ by the error of CKKS."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = True
        return tags

    def _choose_columns(self, given: Schema | None) -> Columns:
        labels = () if self.label is None else (self.label,)
        return choose_columns(labels, self.split, given)

    def _tables(
        self, owners: Mapping[str, Rows], given: Schema | None, notes: list[str]
    ) -> tuple[dict[str, pd.DataFrame], Schema]:
        first = next(iter(owners.values()))
        self._classes = classes = shards.two_classes(owners)
        named = self._columns.labels
        label = named[0] if named else shards.free_name(first.frame)
        texts = tuple(cell_text(value) for value in classes)
        tables = {
            name: owner.frame.assign(**{label: np.where(owner.labels == classes[1], *texts[::-1])})
            for name, owner in owners.items()
        }
        schema = given
        if schema is None:
            pooled = pd.concat(tables.values(), ignore_index=True)
            schema = shards.infer(pooled, label, texts[1], notes)
        if not isinstance(schema.label, Label):
            raise SchemaError("the schema has targets, not a label: take FederatedRegression")
        self._sign = shards.sign_of(schema.label, texts, notes)
        return tables, schema

    def _options(self) -> dict[str, Any]:
        return {
            "update": self.update,
            "degree": self.degree,
            "learning_rate": self.learning_rate,
            "radius": self.interval,
        }

    def _keep(self, result: AnyRun) -> None:
        self._weights = self._sign * result.weights
        coef, intercept = result.schema.model_in_data_units(self._weights)
        self.coef_, self.intercept_ = coef[None, :], np.array([intercept])
        self.classes_ = self._classes
