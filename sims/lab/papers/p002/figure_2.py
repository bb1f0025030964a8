"""Figure 2: the noise of each iteration that the error bound of staged acceleration wants.

mu = 1, L = 20, p = 1, c = 1, a first stage of 13 iterations, K stages. The figure draws
b_t n epsilon / S_1. Its vector form has no axis values; the paper's column is what the published
code computes, which is its curve to the drawing's resolution when two points fix the axis.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.loss.schedule import log_error_weights, optimal_shares
from protocols.updates.strongly_convex import MultiStage
from sims.lab.papers.curves import Curve, curves_figure
from sims.lab.papers.item import CORRECTED, About, Result, Row, Settings

MU, SMOOTHNESS, FIRST = 1.0, 20.0, 13
STAGES = (2, 3, 4, 5)


def rule_of(stages: int) -> MultiStage:
    """K stages; T = 53, 133, 293, 613."""
    common = {"mu": MU, "smoothness": SMOOTHNESS, "first_stage": FIRST, "division": "laplace"}
    lengths = MultiStage(rounds=1, **common)  # type: ignore[arg-type]
    rounds = sum(lengths.length(k) for k in range(1, stages + 1))
    return MultiStage(rounds=rounds, **common)  # type: ignore[arg-type]


def as_published(rule: MultiStage) -> NDArray[np.float64]:
    """b_t n epsilon / S_1 where the last iteration of a stage counts as the next one's."""
    stages = (*rule.stages[1:], rule.stages[-1])
    weights = log_error_weights(rule.rates, stages, mu=MU, smoothness=SMOOTHNESS)
    return 1 / optimal_shares(weights[1:], "laplace")


def run(settings: Settings) -> Result:
    """First, last and largest noise of every number of stages."""
    rows, curves = [], []
    for stages in STAGES:
        began = time.perf_counter()
        rule = rule_of(stages)
        ours, published = 1 / np.array(rule.noise_shares()), as_published(rule)
        seconds = time.perf_counter() - began
        for words, at in (("1", 0), (f"{FIRST}", FIRST - 1), (f"{rule.rounds}", -1)):
            rows.append(
                Row(
                    quantity=f"K = {stages}, T = {rule.rounds}: b_t n eps / S_1 at t = {words}",
                    ours=float(ours[at]),
                    published=float(published[at]),
                    seconds=seconds,
                )
            )
        for label, values in (("Theorem 4.3", ours), ("published code", published)):
            curves.append(Curve(f"K = {stages}, T = {rule.rounds}", label, list(values)))
    return Result(rows=tuple(rows), draw=lambda: curves_figure(curves, axis="b_t n epsilon / S_1"))


ABOUT = About(
    title="noise of each iteration of staged acceleration that the error bound wants",
    verdict=CORRECTED,
    finding="the published code's schedule, then Theorem 4.3's",
    unknown=("the curves' values: a vector figure without axis values",),
    remarks=(
        "the published code counts the last iteration of a stage as the next one's: Theorem 4.3 "
        "in protocols/privacy/loss/schedule.py",
    ),
    seconds=1,
)
