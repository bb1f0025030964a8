"""Data-independent search for a certified accelerated setting; see `momentum_certificate`.

Everything is computed for rows of norm 1 and then rescaled: with w~ = B w, b = b~ B^2, the learning
rate is eta~ / B^2, sigma = sigma~ B and sigma_b = sigma_b~ B^2. For every polynomial, T and
division of the budget, the largest steps whose iterates stay in the interval are found, and smaller
ones tried.

The figure of merit is that of `utility` (same population, same mean field), with momentum and with
b_j = offset + c E[|x_j| sum_k |x_k|], x Gaussian, in the place of a common step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from protocols.approximation import Approximation, Polynomial, sigmoid_approximation
from protocols.curvature import LOGISTIC, Curvature, largest_row_sum
from protocols.inverse import MAX_RATIO
from protocols.privacy.momentum_bound import AcceleratedRule, MomentumBound
from protocols.privacy.momentum_certificate import MomentumSetting, row_sum_sensitivity
from protocols.privacy.problem import Problem
from protocols.privacy.sensitivity import diameter
from protocols.privacy.utility import Floats, merit
from protocols.updates.catalogue import QUADRATIC, REGISTRY
from protocols.updates.momentum import Nesterov

ROUNDS = (1, 2, 3, 4, 6, 8)
INTERVALS = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
CURVATURE_SHARES = (0.02, 0.05, 0.1, 0.2)
"""Parts of mu^2 that b may have."""
SHRINKS = (1.0, 0.7, 0.5)
"""Steps to try, as parts of the largest that fit."""
SLACK = 1 + 1e-6
LEAST_MERIT = 0.2
"""Short enough steps always fit; a run whose scores correlate less with the truth is refused."""
_GRID = 401


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A setting that is likely to be certified, for rows of norm 1.

    spread: D2 as far as a coarse partition tells; noise: of ALL parties.
    """

    approximation: Approximation
    rule: AcceleratedRule
    spread: float
    sigma: float
    noise: float

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
    if value >= LEAST_MERIT:
        return None
    silent = merit(draft.rule, draft.approximation.polynomial, 0.0, features)
    name = "privacy_noise" if silent >= LEAST_MERIT else "momentum_bound"
    return (
        f"condition {name} leaves scores a correlation of {value:.2g} with the truth, "
        f"below {LEAST_MERIT}"
    )


def merits(found: Sequence[Draft], features: int) -> Floats:
    """The utility proxy of each draft."""
    return np.array([merit(d.rule, d.approximation.polynomial, d.noise, features) for d in found])


def drafts(problem: Problem) -> Iterator[Draft]:
    """For every polynomial and T the largest steps that `MomentumBound` allows, and less."""
    budget, features = problem.budget, problem.features
    unit = _unit(problem)
    shares = CURVATURE_SHARES if problem.method in QUADRATIC else (0.0,)
    for degree, interval in product(problem.degrees, INTERVALS):
        approximation = sigmoid_approximation(degree, interval)
        p = approximation.polynomial
        spread = diameter(p, norm_bound=1.0, radius=p.radius, cells=400)
        fit = _Fit(p, features, budget.bound_failure)
        for t, share in product(problem.tried_rounds(ROUNDS), shares):
            sigma = unit * spread * math.sqrt(t / (1 - share))
            noise = budget.total_std(sigma)
            rules = (
                _preconditioned(problem, fit, t, share, noise)
                if share
                else _plain(fit, approximation, t, noise)
            )
            for rule in rules:
                yield Draft(
                    approximation=approximation, rule=rule, spread=spread, sigma=sigma, noise=noise
                )


def _unit(problem: Problem) -> float:
    """Noise that one release of sensitivity 1 needs."""
    return problem.budget.sigma(rounds=1, sensitivity=1.0, rows=problem.rows) * SLACK


