"""Figure 3: Adam at rate 0.001 and, on the quadratic gradient, at 0.011."""

from __future__ import annotations

from functools import partial

from sims.lab.papers.chiang import SETS, enhanced_beside
from sims.lab.papers.item import CORRECTED, About
from sims.lab.papers.rules import adam

run = partial(enhanced_beside, name="Adam", rule=adam, plain=0.001, better=0.011)

ABOUT = About(
    title="Adam and enhanced Adam on the paper's sets",
    verdict=CORRECTED,
    finding="the constant bound cancels: enhanced Adam is Adam at another rate",
    data=SETS,
    remarks=(
        "enhanced Adam at 0.011 is Adam at 0.011 but for eps (tests/lab/papers/test_p000.py)",
    ),
    seconds=8,
)
