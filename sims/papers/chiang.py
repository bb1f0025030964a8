"""What Figures 1 to 3 of the quadratic-gradient paper share: their sets, and courses side by side.

A file holds the paper's small sets; MNIST's digits 3 and 8 are the 8 x 8 ones that scikit-learn
ships, and credit stands in for "the private financial dataset". iDASH is not public.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from sims.papers import rules
from sims.papers.curves import Curve, curves_figure, unit_rows
from sims.papers.data import CREDIT, EDIN, LBW, NHANES3, PCS, UIS, Need
from sims.papers.item import Result, Row, Settings

Array = NDArray[np.float64]
Rule = Callable[[Array, Array, int], Iterator[Array]]
SETS = (EDIN, LBW, NHANES3, PCS, UIS, CREDIT)
STEPS = 30
UNKNOWN = (
    "the curves' values: the figures are images; how many iterations they show (30 here)",
    "the order of features, the bias's place and the shuffle do not matter: all rows train",
    "iDASH and the private financial data are not public; credit stands in for the latter",
    '"restructured MNIST": digits 3 and 8; scikit-learn\'s 8 x 8 ones stand in',
)


def digits() -> pd.DataFrame:
    """Digits 3 (0) and 8 (1) of scikit-learn, 64 columns."""
    data = load_digits()
    kept = np.isin(data.target, (3, 8))
    frame = pd.DataFrame(data.data[kept], columns=[f"p{k}" for k in range(64)])
    return frame.assign(y=(data.target[kept] == 8).astype(int))


def sets(settings: Settings) -> Iterator[tuple[str, Array, Array] | str]:
    """(name, rows, signs) of every set; of one that is missing, in words why."""
    for need in SETS:
        if need is NHANES3 and need.missing(settings.data_folder, settings.quick):
            yield left_out(need)
        else:
            yield (need.name, *unit_rows(_read(need, settings), need.labels[0]))
    yield ("digits 3 v 8", *unit_rows(digits(), "y"))


def left_out(need: Need) -> str:
    """Of a set whose file is missing."""
    return f"left out, for its file is missing: {need.words}"


def _read(need: Need, settings: Settings) -> pd.DataFrame:
    frame = need.load(settings.data_folder, settings.quick)
    return frame.drop(columns="ID", errors="ignore")


def beside(settings: Settings, families: Mapping[str, Rule], plain: str, better: str) -> Result:
    """All rules on all sets; `better` is what the paper says leads `plain`, both by name."""
    rows: list[Row] = []
    notes: list[str] = []
    curves: list[Curve] = []
    steps = 8 if settings.quick else STEPS
    for found in sets(settings):
        if isinstance(found, str):
            notes.append(found)
            continue
        name, x, signs = found
        best = rules.mean_likelihood(rules.optimum(x, signs), x, signs)
        courses: dict[str, list[float]] = {}
        for label, rule in families.items():
            began = time.perf_counter()
            courses[label] = [rules.mean_likelihood(w, x, signs) for w in rule(x, signs, steps)]
            curves.append(Curve(name, label, courses[label]))
            rows.append(
                Row(
                    quantity=f"{name}, {label}: mean log-likelihood after {steps} [nats]",
                    ours=courses[label][-1],
                    seconds=time.perf_counter() - began,
                    note=f"best possible {best:.4f}",
                )
            )
        ahead = [
            str(t)
            for t, (a, b) in enumerate(zip(courses[plain], courses[better], strict=True), 1)
            if a > b
        ]
        if ahead:
            notes.append(f"{name}: {plain} leads {better} in iterations {', '.join(ahead)}")
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
