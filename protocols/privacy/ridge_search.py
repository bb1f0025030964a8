"""Data-independent search for a certified ridge setting; see `search`.

Everything is computed for rows of norm 1 and then rescaled: with w~ = B w, the learning rate is
eta~ / B^2, lam = lam~ B^2 and sigma = sigma~ B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.approximation import Approximation, Polynomial, sigmoid_approximation
from protocols.privacy.ball import Ball
from protocols.privacy.budget import Budget
from protocols.privacy.ridge_certificate import KEPT, RidgeSetting
from protocols.privacy.sensitivity import diameter
from protocols.privacy.utility import Candidates, Stack

Floats = NDArray[np.float64]

INTERVALS = tuple(np.geomspace(3.0, 24.0, 16))
ETAS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
MARGIN = 1e-3
_GRID = 801
_PENALTIES = np.geomspace(1e-5, 0.5, 60)


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A setting that is likely to be certified, for rows of norm 1."""

    approximation: Approximation
    eta: float
    lam: float
    rounds: int
    sigma: float
    noise: float


def drafts(
    *,
    rows: int,
    features: int,
    budget: Budget,
    rounds: Sequence[int],
    degrees: Sequence[int],
    etas: Sequence[float] | None,
) -> Iterator[Draft]:
    """For each polynomial, learning rate and T, the least penalty whose ball fits the interval.

    Args:
        rows: N.
        features: m, bias included.
        budget: the promise.
        rounds: values of T to try.
        degrees: degrees of p to try.
        etas: learning rates to try, for rows of norm 1; None takes 1 / max|p'|, which is 1/beta
            (arXiv:2605.27782, Theorem 1).
    """
    per_round = {t: budget.sigma(rounds=t, sensitivity=1.0, rows=rows) * (1 + 1e-6) for t in rounds}
    for approximation in _approximations(degrees):
        p = approximation.polynomial
        radius = p.radius
        z: Floats = np.linspace(-radius, radius, _GRID).astype(np.float64)
        residual = 1 - p(z)
        spread = (
            diameter(p, norm_bound=1.0, radius=radius, cells=400)
            if any(per_round.values())
            else 0.0
        )
        for eta in etas or (1.0 / approximation.max_slope,):
            square = 0.5 * eta * residual**2
            for t in rounds:
                sigma = spread * per_round[t]
                noise = budget.total_std(sigma)
                lam = _least_penalty(
                    z * residual, square, radius, eta, t, features, noise, KEPT * budget.delta_norm
                )
                if lam is not None:
                    yield Draft(
                        approximation=approximation,
                        eta=eta,
                        lam=lam,
                        rounds=t,
                        sigma=sigma,
                        noise=noise,
                    )


def _approximations(degrees: Sequence[int]) -> Iterator[Approximation]:
    """Polynomials worth trying: the minimax one, and least squares, flatter at the ends."""
    for degree in degrees:
        for interval in INTERVALS:
            yield sigmoid_approximation(degree, float(interval), "minimax")
            yield sigmoid_approximation(degree, float(interval), "least-squares")


def _least_penalty(
    linear: Floats,
    square: Floats,
    radius: float,
    eta: float,
    rounds: int,
    features: int,
    noise: float,
    failure: float,
) -> float | None:
    """The least lam with G(R) <= R^2 and MARGIN to spare; None if there is none."""

    def fits(lam: float) -> bool:
        ball = Ball(
            eta=eta,
            alpha=eta * lam,
            rounds=rounds,
            features=features,
            norm_bound=1.0,
            noise=noise,
            failure=failure,
        )
        push = float(np.max((1 - eta * lam) * linear + square))
        return ball.squared_bound(radius, push) <= radius**2 * (1 - MARGIN)

    if fits(0.0):
        return 0.0
    allowed = _PENALTIES[_PENALTIES * eta < 1]
    low, high = 0, allowed.size
    while low < high:
        middle = (low + high) // 2
        if fits(float(allowed[middle])):
            high = middle
        else:
            low = middle + 1
    return float(allowed[low]) if low < allowed.size else None


def candidates(found: Sequence[Draft]) -> Candidates:
    """What the utility proxy needs of drafts."""
    one = Polynomial(coefficients=(1.0,), center=0.0, radius=1.0)
    return Candidates(
        eta=np.array([draft.eta for draft in found]),
        rounds=np.array([draft.rounds for draft in found]),
        noise=np.array([draft.noise for draft in found]),
        slope=Stack.of([draft.approximation.polynomial.derivative() for draft in found]),
        interval=np.array([draft.approximation.polynomial.radius for draft in found]),
        strength=np.array([draft.lam for draft in found]),
        force=Stack.of([one] * len(found)),
    )


def setting(
    draft: Draft,
    *,
    rows: int,
    features: int,
    norm_bound: float,
    budget: Budget,
    encryption_error: float = 0.0,
) -> RidgeSetting:
    """A draft in the rows' own units, with the noise that the final sensitivity needs."""
    p = draft.approximation.polynomial
    exact = diameter(p, norm_bound=norm_bound, radius=p.radius / norm_bound)
    widened = exact + 2 * encryption_error * math.sqrt(features)
    sigma = budget.sigma(rounds=draft.rounds, sensitivity=widened, rows=rows)
    return RidgeSetting(
        rows=rows,
        features=features,
        norm_bound=norm_bound,
        lam=draft.lam * norm_bound**2,
        eta=draft.eta / norm_bound**2,
        rounds=draft.rounds,
        sigmoid=draft.approximation,
        sigma=sigma * (1 + 1e-9),
        budget=budget,
        encryption_error=encryption_error,
    )
