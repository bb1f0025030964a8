"""Figure 3: mean squared error by batch size L and clip C, ridge at epsilon 1.

Rows: see `ridge_problem`. C is in units of a step's natural size, 1 / (1 + c),
c = L / (lambda N): a step from alpha = 0 is y / (1 + c).
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from sims.lab.papers.coordinate import DELTA, dual_plan, published_std
from sims.lab.papers.coordinate_baselines import train_published
from sims.lab.papers.coordinate_problems import ridge_problem, stands_in
from sims.lab.papers.curves import Curve, curves_figure
from sims.lab.papers.data import ADULT, ADULT_TEST, YEARS
from sims.lab.papers.item import STAND_IN, About, Result, Row, Settings

CLIPS = (0.03, 0.1, 0.3, 1.0, 3.0)
BATCHES = (256, 64, 16, 4, 1)
LAM, EPOCHS, EPSILON = 1e-2, 5, 1.0


def run(settings: Settings) -> Result:
    """A curve over L for each C; the least of each is a row."""
    problem = ridge_problem(settings)
    epochs, seeds = (1, 1) if settings.quick else (EPOCHS, settings.repetitions(5, 1))
    batches = (16, 4) if settings.quick else BATCHES
    shown, curves, best = [], [], []
    rows = problem.fit
    sizes = [-(-len(rows.x) // count) for count in batches]
    for clip in CLIPS:
        began, line = time.perf_counter(), []
        for count in batches:
            choice = {"lambda": LAM, "batches": count, "epochs": epochs, "clip": clip}
            plan = replace(dual_plan(problem, choice, "poisson"))
            std = published_std(plan, EPSILON, DELTA)
            errors = [
                problem.error(
                    train_published(plan, rows.x, rows.y, std, np.random.default_rng(seed)),
                    problem.test,
                )
                for seed in range(seeds)
            ]
            line.append(float(np.median(errors)))
        least = int(np.argmin(line))
        best.append(line[least])
        shown.append(
            Row(
                quantity=f"C = {clip:g}: least mean squared error over L",
                ours=line[least],
                seconds=time.perf_counter() - began,
                note=f"at L = {sizes[least]}; by L = "
                + ", ".join(f"{size}: {e:.3f}" for size, e in zip(sizes, line, strict=True)),
            )
        )
        curves.append(
            Curve("ridge, epsilon 1", f"C = {clip:g}", line, [math.log10(s) for s in sizes])
        )
    return Result(
        rows=tuple(shown),
        notes=(
            problem.source,
            *stands_in(problem),
            f"the best C is {CLIPS[int(np.argmin(best))]:g}, in units of a step's natural size; "
            f"the best constant has {problem.trivial():.3f}",
        ),
        draw=lambda: curves_figure(
            curves, axis="test mean squared error", log=True, along="log10 of the batch size L"
        ),
    )


ABOUT = About(
    title="batch size and clip of private coordinate descent",
    verdict=STAND_IN,
    finding="the grid of batches and clips on other rows",
    data=(YEARS, ADULT, ADULT_TEST),
    unknown=("the figure's values: an image; C = 0.5 is best there, for other rows and labels",),
    remarks=(
        "the text: a smaller C wants a larger L, a larger C a larger error; a step's size falls "
        "with L: parties/kernel/sums/dual_steps.py",
    ),
    seconds=20,
)
