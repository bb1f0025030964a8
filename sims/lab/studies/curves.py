"""Are survival curves with noise as private, and as near the truth, as they say?

    python -m sims.lab.studies.curves [--runs 1000000] [--studies 1000] [--out FILE]

**Private.** One owner's row is an event in the last bin, or the same time without one: their parts
are sqrt(2) |c| apart, as far as any two. The coordinator and all owners but the honest ones of the
plan see the sum, and subtract what they know. `audits.privacy.lower_bounds` makes an epsilon of
the log-likelihood ratio of so many runs, all values of the sum drawn; the claim must be above. A
second accountant (dp-accounting, from the plan's own words) must say the same.

**Near.** Studies of exponential lifetimes, two arms alike, and exponential censoring, from the
mechanism's own cells: how often the band holds the true curve at eight times, how often the
interval of the restricted mean holds the true one of the grid, and how often the log-rank test at
5 % finds a difference. Greenwood's bands alone, with the same noise, stand beside them, and the
stated standard errors over the true ones.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.kernel.study.lifetimes import Lifetimes, square_root
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.loss import epsilon_for_mu
from protocols.statistics.study.noisy import Noise
from protocols.statistics.study.objectives import LifetimesObjective
from protocols.sums.plan import GradientPlan
from sims.lab.audits.privacy import chunks, lower_bounds
from sims.lab.audits.second_accountant import gaussian_epsilon

Array = NDArray[np.float64]
DELTA, CONFIDENCE, CHUNK = 1e-5, 0.999, 20_000
HAZARD, CENSORING, TAU = 1.2, 0.6, 0.6
"""Of times on [0, 1]; what is left at 1 is censored there."""
POINTS = np.arange(1, 9) / 10
REACH = 1.959964


def plan_of(rows: int, bins: int, groups: int, epsilon: float) -> GradientPlan:
    """Two owners, of whom one may be the adversary's."""
    adds = Lifetimes(bins=bins, recorded=False, groups=tuple(range(groups)), factored=True)
    figures = PublicFigures(
        rows_by_party=(rows // 2, rows - rows // 2), num_features=groups + 1, norm_bound=1.0
    )
    wanted = Wanted(update="gd", epsilon=epsilon, delta=DELTA, colluders=0)
    return plan_sum(figures, wanted, LifetimesObjective(adds=adds, exact=False))


def attack(
    plan: GradientPlan, runs: int, seed: int = 0, *, certified: bool = True
) -> dict[str, float]:
    """Epsilon as claimed, by dp-accounting, and found, at DELTA.

    runs: of both tables together; certified: whether the claim is checked first.

    Raises:
        PrivacyError: it does not hold.
    """
    if certified:
        Mechanism.from_plan(plan, 1.0).require()
    adds: Lifetimes = plan.task.adds  # type: ignore[attr-defined]
    rng = np.random.default_rng(seed)
    x = np.zeros((1, plan.num_features))
    move = np.subtract(
        *(
            adds.exact_sum(x, np.array([[1.0, event]]), "a").values / plan.num_rows
            for event in (1.0, 0.0)
        )
    )
    std = plan.noise_scales[0]  # what the honest guarantee
    scores = []
    for present in (1.0, -1.0):
        own = [
            (present * move / 2 + std * rng.standard_normal((size, len(move)))) @ move
            for size in chunks(runs // 2, CHUNK)
        ]
        scores.append(np.concatenate(own))
    error = (1 - CONFIDENCE) / 4
    direct, mu = lower_bounds(*scores, delta=DELTA, additive=0.0, error=error)
    ratio = float(np.linalg.norm(move)) / std
    assert plan.privacy is not None  # noqa: S101 (plans here promise)
    return {
        "claimed": plan.privacy.epsilon,
        "dp_accounting": gaussian_epsilon([ratio], delta=DELTA),
        "attacked": max(direct, epsilon_for_mu(mu=mu, delta=DELTA) if mu > 0 else 0.0),
        "runs": runs,
    }


def study(rng: np.random.Generator, rows: int, bins: int) -> Array:
    """Counts of two arms alike, shape (2, bins, 2)."""
    death, leaves = rng.exponential(1 / HAZARD, rows), rng.exponential(1 / CENSORING, rows)
    time = np.minimum(np.minimum(death, leaves), 1.0)
    event = (death <= leaves) & (death <= 1.0)
    place = np.clip(np.ceil(time * bins).astype(int) - 1, 0, bins - 1)
    table = np.zeros((2, bins, 2))
    np.add.at(table, (rng.integers(0, 2, rows), place, event.astype(int)), 1)
    return table


def cover(rows: int, bins: int, epsilon: float, studies: int, seed: int = 0) -> dict[str, Any]:
    """Coverage of bands and means, size of the test, the curve's median largest error."""
    plan, rng = plan_of(rows, bins, 2, epsilon), np.random.default_rng([seed, rows, bins])
    std = plan.noise_scales[0] * plan.num_rows
    noise, times = Noise(std=std, bins=bins, series=2, factored=True), np.arange(1, bins + 1) / bins
    counts = np.floor(square_root(bins) * 2.0**36) / 2.0**36
    hits, narrow, means, found, errors, gaps, stated = (list[Any]() for _ in range(7))
    # Of times rounded up to the grid.
    mean = float(np.exp(-HAZARD * (times - 1 / bins))[times <= TAU + 1e-9].sum()) / bins
    for _ in range(studies):
        table = study(rng, rows, bins)
        for group in table:
            for own in group.T:
                own[::-1] = np.convolve(own[::-1], counts)[:bins]
        table += std * rng.standard_normal(table.shape)
        curves = [noise.curve(group, times, 0.0, rows) for group in table]
        kept = [curve for curve in curves if curve is not None]
        for curve in kept:
            at = np.searchsorted(times, POINTS - 1e-9)
            at = at[at < (curve.reached or 0)]
            truth = np.exp(-HAZARD * times[at])
            for into, each in ((hits, curve), (narrow, replace(curve, moved=None))):
                low, high = each.band()
                into += [*((low[at] <= truth) & (truth <= high[at]))]
            gaps += [*(curve.survival[at] - truth)]
            stated += [*(curve.survival[at] * np.sqrt(curve.spread[at]))]
            errors.append(float(np.abs(curve.survival[at] - truth).max(initial=0.0)))
            if len(at) and times[(curve.reached or 1) - 1] >= TAU:
                value, se = curve.restricted_mean(TAU)
                means.append(abs(value - mean) <= REACH * se)
        if len(kept) == 2:
            test = noise.log_rank(kept)
            found += [test[2] < 0.05] if test else []
    return {
        "rows": rows,
        "bins": bins,
        "epsilon": epsilon,
        "studies": studies,
        "noise_of_a_number_at_risk": float(noise.spread.max()),
        "bands": float(np.mean(hits)),
        "greenwood_alone": float(np.mean(narrow)),
        "stated_over_error": float(np.linalg.norm(stated) / np.linalg.norm(gaps)),
        "arms_that_reach_tau": len(means) / (2 * studies),
        "restricted_means": float(np.mean(means)) if means else None,
        "log_rank_size": float(np.mean(found)) if found else None,
        "largest_error": float(np.median(errors)),
    }


def arguments(page: str) -> argparse.Namespace:
    """Runs, studies, out: of an attack and of coverage; page: its first line says what is asked."""
    parser = argparse.ArgumentParser(description=page.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--out", type=_file)
    return parser.parse_args()


def _file(text: str) -> Path:
    """Hours later, it is to be written."""
    path = Path(text)
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no file in a folder that there is")
    return path


def main() -> None:
    """The attack, then coverage of several sizes."""
    asked = arguments(__doc__)
    lines: list[dict[str, Any]] = [
        {"attack": attack(plan_of(500, 50, 0, epsilon), asked.runs)} for epsilon in (1.0, 4.0)
    ]
    for line in lines:
        print(json.dumps(line), flush=True)
    for rows, bins in product((300, 1000, 4000), (50, 200)):
        lines.append(cover(rows, bins, 1.0, asked.studies))
        print(json.dumps(lines[-1]), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
