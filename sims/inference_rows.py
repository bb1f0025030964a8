"""Rows as standard errors need them, and coefficients back in the data's own units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from parties.data.schema import Schema
from parties.data.shard import ClampCounts, Shard
from parties.data.views import by_range, shard_by_range
from parties.kernel.order import order_coins, shuffled
from protocols.inference.estimate import Estimate
from protocols.models.poisson import Poisson
from sims.party_process import PartySpec
from sims.prepare import PreparedData
from sims.result import Array

# -- rows -----------------------------------------------------------------------------------------


def shards_by_range(data: PreparedData, *, private: bool) -> dict[str, Shard]:
    """Rows of a simulation, encoded by ranges."""
    schema = by_range(data.schema, private=private)
    kept = np.isin(data.schema.feature_names, schema.feature_names)
    shift, scale = schema.affine()
    found, start = {}, 0
    for name, shard in data.shards.items():
        raw = data.raw[start : start + shard.rows]
        start += shard.rows
        x = (raw[:, :-1][:, kept] - shift) / scale
        beyond = (np.abs(x) > 1 + 1e-12).sum(axis=0)
        outside = {n: int(c) for n, c in zip(schema.feature_names, beyond, strict=True) if c}
        found[name] = Shard(
            x=np.column_stack([np.clip(x, -1.0, 1.0), raw[:, -1]]),
            y=shard.y,
            counts=ClampCounts(rows=shard.rows, outside=outside),
            schema=schema,
        )
    return found


def encoded(
    frames: Mapping[str, pd.DataFrame], schema: Schema, *, private: bool
) -> dict[str, Shard]:
    """Rows of tables, encoded by ranges."""
    return {name: shard_by_range(frame, schema, private=private) for name, frame in frames.items()}


def with_shards(
    specs: Mapping[str, PartySpec], shards: Mapping[str, Shard]
) -> dict[str, PartySpec]:
    """The same parties with these rows."""
    return {name: replace(spec, shard=shards[name]) for name, spec in specs.items()}


def as_parties(shards: Mapping[str, Shard], specs: Mapping[str, PartySpec]) -> dict[str, Shard]:
    """Rows in the order that the parties of these specs give them in a run."""
    return {
        name: shuffled(shard, order_coins(specs[name].noise_source()))
        for name, shard in shards.items()
    }


# -- units ----------------------------------------------------------------------------------------


def to_ranges(schema: Schema, own: Schema, weights: Array, model: str) -> Array:
    """A model's weights, shape (d,), as one of rows of `own`; of counts over their range."""
    slopes, constant = schema.model_in_data_units(weights)
    coef = dict(zip(schema.feature_names, slopes.tolist(), strict=True))
    for column in schema.columns:
        for gone in set(column.features) - set(own.feature_names):
            constant += coef[gone]
            coef |= {name: coef[name] - coef[gone] for name in column.features if name != gone}
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
