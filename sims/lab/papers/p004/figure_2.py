"""Figure 2: the training objective by epoch of SCD, SGD and their private kinds.

Ridge, see `ridge_problem`. SCD and SGD: no noise, no clipping.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from protocols.updates.coordinate import DualPlan
from sims.lab.baselines import DpSgd
from sims.lab.papers.coordinate import DELTA, exact, published_std, sgd_course
from sims.lab.papers.coordinate_baselines import train_published
from sims.lab.papers.coordinate_problems import Array, Problem, ridge_problem, stands_in
from sims.lab.papers.curves import Curve, curves_figure
from sims.lab.papers.data import ADULT, ADULT_TEST, YEARS
from sims.lab.papers.item import STAND_IN, About, Result, Row, Settings

LAM, BATCHES, EPOCHS = 1e-2, 16, 20
STEP_CLIP = 0.3
RATE, GRADIENT_CLIP = 1.0, 1.0
PRIVATE = (0.1, 1.0)


def plan_of(problem: Problem, epochs: int) -> DualPlan:
    """Without clipping."""
    return DualPlan(
        loss=problem.loss,
        lam=LAM,
        rows=len(problem.fit.x),
        batches=BATCHES,
        rounds=epochs * BATCHES,
        clip=math.inf,
    )


def dual_course(problem: Problem, plan: DualPlan, std: float) -> list[float]:
    """The objective after every epoch."""
    found: list[float] = []

    def watch(t: int, v: Array, alpha: Array) -> None:
        if (t + 1) % plan.batches == 0:
            found.append(problem.objective(plan.theta(v), plan.lam))

    train_published(plan, problem.fit.x, problem.fit.y, std, np.random.default_rng(0), watch)
    return found


def run(settings: Settings) -> Result:
    """Six courses."""
    problem, epochs = ridge_problem(settings), 3 if settings.quick else EPOCHS
    plan = plan_of(problem, epochs)
    best = problem.objective(exact(problem, LAM), LAM)
    descent = DpSgd(
        loss=problem.loss,
        lam=LAM,
        batches=BATCHES,
        rounds=plan.rounds,
        clip=1e9,
        rate=RATE,
    )
    shown, curves = [], []
    clipped = replace(plan, clip=STEP_CLIP / (1 + plan.curvature))
    for epsilon in (None, *PRIVATE):
        began = time.perf_counter()
        mine = plan if epsilon is None else clipped
        std = 0.0 if epsilon is None else published_std(mine, epsilon, DELTA)
        dual = dual_course(problem, mine, std)
        middle = time.perf_counter()
        other = descent if epsilon is None else replace(descent, clip=GRADIENT_CLIP)
        noise = 0.0 if epsilon is None else other.noise_std(epsilon=epsilon, delta=DELTA)
        rng = np.random.default_rng(1)
        path = [problem.objective(w, LAM) for w in sgd_course(problem, other, noise, rng)]
        words = "" if epsilon is None else f", epsilon {epsilon:g}"
        names = ("SCD", "SGD") if epsilon is None else ("DP-SCD", "DP-SGD")
        times = (middle - began, time.perf_counter() - middle)
        for name, course, seconds in zip(names, (dual, path), times, strict=True):
            label = f"{name}{words}"
            swing = float(np.std(course[len(course) // 2 :]))
            shown.append(
                Row(
                    quantity=f"{label}: objective above its least after {epochs} epochs",
                    ours=course[-1] - best,
                    seconds=seconds,
                    note=f"standard deviation over the last half {swing:.2g}",
                )
            )
            curves.append(Curve(f"ridge, {problem.name}", label, [c - best for c in course]))
    return Result(
        rows=tuple(shown),
        notes=(problem.source, *stands_in(problem)),
        draw=lambda: curves_figure(
            curves, axis="objective above its least", log=True, along="epoch"
        ),
    )


ABOUT = About(
    title="noise and convergence of coordinate descent and gradient descent",
    verdict=STAND_IN,
    finding="the four methods' courses on other rows",
    data=(YEARS, ADULT, ADULT_TEST),
    unknown=("the figure's values: an image; batches and clips that it has",),
    remarks=(
        "the text: private runs end above the optimum and swing more at epsilon 0.1; DP-SCD at 1 "
        "is almost as fast as SGD",
    ),
    seconds=5,
)
