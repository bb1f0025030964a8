"""Coordinates in which every parameter of a regression of hazards is known about as well.

From two noisy sums: counts by time, and products of covariates. Intervals are cut where each has as
many events; with q events a person, an interval's log-hazard, from that of everybody alike, is in
units of (events in it a person)^-1/2, and covariates are centred and divided by a root of q times
their covariance. In these the information at the start is about one a person and coordinate.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers import symmetric
from parties.kernel.study.person_time import PersonTime
from protocols.errors import PrivacyError
from protocols.statistics.inference.estimate import noise_norm

Array = NDArray[np.float64]
CLIP, KAPPA, MOST_HAZARD = 1.2, 1.0, 1.0
"""C over sqrt(p / q), for p parameters; kappa times sqrt(p); h. Larger ones have more noise,
smaller ones fewer events and smaller weights: the least errors at n = 4,000, epsilon 1."""
LEAST_SHARE, LEAST_AT_RISK = 0.3, 0.05
"""Of an interval's even share of events, and of all persons, at risk; fewer are noise."""


class Counts(NamedTuple):
    """By bin of time, shape (bins,): events, ends without one, entries and persons at risk.

    std: of noise on a count.
    """

    events: Array
    others: Array
    entries: Array
    at_risk: Array
    std: float


def counts(cells: Array, std: float) -> Counts:
    """Of `Lifetimes` of one group, shape (bins, 2 or 3): ends without event, events, entries."""
    left = cells[:, 0] + cells[:, 1]
    left[:-1] -= cells[1:, 2] if cells.shape[1] > 2 else 0.0
    others, events, *entries = np.maximum(cells, 0.0).T
    at_risk = np.cumsum(left[::-1])[::-1]
    return Counts(events, others, entries[0] if entries else np.zeros(len(cells)), at_risk, std)


def least_events(std: float, bins: int) -> float:
    """Below it noise drowns events; std: of a count."""
    return 4 * std * math.sqrt(bins)


def whitened(
    found: Counts,
    products: Array,
    tau: float,
    rows: int,
    intervals: int,
    columns: tuple[int, ...],
    late: bool,
) -> PersonTime:
    """At the start, theta = 0: no covariate has an effect.

    products: X^T X, bias last, noise of standard deviation tau on its diagonal; intervals: at most.

    Raises:
        PrivacyError: noise drowns the events.
    """
    bins, total = len(found.events), float(found.events.sum())
    if not total > (least := least_events(found.std, bins)):
        raise PrivacyError(
            f"{total:.4g} events drown in noise: {least:.3g} are needed; use more rows, or a "
            "larger epsilon"
        )
    # Nobody counts beyond a hazard of h: where that of all is, the last interval's figures end.
    last = min(int(np.argmax(np.append(_hazards(found, rows), math.inf) >= MOST_HAZARD)) + 1, bins)
    happen, total = found.events[:last], float(found.events[:last].sum())
    shares = np.cumsum(happen) / total
    ends = np.searchsorted(shares, np.arange(1, intervals) / intervals) + 1
    starts = np.array([0, *(k for k in dict.fromkeys(ends.tolist()) if k < last)])
    events = np.maximum(np.add.reduceat(happen, starts), LEAST_SHARE * total / len(starts))
    exposure = np.add.reduceat(found.at_risk[:last], starts) / bins
    exposure = np.maximum(exposure, LEAST_AT_RISK * rows / bins)
    kept = np.array(columns)
    mean = products[kept, -1] / rows
    covariance = products[np.ix_(kept, kept)] / rows - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, noise_norm(tau, len(kept)) / rows)
    p, q = len(starts) + len(kept), float(events.sum()) / rows
    fields: dict[str, Any] = {
        "base": np.log(events / exposure),
        "scale": np.sqrt(rows / events),
        "centre": mean,
        "matrix": ((vectors / np.sqrt(q * values)) @ vectors.T).ravel(),
        "theta": np.zeros(p),
        "cuts": starts[1:] / bins,
    }
    return PersonTime(
        columns=columns,
        clip=CLIP * math.sqrt(p / q),
        kappa=KAPPA / math.sqrt(p),
        most_hazard=MOST_HAZARD,
        late=late,
        **{name: tuple(values.tolist()) for name, values in fields.items()},
    )


def _hazards(found: Counts, rows: int) -> Array:
    """Of those at risk in a bin from their entry to its end, on the mean, shape (bins,)."""
    whole = np.cumsum(found.events / np.maximum(found.at_risk, LEAST_AT_RISK * rows))
    before = np.append(0.0, whole[:-1])
    entered = np.append(max(found.at_risk[0], 1.0), found.entries[:-1])
    # Times e^-whole of the bin; nobody is left at a hazard of 500, which noise alone reaches.
    still = entered * np.exp(np.minimum(before, 500.0))
    return np.asarray(whole - np.cumsum(still * before) / np.cumsum(still))


def read(function: PersonTime, total: Array) -> tuple[Array, Array]:
    """Score, shape (J + d,), and information, (J + d, J + d), of a sum of v."""
    d, k = len(function.columns), len(function.base)
    ends = np.cumsum([k + d, k, k * d])
    score, own, cross, rest = np.split(total, ends)
    information = np.zeros((k + d, k + d))
    information[:k, :k] = np.diag(own)
    information[:k, k:] = cross.reshape(k, d) / np.sqrt(2)
    information[k:, :k] = information[:k, k:].T
    information[k:, k:] = symmetric.square(rest)
    return score, information / function.kappa
