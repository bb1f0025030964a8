"""Table I: Table II's rule on iDASH's rows, with 10 folds."""

from __future__ import annotations

from sims.lab.papers.data import IDASH
from sims.lab.papers.item import CORRECTED, About, Result, Settings
from sims.lab.papers.p000.table_2 import Printed, tabulated

PAPER: Printed = {IDASH: (61.46, 0.696, 4.43, 0.08)}
FOLDS = 10


def run(settings: Settings) -> Result:
    """One set."""
    return tabulated(settings, PAPER, FOLDS)


ABOUT = About(
    title="10-fold cross-validation of enhanced Nesterov, encrypted, 4 iterations",
    verdict=CORRECTED,
    finding="as in table-2",
    data=tuple(PAPER),
    unknown=("as in table-2",),
    seconds=300,
)
