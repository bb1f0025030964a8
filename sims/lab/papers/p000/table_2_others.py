"""Table II's rule on the other public sets of Figures 1 to 3, in float64: 5-fold, no printed row.

Enhanced Nesterov, 4 iterations, degree 5: credit for "the private financial dataset", and digits 3
and 8 of scikit-learn for MNIST's.
"""

from __future__ import annotations

import time

import numpy as np

from sims.lab.papers.chiang import digits
from sims.lab.papers.data import CREDIT
from sims.lab.papers.folds import Table, plain_folds
from sims.lab.papers.item import STAND_IN, About, Result, Row, Settings

FOLDS, SHUFFLES = 5, 10


def run(settings: Settings) -> Result:
    """Means over shuffles, beside the share of the larger class."""
    credit = Table.of("credit", settings.load(CREDIT), "class")
    tables = [credit, Table.of("digits 3 v 8", digits(), "y")]
    rows = []
    for table in tables:
        began = time.perf_counter()
        shuffles = settings.repetitions(SHUFFLES, 2)
        found = np.array([plain_folds(table, FOLDS, 1 + k) for k in range(shuffles)])
        share = float(table.frame[table.schema.label.name].mean())
        for k, (name, note) in enumerate(
            (
                ("accuracy [%]", f"larger class alone {100 * max(share, 1 - share):.2f}"),
                ("AUC", ""),
            )
        ):
            column = found[:, k] * (1.0 if k else 100.0)
            rows.append(
                Row(
                    quantity=f"{table.name}: {name}, mean of {shuffles} shuffles",
                    ours=float(column.mean()),
                    std_error=float(column.std(ddof=1)),
                    seconds=None if k else time.perf_counter() - began,
                    note=note,
                )
            )
    return Result(rows=tuple(rows))


ABOUT = About(
    title="the rule of Table II on credit and digits, 5-fold, float64",
    verdict=STAND_IN,
    finding="Table II's rule on other public sets",
    data=(CREDIT,),
    unknown=("the paper prints no accuracy for these sets",),
    seconds=30,
)
