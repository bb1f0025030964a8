"""Section 3.5: mean squared error of the training rows by iteration, four algorithms.

Linear regression on targets as they are (LR) and on [0, 1] (YnormdLR), LFFR and improved LFFR; over
the multi-output sets and over the paper's random data: y = noise + sum_k r_k x_k. Errors are over
the squared range, so that all have one scale. Everything starts at W = 0, eps = 1e-8.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from protocols.errors import DataError
from protocols.gram.contributions import row_sum_bound
from protocols.models.lffr import PAPER_LINK
from protocols.privacy.calibrate.gram import FLOOR
from sims.lab.papers import lffr_rules as rules
from sims.lab.papers.curves import Curve, curves_figure
from sims.lab.papers.item import CORRECTED, About, Result, Row, Settings
from sims.lab.papers.lffr_rules import Array, mse, unit_targets
from sims.lab.papers.p001.table_1 import SETS

STEPS = 30
RANDOM = "random"


def random_data(seed: int, rows: int = 1000, columns: int = 10, sigma: float = 0.1) -> Array:
    """The paper's law, its output last; shape (rows, columns + 2), a column of ones before it."""
    rng = np.random.default_rng(seed)
    x, r = rng.uniform(-1, 1, (rows, columns)), rng.uniform(-1, 1, columns)
    return np.column_stack([x, np.ones(rows), x @ r + sigma * rng.normal(size=rows)])


def sets(settings: Settings) -> tuple[list[tuple[str, Array, Array]], list[str]]:
    """(name, rows, targets) of every set that is there, and what is said of the others."""
    there, notes = settings.present(SETS)
    tables = [(need.name, *rules.signed_rows(settings.load(need), need.labels)) for need in there]
    for name, _, y in tables:
        if not np.isfinite(y).all():
            raise DataError(f"{name}: a target is missing in some row")
    made = random_data(1)
    return [*tables, (RANDOM, made[:, :-1], made[:, -1:])], notes


def run(settings: Settings) -> Result:
    """Curves, their last values, and what another floor costs."""
    steps = 10 if settings.quick else STEPS
    shown = (steps,)
    rows: list[Row] = []
    curves: list[Curve] = []
    tables, notes = sets(settings)
    for name, x, raw in tables:
        y, width = unit_targets(raw), raw.max(axis=0) - raw.min(axis=0)
        # Of the mean over rows; of the sum here.
        floor = FLOOR * len(x) * row_sum_bound(x.shape[1] ** 0.5, x.shape[1], 1.0)
        best = mse(rules.least_squares(x, y), y)
        families = {
            "LR": (partial(rules.linear, x, raw), width),
            "YnormdLR": (partial(rules.linear, x, y), 1.0),
            "LFFR": (partial(rules.lffr, x, y), 1.0),
            "LFFR, degree 3": (partial(rules.lffr, x, y, link=PAPER_LINK), 1.0),
            "ImprovedLFFR": (partial(rules.improved, x, y), 1.0),
            f"ImprovedLFFR, floor {FLOOR:g}": (partial(rules.improved, x, y, floor=floor), 1.0),
        }
        ends: dict[str, float] = {}
        for label, (rule, unit) in families.items():
            began = time.perf_counter()
            goal = raw if label == "LR" else y
            course = [mse(found / unit, goal / unit) for found in rule(steps)]
            seconds = time.perf_counter() - began
            curves.append(Curve(name, label, course))
            ends[label] = course[-1]
            rows += [
                Row(
                    quantity=f"{name}, {label}, after {t}: MSE / range²",
                    ours=course[t - 1],
                    seconds=seconds if t == shown[-1] else None,
                    note=f"least squares {best:.5f}" if t == shown[-1] else "",
                )
                for t in shown
            ]
        if ends["YnormdLR"] < ends["ImprovedLFFR"]:
            notes.append(f"{name}: YnormdLR is ahead of ImprovedLFFR after {steps} iterations")
    return Result(
        rows=tuple(rows),
        notes=tuple(notes),
        draw=lambda: curves_figure(curves, axis="MSE / range²", log=True),
    )


ABOUT = About(
    title="mean squared error by iteration: LR, YnormdLR, LFFR, ImprovedLFFR",
    verdict=CORRECTED,
    finding="all four algorithms, with the sign of equation (3) mended",
    data=SETS,
    unknown=(
        "every value: the figures and the results section are missing from the paper",
        "n, d and sigma of the random data: 1,000, 10 and 0.1 here",
        "how attributes with missing cells or categories are coded",
    ),
    remarks=(
        "equation (3) adds the gradient of a loss that it minimises: a minus here "
        "(protocols/models/lffr.py)",
    ),
    seconds=2,
)
