"""A hospital's rows, and what they add to the regression."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


class Rows(NamedTuple):
    """One hospital's.

    times: of event or last visit [days], shape (n,); events: 1 where there was one; x: shape
    (n, d); weights: such as inverse probabilities of the treatment, shape (n,).
    """

    times: NDArray[np.int64]
    events: NDArray[np.int64]
    x: Values
    weights: Values


def load_rows(hospital: int) -> Rows:
    """Made up: treatment, age, and a score, with hazards that differ by hospital."""
    rng = np.random.default_rng(hospital)
    count = 120 + 30 * hospital
    age, score = rng.normal(60 + hospital, 10, count), rng.normal(0, 1, count)
    propensity = 1 / (1 + np.exp(-(age - 60) / 20 - score / 2))
    treated = rng.random(count) < propensity
    risk = -0.7 * treated + 0.04 * (age - 60) + 0.3 * score
    times = np.ceil(rng.exponential(400 * np.exp(-risk))).astype(np.int64)
    last = rng.integers(100, 1000, count)
    weights = np.where(treated, 1 / propensity, 1 / (1 - propensity))
    x = np.c_[treated, age, score].astype(np.float64)
    return Rows(np.minimum(times, last), (times <= last).astype(np.int64), x, weights)


def moments(rows: Rows) -> dict[str, Any]:
    """To standardise by."""
    return {"count": len(rows.x), "sum": rows.x.sum(axis=0), "squares": (rows.x**2).sum(axis=0)}


def standardised(rows: Rows, mean: Values, std: Values) -> Rows:
    """With columns of mean 0 and std 1 over all hospitals."""
    return rows._replace(x=(rows.x - mean) / std)


def events_of(rows: Rows, days: int) -> dict[str, Any]:
    """Number and weight of events on each day, and the weighted sum of columns over events."""
    at = rows.events == 1
    return {
        "events": np.bincount(rows.times[at], minlength=days + 1),
        "weights": np.bincount(rows.times[at], rows.weights[at], minlength=days + 1),
        "columns": rows.weights[at] @ rows.x[at],
    }


def risk_sums(rows: Rows, times: NDArray[np.int64], beta: Values) -> dict[str, Any]:
    """Of weights w exp(x beta), and of their products with x and x x', over who is at risk."""
    at_risk = rows.times >= times[:, None]
    share = rows.weights * np.exp(rows.x @ beta)
    return {
        "risk": at_risk @ share,
        "risk_x": at_risk @ (share[:, None] * rows.x),
        "risk_xx": np.einsum("ti,ij,ik->tjk", at_risk * share, rows.x, rows.x),
    }
