"""Federated regression with scikit-learn's interface: several targets at once, from sums alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin

from parties.data.schema import Schema
from protocols.errors import DataError, SchemaError
from protocols.models.regression_models import regression_model
from sims import shards
from sims.datasets import require_spread
from sims.federated import Array, FederatedEstimator
from sims.model_fields import coefficients
from sims.regression_result import targets_of
from sims.regression_twin import predict
from sims.result import AnyRun
from sims.rows import Columns, Rows, choose_columns
from sims.words import count


class FederatedRegression(RegressorMixin, FederatedEstimator):
    """Regression of one or several targets that several data owners train on encrypted sums.

    Every owner encrypts X^T X and X^T Y of its rows, and its share of the noise, under a joint key
    (threshold CKKS); the coordinator trains on ciphertexts, at a cost that does not depend on the
    number of rows; the owners decrypt the final model together.

    Privacy: with `epsilon`, the model is (epsilon, delta)-differentially private against everyone
    who sees it, and against the coordinator together with `colluders` owners; not so if
    `random_state` is set, the schema is inferred or the profile is "fast-insecure". `notes_` says
    what of this applies. `result_` is never private. Pickles and copies leave it out.

    model: "linear"; "improved-lffr": linear in the logit of the target, whose predictions bend
    towards the ends of the target's range; or "lffr": a sigmoid of the range by squared error, for
    which the owners encrypt their rows.
    iterations: None: 30, of "lffr" with privacy 10.
    ridge: weight of the squared coefficients (scaled units) beside the mean squared error; None:
    0, or of sums what privacy needs at least.
    targets: target column or columns of frames; None: the schema's, or those of y.
    parties, split ("even" or "by:COLUMN"), epsilon, delta, colluders, schema, profile,
    random_state, verbose, out: as of `FederatedLogisticRegression`.

    Attributes:
        coef_: float64 array, shape (targets, features), over `schema_.feature_names` (categories
            are one-hot), in the data's own units; of the others in units of the score. Shape
            (features,) where y was one column.
        intercept_: float64 array, shape (targets,), or one number.
        n_features_in_: number of columns; feature_names_in_: their names, for frames.
        n_iter_: iterations done.
        schema_: the column schema in use, with the public range of every target.
        notes_: list of sentences that whoever uses the model should know.
        result_: RegressionResult: the plaintext twin, least squares, costs, plan, errors on the
            training rows.

    >>> import numpy as np
    >>> rng = np.random.default_rng(7)
    >>> def ward(rows):
    ...     X = rng.normal(size=(rows, 2))
    ...     return X, np.column_stack([X[:, 0] - X[:, 1], X.sum(axis=1)])
    >>> model = FederatedRegression(
    ...     epsilon=None,  # 1.0 for real rows
    ...     profile="fast-insecure",  # "secure" for real rows: 128 bits
    ... )
    >>> model = model.fit({"north": ward(30), "south": ward(50)})
    >>> model.coef_.round(1).tolist()
    [[1.0, -1.0], [1.0, 1.0]]
    >>> model.predict([[1.0, -1.0]]).round(1).tolist()
    [[2.0, 0.0]]
    """

    real = (*FederatedEstimator.real, "ridge")
    optional = (*FederatedEstimator.optional, "ridge")

    def __init__(
        self,
        *,
        model: str = "linear",
        parties: int | None = 3,
        split: str = "even",
        iterations: int | None = None,
        ridge: float | None = None,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        colluders: int = 0,
        targets: str | Sequence[str] | None = None,
        schema: Schema | str | os.PathLike[str] | None = None,
        profile: str = "secure",
        random_state: Any = None,
        verbose: int = 0,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        self.model = model
        self.parties = parties
        self.split = split
        self.iterations = iterations
        self.ridge = ridge
        self.epsilon = epsilon
        self.delta = delta
        self.colluders = colluders
        self.targets = targets
        self.schema = schema
        self.profile = profile
        self.random_state = random_state
        self.verbose = verbose
        self.out = out

    def fit(self, X: Any, y: Any = None) -> FederatedRegression:
        """Train on the rows of several owners, each checked before any key is made.

        X: one shard per owner, in a list, or in a dict by name. A shard is a pair (X, y), a
            DataFrame with the columns `targets`, or the path of a CSV or Parquet file with them.
            Or, to simulate, all rows: array or frame, shape (rows, columns), to be split.
        y: targets of all rows, shape (rows,) or (rows, targets); None for shards, and for a frame
            that holds them.

        Returns: self.

        Raises:
            DataError: rows or targets cannot be used; the message names the shard.
            SchemaError: no schema can be inferred, or the given one does not fit.
            ParameterError: a parameter is out of range.
            PrivacyError: no setting is certified for this epsilon and delta.
            ValueError, TypeError: scikit-learn's own, for an X or y that is to be split.
        """
        self._fit(X, y)
        return self

    def predict(self, X: Any) -> Array:
        """Targets in their own units, shape (rows, targets), or (rows,) where y was one column.

        X: array or frame with the columns of the training. In a frame, the targets and the column
            of split="by:COLUMN" are left out, and so is, with `schema` given, every column that it
            does not name. Rows are scaled and clamped as in training.

        Raises:
            NotFittedError: `fit` comes first.
            SchemaError, DataError: see `parties.data.encode.encode_features`.
        """
        x = self._encoded(X)
        scaled = predict(regression_model(self._model), self._weights, x)
        values = targets_of(self.schema_.label).to_data_units(scaled)
        return values[:, 0] if self._flat else values

    def __sklearn_tags__(self) -> Any:
        """Several targets at once; two runs differ by the error of CKKS."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        tags.non_deterministic = True
        return tags

    def _choose_columns(self, given: Schema | None) -> Columns:
        flat = isinstance(self.targets, str)
        named = (self.targets,) if isinstance(self.targets, str) else tuple(self.targets or ())
        return choose_columns(named, self.split, given, numeric=True, flat=flat)

    def _tables(
        self, owners: Mapping[str, Rows], given: Schema | None, notes: list[str]
    ) -> tuple[dict[str, pd.DataFrame], Schema]:
        first = next(iter(owners.values()))
        self._flat = first.flat and first.labels.shape[1] == 1
        names = self._columns.labels or first.names or _names(first)
        for name, owner in owners.items():
            with shards.naming(name):
                if owner.labels.shape[1] != len(names):
                    raise DataError(
                        f"y has {owner.labels.shape[1]} columns where {len(names)} targets "
                        f"({', '.join(names)}) are due"
                    )
        tables = {
            name: owner.frame.assign(**dict(zip(names, owner.labels.T, strict=True)))
            for name, owner in owners.items()
        }
        pooled = pd.concat(tables.values(), ignore_index=True)
        schema = given or shards.infer(pooled, list(names), None, notes)
        if schema.label.names != names:
            raise SchemaError(f"the schema's targets are not {', '.join(names)}")
        require_spread(pooled, names, f"the {count(len(pooled), 'sample')}")
        return tables, schema

    def _options(self) -> dict[str, Any]:
        return {"model": self.model, "ridge": self.ridge}

    def _keep(self, result: AnyRun) -> None:
        self._weights, self._model = result.weights, result.plan.model
        coef, intercept = coefficients(result.schema, result.weights, result.plan.model)
        self.coef_: Any = coef[0] if self._flat else coef
        self.intercept_: Any = float(intercept[0]) if self._flat else np.asarray(intercept)


def _names(rows: Rows) -> tuple[str, ...]:
    """Names for targets that have none: y, or y1, y2 and so on."""
    outputs = rows.labels.shape[1]
    stems = ["y"] if outputs == 1 else [f"y{k + 1}" for k in range(outputs)]
    return tuple(shards.free_name(rows.frame, stem) for stem in stems)
