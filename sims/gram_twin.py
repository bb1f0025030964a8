"""What an encrypted regression on Gram sums is compared with: the same in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from parties.kernel.gram.sums import GramSums
from protocols.gram.contributions import GramTask
from protocols.gram.plan import GramPlan
from protocols.privacy.calibrate.gram import SPAN
from sims.prepare import PreparedData
from sims.twins import MOST_UNLEARNT, Specs, Twin, course_of, more_rounds, unconverged

Array = NDArray[np.float64]


def run_gram_twin(
    task: GramTask,
    sums: GramSums,
    on_iteration: Callable[[int, Array], None] = lambda t, w: None,
) -> Array:
    """The task in float64 on all parties' sums, noise included; W, shape (d, c)."""
    unit, pace = task.num_rows * task.scale, task.pace
    hessian = 2 * sums.gram / unit + task.shift * np.eye(task.num_features)
    targets = 2 * sums.cross / unit
    inverse: Array = np.ones((task.num_features, 1))
    if task.row_sums:
        inverse = task.inverse.invert(sums.row_sums / unit + task.inverse.low)[:, None]
    inverse = inverse / task.slack
    before: Array = np.zeros_like(targets)
    moved = before
    for t, (factor, size) in enumerate(zip(pace.targets, pace.sizes, strict=True)):
        step = inverse * (factor * targets - pace.gain * (hessian @ moved))
        before, moved = moved, pace.level * moved - pace.pull * before + step
        on_iteration(t, moved / size)
    return moved / pace.last


def unlearnt(task: GramTask, sums: GramSums, weights: Array) -> Array:
    """By how much more iterations would lower the mean squared error, by output, shape (c,).

    (W - W*)^T (X^T X / N + ridge) (W - W*), W* the minimiser for these sums.
    """
    hessian = sums.gram / task.num_rows + task.ridge * np.eye(task.num_features)
    best = np.linalg.lstsq(hessian, sums.cross / task.num_rows, rcond=None)[0]
    gap: Array = np.einsum("kc,kj,jc->c", weights - best, hessian, weights - best)
    return gap


def twin(plan: GramPlan, data: PreparedData, specs: Specs) -> Twin:
    """See `twins.twin_of`."""
    parts = (
        plan.contribution(s.shard.x, s.shard.y, plan.draw_noise(s.noise_source()), s.shard.weight)
        for s in specs.values()
    )
    course, sums = course_of(plan, data), reduce(add, parts)
    weights = run_gram_twin(plan.task, sums, lambda t, w: course.record(t, plan.decode(w)))
    encoded, counts = plan.fitted.encode(data.labels), data.row_weights[:, None]
    middle = (counts * encoded).sum(axis=0) / counts.sum()
    variance = np.mean(counts * (encoded - middle) ** 2, axis=0)
    whole = np.where(variance > 0, variance, np.inf)

    def left(rounds: int) -> Array:
        # Of so many steps on whitened rows, as they are chosen.
        lowest = None if plan.lowest is None else min(SPAN / rounds, 0.5)
        task = replace(plan.task, rounds=rounds, lowest=lowest)
        w = run_gram_twin(task, sums, lambda t, w: None)
        share: Array = unlearnt(task, sums, w) / whole
        return share

    def fine(rounds: int) -> bool:
        return bool(left(rounds).max() <= MOST_UNLEARNT)

    own = unlearnt(plan.task, sums, weights) / whole
    cure = "" if own.max() <= MOST_UNLEARNT else more_rounds(plan, data, fine)
    return Twin(
        weights=plan.decode(weights),
        iterations=tuple(course.metrics),
        warnings=unconverged(plan, data.schema.label.names, own, cure),
    )