def _plain(
    fit: _Fit, approximation: Approximation, rounds: int, noise: float
) -> Iterator[AcceleratedRule]:
    plain = Nesterov(rounds=rounds, learning_rate=1.0)
    rate = min(fit.largest_gain(plain, noise, 1), 1 / approximation.max_slope)
    for shrink in SHRINKS if rate > 0 else ():
        yield replace(plain, learning_rate=shrink * rate)


def _preconditioned(
    problem: Problem, fit: _Fit, rounds: int, share: float, noise: float
) -> Iterator[AcceleratedRule]:
    """share: of mu^2, for the curvature."""
    budget, features = problem.budget, problem.features
    unit = _unit(problem)
    sigma = unit * row_sum_sensitivity(LOGISTIC, 1.0, features) / math.sqrt(share)
    tail = math.sqrt(2 * math.log(features / (budget.bound_failure / 2)))
    margin = budget.total_std(sigma) * tail * SLACK
    rough = _curvature(1.0, 0.1, sigma, features)
    quadratic: Any = REGISTRY[problem.method]
    for one in quadratic.candidates(rounds, rough):
        gain = fit.largest_gain(one, noise, 2)
        for shrink in SHRINKS if gain > 0 else ():
            low = (1 + rough.error) / (shrink * gain)
            most = LOGISTIC * largest_row_sum(features, norm=1.0)
            low = max(low, (2 * margin + most) / (MAX_RATIO - 1) * SLACK)
            yield replace(one, curvature=_curvature(low, margin, sigma, features))


def _curvature(low: float, margin: float, sigma: float, features: int) -> Curvature:
    offset = low + margin
    high = (offset + LOGISTIC * largest_row_sum(features, norm=1.0) + margin) * (1 + 1e-12)
    return Curvature(offset=offset, low=low, high=high, sigma=sigma)


class _Fit:
    """Momentum bounds on the interval of one polynomial, rows of norm 1."""

    def __init__(self, p: Polynomial, features: int, failure: float) -> None:
        z: Floats = np.linspace(0.0, p.radius, _GRID).astype(np.float64)
        self._residual = np.maximum.accumulate(np.maximum(np.abs(p(z)), np.abs(p(-z))))
        self._radius, self._features, self._failure = p.radius, features, failure

    def largest_gain(self, rule: AcceleratedRule, noise: float, events: int) -> float:
        """The largest L whose iterates stay inside; 0 if there is none above 1e-6."""
        low, high = 0.0, 1e6
        while high > 1e-6 and high - low > 1e-2 * high:
            middle = math.sqrt(max(low, 1e-7) * high)
            low, high = (middle, high) if self._fits(rule, middle, noise, events) else (low, middle)
        return low

    def _fits(self, rule: AcceleratedRule, gain: float, noise: float, events: int) -> bool:
        bound = MomentumBound(
            rule=rule,
            gain=gain,
            features=self._features,
            norm_bound=1.0,
            noise=noise,
            failure=self._failure / events,
        )
        return float(bound.bounds(self._largest).max()) <= self._radius * (1 - 1e-3)

    def _largest(self, z: float) -> float:
        index = math.ceil(z / self._radius * (_GRID - 1))
        return float(self._residual[min(index, _GRID - 1)])


def setting(draft: Draft, problem: Problem) -> MomentumSetting:
    """A draft in the rows' own units, with the noise that the final sensitivity needs."""
    norm_bound = problem.norm_bound
    rounding = 2 * problem.encryption_error * math.sqrt(problem.features)
    square, p = norm_bound**2, draft.approximation.polynomial
    exact = diameter(p, norm_bound=norm_bound, radius=p.radius / norm_bound)
    rule: Any = draft.rule
    if isinstance(rule, Nesterov):
        rule = replace(rule, learning_rate=rule.learning_rate / square)
    else:
        c = rule.curvature
        names = ("offset", "low", "high", "sigma")
        scaled = replace(c, **{name: getattr(c, name) * square for name in names})
        rule = replace(rule, curvature=scaled)
    return MomentumSetting(
        **problem.common,
        rule=rule,
        sigmoid=draft.approximation,
        sigma=draft.sigma / draft.spread * (exact + rounding) * SLACK,
    )
