r"""Figure 4: plain and quadratic gradient ascent on lbw, several learning rates.

    (a) b <- b + lr g,   (b) b <- b + LR G,  G = g / B,  B_kk = eps + sum_j |(X^T X / 4)_kj|.

g is the gradient of the log-likelihood, a sum over the rows (section III).
"""

from __future__ import annotations

import time

from sims.papers.curves import Curve, curves_figure, unit_rows
from sims.papers.data import LBW
from sims.papers.item import Item, Result, Row, Settings
from sims.papers.rules import ascent, curvature, mean_likelihood, optimum

STEPS = 30
PLAIN = (0.005, 0.01, 0.02, 0.04)
QUADRATIC = (0.5, 1.0, 1.5, 2.0)


def run(settings: Settings) -> Result:
    """Both families of curves; the figure prints no values."""
    rows, signs = unit_rows(LBW.load(settings.data_folder, settings.quick), "y")
    best = mean_likelihood(optimum(rows, signs), rows, signs)
    curves, shown = [], []
    for title, bound, rates in (
        ("gradient, lr", 1.0, PLAIN),
        ("quadratic gradient, LR", curvature(rows), QUADRATIC),
    ):
        for rate in rates:
            began = time.perf_counter()
            path = ascent(rows, signs, STEPS, rate, bound)
            course = [mean_likelihood(w, rows, signs) for w in path]
            seconds = time.perf_counter() - began
            curves.append(Curve(title, f"{rate:g}", course))
            shown.append(
                Row(
                    quantity=f"lbw, {title} = {rate:g}: mean log-likelihood after {STEPS} [nats]",
                    ours=course[-1],
                    seconds=seconds,
                    note=f"best possible {best:.4f}",
                )
            )
    return Result(rows=tuple(shown), draw=lambda: curves_figure(curves, best))


ITEM = Item(
    paper="000",
    name="figure-4",
    title="plain and quadratic gradient ascent on lbw by learning rate",
    data=(LBW,),
    unknown=(
        "the learning rates and the axes' values: the figure is an image",
        "the number of steps",
    ),
    seconds=1,
    run=run,
)
