"""Are hazard ratios with noise as private, and as near the truth, as they say?

    python -m sims.lab.studies.hazards [--runs 1000000] [--studies 1000] [--out FILE]

**Private.** One person is replaced by another, of many corners the two whose parts of all seven
sums are furthest apart. The coordinator and all owners but the honest ones of the plans see the
sums, and subtract what they know. `audits.privacy.lower_bounds` makes an epsilon of the
log-likelihood ratio of so many runs, all values of all sums drawn; the claim must be above. A
second accountant (dp-accounting, from the bounds over the noise of the plans) must say the same.

**Near.** Studies with Weibull lifetimes, which no few intervals fit, and uniform censoring, in
float64 from the very row functions and budgets: how often intervals hold the true log hazard
ratios, and how large the errors are. Settings with flags have a number and four flags for
covariates; that with tails exponentials, up to 1 of a spread of 1/10.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ciphercohort.study.private_cox import BINS, COUNTED, FIRST, INTERVALS, MULTIPLIED
from parties.kernel.study.lifetimes import Lifetimes
from parties.kernel.study.person_time import PersonTime
from parties.kernel.sums.products import Products
from protocols.errors import PrivacyError
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.loss import epsilon_for_mu
from protocols.statistics.inference.budget import COUNTED as INFORMED
from protocols.statistics.inference.budget import TOWARDS, left_mu
from protocols.statistics.inference.estimate import Noisy, private_steps, safe_step
from protocols.statistics.inference.objective import ProductsObjective
from protocols.statistics.study.objectives import LifetimesObjective, PersonTimeObjective
from protocols.statistics.study.weighted import Flags, weighted
from protocols.statistics.study.whitened import counts, read, whitened
from protocols.sums.one_sum import OneSum
from protocols.sums.plan import GradientPlan
from sims.lab.audits.privacy import chunks, lower_bounds
from sims.lab.audits.second_accountant import gaussian_epsilon
from sims.lab.studies.curves import arguments

Array = NDArray[np.float64]
DELTA, CONFIDENCE, CHUNK = 1e-5, 0.999, 20_000
EFFECTS = (0.8, -0.5, 0.3, 0.0, 0.6)
"""Log hazard ratios of covariates on [-1, 1], the spread of each SPREAD."""
SPREAD, SHAPE, REACH = 0.35, 1.3, 1.959964
FLAGS = (0.5, 0.3, 0.1, 0.05)
"""How often covariates that are 0 or 1 are 1: persons of the last weigh least."""
TAIL = 0.1
"""Mean and spread of covariates with long tails."""


def people(
    rng: np.random.Generator, rows: int, shares: Sequence[float] = (), *, tails: bool = False
) -> tuple[Array, Array]:
    """Covariates and a bias, then time on [0, 1] and event; shares: of ones, of the last ones."""
    effects = np.array(EFFECTS)
    x = np.clip(rng.normal(0, SPREAD, (rows, len(effects))), -1, 1)
    if tails:
        x = np.minimum(rng.exponential(TAIL, x.shape), 1)
    if shares:
        x[:, -len(shares) :] = rng.random((rows, len(shares))) < shares
    death = 0.8 * rng.weibull(SHAPE, rows) * np.exp(-x @ effects / SHAPE)
    leaves = rng.uniform(0.2, 1.0, rows)
    stay = np.column_stack([np.minimum(death, leaves), death <= leaves])
    return np.column_stack([x, np.ones(rows)]), stay.astype(np.float64)


def fitted(
    rng: np.random.Generator,
    x: Array,
    y: Array,
    epsilon: float,
    delta: float = DELTA,
    flags: Flags = (),
) -> tuple[Any, PersonTime]:
    """Estimate and covariance in whitened coordinates, and the functions that they are of."""
    rows, mu = len(x), left_mu(epsilon, delta, ())
    columns = tuple(range(x.shape[1] - 1))
    table = Lifetimes(bins=BINS, recorded=False)
    norm = math.sqrt(x.shape[1])
    moments = Products(row_norm=norm, outputs=2)
    std = table.moves("") / (mu * math.sqrt(COUNTED))
    cells = table.exact_sum(x, y, "").values.reshape(table.shape)[0]
    cells = cells + std * rng.standard_normal(cells.shape)
    tau = moments.moves("") / (mu * math.sqrt(MULTIPLIED))
    noise = rng.standard_normal((x.shape[1], x.shape[1]))
    products = x.T @ x + tau * (noise + noise.T) / 2
    found = counts(cells, std)
    start = whitened(found, products, tau, rows, INTERVALS, columns, late=False)

    def ask(point: Array, cost: float) -> Noisy:
        function = replace(start, theta=tuple(point.tolist()))
        sigma = function.moves("") / cost
        total = function.parts(x, y).sum(axis=0)
        total = total + sigma * rng.standard_normal(total.shape)
        return Noisy(point, *read(function, total), sigma, sigma / function.kappa)

    first = ask(np.zeros(len(start.theta)), mu * math.sqrt(FIRST))
    point = safe_step(first.theta, first.score, first.information, first.tau)
    left = mu * math.sqrt(1 - COUNTED - MULTIPLIED - FIRST)
    return weighted(private_steps(point, left, ask)[0], start, found, flags), start


def cover(
    rows: int,
    epsilon: float,
    studies: int,
    seed: int = 0,
    shares: Sequence[float] = (),
    *,
    tails: bool = False,
) -> dict[str, Any]:
    """Coverage of 95 % intervals, errors, and how much of the standard errors is noise."""
    flags = [(len(EFFECTS) - 1 - k,) for k in range(len(shares))]
    rng, d = np.random.default_rng([seed, rows, round(10 * epsilon)]), len(EFFECTS)
    hits, errors, sizes, noise, refused = (list[Any]() for _ in range(5))
    for _ in range(studies):
        try:
            x, y = people(rng, rows, shares, tails=tails)
            estimate, start = fitted(rng, x, y, epsilon, flags=flags)
        except PrivacyError as error:
            refused.append(str(error))
            continue
        matrix = np.array(start.matrix).reshape(d, d)
        own = slice(len(start.base), None)
        found = matrix.T @ estimate.theta[own] - EFFECTS
        variance, added = (
            np.diag(matrix.T @ each[own, own] @ matrix)
            for each in (estimate.covariance, estimate.noise)
        )
        hits.append(np.abs(found) <= REACH * np.sqrt(variance))
        errors.append(found)
        sizes.append(np.sqrt(variance))
        noise.append(added / variance)
    return {
        "rows": rows,
        "epsilon": epsilon,
        "flags": list(shares),
        "tails": tails,
        "studies": studies,
        "refused": len(refused),
        "coverage": float(np.mean(hits)) if hits else None,
        "by_covariate": np.mean(hits, axis=0).round(3).tolist() if hits else None,
        "bias": np.mean(errors, axis=0).round(4).tolist() if hits else None,
        "root_mean_square": float(np.sqrt(np.mean(np.square(errors)))) if hits else None,
        "largest_error": float(np.median(np.abs(errors).max(axis=1))) if hits else None,
        "standard_error": float(np.mean(sizes)) if hits else None,
        "width_over_error": (np.mean(sizes, axis=0) / np.std(errors, axis=0)).round(3).tolist()
        if hits
        else None,
        "of_it_noise": float(np.mean(noise)) if hits else None,
    }


def series(rows: int, epsilon: float, seed: int = 0) -> list[tuple[OneSum, GradientPlan]]:
    """The seven sums over a study of two owners, at the point where it starts, with their plans."""
    d, mu = len(EFFECTS), left_mu(epsilon, DELTA, ())
    start = fitted(np.random.default_rng(seed), *people(np.random.default_rng(seed), rows), epsilon)
    hazards = PersonTimeObjective(adds=start[1], epsilon_in_all=epsilon)
    table = LifetimesObjective(adds=Lifetimes(bins=BINS, recorded=False), exact=False)
    norm = math.sqrt(d + 1)
    moments = ProductsObjective(row_norm=norm, outputs=2, epsilon_in_all=epsilon)
    left = 1 - COUNTED - MULTIPLIED - FIRST
    tasks: list[tuple[OneSum, float]] = [(table, COUNTED), (moments, MULTIPLIED), (hazards, FIRST)]
    tasks += [(hazards, left * share) for share in (*TOWARDS, *INFORMED)]
    figures = PublicFigures(
        rows_by_party=(rows // 2, rows - rows // 2), num_features=d + 1, norm_bound=norm
    )
    wanted = Wanted(update="gd", epsilon=epsilon, delta=DELTA, colluders=0)
    return [(task, plan_sum(figures, wanted, task, mu * math.sqrt(s))) for task, s in tasks]


def attack(rows: int, epsilon: float, runs: int, seed: int = 0) -> dict[str, float]:
    """Epsilon as promised, by dp-accounting, and found against all seven sums at once, at DELTA.

    One person is replaced by another, of many corners those that are furthest apart; runs: of both
    tables together.

    Raises:
        PrivacyError: a certificate does not hold.
    """
    found, rng = series(rows, epsilon, seed), np.random.default_rng(seed)
    corners = np.sign(rng.standard_normal((60, len(EFFECTS))))
    x = np.column_stack([corners, np.ones(len(corners))])
    ratios, moves = list[float](), list[Array]()
    for task, plan in found:
        Mechanism.from_plan(plan, math.sqrt(x.shape[1])).require()
        std, function = plan.noise_scales[0] * rows, task.row_function
        ratios.append(function.moves("") / std)
        of_each = [
            function.exact_sum(own[None], np.array([[time, event]]), "").values / std
            for own in x
            for time in (0.02, 0.3, 1.0)
            for event in (0.0, 1.0)
        ]
        moves.append(np.array(of_each))
    parts = np.concatenate(moves, axis=1)
    apart = np.linalg.norm(parts[:, None] - parts[None], axis=2)
    one, other = np.unravel_index(int(apart.argmax()), apart.shape)
    move, scores = parts[one] - parts[other], list[Array]()
    for present in (1.0, -1.0):
        own = [
            (present * move / 2 + rng.standard_normal((size, len(move)))) @ move
            for size in chunks(runs // 2, CHUNK)
        ]
        scores.append(np.concatenate(own))
    error = (1 - CONFIDENCE) / 4
    direct, mu = lower_bounds(*scores, delta=DELTA, additive=0.0, error=error)
    return {
        "rows": rows,
        "claimed": epsilon,
        "dp_accounting": gaussian_epsilon(ratios, delta=DELTA),
        "attacked": max(direct, epsilon_for_mu(mu=mu, delta=DELTA) if mu > 0 else 0.0),
        "runs": runs,
    }


def main() -> None:
    """The attack, then coverage of several sizes."""
    asked = arguments(__doc__)
    lines: list[dict[str, Any]] = [
        {"attack": attack(4000, epsilon, asked.runs)} for epsilon in (1.0, 4.0)
    ]
    for line in lines:
        print(json.dumps(line), flush=True)
    settings: tuple[tuple[int, float, dict[str, Any]], ...] = (
        (4000, 1.0, {}),
        (10_000, 1.0, {}),
        (2000, 4.0, {}),
        (4000, 4.0, {"shares": FLAGS}),
        (4000, 4.0, {"shares": FLAGS, "seed": 1}),
        (4000, 4.0, {"tails": True}),
    )
    for rows, epsilon, more in settings:
        lines.append(cover(rows, epsilon, asked.studies, **more))
        print(json.dumps(lines[-1]), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
