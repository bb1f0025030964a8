"""Figure 2: Adagrad at rate 0.01 and, on the quadratic gradient, at 0.07."""

from __future__ import annotations

from functools import partial

from sims.lab.papers.chiang import SETS, enhanced_beside
from sims.lab.papers.item import CORRECTED, About
from sims.lab.papers.rules import adagrad

run = partial(enhanced_beside, name="Adagrad", rule=adagrad, plain=0.01, better=0.07)

ABOUT = About(
    title="Adagrad and enhanced Adagrad on the paper's sets",
    verdict=CORRECTED,
    finding="the constant bound cancels: enhanced Adagrad is Adagrad at another rate",
    data=SETS,
    remarks=(
        "the printed steps have a minus where the likelihood is maximised: a plus here",
        "enhanced Adagrad at 0.07 is Adagrad at 0.07 but for eps, so that the gain is that of the "
        "rate (tests/lab/papers/test_p000.py)",
    ),
    seconds=6,
)
