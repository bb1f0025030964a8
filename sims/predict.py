"""Prediction with a model file: rows are scaled, clamped and clipped exactly as in training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from parties.data.encode import encode_features, encode_label, encode_targets
from parties.data.schema import Label, Schema, Targets
from parties.data.table import Table, read_table
from protocols.errors import ParameterError
from protocols.models.regression_models import regression_model
from sims.model_fields import LOGISTIC, REGRESSION, coefficients
from sims.regression_result import RegressionScores, score_regression, targets_of
from sims.regression_twin import predict as predict_targets
from sims.result import Array, Scores
from sims.twin import score


@dataclass(frozen=True, kw_only=True)
class Model:
    """A released logistic model.

    schema: public column schema; weights: shape (schema.num_features,), for scaled rows, bias
    last; session: of the run; insecure: trained on a toy ring.

    Raises:
        ParameterError: the weights do not fit the schema.
    """

    schema: Schema
    weights: Array
    session: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        self.schema.model_in_data_units(self.weights)  # checks shape and finiteness

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Model:
        """Read what model.json holds.

        Raises:
            ParameterError, SchemaError: a field is missing or wrong.
        """
        return cls(**_common(fields, LOGISTIC))

    @property
    def classes(self) -> tuple[str, str]:
        """The label's negative and positive value, in the order of `predict_proba`'s columns."""
        label = _label_of(self.schema)
        return label.negative, label.positive

    @property
    def coefficients(self) -> pd.Series[float]:
        """Log-odds of the positive label per unit of each feature, by feature."""
        coef, _ = self.schema.model_in_data_units(self.weights)
        return pd.Series(coef, index=list(self.schema.feature_names), name="coefficient")

    @property
    def intercept(self) -> float:
        """Log-odds where every feature is 0."""
        return self.schema.model_in_data_units(self.weights)[1]

    def predict(self, table: Table) -> pd.DataFrame:
        """`probability` of the positive label, and `prediction`, the label's text.

        Positive above probability 1/2. The label's column may be absent and is not looked at; the
        index is the table's.

        Raises:
            SchemaError, DataError: a column is missing, or a cell cannot be used.
        """
        frame = read_table(table, label=self.schema.label.name)
        logits = encode_features(frame, self.schema) @ self.weights
        negative, positive = self.classes
        return pd.DataFrame(
            {
                "probability": expit(logits),
                "prediction": np.where(logits > 0, positive, negative),
            },
            index=frame.index,
        )

    def predict_proba(self, table: Table) -> Array:
        """Probability of each of `classes`, shape (rows, 2).

        Raises:
            SchemaError, DataError: as `predict`.
        """
        positive = self.predict(table)["probability"].to_numpy()
        return np.column_stack([1 - positive, positive])

    def score(self, table: pd.DataFrame) -> Scores:
        """Accuracy and area under the ROC curve."""
        label = _label_of(self.schema)
        y = encode_label(table[label.name], label)
        return score(self.weights, encode_features(table, self.schema), y)


@dataclass(frozen=True, kw_only=True)
class RegressionModel:
    """A released regression.

    weights: shape (schema.num_features, outputs), for scaled rows, bias last; model: its name, see
    `protocols.models.regression_models`; other fields as of `Model`.

    Raises:
        ParameterError: the weights do not fit the schema, or there is no such model.
    """

    schema: Schema
    weights: Array
    model: str
    session: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        regression_model(self.model)
        due = (self.schema.num_features, self.targets.outputs)
        if self.weights.shape != due or not np.isfinite(self.weights).all():
            raise ParameterError(
                f"weights of shape {self.weights.shape} are not finite numbers of shape {due}: one "
                "row per feature, and the bias last"
            )

    @property
    def targets(self) -> Targets:
        """What is predicted."""
        return targets_of(self.schema.label)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RegressionModel:
        """Read what model.json holds.

        Raises:
            ParameterError, SchemaError: a field is missing or wrong.
        """
        common = _common(fields, REGRESSION)
        if not isinstance(common["schema"].label, Targets):
            raise ParameterError("the schema of the model has no targets: it is not a regression's")
        return cls(**common, model=str(fields.get("model")))

    @property
    def coefficients(self) -> pd.DataFrame:
        """Per unit of each feature: of the linear model in the target's units, else of the score.

        Features by target.
        """
        coef, _ = coefficients(self.schema, self.weights, self.model)
        features = list(self.schema.feature_names)
        return pd.DataFrame(coef.T, index=features, columns=list(self.targets.names))

    @property
    def intercept(self) -> pd.Series[float]:
        """Where every feature is 0, by target."""
        _, constants = coefficients(self.schema, self.weights, self.model)
        return pd.Series(constants, index=list(self.targets.names), name="intercept")

    def predict(self, table: Table) -> pd.DataFrame:
        """Targets in the data's own units, by name; the index is the table's.

        The targets' columns may be absent and are not looked at.

        Raises:
            SchemaError, DataError: a column is missing, or a cell cannot be used.
        """
        frame = read_table(table, label=self.schema.label.name)
        x = encode_features(frame, self.schema)
        values = predict_targets(regression_model(self.model), self.weights, x)
        return pd.DataFrame(
            self.targets.to_data_units(values), columns=self.targets.names, index=frame.index
        )

    def score(self, table: pd.DataFrame) -> RegressionScores:
        """Errors by output."""
        y, _ = encode_targets(table, self.targets)
        x = encode_features(table, self.schema)
        return score_regression(regression_model(self.model), self.weights, x, y, self.targets)


AnyModel = Model | RegressionModel


def _common(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if fields.get("kind") != kind:
        raise ParameterError(f"kind={fields.get('kind')!r} of the model is not {kind!r}")
    missing = [name for name in ("schema", "weights") if name not in fields]
    if missing:
        raise ParameterError(f"the model has no {' and no '.join(missing)}")
    try:
        weights = np.array(fields["weights"], dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError("weights of the model are not a list of numbers") from None
    return {
        "schema": Schema.from_dict(fields["schema"]),
        "weights": weights,
        "session": str(fields.get("session", "")),
        "insecure": "INSECURE" in fields,
    }


def _label_of(schema: Schema) -> Label:
    if not isinstance(schema.label, Label):
        raise ParameterError("the schema of the model has targets: it is not a logistic model's")
    return schema.label


def model_from_dict(fields: Mapping[str, Any]) -> AnyModel:
    """Read what model.json holds, whichever kind of model it is.

    Raises:
        ParameterError, SchemaError: a field is missing or wrong.
    """
    kind = RegressionModel if fields.get("kind") == REGRESSION else Model
    return kind.from_dict(fields)


def load_model(path: str | Path) -> AnyModel:
    """Read a model.json.

    Raises:
        ParameterError, SchemaError: the file is missing, not JSON, or holds no valid model.
    """
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ParameterError(
            f"model file {str(path)!r} cannot be read ({error.strerror}): check the path"
        ) from None
    except ValueError:
        raise ParameterError(f"model file {str(path)!r} is not JSON") from None
    if not isinstance(fields, dict):
        raise ParameterError(f"model file {str(path)!r} holds no model")
    return model_from_dict(fields)


def score_table(model: AnyModel, frame: Table) -> Scores | RegressionScores | None:
    """How good the predictions are; None where the table lacks a column to predict.

    Raises:
        SchemaError, DataError: as `Model.predict`; a label is missing or neither of the two values,
            a target is missing or no number.
    """
    table = read_table(frame, label=model.schema.label.name)
    if not set(model.schema.label.names) <= set(table.columns):
        return None
    return model.score(table)
