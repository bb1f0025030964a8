"""What a model file says of the model itself, by kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from parties.data.schema import Label, Schema, Targets
from protocols.models.improved_lffr import ImprovedLffr
from protocols.models.lffr import Lffr
from protocols.models.linear import Linear
from protocols.models.regression_models import regression_model
from sims.result import Array

LOGISTIC, REGRESSION = "logistic-regression", "regression"
LINKS = {
    Linear.name: "value = intercept + coef . x, in the target's own units",
    ImprovedLffr.name: "score z = intercept + coef . x; t = (1 / (1 + exp(-z)) - 1/2) / gamma + "
    "1/2; value = low + t * (high - low), with low and high of the target in the schema",
    Lffr.name: "score z = intercept + coef . x; value = low + (high - low) / (1 + exp(-z)), with "
    "low and high of the target in the schema",
}
"""From coefficients to a prediction, in words."""


def model_fields(schema: Schema, weights: Array, model: str) -> dict[str, Any]:
    """kind, names, coefficients in the data's own units.

    weights: scaled units, shape (d,), of a regression (d, c); model: its name in the plan.

    Raises:
        ParameterError: the weights do not fit the schema.
    """
    if isinstance(schema.label, Targets):
        return _regression(schema, schema.label, weights, model)
    return _logistic(schema, schema.label, weights)


def _logistic(schema: Schema, label: Label, weights: Array) -> dict[str, Any]:
    coef, intercept = schema.model_in_data_units(weights)
    return {
        "kind": LOGISTIC,
        "label": label.name,
        "positive": label.positive,
        "negative": label.negative,
        "features": list(schema.feature_names),
        "coef": coef.tolist(),
        "intercept": intercept,
    }


def _regression(schema: Schema, targets: Targets, weights: Array, model: str) -> dict[str, Any]:
    coef, intercept = coefficients(schema, weights, model)
    fitted = regression_model(model)
    return {
        "kind": REGRESSION,
        "model": model,
        "targets": list(targets.names),
        "features": list(schema.feature_names),
        "coef": coef.tolist(),
        "intercept": intercept.tolist(),
        "link": {
            "meaning": LINKS[model],
            **({"gamma": fitted.gamma} if isinstance(fitted, ImprovedLffr) else {}),
        },
    }


def coefficients(schema: Schema, weights: Array, model: str) -> tuple[Array, Array]:
    """Of every output over `feature_names`, shape (c, d - 1), and its intercept, shape (c,).

    For raw feature values; of a linear model in the targets' units, else for the score.

    Raises:
        ParameterError: the weights do not fit the schema.
    """
    pairs = [schema.model_in_data_units(column) for column in np.asarray(weights).T]
    coef = np.array([slopes for slopes, _ in pairs]).reshape(len(pairs), -1)
    intercept = np.array([constant for _, constant in pairs])
    if model != Linear.name or not isinstance(schema.label, Targets):
        return coef, intercept
    targets = schema.label
    return coef * targets.width[:, None], targets.to_data_units(intercept)
