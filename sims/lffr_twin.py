"""What an encrypted LFFR run is compared with: the plan in float64 on pooled rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from protocols.lffr.plan import LffrPlan
from protocols.models.lffr import slope_of_loss
from sims.prepare import PreparedData
from sims.twins import LONGER, Specs, Twin, course_of, summed_noise, unconverged, warned

Array = NDArray[np.float64]


def run_lffr_twin(
    plan: LffrPlan,
    rows: Array,
    targets: Array,
    noise: Array | None = None,
    on_iteration: Callable[[int, Array, float], None] = lambda t, w, largest: None,
) -> Array:
    """W, shape (d, c), after the plan's last iteration.

    rows: of all parties, shape (N, d); targets: on [0, 1], shape (N, c); noise: shape
    (rounds, d, c), summed over parties; on_iteration: gets t, W_(t+1) and the largest |XW| so far,
    which must stay within the link's radius.
    """
    weights: Array = np.zeros((plan.num_features, plan.outputs))
    inverse = plan.curvature.preconditioner(rows)[:, None] if plan.curvature else 1.0
    largest = 0.0
    for t in range(plan.rounds):
        z = rows @ weights
        largest = max(largest, float(np.abs(z).max(initial=0.0)))
        gradient = rows.T @ slope_of_loss(plan.link, z, targets) / len(rows)
        gradient = gradient + 2 * plan.ridge * weights + (0.0 if noise is None else noise[t])
        weights = weights - plan.learning_rate * inverse * gradient
        on_iteration(t, weights, largest)
    return weights


def twin(plan: LffrPlan, data: PreparedData, specs: Specs) -> Twin:
    """See `twins.twin_of`."""
    course, scores = course_of(plan, data), [0.0]

    def record(t: int, weights: Array, largest: float) -> None:
        course.record(t, weights)
        scores.append(largest)

    weights = run_lffr_twin(plan, data.rows, data.labels, summed_noise(plan, specs), record)
    warnings = warned("score", scores[-1], plan.link.radius, "take fewer iterations or a ridge")
    if plan.privacy is None:
        longer = run_lffr_twin(replace(plan, rounds=LONGER * plan.rounds), data.rows, data.labels)
        spread = data.labels.var(axis=0)
        left = [
            np.mean((plan.fitted.decode(data.rows @ w) - data.labels) ** 2, axis=0)
            for w in (weights, longer)
        ]
        share = (left[0] - left[1]) / np.where(spread > 0, spread, np.inf)
        cure = "take more (--iterations), or --model improved-lffr, which converges at once"
        warnings += unconverged(plan, data.schema.label.names, share, cure)
    return Twin(weights=weights, iterations=tuple(course.metrics), warnings=warnings)
