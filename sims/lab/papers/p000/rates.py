r"""Section IV: at rates above 3 the algorithm "is nearly guaranteed not to converge".

Near the optimum a step at a constant rate N multiplies the error along an eigenvector of B^-1 H,
H = X^T S X, S_ii = s_i (1 - s_i), by 1 - N l, or, with momentum that grows to 1, by the roots of
r^2 - 2 (1 - N l) r + (1 - N l). All stay within 1 for

    N < 2 / l  (quadratic gradient),   N < 4 / (3 l)  (enhanced NAG),   l the largest eigenvalue.

At b = 0, S = 1 / 4 and l = 1 exactly, because B has the sums of H's rows; at the optimum S is less.
Beside it the rate above which a run does not converge, by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from scipy.special import expit

from sims.lab.papers import rules
from sims.lab.papers.chiang import PUBLIC, Array, sets
from sims.lab.papers.item import CORRECTED, About, Result, Row, Settings, timed

Run = Callable[[Array, Array, int, float], Iterator[Array]]
PAPER, STEPS, SLACK = 3.0, 1000, 1e-6
"""The paper's rate; the last steps of a run that converges are within SLACK nats of its best."""
RULES: Mapping[str, tuple[float, Run]] = {
    "enhanced NAG": (4 / 3, lambda x, y, t, rate: rules.enhanced(x, y, t, lambda _: rate)),
    "quadratic gradient": (
        2.0,
        lambda x, y, t, rate: rules.ascent(x, y, t, rate, rules.curvature(x)),
    ),
}


def steepest(rows: Array, signs: Array) -> float:
    """l at the optimum."""
    mean = expit(rows @ rules.optimum(rows, signs))
    root = 1 / np.sqrt(rules.curvature(rows))
    scaled = rows * root
    return float(np.linalg.eigvalsh(scaled.T @ (scaled * (mean * (1 - mean))[:, None]))[-1])


def converges(run: Run, rows: Array, signs: Array, rate: float, steps: int) -> bool:
    """Whether the likelihood ends where it was highest, without falls: a cycle has some."""
    course = [rules.mean_likelihood(w, rows, signs) for w in run(rows, signs, steps, rate)]
    return course[-1] > max(course) - SLACK and np.diff(course[-10:]).min() > -SLACK


def threshold(run: Run, rows: Array, signs: Array, steps: int, halvings: int) -> float:
    """The rate, between 1 and 16."""
    low, high = 1.0, 16.0
    for _ in range(halvings):
        rate = (low + high) / 2
        low, high = (rate, high) if converges(run, rows, signs, rate, steps) else (low, rate)
    return (low + high) / 2


def limits(name: str, x: Array, signs: Array, quick: bool) -> Iterator[Sequence[Row]]:
    """Of both rules on a set, measured and by the eigenvalue."""
    largest = steepest(x, signs)
    for words, (factor, rule) in RULES.items():
        found = threshold(rule, x, signs, *((50, 2) if quick else (STEPS, 8)))
        quantity = f"{name}, {words}: highest rate that converges"
        yield (
            Row(quantity=f"{quantity}, measured", paper=PAPER, ours=found),
            Row(quantity=f"{quantity}, by the largest eigenvalue", ours=factor / largest),
        )


def run(settings: Settings) -> Result:
    """Every set that is there."""
    tables, notes = sets(settings, PUBLIC)
    shown = timed(group for table in tables for group in limits(*table, settings.quick))
    measured = shown[::2]
    beyond = [row.quantity.partition(":")[0] for row in measured if (row.ours or 0.0) > PAPER]
    held = len(measured) - len(beyond)
    notes.append(f"no rate above {PAPER:g} converges in {held} of {len(measured)} cases")
    if beyond:
        notes.append(f"some rate above {PAPER:g} converges: {'; '.join(beyond)}")
    return Result(rows=shown, notes=tuple(notes))


ABOUT = About(
    title="rates above 3, of which the text says that they hardly converge",
    verdict=CORRECTED,
    finding="the limit is the set's own: 4/3 or 2 over the largest eigenvalue of B^-1 H",
    data=PUBLIC,
    remarks=("enhanced NAG at a constant rate may need less than the text's 1 to 2",),
    seconds=60,
)
