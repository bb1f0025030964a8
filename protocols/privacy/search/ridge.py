"""Data-independent search for a certified ridge setting; see `search`.

Everything is computed for rows of norm 1 and then rescaled: with w~ = B w, the learning rate is
eta~ / B^2, lam = lam~ B^2 and sigma = sigma~ B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from protocols.numerics.approximation import Approximation, Method, sigmoid_approximation
from protocols.privacy.certificates.descent_bound import DescentBound
from protocols.privacy.certificates.problem import Problem
from protocols.privacy.certificates.ridge import RidgeSetting, check
from protocols.privacy.certificates.sensitivity import diameter
from protocols.privacy.search.strategy import Strategy
from protocols.privacy.search.utility import Candidate, Moments, log_loss

Floats = NDArray[np.float64]

INTERVALS = tuple(np.geomspace(3.0, 24.0, 16).tolist())
WHITENED_INTERVALS = tuple(np.geomspace(6.0, 48.0, 16).tolist())
"""Whitened rows have short axes, and their weights are longer."""
MARGIN = 1e-3
_GRID = 801
_PENALTIES = np.geomspace(1e-5, 0.5, 60)


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A setting that is likely to be certified, for rows of norm 1 and of Lambda = spectrum."""

    approximation: Approximation
    learning_rate: float
    lam: float
    rounds: int
    sigma: float
    noise: float
    spectrum: float = 1.0

    @property
    def degree(self) -> int:
        """Of the sigmoid."""
        return self.approximation.polynomial.degree


def drafts(problem: Problem) -> Iterator[Draft]:
    """For each polynomial, learning rate and T, the least penalty whose ball fits the interval.

    Learning rates are for rows of norm 1; without noise 1 / (Lambda max|p'|), which is 1/beta
    (arXiv:2605.27782, Theorem 1).
    """
    budget, features = problem.budget, problem.features
    per_round = {
        t: budget.sigma(rounds=t, sensitivity=1.0, rows=problem.rows) * (1 + 1e-6)
        for t in problem.tried_rounds()
    }
    wide = problem.spectrum is not None or problem.steps is not None
    intervals = WHITENED_INTERVALS if wide else INTERVALS
    saturates = problem.steps is not None and problem.steps.saturates
    for approximation in _approximations(problem.degrees, intervals, saturates):
        p = approximation.polynomial
        radius = p.radius
        z: Floats = np.linspace(-radius, radius, _GRID).astype(np.float64)
        residual = 1 - p(z)
        spread = (
            diameter(p, norm_bound=1.0, radius=radius, cells=400)
            if any(per_round.values())
            else 0.0
        )
        smooth = (1.0 / (approximation.max_slope * problem.longest),)
        for t, unit in per_round.items():
            sigma = spread * unit
            noise = budget.total_std(sigma)
            for eta in smooth if budget.epsilon is None else _rates(problem, t, noise):
                square = 0.5 * eta * problem.longest * residual**2
                lam = _least_penalty(
                    z * residual, square, radius, eta, t, features, noise, budget.bound_failure
                )
                if lam is not None:
                    yield Draft(
                        approximation=approximation,
                        learning_rate=eta,
                        lam=lam,
                        rounds=t,
                        sigma=sigma,
                        noise=noise,
                        spectrum=problem.longest,
                    )


def _rates(problem: Problem, rounds: int, noise: float) -> Sequence[float]:
    if problem.steps is None:
        return problem.learning_rates
    size = {"rows": problem.rows, "features": problem.features}
    return (
        problem.steps.learning_rate(spectrum=problem.longest, rounds=rounds, noise=noise, **size),
    )


def _approximations(
    degrees: Sequence[int], intervals: Sequence[float], saturates: bool
) -> Iterator[Approximation]:
    """Polynomials worth trying: of least push, and least squares, of a smaller diameter."""
    methods: tuple[Method, ...] = ("saturating",) if saturates else ("least-push", "least-squares")
    for degree, interval, method in product(degrees, intervals, methods):
        yield sigmoid_approximation(degree, interval, method)


def _least_penalty(
    linear: Floats,
    square: Floats,
    radius: float,
    learning_rate: float,
    rounds: int,
    features: int,
    noise: float,
    failure: float,
) -> float | None:
    """The least lam with G(R) <= R^2 and MARGIN to spare; None if there is none."""

    def fits(lam: float) -> bool:
        bound = DescentBound(
            learning_rate=learning_rate,
            alpha=learning_rate * lam,
            rounds=rounds,
            features=features,
            norm_bound=1.0,
            noise=noise,
            failure=failure,
        )
        push = float(np.max((1 - learning_rate * lam) * linear + square))
        return bound.squared_bound(radius, push) <= radius**2 * (1 - MARGIN)

    if fits(0.0):
        return 0.0
    allowed = _PENALTIES[_PENALTIES * learning_rate < 1]
    low, high = 0, allowed.size
    while low < high:
        middle = (low + high) // 2
        if fits(float(allowed[middle])):
            high = middle
        else:
            low = middle + 1
    return float(allowed[low]) if low < allowed.size else None


def merits(found: Sequence[Draft], features: int, population: Moments | None) -> Floats:
    """Expected log loss of each draft."""
    candidates = [
        Candidate(
            rates=(draft.learning_rate,) * draft.rounds,
            noise=draft.noise,
            link=draft.approximation.polynomial,
            strength=draft.lam,
        )
        for draft in found
    ]
    return log_loss(candidates, features=features, population=population)


def setting(draft: Draft, problem: Problem) -> RidgeSetting:
    """A draft in the rows' own units, with the noise that the final sensitivity needs."""
    p, norm_bound = draft.approximation.polynomial, problem.norm_bound
    exact = diameter(p, norm_bound=norm_bound, radius=p.radius / norm_bound)
    widened = exact + 2 * problem.encryption_error * math.sqrt(problem.features)
    sigma = problem.budget.sigma(rounds=draft.rounds, sensitivity=widened, rows=problem.rows)
    return RidgeSetting(
        **problem.common,
        lam=draft.lam * norm_bound**2,
        learning_rate=draft.learning_rate / norm_bound**2,
        rounds=draft.rounds,
        sigmoid=draft.approximation,
        sigma=sigma * (1 + 1e-9),
    )


STRATEGY = Strategy(drafts, merits, setting, check, "descent_bound")
