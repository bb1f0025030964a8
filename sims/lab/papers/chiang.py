"""What Figures 1 to 3 of the quadratic-gradient paper share: their sets, and courses side by side.

Files hold the paper's public sets. Without MNIST's, digits 3 and 8 are the 8 x 8 ones that
scikit-learn ships; credit stands in for "the private financial dataset".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from sims.lab.papers import rules
from sims.lab.papers.curves import Curve, curves_figure, unit_rows
from sims.lab.papers.data import CREDIT, EDIN, IDASH, LBW, MNIST, NHANES3, PCS, UIS, Need
from sims.lab.papers.item import Result, Row, Settings

Array = NDArray[np.float64]
Rule = Callable[[Array, Array, int], Iterator[Array]]
PUBLIC = (IDASH, EDIN, LBW, NHANES3, PCS, UIS)
"""Those of Tables I and II."""
SETS = (*PUBLIC, CREDIT, MNIST)
STEPS = 30
UNKNOWN = (
    f"the curves' values: the figures are images; how many iterations they show ({STEPS} here)",
    "the private financial data",
)


def digits() -> pd.DataFrame:
    """Digits 3 (0) and 8 (1) of scikit-learn, 64 columns."""
    data = load_digits()
    kept = np.isin(data.target, (3, 8))
    frame = pd.DataFrame(data.data[kept], columns=[f"p{k}" for k in range(64)])
    return frame.assign(y=(data.target[kept] == 8).astype(int))


def sets(
    settings: Settings, needs: Sequence[Need] = SETS
) -> tuple[list[tuple[str, Array, Array]], list[str]]:
    """(name, rows, signs) of every set that is there, and what is said of the others."""
    there, notes = settings.present(needs)
    tables = [(need.name, settings.load(need), need.labels[0]) for need in there]
    if MNIST in needs and MNIST not in there:
        tables.append(("digits 3 v 8", digits(), "y"))
        notes.append("digits 3 v 8: scikit-learn's, for MNIST's")
    return [(name, *unit_rows(frame, label)) for name, frame, label in tables], notes


def courses(
    name: str, x: Array, signs: Array, families: Mapping[str, Rule], steps: int
) -> Iterator[tuple[str, list[float], Row]]:
    """The likelihood after each step of every rule, by label, and where it ends."""
    best = rules.mean_likelihood(rules.optimum(x, signs), x, signs)
    for label, rule in families.items():
        began = time.perf_counter()
        course = [rules.mean_likelihood(w, x, signs) for w in rule(x, signs, steps)]
        row = Row(
            quantity=f"{name}, {label}: mean log-likelihood after {steps} [nats]",
            ours=course[-1],
            seconds=time.perf_counter() - began,
            note=f"best possible {best:.4f}",
        )
        yield label, course, row


def spans(numbers: Sequence[int]) -> str:
    """Growing numbers, runs of them by their ends: 1, 4-6."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in zip(starts, ends, strict=True))


def beside(settings: Settings, families: Mapping[str, Rule], plain: str, better: str) -> Result:
    """All rules on all sets; `better` is what the paper says leads `plain`, both by name."""
    rows: list[Row] = []
    curves: list[Curve] = []
    led: list[str] = []
    steps = 8 if settings.quick else STEPS
    tables, notes = sets(settings)
    for name, x, signs in tables:
        found = list(courses(name, x, signs, families, steps))
        rows += [row for *_, row in found]
        curves += [Curve(name, label, course) for label, course, _ in found]
        by_label = {label: course for label, course, _ in found}
        ahead = [
            t
            for t, (a, b) in enumerate(zip(by_label[plain], by_label[better], strict=True), 1)
            if a > b
        ]
        if ahead:
            led.append(f"{name} {spans(ahead)}")
    if led:
        notes.append(f"iterations in which {plain} leads {better}: {'; '.join(led)}")
    return Result(rows=tuple(rows), notes=tuple(notes), draw=lambda: curves_figure(curves))


def enhanced_beside(
    settings: Settings,
    name: str,
    rule: Callable[[Array, Array, int, float, Array | float], Iterator[Array]],
    plain: float,
    better: float,
) -> Result:
    """A rule at the rate `plain`; on the quadratic gradient at `better`; and as it is at that."""
    families: dict[str, Rule] = {
        name: lambda x, y, steps: rule(x, y, steps, plain, 1.0),
        f"{name} at {better:g}": lambda x, y, steps: rule(x, y, steps, better, 1.0),
        f"enhanced {name}": lambda x, y, steps: rule(x, y, steps, better, rules.curvature(x)),
    }
    return beside(settings, families, name, f"enhanced {name}")
