r"""Figure 5: the same descent with a barrier stays within the interval of its polynomial.

adult, degree 7 on [-7, 7]. Theorem 3 without noise in training, with B the largest norm of a row:
the least lambda, to 1 %, for which `certificates.barrier.check` finds every condition to hold, and
B R at most 7. So |z| <= 7 for ever; the paper saw it for 1086 steps.

d, the gradient's norm at 0 over B, is 1/2 for any rows. **Remark 5.3** takes that of these rows,
which is one more noisy sum: of sensitivity B / N, with the noise that each of T + 1 releases has at
the paper's epsilon; what is used is the release plus QUANTILE of its standard deviations.

NOT PRIVATE: the noise of d is seeded float64.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from protocols.numerics.approximation import Approximation, Polynomial, reciprocal_approximation
from protocols.privacy.certificates.barrier import BarrierSetting, check
from protocols.privacy.certificates.certificate import Certificate
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.budget import Budget
from protocols.updates.barrier import Barrier
from sims.lab.papers.barrier import (
    EPSILON,
    Floats,
    Rows,
    barrier_rule,
    full_multiplier,
    plain_rows,
)
from sims.lab.papers.curves import Curve, curves_figure
from sims.lab.papers.data import ADULT, ADULT_TEST
from sims.lab.papers.item import STAND_IN, About, Result, Row, Settings
from sims.lab.papers.p003.figure_3 import interpolant, optimum_of, weights_of
from sims.lab.papers.p003.figure_4 import PAPER_STEP, RADIUS, rate_of

SHARE, KAPPA, STEP = 0.95, 0.3, 0.25
"""Of the ball in the interval; kappa; times 1 / beta (at 1 / beta condition (1) fails)."""
LAMBDAS = np.geomspace(0.05, 3.0, 12)
QUANTILE = 4.3
"""Of d's noise, in its standard deviations; P(beyond) < 1e-5, the paper's delta."""
ANY, RELEASED = "d of any rows", "d of these rows"


def released_d(rows: Rows, seed: int = 0) -> float:
    """Remark 5.3: no less than |grad f(0)| / B, but for the noise's tail."""
    norm, count = math.sqrt(rows.x.shape[1]), len(rows.x)
    std = full_multiplier(PAPER_STEP + 1, EPSILON) / count
    own = float(np.linalg.norm((0.5 - rows.y) @ rows.x / count)) / norm
    noise = float(np.random.default_rng(seed).standard_normal())
    return min(0.5, own + std * (noise + QUANTILE))


def certified(rows: Rows, rate: float, d: float, tries: int = 8) -> Certificate | None:
    """The least lambda that Theorem 3 allows at this step; tries: bisections, by ratio."""
    norm = math.sqrt(rows.x.shape[1])
    # 1/2 plus an odd polynomial, which the sensitivity asks for and the interpolant is to rounding
    powers = interpolant(RADIUS).coefficients
    odd = tuple(0.5 if k == 0 else c if k % 2 else 0.0 for k, c in enumerate(powers))
    theta = (SHARE * RADIUS / norm) ** 2
    start = BarrierSetting(
        rows=len(rows.x),
        features=rows.x.shape[1],
        norm_bound=norm,
        sigmoid=Approximation.unchecked(Polynomial(coefficients=odd, center=0.0, radius=RADIUS)),
        sigma=0.0,
        budget=Budget(epsilon=None, delta=0.5, split=NoiseSplit(parties=1, colluders=0)),
        theta=theta,
        lam=1.0,
        kappa=KAPPA,
        learning_rate=rate,
        rounds=PAPER_STEP,
        reciprocal=reciprocal_approximation(1, KAPPA * theta, theta),
    )

    def allowed(lam: float) -> Certificate | None:
        found = check(replace(start, lam=float(lam)), gradient_at_zero=d)
        return found if found.satisfied and found.figures["interval"] <= RADIUS else None

    first = next((k for k, lam in enumerate(LAMBDAS) if allowed(lam)), None)
    if first is None:
        return None
    low, high = float(LAMBDAS[max(0, first - 1)]), float(LAMBDAS[first])
    for _ in range(tries):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if allowed(middle) else (middle, high)
    return allowed(high)


def run(settings: Settings) -> Result:
    """Largest |z| and accuracy of the least barrier, by d."""
    rows = plain_rows(ADULT, settings)
    base = rate_of(rows, interpolant(RADIUS))
    steps, tries = (100, 1) if settings.quick else (4000, 8)
    shown, curves, notes = [], [], []
    majority = max(float(rows.test_y.mean()), 1 - float(rows.test_y.mean()))
    for words, d in ((ANY, 0.5), (RELEASED, released_d(rows))):
        began, found = time.perf_counter(), certified(rows, STEP * base, d, tries)
        if found is None:
            shown.append(Row(quantity=f"{words}: least lambda", ours=None, note="none"))
            continue
        rule, link = barrier_rule(found.setting), found.setting.sigmoid.polynomial
        path: list[float] = []
        end: Floats = np.zeros(rows.x.shape[1])
        step = partial(_step, rule)
        for weights, z in islice(weights_of(rows, link, step), steps):
            path.append(float(np.abs(z).max()))
            end = weights
        accuracy = float(np.mean((rows.test_x @ end > 0) == rows.test_y))
        seconds = time.perf_counter() - began
        shown += [
            Row(quantity=f"{words}: least lambda", ours=found.setting.lam, note=f"d = {d:.3f}"),
            Row(quantity=f"{words}: largest |z|", ours=max(path), paper=RADIUS),
            Row(quantity=f"{words}: accuracy", ours=accuracy, seconds=seconds),
        ]
        curves.append(Curve("barrier", words, path))
        verdict = "no better than" if accuracy <= majority + 0.005 else "better than"
        notes.append(f"{words}: {verdict} the larger class, {majority:.4f}")
    best = float(np.mean((rows.test_x @ optimum_of(rows) > 0) == rows.test_y))
    notes.append(f"{steps} steps of {STEP:g} / beta; the optimum without a barrier has {best:.4f}")
    return Result(
        rows=tuple(shown),
        notes=tuple(notes),
        draw=lambda: curves_figure(curves, axis="largest |z|", best=RADIUS),
    )


def _step(rule: Barrier, weights: Floats, gradient: Floats) -> Floats:
    return np.asarray(rule.step(rule.gradient_factor(0) * gradient, (weights,), 0)[0])


ABOUT = About(
    title="descent with a barrier that keeps to the interval of its polynomial",
    verdict=STAND_IN,
    finding="the least barrier that is certified, with and without Remark 5.3",
    data=(ADULT, ADULT_TEST),
    unknown=("Theta, lambda, kappa and the step",),
    seconds=25,
)
