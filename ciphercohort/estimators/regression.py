"""`FederatedRegression`: numeric targets, as scikit-learn's regressors take them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin

from ciphercohort.estimators.base import Array, FederatedEstimator
from ciphercohort.results.documents import coefficients
from ciphercohort.results.result import RunResult, targets_of
from parties.reader.schema import Schema
from protocols.errors import DataError, SchemaError
from protocols.models.registry import model_named
from protocols.names import ENCRYPTED_ROWS
from protocols.words import count
from sims import owners as shards
from sims.owners import Columns, Rows
from sims.prepare import inferred, require_spread


class FederatedRegression(RegressorMixin, FederatedEstimator):
    """Regression of one or several targets that several data owners train on encrypted sums.

    Every owner encrypts X^T X and X^T Y of its rows, and its share of the noise, under a joint key
    (threshold CKKS); the coordinator trains on ciphertexts, at a cost that does not depend on the
    number of rows; the owners decrypt the final model together.

    Privacy: with `epsilon`, the model is (epsilon, delta)-differentially private against everyone
    who sees it, and against the coordinator together with `colluders` owners; not so if
    `random_state` is set, the schema is inferred or the profile is "fast-insecure". `notes_` says
    what of this applies. `result_` is never private. Pickles and copies leave it out.

    Args:
        protocol: "encrypted-rows"; or "encrypted-model", where rows stay home, with privacy of
            "lffr" alone.
        model: "linear"; "improved-lffr": linear in the logit of the target, whose predictions bend
            towards the ends of the target's range; "lffr": a sigmoid of the range by squared
            error; or "poisson": one target that counts from 0, without privacy. For the last two
            owners encrypt rows.
        parties: as of `FederatedLogisticRegression`, and so are epsilon, delta, colluders, schema,
            profile, random_state, verbose, out and ledger.
        split: "even" or "by:COLUMN".
        iterations: None: 30, of "lffr" with privacy 10.
        ridge: weight of the squared coefficients (scaled units) beside the mean squared error;
            None: 0, or of sums what privacy needs at least. "poisson" has none.
        floor: least curvature that is inverted, over the largest, without privacy: a smaller one
            learns columns of little curvature sooner; None: 1/16, of "lffr" 0.01 alone.
        targets: target column or columns of frames; None: the schema's, or those of y.

    Attributes:
        coef_: float64 array, shape (targets, features), over `schema_.feature_names` (categories
            are one-hot), in the data's own units; of the others in units of the score. Shape
            (features,) where y was one column.
        intercept_: float64 array, shape (targets,), or one number.
        n_features_in_: number of columns; feature_names_in_: their names, for frames.
        n_iter_: iterations done.
        schema_: the column schema in use, with the public range of every target.
        notes_: list of sentences that whoever uses the model should know.
        result_: RunResult: the plaintext twin, least squares, costs, plan, errors on the
            training rows.

    Examples:
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
        >>> model.predict([[1.4, -0.6]]).round().tolist()
        [[2.0, 1.0]]
    """

    model: str
    protocol: str
    ridge: float | None
    floor: float | None
    targets: str | Sequence[str] | None

    def __init__(
        self,
        *,
        model: str = "linear",
        protocol: str = ENCRYPTED_ROWS,
        parties: int | None = 3,
        split: str = "even",
        iterations: int | None = None,
        ridge: float | None = None,
        floor: float | None = None,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        colluders: int = 0,
        targets: str | Sequence[str] | None = None,
        schema: Schema | str | os.PathLike[str] | None = None,
        profile: str = "secure",
        random_state: Any = None,
        verbose: int = 0,
        out: str | os.PathLike[str] | None = None,
        ledger: str | os.PathLike[str] | None = None,
    ) -> None:
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})

    def predict(self, X: Any, offset: Any = None) -> Array:
        """Targets in their own units, shape (rows, targets), or (rows,) where y was one column.

        Args:
            X: array or frame with the columns of the training. In a frame, the targets and the
                column of split="by:COLUMN" are left out, and so is, with `schema` given, every
                column that it does not name. Rows are scaled and clamped as in training.
            offset: as of `FederatedLogisticRegression.decision_function`.

        Raises:
            NotFittedError: `fit` comes first.
            SchemaError, DataError: see `parties.reader.shard.encode_scored`.
        """
        scores = self._scores(X, offset)
        scaled = model_named(self._model).decode(scores)
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
        return Columns.choose(named, self.split, given, numeric=True, flat=flat)

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
        schema = given or inferred(pooled, list(names), notes, **self._beside)
        if schema.label.names != names:
            raise SchemaError(f"the schema's targets are not {', '.join(names)}")
        require_spread(pooled, names, f"the {count(len(pooled), 'sample')}")
        return tables, schema

    def _options(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "protocol": self.protocol,
            "ridge": self.ridge,
            "floor": self.floor,
        }

    def _keep(self, result: RunResult) -> None:
        self._weights, self._model = result.weights, result.plan.model
        coef, intercept = coefficients(result.encoding, result.weights, result.plan.model)
        self.coef_: Any = coef[0] if self._flat else coef
        self.intercept_: Any = float(intercept[0]) if self._flat else np.asarray(intercept)


def _names(rows: Rows) -> tuple[str, ...]:
    """Names for targets that have none: y, or y1, y2 and so on."""
    outputs = rows.labels.shape[1]
    stems = ["y"] if outputs == 1 else [f"y{k + 1}" for k in range(outputs)]
    return tuple(shards.free_name(rows.frame, stem) for stem in stems)
