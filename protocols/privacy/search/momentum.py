"""Data-independent search for a certified accelerated setting; see `certificates.momentum`.

Everything is computed for rows of norm 1 and then rescaled: with w~ = B w, the learning rate is
eta~ / B^2 and sigma = sigma~ B. For every polynomial and T the largest steps whose iterates stay in
the interval are found, and smaller ones tried.

The figure of merit is the expected log loss of `utility`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from protocols.numerics.approximation import Approximation, Polynomial, sigmoid_approximation
from protocols.privacy.certificates.momentum import MomentumSetting, check
from protocols.privacy.certificates.momentum_bound import MomentumBound
from protocols.privacy.certificates.problem import Problem
from protocols.privacy.certificates.sensitivity import diameter
from protocols.privacy.search.strategy import Strategy
from protocols.privacy.search.utility import Candidate, Floats, Moments, log_loss
from protocols.updates.momentum import Nesterov

ROUNDS = (1, 2, 3, 4, 6, 8)
INTERVALS = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
SHRINKS = (1.0, 0.7, 0.5)
"""Steps to try, as parts of the largest that fit."""
SLACK = 1 + 1e-6
COIN = math.log(2)
LARGEST_LOSS = 0.69
"""Short enough steps always fit; a run that is expected to learn next to nothing is refused."""
_GRID = 401


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A setting that is likely to be certified, for rows of norm 1.

    spread: D2 as far as a coarse partition tells; noise: of ALL parties; spectrum: Lambda.
    """

    approximation: Approximation
    rule: Nesterov
    spread: float
    sigma: float
    noise: float
    spectrum: float = 1.0

    @property
    def rounds(self) -> int:
        """T."""
        return self.rule.rounds

    @property
    def degree(self) -> int:
        """Of the sigmoid."""
        return self.approximation.polynomial.degree


def worthless(draft: Draft, value: float, features: int) -> str | None:
    """Which condition leaves nothing to learn: the noise, or the short steps; None if much is."""
    if value <= LARGEST_LOSS:
        return None
    silent = float(merits([replace(draft, noise=0.0)], features, None)[0])
    name = "privacy_noise" if value > COIN else "momentum_bound"
    return (
        f"condition {name} leaves an expected log loss of {value:.4f} nats, above "
        f"{LARGEST_LOSS:g}; a coin has {COIN:.4f}, and the same steps without noise {silent:.4f}"
    )


def merits(found: Sequence[Draft], features: int, population: Moments | None) -> Floats:
    """Expected log loss of each draft."""
    candidates = [
        Candidate(
            rates=draft.rule.rates,
            momenta=draft.rule.momenta,
            noise=draft.noise,
            link=draft.approximation.polynomial,
        )
        for draft in found
    ]
    return log_loss(candidates, features=features, population=population)


def drafts(problem: Problem) -> Iterator[Draft]:
    """For every polynomial and T the largest steps that `MomentumBound` allows, and less."""
    budget, longest = problem.budget, problem.longest
    # Noise that one release of sensitivity 1 needs.
    unit = budget.sigma(rounds=1, sensitivity=1.0, rows=problem.rows) * SLACK
    for degree, interval in product(problem.degrees, INTERVALS):
        approximation = sigmoid_approximation(degree, interval)
        p = approximation.polynomial
        spread = diameter(p, norm_bound=1.0, radius=p.radius, cells=400)
        fit = _Fit(p, problem.features, budget.bound_failure, longest)
        for t in problem.tried_rounds(ROUNDS):
            sigma = unit * spread * math.sqrt(t)
            noise = budget.total_std(sigma)
            rate = min(fit.largest_learning_rate(t, noise), 1 / (approximation.max_slope * longest))
            for shrink in SHRINKS if rate > 0 else ():
                yield Draft(
                    approximation=approximation,
                    rule=Nesterov(rounds=t, learning_rate=shrink * rate),
                    spread=spread,
                    sigma=sigma,
                    noise=noise,
                    spectrum=longest,
                )


class _Fit:
    """Momentum bounds on the interval of one polynomial, rows of norm 1; spectrum: Lambda."""

    def __init__(self, p: Polynomial, features: int, failure: float, spectrum: float) -> None:
        z: Floats = np.linspace(0.0, p.radius, _GRID).astype(np.float64)
        self._residual = np.maximum.accumulate(np.maximum(np.abs(p(z)), np.abs(p(-z))))
        self._radius, self._features, self._failure = p.radius, features, failure
        self._spectrum = spectrum

    def largest_learning_rate(self, rounds: int, noise: float) -> float:
        """The largest eta whose iterates stay inside; 0 if there is none above 1e-6."""
        low, high = 0.0, 1e6
        while high > 1e-6 and high - low > 1e-2 * high:
            middle = math.sqrt(max(low, 1e-7) * high)
            rule = Nesterov(rounds=rounds, learning_rate=middle)
            low, high = (middle, high) if self._fits(rule, noise) else (low, middle)
        return low

    def _fits(self, rule: Nesterov, noise: float) -> bool:
        bound = MomentumBound(
            rule=rule,
            features=self._features,
            norm_bound=1.0,
            noise=noise,
            failure=self._failure,
            spectrum=self._spectrum,
        )
        return float(bound.bounds(self._largest).max()) <= self._radius * (1 - 1e-3)

    def _largest(self, z: float) -> float:
        index = math.ceil(z / self._radius * (_GRID - 1))
        return float(self._residual[min(index, _GRID - 1)])


def setting(draft: Draft, problem: Problem) -> MomentumSetting:
    """A draft in the rows' own units, with the noise that the final sensitivity needs."""
    norm_bound = problem.norm_bound
    rounding = 2 * problem.encryption_error * math.sqrt(problem.features)
    p = draft.approximation.polynomial
    exact = diameter(p, norm_bound=norm_bound, radius=p.radius / norm_bound)
    rule = replace(draft.rule, learning_rate=draft.rule.learning_rate / norm_bound**2)
    return MomentumSetting(
        **problem.common,
        rule=rule,
        sigmoid=draft.approximation,
        sigma=draft.sigma / draft.spread * (exact + rounding) * SLACK,
    )


STRATEGY = Strategy(
    drafts,
    merits,
    setting,
    check,
    "momentum_bound",
    worthless=worthless,
    cure="or take --update gd, whose ridge term bounds the iterates",
)
