r"""Figure 4: plain and quadratic gradient ascent on lbw, several learning rates.

    (a) b <- b + lr g,   (b) b <- b + LR G,  G = g / B,  B_kk = eps + sum_j |(X^T X / 4)_kj|.

g is the gradient of the log-likelihood, a sum over the rows (section III).
"""

from __future__ import annotations

from functools import partial

from sims.lab.papers.chiang import STEPS, Rule, courses
from sims.lab.papers.curves import Curve, curves_figure, unit_rows
from sims.lab.papers.data import LBW
from sims.lab.papers.item import REPRODUCED, About, Result, Settings
from sims.lab.papers.rules import ascent, curvature

PLAIN = (0.005, 0.01, 0.02, 0.04)
QUADRATIC = (0.5, 1.0, 1.5, 2.0)


def run(settings: Settings) -> Result:
    """Both families of curves; the figure prints no values."""
    rows, signs = unit_rows(settings.load(LBW), "y")
    families: dict[str, Rule] = {
        f"{title} = {rate:g}": partial(ascent, rate=rate, bound=bound)
        for title, bound, rates in (
            ("gradient, lr", 1.0, PLAIN),
            ("quadratic gradient, LR", curvature(rows), QUADRATIC),
        )
        for rate in rates
    }
    found = list(courses("lbw", rows, signs, families, STEPS))
    curves = [Curve(label.partition(" = ")[0], label, course) for label, course, _ in found]
    return Result(rows=tuple(row for *_, row in found), draw=lambda: curves_figure(curves))


ABOUT = About(
    title="plain and quadratic gradient ascent on lbw by learning rate",
    verdict=REPRODUCED,
    finding="both families of rates; the figure prints no values",
    data=(LBW,),
    unknown=(
        "the learning rates and the axes' values: the figure is an image",
        "the number of steps",
    ),
    seconds=1,
)
