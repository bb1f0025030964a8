"""A second accountant: epsilon of a plan of sums by dp-accounting alone, from the plan's own words.

It reads the plan as JSON, derives what one row can move by hand, and composes dp-accounting's
privacy loss distributions query by query. Nothing of `protocols.privacy` is called: an error there
does not repeat itself here.

By hand, with C the clip of a query, w the largest share of a row in the aggregate, d the length:
- a replaced row moves the aggregate by 2 C w;
- the noise grid's unit u is the power of two of which a share has 2^30 to 2^31; rounding both
  neighbours adds sqrt(d) u;
- a row of public batch k of K is in the queries k, k + K, …; the worst batch counts;
- a row with a secret coin of chance 1 / K adds C + sqrt(d) u where it joins, and dp-accounting's
  replace-one Poisson event says what that costs.

Its distributions are pessimistic; the interval of 1e-4, less where epsilon is small, puts them
within 1e-7 of the closed form.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting.pld import pld_privacy_accountant

FINENESS = 30
"""log2 of what a share is at least, in units of the noise grid."""
INTERVAL = 1e-4
TOLERANCE = 1e-6
"""Relative: a claim may lie below the pessimistic epsilon by the discretisation, no more."""
LARGEST_LOSS = 30.0
"""Losses above are not worth the memory: epsilon counts as infinite."""


def sums_epsilon(plan: Mapping[str, Any], *, delta: float) -> float:
    """Epsilon at delta of a `GradientPlan`'s dictionary, against its colluders."""
    objective, scales = plan["objective"], [float(s) for s in plan["noise_scales"]]
    secret, batches = objective.get("schedule") == "poisson", int(objective.get("batches", 1))
    widened = [
        2 * clip * _share_of_a_row(plan) + (2 if secret and batches > 1 else 1) * _rounding(plan, s)
        for clip, s in zip(_clips(objective, len(scales)), scales, strict=True)
    ]
    ratios = [c / s for c, s in zip(widened, scales, strict=True)]
    if secret and batches > 1:
        return poisson_epsilon(ratios, rate=1 / batches, delta=delta)
    return max(gaussian_epsilon(part, delta=delta) for part in _parts(ratios, batches))


def gaussian_epsilon(ratios: Sequence[float], *, delta: float) -> float:
    """Of Gaussian releases; ratios: sensitivity over standard deviation."""
    squared = math.fsum(r * r for r in ratios)
    if not squared < LARGEST_LOSS:
        return math.inf
    events = {dp_accounting.GaussianDpEvent(1 / r): n for r, n in _count(ratios)}
    # Where little is spent, losses are as small.
    return _composed(events, delta, interval=INTERVAL * min(1.0, 4 * math.sqrt(squared)))


def poisson_epsilon(ratios: Sequence[float], *, rate: float, delta: float) -> float:
    """Of Gaussian releases that a row joins by a secret coin; ratios: as in `gaussian_epsilon`."""
    if not math.fsum(r * r for r in ratios) < LARGEST_LOSS / rate:
        return math.inf
    event = dp_accounting.PoissonSampledDpEvent
    # One row adds half of what replacing it moves.
    return _composed(
        {event(rate, dp_accounting.GaussianDpEvent(2 / r)): n for r, n in _count(ratios)},
        delta,
        dp_accounting.NeighboringRelation.REPLACE_ONE,
    )


def _composed(
    events: Mapping[Any, int], delta: float, relation: Any = None, interval: float = INTERVAL
) -> float:
    # A shift by the replace-one sensitivity is the library's add-or-remove-one pair.
    relation = relation or dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = pld_privacy_accountant.PLDAccountant(
        relation, value_discretization_interval=interval
    )
    for event, count in events.items():
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def _count(ratios: Sequence[float]) -> list[tuple[float, int]]:
    # Ratios above zero that agree to 12 digits, the larger one of them counted for both.
    groups: Counter[str] = Counter()
    largest: dict[str, float] = {}
    for ratio in ratios:
        if ratio > 0:
            key = f"{ratio:.12g}"
            groups[key] += 1
            largest[key] = max(ratio, largest.get(key, 0.0))
    return [(largest[key], count) for key, count in groups.items()]


def _parts(ratios: Sequence[float], batches: int) -> set[tuple[float, ...]]:
    return {tuple(ratios[k::batches]) for k in range(min(batches, len(ratios)))}


def _clips(objective: Mapping[str, Any], queries: int) -> list[float]:
    first = [float(objective["curvature_clip"])] if objective.get("curvature_clip") else []
    return first + [float(objective["clip"])] * (queries - len(first))


def _share_of_a_row(plan: Mapping[str, Any]) -> float:
    if plan["objective"]["kind"] == "dual":
        return 1.0
    rows = [int(member["rows"]) for member in plan["members"]]
    weights = plan["weights"] or [n / sum(rows) for n in rows]
    return float(max(w / n for w, n in zip(weights, rows, strict=True)))


