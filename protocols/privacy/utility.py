"""How good a model a setting is likely to give, without looking at any data.

A mean-field model of noisy gradient descent on a reference population. Its m uncorrelated Gaussian
columns have variances q_j ~ 1/j, together (0.8 B)^2 (rows are clipped to norm B), and the true
logit has variance 4, an equal part from each column: the columns that vary least carry as much as
the others, which is what makes long training worth while. By Stein's lemma the expected gradient
is linear in the weights: E[(p(z) - s(z*)) x_j] = q_j (E[p'(z)] w_j - E[s'(z*)] w*_j). So the
signal u_j and the noise variance n_j of each weight follow
u_j <- (1 - V - eta q_j E[p'(z)]) u_j + eta q_j E[s'(z*)] w*_j,
n_j <- (1 - V - eta q_j E[p'(z)])^2 n_j + eta^2 sigma_total^2,
with z ~ N(0, sum_j q_j (u_j^2 + n_j)) and V the regulariser's shrinkage at the current norm.

The figure of merit is the correlation of score and true logit,
sum_j q_j u_j w*_j / sqrt(sum_j q_j w*_j^2 sum_j q_j (u_j^2 + n_j)): 1 for the truth, and blind to a
common scale, as a ranking is. It is a proxy: it ranks settings, it does not predict an accuracy.
Units are those of B = 1; columns of similar q_j are treated together.

For accelerated rules, one setting at a time, the mean field is the same; the state of a column is
(w_t, w_{t-1}), linear in both, and its noise a covariance of the two. A preconditioned step of
column j is N_t / b_j with b_j = offset + c E|x_j| sum_k E|x_k|, for Gaussian columns E|x_j| =
sqrt(2 q_j / pi).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.approximation import Polynomial
from protocols.privacy.walk import AcceleratedRule

Floats = NDArray[np.float64]

TYPICAL_NORM = 0.8
TRUE_LOGIT_VARIANCE = 4.0
GROUPS = 12
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """n polynomials that are evaluated together, one per column of the argument.

    Attributes:
        coefficients: float64 array, shape (degree + 1, n), of t^0, t^1, …
        center, radius: float64 arrays, shape (n,); t = (x - center) / radius.
    """

    coefficients: Floats
    center: Floats
    radius: Floats

    @classmethod
    def of(cls, polynomials: Sequence[Polynomial]) -> Stack:
        """Stack polynomials of any degrees."""
        size = max((len(p.coefficients) for p in polynomials), default=1)
        coefficients = np.zeros((size, len(polynomials)))
        for column, p in enumerate(polynomials):
            coefficients[: len(p.coefficients), column] = p.coefficients
        return cls(
            coefficients=coefficients,
            center=np.array([p.center for p in polynomials]),
            radius=np.array([p.radius for p in polynomials]),
        )

    def __call__(self, x: Floats) -> Floats:
        """Values for x of shape (…, n)."""
        t = (x - self.center) / self.radius
        value = np.zeros_like(t)
        for row in self.coefficients[::-1]:
            value = value * t + row
        return value

    def take(self, index: NDArray[np.int64]) -> Stack:
        """Some of the polynomials, in the order of `index`."""
        return Stack(
            coefficients=self.coefficients[:, index],
            center=self.center[index],
            radius=self.radius[index],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """n settings in units of B = 1; arrays of shape (n,).

    Attributes:
        eta, rounds, noise: eta B^2, T, sigma_total / B.
        slope: p'.
        interval: B R.
        strength, force: the shrinkage V = eta strength force(|w|^2).
    """

    eta: Floats
    rounds: NDArray[np.int64]
    noise: Floats
    slope: Stack
    interval: Floats
    strength: Floats
    force: Stack

    def take(self, index: NDArray[np.int64]) -> Candidates:
        """Some of the settings, in the order of `index`."""
        return Candidates(
            eta=self.eta[index],
            rounds=self.rounds[index],
            noise=self.noise[index],
            slope=self.slope.take(index),
            interval=self.interval[index],
            strength=self.strength[index],
            force=self.force.take(index),
        )


def correlation(candidates: Candidates, *, features: int) -> Floats:
    """The figure of merit of each setting, shape (n,); 0 where the recursion diverges.

    Args:
        candidates: the settings.
        features: m, bias included.
    """
    merit = np.zeros(candidates.eta.size)
    for rounds in np.unique(candidates.rounds):
        index = np.flatnonzero(candidates.rounds == rounds)
        merit[index] = _same_rounds(candidates.take(index), int(rounds), features)
    return merit


def population(features: int) -> tuple[Floats, Floats, Floats]:
    """(variance, true weight, number) of columns, in at most GROUPS groups, for B = 1."""
    q = 1.0 / np.arange(1, features + 1)
    q *= TYPICAL_NORM**2 / q.sum()
    ends = np.unique(np.rint(np.geomspace(1, features + 1, GROUPS + 1)).astype(int)) - 1
    count = np.diff(ends).astype(np.float64)
    grouped = np.add.reduceat(q, ends[:-1]) / count
    return grouped, np.sqrt(TRUE_LOGIT_VARIANCE / features / grouped), count


def true_slope() -> float:
    """E[s'(z*)] over the true logits."""
    logits = np.sqrt(TRUE_LOGIT_VARIANCE) * _NODES
    return float(np.sum(_WEIGHTS / (2 + 2 * np.cosh(logits))))


def mean_slope(slope: Polynomial, spread: float, interval: float) -> float:
    """E[p'(z)], z of the given standard deviation, clipped to [-interval, interval]."""
    return float(_WEIGHTS @ slope(np.clip(_NODES * spread, -interval, interval)))


def _same_rounds(c: Candidates, rounds: int, features: int) -> Floats:
    """`correlation` for settings of equal T."""
    q, truth, count = population(features)
    pull = true_slope() * q * truth
    nodes = _NODES[:, None]
    signal: Floats = np.zeros((c.eta.size, q.size))
    variance: Floats = np.zeros((c.eta.size, q.size))
    push = np.outer(c.eta, pull)
    kick = ((c.eta * c.noise) ** 2)[:, None]
    with np.errstate(all="ignore"):
        for _ in range(rounds):
            energy = signal**2 + variance
            spread = np.sqrt(energy @ (q * count))
            curvature = _WEIGHTS @ c.slope(np.clip(nodes * spread, -c.interval, c.interval))
            shrinkage = c.eta * c.strength * c.force(energy @ count)
            factor = (1 - shrinkage)[:, None] - np.outer(c.eta * curvature, q)
            signal = factor * signal + push
            variance = factor**2 * variance + kick
        energy = (signal**2 + variance) @ (q * count)
        aligned = signal @ (q * truth * count)
        merit = aligned / np.sqrt(TRUE_LOGIT_VARIANCE * energy)
    result: Floats = np.nan_to_num(merit, nan=0.0, posinf=0.0, neginf=0.0)
    return result


def merit(rule: AcceleratedRule, p: Polynomial, noise: float, features: int) -> float:
    """Correlation of score and true logit after the last iteration; 0 where it diverges.

    Args:
        rule: for rows of norm 1.
        p: the sigmoid's polynomial.
        noise: std of ALL parties' noise on the mean gradient.
        features: d, bias included.
    """
    q, truth, count = population(features)
    slope, push = p.derivative(), true_slope() * q * truth
    gain = _gain(rule, q, count)
    signal: Floats = np.zeros(q.size)
    momenta = rule.momenta
    before, var, cross, var_before = signal, signal, signal, signal
    for t, step in enumerate(rule.rates):
        m = momenta[t - 1] if t else 0.0
        ahead = (1 + m) * signal - m * before
        spread = (1 + m) ** 2 * var - 2 * m * (1 + m) * cross + m * m * var_before
        width = math.sqrt(float((ahead**2 + spread) @ (q * count)))
        factor = 1 - step * gain * q * mean_slope(slope, width, p.radius)
        cross, var_before = factor * ((1 + m) * var - m * cross), var
        var = factor**2 * spread + (step * gain * noise) ** 2
        signal, before = factor * ahead + step * gain * push, signal
    energy = float((signal**2 + var) @ (q * count))
    aligned = float(signal @ (q * truth * count))
    value = aligned / math.sqrt(TRUE_LOGIT_VARIANCE * energy) if energy > 0 else 0.0
    return value if math.isfinite(value) else 0.0


def _gain(rule: AcceleratedRule, q: Floats, count: Floats) -> Floats:
    """1 / b per column group, or 1."""
    c = rule.curvature
    if c is None:
        return np.ones(q.size)
    mean = np.sqrt(2 * q / math.pi)
    return np.asarray(1 / (c.offset + c.constant * mean * float(mean @ count)))
