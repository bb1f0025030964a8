"""Figure 1: Nesterov's method and its enhancement by the quadratic gradient.

NAG at the paper's rate 10 / (t + 1) and with FISTA's constants (step 1 / L, a_0 = 1); enhanced NAG
at the figures' N_t = 1 + 10 / (n t) and at 1 + 0.9^t of the encrypted experiments.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sims.lab.papers.chiang import SETS, UNKNOWN, Array, Rule, beside
from sims.lab.papers.item import STAND_IN, About, Result, Settings
from sims.lab.papers.rules import enhanced, nesterov

PLAIN, ENHANCED = "NAG, 10/(t+1)", "enhanced NAG, 1+10/(n t)"


def fista(rows: Array, signs: Array, steps: int) -> Iterator[Array]:
    """Beck and Teboulle's: L the largest eigenvalue of X^T X / (4 n)."""
    largest = float(np.linalg.eigvalsh(rows.T @ rows / (4 * len(rows)))[-1])
    return nesterov(rows, signs, steps, lambda t: 1 / largest, first=1.0)


def figures_rate(rows: Array, signs: Array, steps: int) -> Iterator[Array]:
    """N_t = 1 + 10 / (n t), t from 1."""
    return enhanced(rows, signs, steps, lambda t: 1 + 10 / (len(rows) * (t + 1)))


def run(settings: Settings) -> Result:
    """Four rules on every set."""
    families: dict[str, Rule] = {
        PLAIN: nesterov,
        "NAG, FISTA": fista,
        ENHANCED: figures_rate,
        "enhanced NAG, 1+0.9^t": enhanced,
    }
    return beside(settings, families, PLAIN, ENHANCED)


ABOUT = About(
    title="NAG and enhanced NAG on the paper's sets",
    verdict=STAND_IN,
    finding="the paper's rules on its public sets, on others for the rest",
    data=SETS,
    unknown=UNKNOWN,
    remarks=(
        "the text's N_t = 1 + 10/(1+t) diverges; Algorithm 1's 1 + lr/(n t) is taken here "
        "(protocols/updates/quadratic.py)",
    ),
    seconds=10,
)
