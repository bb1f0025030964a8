"""Data-independent search for a certified barrier setting; see `search`.

Everything is computed for rows of norm 1 and then rescaled: with w~ = B w, the learning rate is
eta~ / B^2, Theta = Theta~ / B^2, lam = lam~ and sigma = sigma~ B; kappa and all of Theorem 3's
inequalities stay as they are. P for Theta is P~(x / Theta) / Theta, P~ approximating 1/x on
[kappa, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.numerics.approximation import (
    Approximation,
    Polynomial,
    reciprocal_approximation,
    sigmoid_approximation,
)
from protocols.privacy.certificates.barrier import (
    GRADIENT_AT_ZERO,
    BarrierSetting,
    c_delta,
    check,
    iterate_bound,
    norm_failure,
)
from protocols.privacy.certificates.problem import LEARNING_RATES, Problem
from protocols.privacy.certificates.sensitivity import diameter
from protocols.privacy.loss.budget import Budget
from protocols.privacy.search.strategy import Strategy
from protocols.privacy.search.utility import Candidate, Moments, log_loss

Floats = NDArray[np.float64]

CORES = tuple(np.geomspace(1.5, 16.0, 16))
KAPPAS = tuple(np.geomspace(1e-3, 0.5, 10))
STRENGTHS = np.geomspace(1e-3, 10.0, 60)
RECIPROCAL_DEGREES = (1, 2)
MARGIN = 2e-3
_TABLE = np.geomspace(1.0, 60.0, 80)


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A setting that is likely to be certified, for rows of norm 1."""

    degree: int
    reciprocal: Approximation
    theta: float
    kappa: float
    lam: float
    learning_rate: float
    rounds: int
    interval: float
    noise: float


def drafts(problem: Problem) -> list[Draft]:
    """For each (degrees, Theta, kappa, eta, T) the least lambda that Theorem 3 allows.

    Learning rates are for rows of norm 1; without noise 4 = 1 / max s', that is 1/beta
    (arXiv:2605.27782, Theorem 1).
    """
    rows, features, budget = problem.rows, problem.features, problem.budget
    etas = (4.0,) if budget.epsilon is None else LEARNING_RATES
    found: list[Draft] = []
    core, eta = (a.ravel() for a in np.meshgrid(CORES, etas, indexing="ij"))
    for degree in problem.degrees:
        errors, spreads = _tables(degree)
        for reciprocal_degree in RECIPROCAL_DEGREES:
            for kappa in KAPPAS:
                reciprocal = reciprocal_approximation(reciprocal_degree, float(kappa), 1.0)
                for t in problem.tried_rounds():
                    scan = _Scan(
                        core=core,
                        learning_rate=eta,
                        kappa=float(kappa),
                        reciprocal=reciprocal,
                        errors=errors,
                        spreads=spreads,
                        per_round=budget.sigma(rounds=t, sensitivity=1.0, rows=rows),
                        c=c_delta(budget, t),
                        features=features,
                        budget=budget,
                    )
                    lam, interval, noise = scan.least_strength()
                    for i in np.flatnonzero(np.isfinite(lam)):
                        found.append(
                            Draft(
                                degree=degree,
                                reciprocal=reciprocal,
                                theta=float(core[i] ** 2 / (1 - kappa)),
                                kappa=float(kappa),
                                lam=float(lam[i]),
                                learning_rate=float(eta[i]),
                                rounds=t,
                                interval=float(interval[i]),
                                noise=float(noise[i]),
                            )
                        )
    return found


