"""Slope and intercept that make released scores probabilities again, from public figures alone.

Few steps, a ridge and a polynomial that is too flat leave a known bias in the scale of the weights:
the recursion of `utility` says which. Let rows be whitened by a public second moment, z = m + sum_j
w_j x_j with E[x_j^2] = q_j over uncorrelated directions, the first the constant one.

**What the labels said.** The gradient pulls direction j by g_j = E[s'(z*)] q_j w*_j = E[y x_j] in
every step. The recursion is linear in the pulls once E[p'(z)] is given, hence w_j = h_j g_j + noise
of variance n_j, and h_j, n_j follow from the plan and the released weights: iterate the recursion
with the pulls that end at them. So
    c = cov(y, z) = sum_j w_j g_j,   estimated without bias by sum_j (w_j^2 - n_j) / h_j,
of variance sum_j (4 u_j^2 n_j + 2 n_j^2) / h_j^2, u_j^2 = w_j^2 - n_j; and the base rate is the one
with which the constant direction ends where it did.

**What the scores should be.** a z + b is calibrated in mean and slope if E[s(a z + b)] = E[y] and
cov(s(a z + b), z) = cov(y, z) = c: the maximum of the likelihood over (a, b). For Gaussian z of
variance S the latter is a S E[s'(a z + b)] = c by Stein's lemma; it rises with a.

**Where noise explains the weights, nothing is done.** c_1, S E[s'] of the scores as they are,
belongs to a = 1. c is moved towards it by the weights of a Gaussian prior of std PRIOR c_1 and the
estimate's variance, in which the noise of the second moment and MISFIT, the mean field's own error,
count as well; the intercept likewise by what it is known to. a stays within 1/LARGEST .. LARGEST.

Where the second moment's own noise hides much of S, so that nobody knows the scores' size,
a = 1 and b = 0 (`DOUBT`).

**Privacy.** The arguments are the released weights, the released second moment and the plan. The
result is a fixed function of them, without rows, labels or randomness: differential privacy is
closed under such post-processing, and nothing is charged. Who holds the three computes nearly the
same: of directions with equal q_j another machine's rounding takes other ones, and a and b move by
up to a percent. So a model states the a and b that it was given.

**Why there is no private recalibration.** Two numbers fitted to the labels with a share f of mu^2
cost about D^2 v / (N mu)^2 / (f E[s']) nats, D^2 = 10 of scores clipped to three spreads and v =
P / (P - t), and f / (1 - f) of what noise costs already. For epsilon = 1 that is 2e3 / (f N^2): at
a tenth .02 for N = 1,000, .1 for 460, where it could gain .01 and .05 (six tables, an ideal fit
after this one); for N >= 10,000 it could gain .003, the search's tolerance. So it pays nowhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from protocols.privacy.search.utility import (
    FINE,
    FINE_WEIGHTS,
    Candidate,
    Columns,
    Field,
    Truths,
    gaussian_mean,
)

Floats = NDArray[np.float64]

MISFIT = 0.15
"""Relative error of c: on census, credit and clinical tables it was right to 1 to 15 %."""
PRIOR = 0.5
"""Relative std of c around c_1 that is expected."""
BASE_PRIOR = 0.25
"""Std of the base rate around 1/2."""
SHIFT = 0.2
"""Std of the intercept's error, beside its noise, that is expected."""
LARGEST = 4.0
DIGITS = 6
DOUBT = 1.0
"""Of the scores' variance, what the second moment's noise may hide: above it nothing is known.

Tables of 24,000 rows and more have .03, one of 1,000 rows .4 to .8, of some hundred 1 to 10.
"""
CLOSE = 0.02
"""Of the scores' size: how near to the weights the recursion has to end."""
_ROUNDS = 40
_BISECTIONS = 50
_STEP = 1e-4  # of a base rate
_LEAST = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """What is public about the rows.

    Attributes:
        moment: C, mean of x x^T over the rows before whitening, noise included, shape (d, d), the
            bias last.
        matrix: A, whitened rows are A x, shape (d, d), symmetric.
        noise: std of ALL parties' noise on a diagonal entry of C; off it, 1 / sqrt(2) of that.
        bias: value of the bias column in a row that is not clipped.
    """

    moment: Floats
    matrix: Floats
    noise: float
    bias: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """a z + b in the place of the score z.

    Attributes:
        slope, intercept: a, b.
    """

    slope: float
    intercept: float

    def of(self, weights: Floats, bias: float) -> Floats:
        """Weights of the rows before whitening, shape (d,), bias last, whose scores are a z + b."""
        found = self.slope * weights
        found[-1] += self.intercept / bias
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """Scores on new rows, as far as they are known.

    mean, variance: m, S; mean_error: std of m; covariance, covariance_error: c; base, base_error:
    E[y]; wander: std that noise gave m.
    """

    mean: float
    variance: float
    mean_error: float
    covariance: float
    covariance_error: float
    base: float
    base_error: float
    wander: float


def rescale(weights: Floats, candidate: Candidate, moments: Moments) -> Scaling:
    """a and b for released weights; (1, 0) where nothing is known.

    Args:
        weights: v of the whitened rows, shape (d,); those of the rows are A v.
        candidate: the plan's rule, link and ALL parties' noise.
        moments: public figures.
    """
    with np.errstate(all="ignore"):
        known = _known(weights, candidate, moments)
        if known is None or not math.isfinite(sum(_numbers(known))) or known.variance <= _LEAST:
            return Scaling(slope=1.0, intercept=0.0)
        slope, mean = _calibrated(known)
        steep = _steepness(mean, slope**2 * known.variance)
        expected = (slope * known.wander) ** 2 + SHIFT**2
        error = (slope * known.mean_error) ** 2 + (known.base_error / steep) ** 2
        intercept = (mean - slope * known.mean) * expected / (expected + error)
    return Scaling(slope=_rounded(slope), intercept=_rounded(intercept))


