"""Prediction with a model file: rows are scaled, clamped and clipped exactly as in training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ciphercohort.job.inputs import GIVEN, SchemaFrom
from ciphercohort.job.layout import (
    MODEL,
    OUTCOME,
    WRITES,
    give_session,
    model_path,
    read_file,
    release_of,
)
from ciphercohort.results.documents import CLASS_KIND, LABEL_KIND, TARGET_KIND, coefficients
from ciphercohort.results.exact_sums import marks
from ciphercohort.results.result import (
    Array,
    Figures,
    classes_of,
    encoding_of,
    label_of,
    outcome_words,
    scored,
    shifted,
    targets_of,
    with_offset,
)
from ciphercohort.results.shown import Shown
from parties.reader import Numbering
from parties.reader.schema import Classes, Label, Schema, Targets
from parties.reader.shard import encode_columns, encode_outcome, encode_scored
from parties.reader.table import Table, read_table
from protocols.errors import ParameterError, SchemaError
from protocols.exchange.documents import shown
from protocols.models.model import Classifier, Model
from protocols.models.registry import model_named, model_of


@dataclass(frozen=True, kw_only=True, repr=False)
class ReleasedModel(Shown):
    """What a model.json holds.

    schema: public column schema; weights: shape (schema.num_features,), of several classes or
    targets (schema.num_features, outputs), for scaled rows, bias last; model: its name, see
    `protocols.models.registry`; session: of the run; insecure: trained on a toy ring;
    schema_from: whether the schema was read from the rows that it was trained on; view: what rows
    the weights are for, "ranges": those of `by_range`, empty: as they were trained on.

    Raises:
        ParameterError: the weights do not fit the schema, or there is no such model.
        SchemaError: the schema is for another kind of model.
    """

    schema: Schema
    weights: Array
    model: str = "logistic"
    session: str = ""
    insecure: bool = False
    schema_from: SchemaFrom = GIVEN
    view: str = ""

    @property
    def encoding(self) -> Schema:
        """By which rows are scaled before they are scored."""
        return encoding_of(self.schema, self.view)

    def __repr__(self) -> str:
        """A line for a person; its coefficients show themselves in a notebook."""
        told = [f"{self.model} for {outcome_words(self.schema)}"]
        told += [f"{len(self.schema.feature_names)} columns", *marks(insecure=self.insecure)]
        return f"ReleasedModel({', '.join(told)})"

    def __post_init__(self) -> None:
        due: tuple[int, ...] = (self.schema.num_features,)
        if self.fitted.numeric:
            due = (*due, targets_of(self.schema.label).outputs)
        elif self.fitted.several:
            due = (*due, classes_of(self.schema).outputs)
        else:
            label_of(self.schema)
        if self.weights.shape != due or not np.isfinite(self.weights).all():
            raise ParameterError(
                f"weights of shape {self.weights.shape} are not finite numbers of shape {due}: one "
                "row per feature, and the bias last"
            )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ReleasedModel:
        """Read what model.json holds.

        Raises:
            ParameterError, SchemaError: a field is missing or wrong.
        """
        kind = fields.get("kind")
        kinds = (LABEL_KIND, CLASS_KIND, TARGET_KIND)
        if kind not in kinds:
            raise ParameterError(
                f"kind={kind!r} of the model is not one of {', '.join(kinds)}: give {MODEL} of a "
                "training, or the folder that it is in"
            )
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
            model="logistic" if kind == LABEL_KIND else str(fields.get("model")),
            session=str(fields.get("session", "")),
            insecure="INSECURE" in fields,
            schema_from=fields.get("inputs", {}).get("schema", GIVEN),
            view=str(fields.get("view", "")),
        )

    @property
    def fitted(self) -> Model:
        """The kind of model."""
        return model_named(self.model)

    @property
    def classes(self) -> tuple[str, ...]:
        """The label's values, in the order of `predict_proba`'s columns; the negative one first.

        Raises:
            SchemaError: numeric targets are predicted.
        """
        several = self.fitted.several
        return (classes_of(self.schema) if several else label_of(self.schema)).values

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the classes or of the targets; none of a label of two values."""
        if self.fitted.several:
            return self.classes
        return self.schema.label.names if self.fitted.numeric else ()

    @property
    def coefficients(self) -> Any:
        """Per unit of each feature: log-odds of the positive label, a series by feature.

        Of several classes a frame, features by class. Of a regression a frame, features by target:
        in the target's units where the model is linear, else of the score. Values beyond a column's
        range are clamped and rows beyond the schema's norm are shortened first, as in training: for
        those rows sigmoid(intercept + coefficients x) is not what `predict_proba` says.
        """
        coef, _ = coefficients(self.encoding, self.weights, self.model)
        features = list(self.schema.expanded_names)
        if self.outputs:
            return pd.DataFrame(coef.T, index=features, columns=list(self.outputs))
        return pd.Series(coef[0], index=features, name="coefficient")

    @property
    def intercept(self) -> Any:
        """Where every feature is 0; a series by class or target, if there are several."""
        _, constants = coefficients(self.encoding, self.weights, self.model)
        if self.outputs:
            return pd.Series(constants, index=list(self.outputs), name="intercept")
        return float(constants[0])

    def predict(self, table: Table) -> pd.DataFrame:
        """`probability` of the positive label and `prediction`, its text; or every target.

        Positive above probability 1/2. Of several classes `probability_NAME` of each, and the most
        likely one as `prediction`. Targets in the data's own units, by name.
        Columns to predict may be absent and are not looked at; the index is the table's, of a file
        0, 1, ….

        Raises:
            SchemaError, DataError: a column is missing, or a cell cannot be used.
        """
        scores, index = self._scores(table)
        decoded = self.fitted.decode(scores)
        if self.fitted.numeric:
            values = targets_of(self.schema.label).to_data_units(decoded)
            return pd.DataFrame(values, columns=self.schema.label.names, index=index)
        prediction = np.array(self.classes)[model_of(Classifier, self.model).called(scores)]
        found = {"probability": decoded}
        if self.fitted.several:
            found = {
                f"probability_{name}": p for name, p in zip(self.classes, decoded.T, strict=True)
            }
        return pd.DataFrame({**found, "prediction": prediction}, index=index)

    def _scores(self, table: Table) -> tuple[Array, pd.Index[Any]]:
        """X W of a table's rows, and their index."""
        frame = read_table(table, label=self.schema.label.name)
        x, offset = encode_scored(frame, self.encoding)
        x = shifted(x, offset)
        scores = x @ with_offset(self.weights, x)
        if isinstance(frame.index.name, Numbering):
            frame = frame.reset_index(drop=True)
        return scores, frame.index

    def predict_proba(self, table: Table) -> Array:
        """Probability of each of `classes`, shape (rows, number of classes).

        Raises:
            SchemaError, DataError: as `predict`.
        """
        _ = self.classes
        found = self.fitted.decode(self._scores(table)[0])
        return found if self.fitted.several else np.column_stack([1 - found, found])

    def score(self, data: Table, rows: Array | None = None) -> Figures:
        """Metrics on a table that has the columns to predict; rows: encoded otherwise.

        Raises:
            SchemaError, DataError: as `predict`; or a column to predict is missing.
        """
        table = read_table(data, label=self.schema.label.name)
        for name in self.schema.label.names:
            if name not in table.columns:
                raise SchemaError(
                    f"column {shown(name)} to predict is missing: give a table with the outcomes, "
                    "or call predict"
                )
        label: Label | Classes | Targets
        if self.fitted.numeric:
            label = targets_of(self.schema.label)
        else:
            label = classes_of(self.schema) if self.fitted.several else label_of(self.schema)
        y = encode_outcome(table, label)
        x, offset = encode_scored(table, self.encoding, quiet=True)
        x = x if rows is None else rows
        return scored(self.fitted, self.weights, x, y, self.schema, offset)

    def words(self, scores: Figures) -> str:
        """Scores in a line."""
        return self.fitted.words(scores, self.schema.label.names)