@lru_cache
def _tables(degree: int) -> tuple[Floats, Floats]:
    """e_f, and the largest move of one row as far as a coarse partition tells, by interval."""
    found = [sigmoid_approximation(degree, float(r)) for r in _TABLE]
    spreads = [
        diameter(each.polynomial, norm_bound=1.0, radius=float(r), cells=400)
        for r, each in zip(_TABLE, found, strict=True)
    ]
    return np.array([each.max_error for each in found]), np.array(spreads)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scan:
    """Theorem 3's conditions over arrays of (core, eta), for a grid of lambda."""

    core: Floats
    learning_rate: Floats
    kappa: float
    reciprocal: Approximation
    errors: Floats
    spreads: Floats
    per_round: float
    c: float
    features: int
    budget: Budget

    def least_strength(self) -> tuple[Floats, Floats, Floats]:
        """(lambda, B R, sigma_total) for each (core, eta); lambda is inf where none will do."""
        core, eta = self.core[:, None], self.learning_rate[:, None]
        theta = core**2 / (1 - self.kappa)
        lam = STRENGTHS[None, :] * theta / self.reciprocal.max_error / np.maximum(1.0, core)
        root_m = math.sqrt(self.features)
        e_b = self.reciprocal.max_error / theta
        error = np.zeros(np.broadcast_shapes(lam.shape, eta.shape))
        spread, noise, bound = error + 2, error, error
        with np.errstate(all="ignore"):
            for _ in range(15):
                noise = self.budget.total_std(1.0) * spread * self.per_round
                push = 1 + error + 2 * lam * e_b * np.sqrt(theta) + (root_m + self.c) * noise
                bound = core + eta * push
                error = np.interp(bound, _TABLE, self.errors, right=np.inf)
                spread = np.interp(bound, _TABLE, self.spreads)
            p = self.reciprocal.polynomial
            bottom = 1 - bound**2 / theta
            least = float(p(self.kappa)) / theta
            most = p(bottom) / theta
            slopes = p.derivative()
            decreasing = (slopes(bottom) <= 0) & (slopes(self.kappa) <= 0)
            alpha = 2 * eta * lam * least
            a = 2 * alpha - alpha**2
            b = -2 * eta * ((1 - alpha) * (GRADIENT_AT_ZERO + self.c * noise) + error)
            c = -(eta**2) * ((1 + (root_m + self.c) * noise) ** 2 - error**2)
            root = (-b + np.sqrt(b**2 - 4 * a * c)) / (2 * a)
            ok = (error <= 1) & (least > 0) & decreasing & (alpha > 0) & (alpha < 1 - MARGIN)
            ok &= eta * lam <= self.kappa * theta * (1 - MARGIN)
            ok &= eta * (lam * (most + least) + (1 - GRADIENT_AT_ZERO) / (2 * core)) <= 1 - MARGIN
            ok &= core * (1 - MARGIN) >= root
        first = np.argmax(ok, axis=1)
        index = np.arange(core.size)
        chosen = np.where(ok[index, first], lam[index, first], np.inf)
        return chosen, bound[index, first], noise[index, first]


def merits(found: Sequence[Draft], features: int, population: Moments | None) -> Floats:
    """Expected log loss of each draft."""
    links = {}
    for draft in found:
        key = (draft.degree, round(math.log(draft.interval), 2))
        if key not in links:
            links[key] = sigmoid_approximation(key[0], math.exp(key[1])).polynomial
    candidates = [
        Candidate(
            rates=(draft.learning_rate,) * draft.rounds,
            noise=draft.noise,
            link=links[draft.degree, round(math.log(draft.interval), 2)],
            strength=2 * draft.lam,
            force=_force(draft),
        )
        for draft in found
    ]
    return log_loss(candidates, features=features, population=population)


def _force(draft: Draft) -> Polynomial:
    """P(Theta - s) as a polynomial in s = |w|^2; (Theta - s) / Theta = 1 - s / Theta."""
    p = draft.reciprocal.polynomial
    signs = np.where(np.arange(p.degree + 1) % 2, -1.0, 1.0)
    return Polynomial(
        coefficients=tuple(np.array(p.coefficients) * signs / draft.theta),
        center=(1 - p.center) * draft.theta,
        radius=p.radius * draft.theta,
    )


def setting(draft: Draft, problem: Problem) -> BarrierSetting:
    """A draft in the rows' own units, its polynomials on the fixed point's true intervals."""
    norm_bound = problem.norm_bound
    theta = draft.theta / norm_bound**2
    reciprocal = reciprocal_approximation(
        draft.reciprocal.polynomial.degree, draft.kappa * theta, theta
    )
    current = BarrierSetting(
        **problem.common,
        theta=theta,
        lam=draft.lam,
        kappa=draft.kappa,
        learning_rate=draft.learning_rate / norm_bound**2,
        rounds=draft.rounds,
        sigmoid=sigmoid_approximation(draft.degree, draft.interval),
        reciprocal=reciprocal,
        sigma=0.0,
    )
    return settle(current, draft.degree)


def settle(start: BarrierSetting, degree: int) -> BarrierSetting:
    """Fixed point: fit the sigmoid on the interval that its own iterate bound implies.

    sigma is what the promise then needs. The interval ends 10^-6 of itself beyond the fixed point.
    """
    current, error, moved = start, 0.0, 2 * start.norm_bound
    for _ in range(100):
        sigma = current.budget.sigma(
            rounds=current.rounds, sensitivity=moved + current.rounding, rows=current.rows
        )
        current = replace(current, sigma=sigma * (1 + 1e-6))
        bound = iterate_bound(
            current, sigmoid_error=error, reciprocal_error=current.reciprocal.max_error
        )
        interval = current.norm_bound * bound * (1 + 1e-6)
        current = replace(current, sigmoid=sigmoid_approximation(degree, min(interval, 1000.0)))
        p, before = current.sigmoid.polynomial, moved
        moved = diameter(p, norm_bound=current.norm_bound, radius=bound)
        settled = abs(current.sigmoid.max_error - error) <= 1e-9 * error
        if (settled and moved <= before * (1 + 1e-7)) or error > 1:
            break
        error = current.sigmoid.max_error
    return current


STRATEGY = Strategy(drafts, merits, setting, check, "norm (condition (2))", failure=norm_failure)
