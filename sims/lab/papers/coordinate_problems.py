"""Problems of arXiv:2006.07272, appendix E: tables as they are encoded, and how a model is judged.

A column for each category, each column over its largest absolute value, each row to norm 1. Ridge
has a numeric target, less its mean, over its spread. YearPredictionMSD and Phishing are not here:
adult's age and a made table of Phishing's size stand in; SVMs have adult, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sims.lab.baselines import Loss
from sims.lab.papers.barrier import frames
from sims.lab.papers.data import ADULT, Need
from sims.lab.papers.item import Settings

Array = NDArray[np.float64]

LABEL_BOUND = 3.0
_PHISHING_ROWS, _PHISHING_COLUMNS = 11_055, 30


@dataclass(frozen=True, kw_only=True)
class Part:
    """x: float64, shape (n, d), |x_i| = 1. y: shape (n,); -1 or 1 but for ridge."""

    x: Array
    y: Array


@dataclass(frozen=True, kw_only=True)
class Problem:
    """name: for tables. source: one sentence. fit, validation, test: disjoint rows."""

    name: str
    loss: Loss
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

    def objective(self, theta: Array, lam: float) -> float:
        """What is minimised, on the training part."""
        z, y = self.fit.x @ theta, self.fit.y
        if self.loss == "ridge":
            losses = (z - y) ** 2 / 2
        elif self.loss == "svm":
            losses = np.maximum(0.0, 1.0 - y * z)
        else:
            losses = np.logaddexp(0.0, -y * z)
        return float(losses.mean() + lam / 2 * theta @ theta)


def unit_rows(x: Array) -> Array:
    """Every row divided by its own norm; rows of zeros stay. Needs no look at other rows."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    scaled: Array = x / np.where(norms > 0, norms, 1.0)
    return scaled


def make_problem(
    name: str, loss: Loss, source: str, train: Part, test: Part, rng: np.random.Generator
) -> Problem:
    """A quarter of the training rows to tune on."""
    order = rng.permutation(len(train.x))
    held, fit = np.split(order, [len(order) // 4])
    return Problem(
        name=name,
        loss=loss,
        source=source,
        fit=Part(x=train.x[fit], y=train.y[fit]),
        validation=Part(x=train.x[held], y=train.y[held]),
        test=test,
    )


def phishing_like(rng: np.random.Generator, rows: int = _PHISHING_ROWS) -> Problem:
    """Made: 30 columns in {-1, 0, 1} around five hidden traits, about 6 % label noise.

    The size and the alphabet are those of UCI's Phishing Websites; a quarter is held out.
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
    train, test = (Part(x=x[k:], y=y[k:]) for k in (rows // 4, 0))
    test = Part(x=test.x[: rows // 4], y=test.y[: rows // 4])
    source = f"made, {rows:,} rows of 30 ternary features, like UCI Phishing Websites"
    return make_problem("phishing-like", "logistic", source, train, test, rng)


def from_table(need: Need, target: str | None, settings: Settings) -> Problem:
    """SVM on the label, or ridge on a numeric column; columns over their largest value."""
    label = need.labels[0]
    train, test = frames(need, settings)
    if target is not None and target not in train:  # a made table
        target = str(train.columns[0])
    drop = [label] if target is None else [label, target]
    raw = [pd.get_dummies(part.drop(columns=drop), dtype=float) for part in (train, test)]
    raw[1] = raw[1].reindex(columns=raw[0].columns, fill_value=0.0)
    largest = raw[0].abs().max().replace(0.0, 1.0)
    x = [unit_rows(np.column_stack([(r / largest).to_numpy(), np.ones(len(r))])) for r in raw]
    if target is None:
        positive = sorted(train[label].unique())[-1]
        y = [np.where(part[label] == positive, 1.0, -1.0) for part in (train, test)]
    else:
        mean, spread = train[target].mean(), train[target].std()
        y = [
            np.clip((part[target].to_numpy() - mean) / spread, -LABEL_BOUND, LABEL_BOUND)
            for part in (train, test)
        ]
    column = label if target is None else target
    parts = [Part(x=a, y=b) for a, b in zip(x, y, strict=True)]
    return make_problem(
        f"{need.name}-{column}",
        "svm" if target is None else "ridge",
        f"{need.file}, column {column}, {len(x[0]):,} rows of {x[0].shape[1]} features",
        parts[0],
        parts[1],
        np.random.default_rng(0),
    )


def ridge_problem(settings: Settings) -> Problem:
    """In place of YearPredictionMSD."""
    return from_table(ADULT, "age", settings)