def _where(folder: Path) -> str:
    """A cure, where a folder has no model.json."""
    moved = release_of(folder) / MODEL
    if moved.exists():
        return f"it is {moved}"
    if (folder / OUTCOME).exists():
        return f"not written yet, or of no training: {WRITES}"
    return give_session(folder) or "check the path"


def load_model(path: str | Path) -> ReleasedModel:
    """Read a model.json, or that of a run folder, of its release alone, or of a session.

    Raises:
        ParameterError, SchemaError: the file is missing, not JSON, or holds no valid model.
    """
    path = model_path(Path(path))
    try:
        fields = read_file(path)
    except OSError as error:
        cure = _where(path.parent)
        raise ParameterError(
            f"model file {str(path)!r} cannot be read ({error.strerror}): {cure}"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ParameterError(f"model file {str(path)!r} is not JSON") from None
    except ValueError:
        raise ParameterError(f"model file {str(path)!r} holds no model") from None
    return ReleasedModel.from_dict(fields)


def score_table(model: ReleasedModel, frame: Table) -> Figures | None:
    """How good the predictions are; None where the table lacks a column to predict.

    Raises:
        SchemaError, DataError: as `ReleasedModel.predict`; a label is missing or neither of the
            two values, a target is missing or no number.
    """
    table = read_table(frame, label=model.schema.label.name)
    if not set(model.schema.label.names) <= set(table.columns):
        return None
    return model.score(table)


def raw_rows(frame: pd.DataFrame, schema: Schema) -> NDArray[np.float64]:
    """Rows in the data's own units, neither scaled nor clamped nor clipped; the bias last.

    Where the schema projects rows, its components of scaled rows, not clipped.

    Returns: float64 array, shape (rows, num_features). Unknown categories are all zeros.
    """
    if schema.projection is not None:
        scaled = encode_columns(frame, schema.columns, schema.scaling)
        return np.column_stack([schema.projection(scaled), np.ones(len(frame))])
    return np.column_stack([encode_columns(frame, schema.columns), np.ones(len(frame))])
