r"""Section III: the search for a fixed Hessian, Steps 1 to 3.

    |B_kk|(b) = eps + sum_j |sum_i s_i (1 - s_i) x_ik x_ij|,   s_i = sigma(x_i . b).

Step 2 takes the minimum over b. It is eps: every s_i (1 - s_i) vanishes far away. The condition
B <= H(b) for all b asks for the maximum. Rows on [0, 1] have it at b = 0, the row sum of
X^T X / 4, as the text says. Rows of both signs may have a larger one: the search is no more than
sufficient, also as the text says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from sims.lab.papers import rules
from sims.lab.papers.chiang import PUBLIC, Array, sets
from sims.lab.papers.item import CORRECTED, About, Result, Row, Settings, timed

STARTS, RADIUS, STEPS = 5, 8.0, 30
"""Of the search: Gaussian starts beside 0, by entry; of Step 3."""


def diagonal(weights: Array, rows: Array, column: int) -> tuple[float, Array]:
    """|B_kk| - eps of a column, and its gradient."""
    mean = expit(rows @ weights)
    spread = mean * (1 - mean)
    own = rows[:, column]
    sums = rows.T @ (spread * own)
    slope = spread * (1 - 2 * mean) * own * (rows @ np.sign(sums))
    return float(np.abs(sums).sum()), rows.T @ slope


def searched(rows: Array, sign: float, starts: int) -> Array:
    """Largest (sign 1) or least (-1) |B_kk| that is found, from 0 and from far, shape (d,)."""

    def found(column: int) -> float:
        def goal(weights: Array) -> tuple[float, Array]:
            value, slope = diagonal(weights, rows, column)
            return -sign * value, -sign * slope

        rng = np.random.default_rng(column)
        begin = [np.zeros(rows.shape[1]), *rng.normal(0, RADIUS, (starts, rows.shape[1]))]
        return -sign * min(float(minimize(goal, b, jac=True).fun) for b in begin)

    return np.array([found(column) for column in range(rows.shape[1])]) + rules.EPSILON


def run(settings: Settings) -> Result:
    """Both ends of the search on every set, with columns on [0, 1] and on [-1, 1]."""
    led: list[float] = []
    tables, notes = sets(settings, PUBLIC)

    def ends_of(name: str, rows: Array, signs: Array, scale: str) -> Sequence[Row]:
        given = rules.curvature(rows)
        ends = {
            "least, as printed": searched(rows, -1.0, STARTS),
            "largest": searched(rows, 1.0, 1 if settings.quick else STARTS),
        }
        near, other = (
            rules.mean_likelihood([*rules.ascent(rows, signs, STEPS, 1.0, bound)][-1], rows, signs)
            for bound in (ends["largest"], given)
        )
        led.append(other - near)
        return [
            Row(
                quantity=f"{name}, {words}, on {scale}: |B_kk| over X^T X / 4's",
                ours=float((bound / given).max()),
                note=f"the least of any column {(bound / given).min():.3g}",
            )
            for words, bound in ends.items()
        ]

    def both(name: str, unit: Array, signs: Array) -> Iterator[Sequence[Row]]:
        yield ends_of(name, unit, signs, "[0, 1]")
        yield ends_of(name, np.column_stack([unit[:, :1], 2 * unit[:, 1:] - 1]), signs, "[-1, 1]")

    shown = timed(group for table in tables for group in both(*table))
    notes.append(
        f"Step 3: after {STEPS} steps the likelihood by X^T X / 4 is ahead of that by the largest "
        f"by {max(led):.2g} nats at most, behind by {max(0.0, -min(led)):.2g}"
    )
    return Result(rows=shown, notes=tuple(notes))


ABOUT = About(
    title="the search for a fixed Hessian",
    verdict=CORRECTED,
    finding="the maximum, not the printed minimum, gives back X^T X / 4",
    data=PUBLIC,
    remarks=(
        "Step 2 asks for the minimum of |B_kk|, which is eps: the condition B <= H needs the "
        "maximum (sims/lab/papers/p000/fixed_hessian.py)",
    ),
    seconds=60,
)
