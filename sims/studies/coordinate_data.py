"""Problems of the coordinate study: rows of norm 1, in training, validation and test parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from parties.data.encode import encode_features, encode_shard
from parties.data.schema import NumericColumn, Schema
from parties.data.table import read_table
from protocols.errors import SchemaError
from sims.baselines import SmoothLoss

Array = NDArray[np.float64]
LABEL_BOUND = 3.0
"""Ridge labels are (y - typical) / spread, clamped here."""
_PHISHING_ROWS, _PHISHING_COLUMNS = 11_055, 30


@dataclass(frozen=True, kw_only=True)
class Part:
    """x: float64, shape (n, d), |x_i| = 1. y: shape (n,); -1 or 1 for logistic."""

    x: Array
    y: Array


@dataclass(frozen=True, kw_only=True)
class Problem:
    """name: for tables and files. source: one sentence. fit, validation, test: disjoint rows."""

    name: str
    loss: SmoothLoss
    source: str
    fit: Part
    validation: Part
    test: Part

    @property
    def metric(self) -> str:
        """What `error` measures."""
        return "mean squared error" if self.loss == "ridge" else "misclassified share"

    def error(self, theta: Array, part: Part) -> float:
        """The metric on a part; smaller is better."""
        z = part.x @ theta
        if self.loss == "ridge":
            return float(np.mean((z - part.y) ** 2))
        return float(np.mean((z > 0) != (part.y > 0)))

    def trivial(self) -> float:
        """Test error of the best constant of the training part."""
        if self.loss == "ridge":
            return float(np.mean((self.test.y - self.fit.y.mean()) ** 2))
        return float(np.mean((self.test.y > 0) != (self.fit.y.mean() > 0)))


def unit_rows(x: Array) -> Array:
    """Every row divided by its own norm; rows of zeros stay. Needs no look at other rows."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    scaled: Array = x / np.where(norms > 0, norms, 1.0)
    return scaled


def make_problem(
    name: str,
    loss: SmoothLoss,
    source: str,
    x: Array,
    y: Array,
    rng: np.random.Generator,
    test: Part | None = None,
) -> Problem:
    """A quarter of the rows for the test unless it is given, a quarter of the rest to tune on."""
    order = rng.permutation(len(x))
    held = 0 if test is not None else len(x) // 4
    middle = held + (len(x) - held) // 4
    validation, fit = order[held:middle], order[middle:]
    if test is None:
        test = Part(x=x[order[:held]], y=y[order[:held]])
    return Problem(
        name=name,
        loss=loss,
        source=source,
        fit=Part(x=x[fit], y=y[fit]),
        validation=Part(x=x[validation], y=y[validation]),
        test=test,
    )


def phishing_like(rng: np.random.Generator, rows: int = _PHISHING_ROWS) -> Problem:
    """Synthetic: 30 columns in {-1, 0, 1} around five hidden traits, about 6 % label noise.

    The size and the alphabet are those of UCI's Phishing Websites; the values are made up.
    """
    traits = rng.standard_normal((rows, 5))
    loads = rng.standard_normal((5, _PHISHING_COLUMNS))
    score = traits @ loads / np.sqrt(5) + rng.standard_normal((rows, _PHISHING_COLUMNS))
    score += 0.7 * rng.standard_normal(_PHISHING_COLUMNS)
    ternary = np.sign(score) * (np.abs(score) > 0.4)
    truth = ternary @ rng.standard_normal(_PHISHING_COLUMNS)
    clean = np.where(truth > np.median(truth), 1.0, -1.0)
    y = np.where(rng.random(rows) < 0.06, -clean, clean)
    x = unit_rows(np.column_stack([ternary, np.ones(rows)]))
    source = f"synthetic, {rows:,} rows of 30 ternary features, like UCI Phishing Websites"
    return make_problem("phishing-like", "logistic", source, x, y, rng)


def diabetes(rng: np.random.Generator) -> Problem:
    """scikit-learn's diabetes data, 442 rows, scaled by their own range: for want of a file."""
    x, y = load_diabetes(return_X_y=True, scaled=False)
    low, high = x.min(axis=0), x.max(axis=0)
    scaled = np.column_stack([2 * (x - low) / (high - low) - 1, np.ones(len(x))])
    label = np.clip((y - 150.0) / 75.0, -LABEL_BOUND, LABEL_BOUND)
    return make_problem(
        "diabetes", "ridge", "scikit-learn's diabetes data", unit_rows(scaled), label, rng
    )


def from_files(
    data: Path, test: Path | None, schema: Schema, target: str, rng: np.random.Generator
) -> list[Problem]:
    """Ridge on the numeric column `target`, and logistic on the schema's label.

    Raises:
        SchemaError: `target` is not a numeric column with a typical value and spread.
    """
    names = {"data": data} if test is None else {"data": data, "test": test}
    frames = {k: read_table(path, label=schema.label.name) for k, path in names.items()}
    ridge = {k: _ridge_part(frame, schema, target) for k, frame in frames.items()}
    logistic = {k: _logistic_part(frame, schema) for k, frame in frames.items()}
    found = []
    for loss, parts, what in (
        ("ridge", ridge, f"column {target}"),
        ("logistic", logistic, f"column {schema.label.name}"),
    ):
        x, y = parts["data"].x, parts["data"].y
        found.append(
            make_problem(
                f"{data.stem}-{target if loss == 'ridge' else schema.label.name}",
                "ridge" if loss == "ridge" else "logistic",
                f"{data.name}, {what}, {len(x):,} rows of {x.shape[1]} one-hot features",
                x,
                y,
                rng,
                parts.get("test"),
            )
        )
    return found


def _logistic_part(frame: pd.DataFrame, schema: Schema) -> Part:
    shard = encode_shard(frame, replace(schema, row_norm=None))
    return Part(x=unit_rows(shard.x), y=2.0 * shard.y - 1.0)


def _ridge_part(frame: pd.DataFrame, schema: Schema, target: str) -> Part:
    found = next((c for c in schema.columns if c.name == target), None)
    if not isinstance(found, NumericColumn) or found.typical is None or found.spread is None:
        raise SchemaError(f"target={target!r} is not a numeric column with a spread in the schema")
    rest = tuple(c for c in schema.columns if c.name != target)
    x = encode_features(frame, replace(schema, columns=rest, row_norm=None))
    y = (frame[target].to_numpy(dtype=np.float64) - found.typical) / found.spread
    return Part(x=unit_rows(x), y=np.clip(y, -LABEL_BOUND, LABEL_BOUND))
