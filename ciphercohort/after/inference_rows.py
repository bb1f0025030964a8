"""Rows as standard errors need them, and coefficients back in the data's own units."""

from __future__ import annotations

import math

import numpy as np

from ciphercohort.results.result import Array
from parties.reader.schema import CategoricalColumn, Schema
from protocols.models.poisson import Poisson
from protocols.statistics.inference.estimate import Estimate


def first_categories(schema: Schema) -> list[int]:
    """Their places among the features: others are compared with them, as by R's `glm`."""
    found, place = [], 0
    for column in schema.columns:
        if isinstance(column, CategoricalColumn):
            found.append(place)
        place += len(column.features)
    return found


def to_ranges(schema: Schema, own: Schema, weights: Array, model: str) -> Array:
    """A model's weights, shape (d,), as one of rows of `own`; of counts over their range.

    Categories are compared with the first: its coefficient goes to the constant.
    """
    slopes, constant = schema.model_in_data_units(weights)
    coef = dict(zip(schema.feature_names, slopes.tolist(), strict=True))
    for column in schema.columns:
        if isinstance(column, CategoricalColumn):
            first = coef[column.features[0]]
            constant += first
            coef |= {name: coef[name] - first for name in column.features}
    chosen = np.array([coef[name] for name in own.feature_names])
    shift, scale = own.affine()
    constant += float(chosen @ shift) - (Poisson().radius if model == "poisson" else 0.0)
    return np.append(chosen * scale, constant)


def in_data_units(
    own: Schema, estimate: Estimate, low: float, width: float, model: str
) -> tuple[Array, Array, Array]:
    """coef, se and privacy's part of the variance; the intercept first; shape (d,).

    own: schema of the rows. The map to raw units is linear: covariances follow exactly, L V L^T.
    """
    shift, scale = own.affine()
    d = len(scale) + 1
    linear = np.zeros((d, d))
    linear[0, -1] = 1.0
    linear[0, :-1] = -shift / scale
    linear[1:, :-1] = np.diag(1 / scale)
    left_out = np.isnan(estimate.theta)
    theta = np.where(left_out, 0.0, estimate.theta)
    covariance, noise = (
        np.where(left_out[:, None] | left_out[None], 0.0, matrix)
        for matrix in (estimate.covariance, estimate.noise)
    )
    coef = linear @ theta
    se = np.sqrt(np.maximum(np.diag(linear @ covariance @ linear.T), 0.0))
    added = np.diag(linear @ noise @ linear.T).copy()
    if model == "linear":
        coef, se, added = coef * width, se * width, added * width**2
        coef[0] += low
    elif model == "poisson":
        coef[0] += math.log(low + width)
    missing = np.concatenate([[False], left_out[:-1]])
    return (
        np.where(missing, np.nan, coef),
        np.where(missing, np.nan, se),
        np.where(missing, 0.0, added),
    )
