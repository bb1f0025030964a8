"""Data-independent search for a certified accelerated setting; see `walk_certificate`.

Everything is computed for rows of norm 1 and then rescaled: with w~ = B w, b = b~ B^2, the learning
rate is eta~ / B^2, sigma = sigma~ B and sigma_b = sigma_b~ B^2. For every polynomial, T and
division of the budget, the largest steps whose walk fits the interval are found, and smaller ones
tried.

The figure of merit is that of `utility` (same population, same mean field), with momentum and with
b_j = offset + c E[|x_j| sum_k |x_k|], x Gaussian, in the place of a common step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from protocols.approximation import Approximation, Polynomial, sigmoid_approximation
from protocols.curvature import LOGISTIC, Curvature, largest_row_sum
from protocols.errors import ParameterError, PrivacyError
from protocols.inverse import MAX_RATIO
from protocols.privacy.budget import Budget
from protocols.privacy.certificate import Certificate, explain
from protocols.privacy.sensitivity import diameter
from protocols.privacy.shares import NoiseSplit
from protocols.privacy.utility import Floats
from protocols.privacy.walk import AcceleratedRule, Walk
from protocols.privacy.walk_certificate import KEPT, WalkSetting, check, row_sum_sensitivity
from protocols.privacy.walk_utility import merit
from protocols.updates.catalogue import QUADRATIC, REGISTRY
from protocols.updates.momentum import Nesterov

Kind = str
"""nag, or one of `catalogue.QUADRATIC`."""
ROUNDS = (1, 2, 3, 4, 6, 8)
DEGREES = (3, 5, 7)
INTERVALS = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
CURVATURE_SHARES = (0.02, 0.05, 0.1, 0.2)
"""Parts of mu^2 that b may have."""
SHRINKS = (1.0, 0.7, 0.5)
"""Steps to try, as parts of the largest that fit."""
SLACK = 1 + 1e-6
LEAST_MERIT = 0.2
"""Short enough steps always fit; a run whose scores correlate less with the truth is refused."""
_GRID = 401
_ATTEMPTS = 20


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


def find_walk(
    *,
    kind: Kind,
    rows: int,
    features: int,
    norm_bound: float,
    epsilon: float,
    delta: float,
    parties: int,
    colluders: int,
    rounds: int | None = None,
    degree: int | None = None,
    other_delta: float = 0.0,
    spent_mu: float = 0.0,
    encryption_error: float = 0.0,
) -> Certificate:
    """Find a certified accelerated setting.

    Args:
        kind: "nag", or one of `catalogue.QUADRATIC` with a private preconditioner.
        rows: N, all parties' rows together.
        features: d, bias included.
        norm_bound: B, public bound on every row's norm, bias included.
        epsilon: the promise.
        delta: the promise.
        parties: P.
        colluders: t.
        rounds: T; None tries ROUNDS.
        degree: of the sigmoid's polynomial; None tries DEGREES.
        other_delta: see `Budget`.
        spent_mu: see `Budget`.
        encryption_error: see `WalkSetting`.

    Returns:
        a satisfied certificate; `figures["merit"]` is the proxy's value, 0 .. 1.

    Raises:
        PrivacyError: no setting of the grid is certified and better than noise (LEAST_MERIT); the
            message names the condition that binds.
        ParameterError: an argument is out of range.
    """
    if rows < 1 or features < 1 or not (math.isfinite(norm_bound) and norm_bound > 0):
        raise ParameterError(
            f"rows={rows}, features={features}, norm_bound={norm_bound}: need >= 1, >= 1, > 0"
        )
    budget = Budget(
        epsilon=epsilon,
        delta=delta,
        split=NoiseSplit(parties=parties, colluders=colluders),
        other_delta=other_delta,
        spent_mu=spent_mu,
    )
    grid = _Grid(kind=kind, rows=rows, features=features, budget=budget)
    found = [
        (merit(draft.rule, draft.approximation.polynomial, draft.noise, features), draft)
        for draft in grid.drafts(
            ROUNDS if rounds is None else (rounds,), DEGREES if degree is None else (degree,)
        )
    ]
    found.sort(key=lambda pair: -pair[0])
    why = "condition walk fails on the whole grid"
    if found and found[0][0] < LEAST_MERIT:
        why = _worthless(*found[0], features)
    for value, draft in found[:_ATTEMPTS] if found and found[0][0] >= LEAST_MERIT else ():
        certificate = check(_setting(draft, rows, features, norm_bound, budget, encryption_error))
        if certificate.satisfied:
            return replace(certificate, figures={**certificate.figures, "merit": value})
        why = explain(certificate.binding)
    raise PrivacyError(
        f"no {kind} setting is certified for rows={rows}, features={features}, epsilon={epsilon}: "
        f"{why}; raise rows, epsilon or delta, lower features or rounds, or take --update gd, "
        "whose ridge term bounds the iterates"
    )


def _worthless(value: float, draft: Draft, features: int) -> str:
    """Which condition leaves nothing to learn: the noise, or the short steps."""
    silent = merit(draft.rule, draft.approximation.polynomial, 0.0, features)
    name = "privacy_noise" if silent >= LEAST_MERIT else "walk"
    return (
        f"condition {name} leaves scores a correlation of {value:.2g} with the truth, "
        f"below {LEAST_MERIT}"
    )


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """Drafts for one problem, rows of norm 1."""

    kind: Kind
    rows: int
    features: int
    budget: Budget

    def drafts(self, rounds: tuple[int, ...], degrees: tuple[int, ...]) -> Iterator[Draft]:
        """For every polynomial and T the largest steps whose walk fits, and smaller ones."""
        unit = self.budget.sigma(rounds=1, sensitivity=1.0, rows=self.rows) * SLACK
        shares = CURVATURE_SHARES if self.kind in QUADRATIC else (0.0,)
        for degree in degrees:
            for interval in INTERVALS:
                approximation = sigmoid_approximation(degree, interval)
                p = approximation.polynomial
                spread = diameter(p, norm_bound=1.0, radius=p.radius, cells=400)
                fit = _Fit(p, self.features, KEPT * self.budget.delta_norm)
                for t in rounds:
                    for share in shares:
                        sigma = unit * spread * math.sqrt(t / (1 - share))
                        noise = self.budget.total_std(sigma)
                        for rule in self._rules(fit, approximation, t, unit, share, noise):
                            yield Draft(
                                approximation=approximation,
                                rule=rule,
                                spread=spread,
                                sigma=sigma,
                                noise=noise,
                            )

    def _rules(
        self,
        fit: _Fit,
        approximation: Approximation,
        rounds: int,
        unit: float,
        share: float,
        noise: float,
    ) -> Iterator[AcceleratedRule]:
        if self.kind == "nag":
            plain = Nesterov(rounds=rounds, learning_rate=1.0)
            rate = min(fit.largest_gain(plain, noise, 1), 1 / approximation.max_slope)
            for shrink in SHRINKS:
                if rate > 0:
                    yield replace(plain, learning_rate=shrink * rate)
            return
        sensitivity = row_sum_sensitivity(LOGISTIC, 1.0, self.features)
        sigma = unit * sensitivity / math.sqrt(share)
        allowance = KEPT * self.budget.delta_norm / 2
        tail = math.sqrt(2 * math.log(self.features / allowance))
        margin = self.budget.total_std(sigma) * tail * SLACK
        rough = _curvature(1.0, 0.1, sigma, self.features)
        quadratic: Any = REGISTRY[self.kind]
        for one in quadratic.candidates(rounds, rough):
            gain = fit.largest_gain(one, noise, 2)
            if not gain > 0:
                continue
            for shrink in SHRINKS:
                low = (1 + rough.error) / (shrink * gain)
                most = LOGISTIC * largest_row_sum(self.features, norm=1.0)
                low = max(low, (2 * margin + most) / (MAX_RATIO - 1) * SLACK)
                yield replace(one, curvature=_curvature(low, margin, sigma, self.features))


def _curvature(low: float, margin: float, sigma: float, features: int) -> Curvature:
    offset = low + margin
    high = (offset + LOGISTIC * largest_row_sum(features, norm=1.0) + margin) * (1 + 1e-12)
    return Curvature(offset=offset, low=low, high=high, sigma=sigma)


class _Fit:
    """Walks on the interval of one polynomial, rows of norm 1."""

    def __init__(self, p: Polynomial, features: int, failure: float) -> None:
        z: Floats = np.linspace(0.0, p.radius, _GRID).astype(np.float64)
        self._residual = np.maximum.accumulate(np.maximum(np.abs(p(z)), np.abs(p(-z))))
        self._radius, self._features, self._failure = p.radius, features, failure

    def largest_gain(self, rule: AcceleratedRule, noise: float, events: int) -> float:
        """The largest L whose walk stays inside; 0 if there is none above 1e-6."""
        low, high = 0.0, 1e6
        while high > 1e-6 and high - low > 1e-2 * high:
            middle = math.sqrt(max(low, 1e-7) * high)
            low, high = (middle, high) if self._fits(rule, middle, noise, events) else (low, middle)
        return low

    def _fits(self, rule: AcceleratedRule, gain: float, noise: float, events: int) -> bool:
        walk = Walk(
            rule=rule,
            gain=gain,
            features=self._features,
            norm_bound=1.0,
            noise=noise,
            failure=self._failure / events,
        )
        return float(walk.bounds(self._largest).max()) <= self._radius * (1 - 1e-3)

    def _largest(self, z: float) -> float:
        index = math.ceil(z / self._radius * (_GRID - 1))
        return float(self._residual[min(index, _GRID - 1)])


def _setting(
    draft: Draft, rows: int, features: int, norm_bound: float, budget: Budget, error: float
) -> WalkSetting:
    """A draft in the rows' own units, with the noise that the final sensitivity needs."""
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
    return WalkSetting(
        rows=rows,
        features=features,
        norm_bound=norm_bound,
        rule=rule,
        sigmoid=draft.approximation,
        sigma=draft.sigma / draft.spread * (exact + 2 * error * math.sqrt(features)) * SLACK,
        budget=budget,
        encryption_error=error,
    )
