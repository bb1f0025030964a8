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

from parties.encode import encode_label
from parties.schema import Schema
from parties.shard import encode_features
from parties.tables import Table, read_table
from protocols.errors import ParameterError
from sims.documents import MODEL_KIND
from sims.result import Array, Scores
from sims.twin import score


@dataclass(frozen=True, kw_only=True)
class Model:
    """A released model.

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
        if fields.get("kind") != MODEL_KIND:
            raise ParameterError(f"kind={fields.get('kind')!r} of the model is not {MODEL_KIND!r}")
        missing = [name for name in ("schema", "weights") if name not in fields]
        if missing:
            raise ParameterError(f"the model has no {' and no '.join(missing)}")
        try:
            weights = np.array(fields["weights"], dtype=np.float64)
        except (TypeError, ValueError):
            raise ParameterError("weights of the model are not a list of numbers") from None
        return cls(
            schema=Schema.from_dict(fields["schema"]),
            weights=weights,
            session=str(fields.get("session", "")),
            insecure="INSECURE" in fields,
        )


def load_model(path: str | Path) -> Model:
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
    return Model.from_dict(fields)


def predict(model: Model, frame: Table) -> pd.DataFrame:
    """Predict every row; the label column may be absent and is not looked at.

    Returns: `probability` of the positive label, and `prediction`, the label's text (positive
    above probability 1/2); the index of the frame.

    Raises:
        SchemaError, DataError: a column is missing, or a cell cannot be used.
    """
    table = read_table(frame, label=model.schema.label.name)
    logits = encode_features(table, model.schema) @ model.weights
    label = model.schema.label
    return pd.DataFrame(
        {
            "probability": expit(logits),
            "prediction": np.where(logits > 0, label.positive, label.negative),
        },
        index=table.index,
    )


def score_table(model: Model, frame: Table) -> Scores | None:
    """Accuracy and area under the ROC curve; None where the table has no label column.

    Raises:
        SchemaError, DataError: as `predict`; a label is missing or neither of the two values.
    """
    table = read_table(frame, label=model.schema.label.name)
    if model.schema.label.name not in table.columns:
        return None
    y = encode_label(table[model.schema.label.name], model.schema.label)
    return score(model.weights, encode_features(table, model.schema), y)
