r"""Figure 4: descent leaves the interval of its polynomial and diverges.

adult, degree 7 on [-7, 7], steps of 1 / beta, beta = max |p'| m as in Table 3. The text has z in
[-15, 10] at step 1080 and -4000 at step 1086.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

import numpy as np

from protocols.numerics.approximation import Polynomial
from sims.lab.papers.barrier import Rows, plain_rows
from sims.lab.papers.curves import Curve, curves_figure
from sims.lab.papers.data import ADULT, ADULT_TEST
from sims.lab.papers.item import REPRODUCED, About, Result, Row, Settings
from sims.lab.papers.p003.figure_3 import Step, descent, interpolant, steepest, weights_of

RADIUS = 7.0
PAPER_STEP = 1086
HUGE = 1e3
RATES = (1.0, 2.0, 4.0, 8.0)
"""Times 1 / beta: the paper does not say its step."""


def first_above(largest: Sequence[float], bound: float) -> int | None:
    """The first step whose |z| is above."""
    return next((t for t, z in enumerate(largest, 1) if not z <= bound), None)


def rate_of(rows: Rows, link: Polynomial) -> float:
    """1 / beta."""
    return 1 / (steepest(link) * (rows.x.shape[1] - 1))


def largest_scores(rows: Rows, link: Polynomial, step: Step, steps: int) -> list[float]:
    """Largest |z| after each step from w = 0, until it is huge."""
    found = []
    for _, z in islice(weights_of(rows, link, step), steps):
        found.append(float(np.abs(z).max()))
        if not found[-1] <= HUGE:
            break
    return found


def run(settings: Settings) -> Result:
    """Several steps, since the paper's is not known."""
    rows, link = plain_rows(ADULT, settings), interpolant(RADIUS)
    steps = 300 if settings.quick else 4000
    shown, curves = [], []
    for times in RATES:
        began = time.perf_counter()
        rate = times * rate_of(rows, link)
        found = largest_scores(rows, link, descent(rate), steps)
        left, gone = first_above(found, RADIUS), first_above(found, HUGE)
        shown.append(
            Row(
                quantity=f"step {times:g} / beta: first iteration with |z| > {HUGE:g}",
                ours=gone,
                paper=PAPER_STEP,
                seconds=time.perf_counter() - began,
                note=f"beyond {RADIUS:g} from iteration {left} on; at the end |z| <= "
                f"{found[-1]:.3g} after {len(found)}",
            )
        )
        curves.append(Curve("no barrier", f"{times:g} / beta", found))
    return Result(
        rows=tuple(shown), draw=lambda: curves_figure(curves, axis="largest |z|", log=True)
    )


ABOUT = About(
    title="descent that leaves the interval of its polynomial",
    verdict=REPRODUCED,
    finding="descent leaves its interval and diverges; the paper's step is unknown",
    data=(ADULT, ADULT_TEST),
    unknown=("the columns and the step; several steps are tried",),
    seconds=5,
)