def _rounding(plan: Mapping[str, Any], scale: float) -> float:
    honest = len(plan["members"]) - int(plan["privacy"]["colluders"])
    unit = 2.0 ** (math.floor(math.log2(scale / math.sqrt(honest))) - FINENESS)
    return math.sqrt(int(plan["length"])) * unit


# -- encrypted rows -------------------------------------------------------------------------------


def circuit_epsilon(setting: Mapping[str, Any], *, radius: float, delta: float) -> float:
    """Epsilon at delta of noisy gradients of encrypted rows, from a certificate's setting.

    The move of one replaced row is searched for in a plane: weights up to `radius` long, two rows
    of norm B at any angle, any labels. It exists, so a claim below this epsilon is wrong. Then the
    model is decrypted: `flooded`.
    """
    moved = _largest_move(setting["sigmoid"], float(setting["norm_bound"]), radius)
    ratio = moved / (int(setting["rows"]) * float(setting["sigma"]))
    ratios = [ratio] * int(setting["rounds"])
    return gaussian_epsilon([*ratios, flooded()], delta=delta)


def whitened_epsilon(first: Mapping[str, Any], plan: Mapping[str, Any], *, delta: float) -> float:
    """Epsilon at delta of both runs on whitened rows together, from their plans' dictionaries.

    The second moment moves by sqrt(2) B^2 / N, between orthogonal rows of norm B; then gradients of
    rows of norm 1 follow, as in `circuit_epsilon`, in the ball that the link's interval allows.
    """
    (scale,) = map(float, first["noise_scales"])
    norm, rows = float(first["objective"]["row_norm"]), sum(m["rows"] for m in plan["members"])
    moment = (math.sqrt(2) * norm**2 * _share_of_a_row(first) + _rounding(first, scale)) / scale
    link = plan["link"]
    gradient = _largest_move(link, 1.0, float(link["radius"])) / (rows * plan["privacy"]["sigma"])
    ratios = [moment, *[gradient] * int(plan["update"]["rounds"])]
    return gaussian_epsilon([*ratios, flooded()], delta=delta)


def flooded() -> float:
    """Ratio of the release that a flooded decryption is.

    Beside the model it shows an error e, under noise of covariance S with e S^-1 e at most
    2^-40 / 12: 40 bits by Li et al., CRYPTO 2022, Theorem 2. Neighbours' may be opposite.
    """
    return 2 / (math.sqrt(12) * 2**20)


def regression_epsilon(method: str, setting: Mapping[str, Any], *, delta: float) -> float:
    """Epsilon at delta of a regression ("gram" or "lffr"), from a certificate's setting.

    Gram: x x^T and x y^T of two rows in a plane, targets at either end of their bound. LFFR: x g
    with g = 2 (p - y) p (1 - p) at the ends of the link's range, opposite for each output. Then the
    model is decrypted: `flooded`.
    """
    bound, rows = float(setting["norm_bound"]), int(setting["rows"])
    if method == "gram":
        target = float(setting["target_bound"])
        turned = [np.array([math.cos(a), math.sin(a)]) for a in np.linspace(0.0, math.pi, 721)]
        first = bound * turned[0]
        moves = [
            math.hypot(
                float(np.linalg.norm(np.outer(first, first) - bound**2 * np.outer(other, other))),
                target * float(np.linalg.norm(first - sign * bound * other)),
            )
            for other in turned
            for sign in (1.0, -1.0)
        ]
        ratio = max(moves) / (rows * float(setting["sigma"]))
        return gaussian_epsilon([ratio, flooded()], delta=delta)
    p = np.polynomial.polynomial.polyval(np.linspace(-1, 1, 2001), setting["link"]["coefficients"])
    steepest = float(np.abs(2 * p * p * (1 - p)).max())
    moved = 2 * bound * math.sqrt(int(setting["outputs"])) * steepest
    ratio = moved / (rows * float(setting["sigma"]))
    ratios = [ratio] * int(setting["rounds"])
    return gaussian_epsilon([*ratios, flooded()], delta=delta)


def _largest_move(link: Mapping[str, Any], bound: float, radius: float) -> float:
    angles = np.linspace(0.0, math.pi, 361)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    largest = 0.0
    for length in np.linspace(0.0, radius, 9):
        scaled = length * bound * np.cos(angles) / float(link["radius"])
        value = np.polynomial.polynomial.polyval(scaled, list(link["coefficients"]))
        gradients = np.concatenate([(value - y)[:, None] * directions for y in (0.0, 1.0)])
        # The other row may lie on either side of the weights.
        others = np.concatenate([gradients, gradients * [1.0, -1.0]])
        apart = np.linalg.norm(gradients[:, None] - others[None], axis=2)
        largest = max(largest, bound * float(apart.max()))
    return largest
