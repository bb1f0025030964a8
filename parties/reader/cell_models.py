"""Public models of missing cells from a public sample; see `imputation`."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.reader.cells import missing_cells
from parties.reader.imputation import (
    MOST_DRAWS,
    CellModel,
    Imputation,
    complete,
    is_normal,
    is_number,
    modelled,
)
from parties.reader.schema import CategoricalColumn, Schema, Targets
from parties.reader.shard import encode_columns
from protocols.errors import SchemaError

FloatArray = NDArray[np.float64]
STEPS, RIDGE = 50, 1e-3
"""Of Newton's method for categories; of its penalty, so that rare ones have a maximum."""


def of_public(sample: pd.DataFrame, schema: Schema, draws: int) -> Imputation:
    """Models of all columns with missing cells, given all others and the targets.

    sample: PUBLIC rows; those without a missing cell are fitted. Coefficients are drawn from
    their posterior (of numbers Rubin, 1987, 5.3; of categories its normal approximation).

    Raises:
        SchemaError: none is filled in, or complete rows are too few.
    """
    if not 1 <= draws <= MOST_DRAWS:
        raise SchemaError(f"impute={draws} is no number of draws from 1 to {MOST_DRAWS}")
    targets = schema.label.columns if isinstance(schema.label, Targets) else ()
    columns = tuple(complete(column) for column in schema.columns)
    filled = [c for c in schema.columns if c.missing != "refuse"]
    empty = [missing_cells(sample[c.name]) for c in (*filled, *targets)]
    rows = sample[~np.any(empty, axis=0)] if filled else sample[:0]
    names = [n for column in (*columns, *targets) for n in column.features]
    if len(rows) <= 2 * len(names):
        raise SchemaError(
            f"impute={draws}: {len(rows)} rows without missing cells of {len(filled)} columns "
            f"that are filled in are too few for {len(names)} features: give more, or "
            "--missing typical"
        )
    raw = dict(zip(names, encode_columns(rows, (*columns, *targets)).T, strict=True))
    rng, models = np.random.default_rng(0), list[CellModel]()
    for column in filled:
        own = {*complete(column).features}
        first = {c.features[0] for c in columns if isinstance(c, CategoricalColumn)}
        terms = tuple(n for n in names if n not in own | first and np.ptp(raw[n]) > 0)
        x = np.column_stack([np.ones(len(rows)), *(raw[name] for name in terms)])
        y = np.column_stack([raw[name] for name in modelled(column)])
        if is_number(column) and column.binary:
            y = y == column.high
        drawn = _number if is_normal(column) else _categories
        found = drawn(x, y, draws, rng)
        for k, feature in enumerate(modelled(column)):
            texts = tuple(tuple(float(f"{v:.6g}") for v in each) for each in found[:, k])
            models.append(CellModel(feature=feature, terms=terms, draws=texts))
    return Imputation(models=tuple(models))


def _number(x: FloatArray, y: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
    """Coefficients and standard deviations, shape (draws, 1, terms + 2)."""
    inverse = np.asarray(np.linalg.pinv(x.T @ x), np.float64)
    found = inverse @ x.T @ y[:, 0]
    square, freedom = float(np.sum((y[:, 0] - x @ found) ** 2)), len(x) - x.shape[1]
    std = np.sqrt(square / rng.chisquare(freedom, draws))[:, None]
    noise = rng.standard_normal((draws, x.shape[1])) @ _root(inverse)
    return np.column_stack([found + std * noise, std])[:, None]


def _categories(x: FloatArray, y: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
    """Multinomial logistic, shape (draws, categories - 1, terms + 1)."""
    (rows, k), middle, size = y.shape, x.mean(axis=0), x.std(axis=0)
    middle[0], size[0] = 0.0, 1.0  # the intercept
    z, theta = (x - middle) / size, np.asarray(np.zeros((x.shape[1], k)))
    for _ in range(STEPS):
        odds = np.exp(np.clip(z @ theta, -30, 30))
        p = odds / (1 + odds.sum(axis=1, keepdims=True))
        weights = p[:, :, None] * (np.eye(k) - p[:, None])
        information = np.einsum("ni,nab,nj->aibj", z, weights, z).reshape(2 * (theta.size,))
        information = information + RIDGE * rows * np.eye(theta.size)
        move = np.linalg.solve(information, (z.T @ (y - p) - RIDGE * rows * theta).T.ravel())
        theta = theta + move.reshape(k, -1).T
        if np.abs(move).max() < 1e-9:
            break
    noise = rng.standard_normal((draws, theta.size)) @ _root(np.linalg.inv(information))
    found = (theta.T.ravel() + noise).reshape(draws, k, -1) / size
    found[:, :, 0] -= found @ middle
    return np.asarray(found)


def _root(matrix: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))).T)
