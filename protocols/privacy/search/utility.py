"""How good a model a setting is likely to give, without looking at any data.

A mean-field model of noisy gradient descent on reference populations; all for rows of norm 1. The
first of m uncorrelated columns is constant, the others are Gaussian; their second moments q_j
default to ~ 1/j, together TYPICAL_NORM^2. The true logit z* is Gaussian, with equal weights on all
columns but the constant one. By Stein's lemma the expected gradient of a weight is
    E[(p(z) - s(z*)) x_j] = q_j (E[p'(z)] w_j - E[s'(z*)] w*_j),   sqrt(q_1) (E[p(z)] - E[s(z*)])
for the constant one, with p the link's own polynomial. So the signal u_j and the noise variance n_j
of each weight follow, for a step of rate r and the ridge or barrier's shrinkage V,
    u_j <- (1 - V) u_j - r E[gradient_j at u],   n_j <- (1 - V - r q_j E[p'(z)])^2 n_j + (r tau)^2,
z ~ N(sqrt(q_1) u_1, sum_{j>1} q_j (u_j^2 + n_j) + q_1 n_1), tau of ALL parties. A fixed point has
E[p'(z)] w = E[s'(z*)] w*: a link that is too flat makes weights too large, and this is seen.
A look-ahead (1 + m_t) w - m_t w_before is linear in both points, its noise a covariance of the two.

Rows that are signed because the link has no symmetry (`RowsPlan.signed`) have the residual s(z*)
(p(z) - 1) + (1 - s(z*)) (1 - p(-z)) = P(z) - s(z*) + (2 s(z*) - 1) e(z), P = (p(z) + 1 - p(-z)) / 2
and 2 e(z) = p(z) + p(-z) - 1: the recursion with P in the place of p, and by Stein's lemma for both
arguments
    E[(2 s(z*) - 1) e(z) x_j] = q_j (E[(2 s(z*) - 1) e'(z)] w_j + 2 E[s'(z*) e(z)] w*_j).

The figure of merit is the expected log loss on new rows [nats], z and z* jointly Gaussian:
    E[ln(1 + exp z)] - E[s(z*) z],   E[s(z*) z] = E[s(z*)] E[z] + E[s'(z*)] cov(z, z*),
of noise, of the polynomial's bias, of too few iterations and of the scale. It is a mean over TRUTHS
and ranks settings; of one table it is a guess. Left out: what N rows themselves leave unknown,
about m / 2N nats, the same for all settings that converge.

A table's public second moments may stand for 1/j. Where rows are whitened by their second moment
with a constant column, q_1 is as large as the largest of the others and the model is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from protocols.numerics.approximation import Polynomial, is_symmetric

Floats = NDArray[np.float64]
Moments = Sequence[float] | Floats

TYPICAL_NORM = 0.8
TRUTHS = ((1.0, 0.25), (4.0, 0.5))
"""Variance of the true logit, and share of positive rows, of each reference population.

Logistic regression of six public tables (census incomes, credit defaults, four clinical ones) has
variances .3 to 10, median 2, and minorities of .22 to .41, mostly about a quarter: a small signal
on unequal classes and a large one on equal classes lie on either side.
"""
GROUPS = 12
_LEAST = 1e-12  # of a second moment
_ONE = Polynomial(coefficients=(1.0,), center=0.0, radius=1.0)


def _gauss(points: int) -> tuple[Floats, Floats]:
    """Nodes and weights of a standard Gaussian's mean, exact to degree 2 points - 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    return nodes, weights / weights.sum()