def _calibrated(known: _Known) -> tuple[float, float]:
    """a, and E[a z + b]."""
    usual = known.variance * _steepness(known.mean, known.variance)
    prior = (PRIOR * usual) ** 2
    trust = prior / (prior + known.covariance_error**2)
    wanted = trust * known.covariance + (1 - trust) * usual
    low, high, mean = 1 / LARGEST, LARGEST, 0.0
    for _ in range(_BISECTIONS):
        slope = (low + high) / 2
        variance = slope**2 * known.variance
        mean = float(gaussian_mean(np.array([[variance]]), np.array([[known.base]]))[0, 0])
        above = slope * known.variance * _steepness(mean, variance) > wanted
        low, high = (low, slope) if above else (slope, high)
    return (low + high) / 2, mean


def _steepness(mean: float, variance: float) -> float:
    """E[s'(z)] of a Gaussian z."""
    z = mean + math.sqrt(variance) * FINE
    return float(FINE_WEIGHTS @ (expit(z) * expit(-z)))


def _known(weights: Floats, candidate: Candidate, public: Moments) -> _Known | None:
    """The recursion that ends at these weights; None where none is found."""
    values, vectors = np.linalg.eigh(public.moment)
    moment = (vectors * np.maximum(values, 0.0)) @ vectors.T
    # Clipped rows have a smaller bias.
    bias = min(max(math.sqrt(max(moment[-1, -1], 0.0)), 0.75 * public.bias), public.bias)
    center = public.matrix @ moment[:, -1] / bias
    whitened = public.matrix @ moment @ public.matrix
    length = float(np.linalg.norm(center))
    if not length > 0:
        return None  # noise has left nothing of the constant column
    basis = _complement(center / length)
    q, directions = np.linalg.eigh(basis.T @ whitened @ basis)
    q = np.maximum(q, _LEAST)
    columns = Columns(moments=np.append(length**2, q), count=np.ones(q.size + 1))
    first, others = float(center @ weights) / length, (basis @ directions).T @ weights
    field = Field([candidate], columns)
    mean, variance = length * first, float(others**2 @ q)
    z = mean + math.sqrt(variance) * FINE
    base, pulls = float(FINE_WEIGHTS @ expit(z)), np.abs(others) * q * _steepness(mean, variance)
    response, noise, lever, gap = pulls, np.zeros(q.size + 1), 1.0, math.inf
    for _ in range(_ROUNDS):
        pulls = np.maximum(pulls, _LEAST)
        ends, noises = field.weights(_truths(pulls / q, base))
        noise, response = noises[0], ends[0, 1:] / pulls
        lever = (ends[1, 0] - ends[0, 0]) / _STEP
        # A floor, so that no direction is without a response.
        wanted = np.sqrt(np.maximum(others**2 - noise[1:], others**2 / 20))
        missed = first - float(ends[0, 0])
        gap = math.hypot(length * missed, math.sqrt(float((ends[0, 1:] - wanted) ** 2 @ q)))
        # Half steps, in the pulls' logarithms: near a fixed point the link amplifies.
        base = min(max(base + missed / lever / 2, 1e-3), 1 - 1e-3)
        pulls = np.sqrt(pulls * wanted / response)
    if not gap <= CLOSE * float(np.hypot(math.sqrt(variance), mean)):
        return None
    squares = np.maximum(others**2 - noise[1:], 0.0)
    covariance = float(np.sum((others**2 - noise[1:]) / response))
    chance = float(np.sum((4 * squares * noise[1:] + 2 * noise[1:] ** 2) / response**2))
    raw = public.matrix @ weights
    doubt = public.noise * float(raw @ raw) / max(variance, _LEAST)
    if not doubt <= DOUBT:
        return None
    bases = [(base, math.sqrt(noise[0] + _LEAST) / lever), (0.5, BASE_PRIOR)]
    precision = sum(error**-2 for _, error in bases)
    return _Known(
        mean=mean,
        variance=variance,
        mean_error=public.noise * float(np.linalg.norm(raw)) / math.sqrt(2) / public.bias,
        covariance=covariance,
        covariance_error=math.sqrt(chance + covariance**2 * (MISFIT**2 + doubt**2)),
        base=min(max(sum(b * error**-2 for b, error in bases) / precision, 0.01), 0.99),
        base_error=precision**-0.5,
        wander=length * math.sqrt(noise[0]),
    )


def _truths(pulls: Floats, base: float) -> Truths:
    """E[s'(z*)] w*_j given, for this base rate and one that is _STEP larger."""
    one = np.ones((2, 1))
    weights = np.tile(np.append(0.0, pulls), (2, 1))
    base_rates = np.array([[base], [base + _STEP]])
    return Truths(mean=0 * one, variance=one, base=base_rates, slope=one, weights=weights)


def _complement(unit: Floats) -> Floats:
    """Orthonormal directions beside a unit vector, shape (d, d - 1), by reflection."""
    axis = unit.copy()
    axis[0] += math.copysign(1.0, unit[0])
    reflection = np.eye(unit.size) - 2 * np.outer(axis, axis) / (axis @ axis)
    return np.asarray(reflection[:, 1:])


def _numbers(known: _Known) -> tuple[float, ...]:
    return (known.mean, known.variance, known.covariance, known.covariance_error, known.base_error)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
