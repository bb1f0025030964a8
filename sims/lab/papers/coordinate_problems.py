"""Problems of arXiv:2006.07272, appendix E: tables as they are encoded, and how a model is judged.

A column for each category, each column over its largest absolute value, each row to norm 1. Ridge
has a numeric target, less its mean, over its spread: see `ridge_problem`. SVMs have adult, as in
the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sims.lab.baselines import Loss
from sims.lab.papers.data import ADULT, ADULT_TEST, YEARS, Need
from sims.lab.papers.item import ABSENT, Settings

Array = NDArray[np.float64]

LABEL_BOUND = 3.0


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


def frames(need: Need, settings: Settings) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and held-out rows, as published, else a quarter; adult has a file of its own.

    Raises:
        DataError: a file is missing, in the full setting.
    """
    frame = settings.load(need)
    if need is ADULT and ADULT_TEST.found(settings.data_folder):
        return frame, settings.load(ADULT_TEST)
    if 0 < need.train < len(frame):
        return frame.iloc[: need.train], frame.iloc[need.train :]
    order = np.random.default_rng(0).permutation(len(frame))
    test, train = np.split(order, [len(frame) // 4])
    return frame.iloc[train], frame.iloc[test]


def from_table(need: Need, target: str | None, settings: Settings, loss: Loss = "svm") -> Problem:
    """A loss of the label, or ridge on a numeric column; columns over their largest value.

    A column of up to three values is one of categories, as in LIBSVM's Phishing: 68 of UCI's 30.
    """
    label = need.labels[0]
    train, test = frames(need, settings)
    if target is not None and target not in train:  # a made table
        target = str(train.columns[0])
    drop = [label] if target is None else [label, target]
    few = {c: str for c in train.columns.drop(drop) if train[c].nunique() <= 3}
    raw = [
        pd.get_dummies(part.drop(columns=drop).astype(few), dtype=float) for part in (train, test)
    ]
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
        loss if target is None else "ridge",
        f"{need.file}, column {column}, {len(x[0]):,} rows of {x[0].shape[1]} features",
        parts[0],
        parts[1],
        np.random.default_rng(0),
    )


def ridge_problem(settings: Settings) -> Problem:
    """The year of a song, as in the paper, where its file is given; else adult's age."""
    if YEARS.found(settings.data_folder):
        return from_table(YEARS, "year", settings)
    return from_table(ADULT, "age", settings)


def stands_in(problem: Problem) -> tuple[str, ...]:
    """A note where ridge has other rows than the paper's."""
    return () if problem.name.startswith(YEARS.name) else (f"{ABSENT}{YEARS.words}",)