_NODES, _WEIGHTS = _gauss(9)
FINE, FINE_WEIGHTS = _gauss(60)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A setting for rows of norm 1.

    Attributes:
        rates, momenta: of every iteration, shape (T,).
        noise: tau.
        link: p, on its interval; beyond it, as at its ends.
        strength, force: the shrinkage V = rate * strength * force(|w|^2).
    """

    rates: tuple[float, ...]
    momenta: tuple[float, ...] = ()
    noise: float
    link: Polynomial
    strength: float = 0.0
    force: Polynomial = _ONE


class Stack:
    """n polynomials that are evaluated together, one per row of the argument.

    Coefficients have shape (degree + 1, n, 1), centre and radius (n, 1).
    """

    def __init__(self, polynomials: Sequence[Polynomial]) -> None:
        size = max(len(p.coefficients) for p in polynomials)
        table = [p.coefficients + (0.0,) * (size - len(p.coefficients)) for p in polynomials]
        self._coefficients = np.array(table).T[:, :, None]
        self._center = np.array([[p.center] for p in polynomials])
        self._radius = np.array([[p.radius] for p in polynomials])

    def __call__(self, x: Floats) -> tuple[Floats, Floats]:
        """Values and slopes for x of shape (n, k), clipped to the intervals."""
        t = np.clip((x - self._center) / self._radius, -1.0, 1.0)
        value = slope = np.zeros_like(t)
        for row in self._coefficients[::-1]:
            slope = slope * t + value
            value = value * t + row
        return value, slope / self._radius


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """Groups of similar columns, the constant one first and alone; arrays of shape (groups,).

    Attributes:
        moments: q_j of one column.
        count: number of columns.
    """

    moments: Floats
    count: Floats

    @property
    def energy(self) -> Floats:
        """q_j times the number of columns."""
        return self.moments * self.count

    @classmethod
    def of(cls, moments: Moments) -> Columns:
        """Of second moments in any order, shape (m,)."""
        q = np.sort(np.asarray(moments, dtype=np.float64))[::-1]
        ends = np.unique(np.rint(np.geomspace(1, q.size, GROUPS)).astype(int))
        starts = np.append(0, ends[:-1])
        count = np.diff(np.append(starts, q.size)).astype(np.float64)
        return cls(moments=np.maximum(np.add.reduceat(q, starts) / count, _LEAST), count=count)

    @classmethod
    def usual(cls, features: int) -> Columns:
        """Of a table of which nothing is known: ~ 1/j."""
        q = 1.0 / np.arange(1, features + 1)
        return cls.of(q * TYPICAL_NORM**2 / q.sum())


@dataclass(frozen=True, kw_only=True, slots=True)
class Truths:
    """Reference populations, an entry each; arrays of shape (k, 1) or (k, groups).

    Attributes:
        mean, variance: of z*.
        base: E[s(z*)], the share of positive rows.
        slope: E[s'(z*)].
        weights: w*_j of one column, 0 for the constant one.
    """

    mean: Floats
    variance: Floats
    base: Floats
    slope: Floats
    weights: Floats

    @classmethod
    def of(cls, columns: Columns, variance: Floats, base: Floats) -> Truths:
        """variance, base: shape (k,)."""
        variance, base = variance[:, None], base[:, None]
        mean = gaussian_mean(variance, base)
        z = mean + np.sqrt(variance) * FINE
        varies = np.arange(columns.count.size) > 0
        weights = varies * np.sqrt(variance / max(float(columns.energy @ varies), _LEAST))
        slope = (expit(z) * expit(-z)) @ FINE_WEIGHTS
        return cls(mean=mean, variance=variance, base=base, slope=slope[:, None], weights=weights)


def gaussian_mean(variance: Floats, base: Floats) -> Floats:
    """E[z] of a Gaussian z with E[s(z)] = base; arrays of shape (k, 1).

    Bisection, because it ends with the same digits everywhere.
    """
    spread = np.sqrt(variance) * FINE
    high = np.full(np.broadcast_shapes(variance.shape, base.shape), 64.0)
    low = -high
    for _ in range(60):
        middle = (low + high) / 2
        above = (expit(middle + spread) @ FINE_WEIGHTS)[:, None] > base
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray((low + high) / 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """Of the last iterate on new rows, by setting or truth; arrays of shape (n,).

    Attributes:
        mean: E[z].
        signal, noise: sum_{j>1} of q_j u_j^2, and of q_j n_j.
        wander: q_1 n_1, what noise makes of the mean.
        overlap: cov(z, z*).
    """

    mean: Floats
    signal: Floats
    noise: Floats
    wander: Floats
    overlap: Floats


def log_loss(
    candidates: Sequence[Candidate], *, features: int, population: Moments | None = None
) -> Floats:
    """Expected log loss of each setting [nats], shape (n,); inf where the recursion diverges.

    Args:
        candidates: the settings.
        features: m, bias included.
        population: public second moments of uncorrelated columns, the constant one's the largest;
            ~ 1/j by default.
    """
    columns = Columns.usual(features) if population is None else Columns.of(population)
    references = [Truths.of(columns, *np.array([truth]).T) for truth in TRUTHS]
    rounds = np.array([len(c.rates) for c in candidates])
    found = np.full(rounds.size, np.inf)
    for t in np.unique(rounds):
        index = np.flatnonzero(rounds == t)
        field = Field([candidates[i] for i in index], columns)
        found[index] = np.mean([_loss(field.scores(truth), truth) for truth in references], axis=0)
    return found


def _loss(scores: Scores, truth: Truths) -> Floats:
    with np.errstate(all="ignore"):
        spread = np.sqrt(scores.signal + scores.noise + scores.wander)
        z = scores.mean[:, None] + spread[:, None] * FINE
        hit = truth.base[:, 0] * scores.mean + truth.slope[:, 0] * scores.overlap
        loss = np.logaddexp(0.0, z) @ FINE_WEIGHTS - hit
    return np.where(np.isfinite(loss), loss, np.inf)


class Field:
    """The recursion for n settings of equal T under one truth, or for one setting under n."""

    def __init__(self, candidates: Sequence[Candidate], columns: Columns) -> None:
        self._rates = np.array([c.rates for c in candidates]).T[:, :, None]
        momenta = [c.momenta or (0.0,) * len(c.rates) for c in candidates]
        self._momenta = np.array(momenta).T[:, :, None]
        self._noise = np.array([[c.noise] for c in candidates])
        self._strength = np.array([[c.strength] for c in candidates])
        links = [c.link for c in candidates]
        self._link = Stack(list(map(_odd, links)))
        self._even = None if all(map(is_symmetric, links)) else Stack(list(map(_even, links)))
        self._force = Stack([c.force for c in candidates])
        self._columns = columns

    def scores(self, truth: Truths) -> Scores:
        """After the last iteration; not finite where the recursion diverges."""
        with np.errstate(all="ignore"):
            return self._scores(*self.weights(truth), truth)

    def weights(self, truth: Truths) -> tuple[Floats, Floats]:
        """u_j and n_j after the last iteration, shape (n, groups)."""
        q, count, wide = self._columns.moments, self._columns.count, self._columns.energy
        bias = np.sqrt(q[0])
        pull = truth.slope * q * truth.weights
        size = max(len(self._noise), len(truth.base))
        signal: Floats = np.zeros((size, q.size))
        before = var = cross = var_before = signal
        m: Floats = np.zeros_like(self._noise)
        moves, pulls = self._momenta.any(), self._strength.any()
        with np.errstate(all="ignore"):
            for rates, following in zip(self._rates, self._momenta, strict=True):
                ahead, spread = signal, var
                if moves:
                    ahead = (1 + m) * signal - m * before
                    spread = (1 + m) ** 2 * var - 2 * m * (1 + m) * cross + m * m * var_before
                energy = ahead**2 + spread
                mean = bias * ahead[:, :1]
                width = np.sqrt(np.maximum((energy @ wide)[:, None] - mean**2, 0.0))
                value, slope = self._link(mean + width * _NODES)
                steep = (slope @ _WEIGHTS)[:, None]
                push = pull - q * steep * ahead
                push[:, :1] = bias * (truth.base - (value @ _WEIGHTS)[:, None])
                if self._even is not None:
                    overlap = (ahead * truth.weights)[:, 1:] @ wide[1:]
                    shift, more, pulled = _lopsided(self._even, mean, width, overlap, truth)
                    steep = steep + more
                    drawn = q * (more * ahead + pulled * truth.weights)
                    drawn[:, :1] = bias * shift
                    push -= drawn
                keep: Floats | float = 1.0
                if pulls:
                    force, _ = self._force((energy @ count)[:, None])
                    keep = 1 - rates * self._strength * force
                factor = keep - rates * q * steep
                if moves:
                    cross, var_before = factor * ((1 + m) * var - m * cross), var
                var = factor**2 * spread + (rates * self._noise) ** 2
                signal, before = keep * ahead + rates * push, signal
                m = following
        return signal, var

    def _scores(self, signal: Floats, var: Floats, truth: Truths) -> Scores:
        wide = self._columns.energy[1:]
        u, n = signal[:, 1:], var[:, 1:]
        return Scores(
            mean=np.sqrt(self._columns.moments[0]) * signal[:, 0],
            signal=u**2 @ wide,
            noise=n @ wide,
            wander=self._columns.moments[0] * var[:, 0],
            overlap=(u * truth.weights[:, 1:]) @ wide,
        )


def _odd(p: Polynomial) -> Polynomial:
    """P: 1/2 plus the odd part."""
    odd = (0.0 if k % 2 == 0 else c for k, c in enumerate(p.coefficients[1:], start=1))
    return replace(p, coefficients=(0.5, *odd))


def _even(p: Polynomial) -> Polynomial:
    """e: what else there is of a link around 0."""
    start, *others = p.coefficients
    even = (c if k % 2 == 0 else 0.0 for k, c in enumerate(others, start=1))
    return replace(p, coefficients=(start - 0.5, *even))


def _lopsided(
    even: Stack, mean: Floats, width: Floats, overlap: Floats, truth: Truths
) -> tuple[Floats, Floats, Floats]:
    """E[(2 s(z*) - 1) e(z)], E[(2 s(z*) - 1) e'(z)] and 2 E[s'(z*) e(z)], shape (n, 1).

    overlap: cov(z, z*), shape (n,).
    """
    spread = np.sqrt(truth.variance)
    tilt = np.clip(overlap[:, None] / np.maximum(width * spread, _LEAST), -1.0, 1.0)
    value, slope = even(mean + width * _NODES)
    # z* given z, shape (n, nodes, nodes)
    center = truth.mean + spread * tilt * _NODES
    rest = spread * np.sqrt(1 - tilt**2)
    told = expit(center[:, :, None] + rest[:, :, None] * _NODES)
    signs, bends = (2 * told - 1) @ _WEIGHTS, (told * (1 - told)) @ _WEIGHTS
    parts = (signs * value, signs * slope, 2 * bends * value)
    first, second, third = ((part @ _WEIGHTS)[:, None] for part in parts)
    return first, second, third
