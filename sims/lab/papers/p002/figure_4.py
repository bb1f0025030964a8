"""Figure 4: the six methods with m = 1000 of n = 100,000 rows in every iteration.

b_t is derived in `papers.fixed_batches`; the paper's column as in figure 3. The -opt
methods divide epsilon as for m = n (Remark 4.2); notes say what the exact division of (30)
would gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from protocols.updates.strongly_convex import StronglyConvexNesterov
from sims.lab.papers.accelerated import ROUNDS, Cell, Floats, Study, curves_of
from sims.lab.papers.curves import curves_figure
from sims.lab.papers.fixed_batches import laplace_scale, optimal_shares
from sims.lab.papers.item import CORRECTED, About, Result, Settings
from sims.lab.papers.p002.figure_3 import AXIS, all_ends, study_of

ROWS, BATCH = 100_000, 1_000
ENDS: Mapping[float, tuple[tuple[float, ...], ...]] = {
    0.1: (
        (1.43, 1.39, 1.28, 1.10),
        (0.54, -1.00, -0.88, -0.33),
        (0.54, -1.19, -0.93, -0.34),
        (0.71, 0.59, 0.33, 0.07),
        (0.55, -1.23, -1.56, -1.56),
        (0.72, 0.72, 0.72, 0.72),
    ),
    1.0: (
        (1.10, 0.69, -1.31, -0.77),
        (-1.53, -1.10, -0.41, 0.16),
        (-1.60, -1.03, -0.40, 0.23),
        (-1.62, -1.59, -1.29, -1.06),
        (-1.81, -1.82, -1.82, -1.76),
        (-1.94, -1.91, -1.86, -1.84),
    ),
}


def division_gain(study: Study, cell: Cell) -> tuple[float, float]:
    """sum_t a_t b_t^2 of the paper's division over the least one's, and over the uniform one's."""
    rule, scales = study.rule(cell)
    if not isinstance(rule, StronglyConvexNesterov) or cell.batch is None:
        raise AssertionError("a division of batches is asked for")
    rows = len(study.problem.signed)
    weights = rule.log_error_weights()[1:]

    def spent(shares: Floats) -> float:
        b = laplace_scale(
            study.epsilon * shares,
            sensitivity=study.sensitivity,
            batch=cell.batch or rows,
            rows=rows,
        )
        return float(np.exp(weights) @ b**2)

    least = optimal_shares(weights, epsilon=study.epsilon, rate=cell.batch / rows)
    guide = float(np.exp(weights) @ scales**2)
    return guide / spent(least), guide / spent(np.full(rule.rounds, 1 / rule.rounds))


def divisions(study: Study, batch: int) -> Iterator[str]:
    """Of both -opt methods."""
    for method in ("NAG-opt", "MASG-opt"):
        cell = Cell(method=method, rounds=ROUNDS[-1], step_scale=1.0, batch=batch)
        over_least, over_uniform = division_gain(study, cell)
        yield (
            f"{method}: the noise term of the bound is {over_least:.5g} times the least one, log10 "
            f"{math.log10(over_least):.3f} at most to be gained; {over_uniform:.3f} times that of "
            "an even division"
        )


def run(settings: Settings) -> Result:
    """As figure 3; quick: on 5,000 rows, c = 1, T = 100."""
    quick, runs = settings.quick, settings.repetitions(20, 6)
    study = study_of(5_000 if quick else ROWS)
    tables = {1.0: ENDS[1.0]} if quick else ENDS
    found = all_ends(study, tables, ROUNDS[:1] if quick else ROUNDS, runs, BATCH)
    return Result(
        rows=tuple(row for row, _ in found),
        notes=(
            f"{BATCH:,} of {len(study.problem.signed):,} rows, {runs} runs",
            *divisions(study, BATCH),
        ),
        draw=lambda: curves_figure(curves_of([trace for _, trace in found]), axis=AXIS),
    )


ABOUT = About(
    title="six private methods with 1 % of the rows in every iteration",
    verdict=CORRECTED,
    finding="the published curves at the published noise, then at the noise that epsilon needs",
    unknown=("as in figure-3",),
    remarks=(
        "the published noise and T': as in figure-3",
        "(11) to (13) hold for a curator who draws in secret, with a proof in "
        "sims/lab/papers/fixed_batches.py; no run of the federation claims them",
    ),
    seconds=170,
)
