"""What a row adds to a generalised linear model: score, information and deviance at a point.

With eta = x theta + offset, mean mu(eta), variance function V(mu), and the slope mu' of the link,

    score     x s,      s = weight (y - mu) mu' / V,
    information  x x^T w,  w = weight mu'^2 / V   (expected),
    robust    s^2 x x^T,

and of every row weight, weight y, the unit deviance and, of gaussian and gamma, (y - mu)^2 / V.
Negative binomial, V = mu + alpha mu^2: also the first and second derivative of the log-likelihood
with respect to ln r, r = 1 / alpha.

With `within` each party has an intercept of its own, which it finds by itself at theta: the maximum
over its rows, within `far` of the common one; where all outcomes are at an end there is none, and
the party adds nothing. Score, information and robust sums are then those of x less its mean by w,
which gives estimates and errors of a model with an indicator for every party (Frisch and Waugh),
and nobody learns the intercepts. With `clusters` a party adds t t^T, t the sum of its rows' scores.

With an `estimand` a row also weighs by the inverse of its probability p of the treatment t that it
has, by a logistic model at public `scores` and held on [trim, 1 - trim], of t = 1 and of t = 0

    ate      1 / p,      1 / (1 - p),
    att      1,      p / (1 - p),
    overlap  1 - p,      p.

Without privacy alone: norms are those of exact sums, which need them for their range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, expit, log_expit, log_ndtr, ndtr, polygamma, xlogy

from parties.kernel.integers import added, symmetric
from parties.kernel.integers.exact import Exact, joined
from parties.kernel.integers.integer_rows import lengths
from parties.kernel.sheet import SLACK
from parties.kernel.study.described import check_numbers, check_places
from parties.kernel.sums.products import of_each
from parties.kernel.sums.row_function import Array, SumFunction, check_sizes
from protocols.errors import ParameterError

ESTIMANDS: Mapping[str, Callable[[Array], tuple[Array, Array]]] = {
    "ate": lambda p: (1 / p, 1 / (1 - p)),
    "att": lambda p: (np.ones_like(p), p / (1 - p)),
    "overlap": lambda p: (1 - p, p),
}
"""Weights of rows with the treatment and without."""
LEAST_TRIM = 1e-4
TARGETS = 8
"""Places below are of numbers among the outcomes, others, less so many, of features."""
LARGEST_ETA, FAR = 30.0, 5.0
STEPS, LONGEST = 60, 2.0
"""Of Newton's method for a party's own intercept."""
TINY = 1e-300
FIGURES = ("weight", "weighted", "deviance", "pearson", "first", "second", "clipped")
Place = tuple[int, float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Generalised(SumFunction):
    """Figures, score, information and robust sums; then of clusters.

    family, link: of LINKS; theta: of the covariates, the intercept last, shape (d + 1,); columns:
    places of the covariates, shape (d,); target, weight, offset: (place, low, width) of a number on
    [0, 1] of its range, see TARGETS; empty: none; alpha: of the negative binomial, 0 of others;
    row_norm: B, of the covariates; within, clusters: see the module; rows: of the largest party;
    estimand: of ESTIMANDS, or empty; treatment: its feature; scored, scores: columns and theta of
    its model; trim: see the module.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "generalised"
    without_noise = True

    family: str
    link: str
    theta: tuple[float, ...]
    columns: tuple[int, ...]
    target: Place
    row_norm: float
    rows: int
    weight: tuple[int | float, ...] = ()
    offset: tuple[int | float, ...] = ()
    alpha: float = 0.0
    within: bool = False
    clusters: bool = False
    estimand: str = ""
    treatment: tuple[int, ...] = ()
    scored: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    trim: float = 0.0

    def __post_init__(self) -> None:
        check_places(columns=self.columns, scored=self.scored, treatment=self.treatment)
        if self.link not in LINKS.get(self.family, {}):
            raise ParameterError(f"family={self.family!r} has no link {self.link!r}")
        check_numbers(len(self.columns) + 1, theta=self.theta)
        if self.estimand:
            check_numbers(len(self.scored) + 1, scores=self.scores)
            if self.estimand not in ESTIMANDS or len(self.treatment) != 1:
                raise ParameterError(f"estimand={self.estimand!r}: unknown, or of no treatment")
            if not LEAST_TRIM <= self.trim < 0.5:
                raise ParameterError(f"trim={self.trim} is not from {LEAST_TRIM} to below 0.5")
        for name in ("target", "weight", "offset"):
            each = getattr(self, name)
            if each or name == "target":
                place, low, width = each
                most = 1 << 16 if name == "target" else TARGETS
                inside = type(place) is int and 0 <= place < most
                if not (inside and abs(low) <= 1e9 >= width > 0):
                    raise ParameterError(f"{name}={each} is no place, low end and width")
        if self.weight and self.weight[1] < 0:
            raise ParameterError(f"weight={self.weight}: its low end is negative")
        low, high = _ends(self.target)
        if (low < 0 and self.family != "gaussian") or (low <= 0 and self.family == "gamma"):
            raise ParameterError(f"target={self.target}: its low end is too low for {self.family}")
        if self.family == "binomial" and (low, high) != (0.0, 1.0):
            raise ParameterError(f"target={self.target}: a binomial one is on [0, 1]")
        if (self.family == "negative-binomial") != (self.alpha > 0) or not self.alpha <= 1e6:
            raise ParameterError(f"alpha={self.alpha} goes with the negative binomial alone")
        if {type(self.within), type(self.clusters)} != {bool}:
            raise ParameterError("within and clusters are true or false")
        if type(self.rows) is not int or not 1 <= self.rows < 1 << 40:
            raise ParameterError(f"rows={self.rows} is no number of rows")
        check_sizes(row_norm=self.row_norm)

    @property
    def values(self) -> tuple[int, int, int, int]:
        """Lengths of the parts."""
        d = len(self.theta) - self.within
        square = symmetric.length(d)
        return len(FIGURES) + d, square, square, square * self.clusters

    def most_rows(self) -> float:
        """Outer products grow with their square."""
        return self.rows

    def alone(self, roster: Collection[str], colluders: int) -> Collection[str]:
        """Everybody: of totals and of centred rows a few owners' tell of each, or one's is all."""
        return roster if self.clusters or self.within else ()

    def length(self, features: int) -> int:
        """Of all parts."""
        return sum(self.values)

    @property
    def ends(self) -> tuple[float, float]:
        """Of eta, for covariates on [-1, 1]."""
        *slopes, intercept = self.theta
        reach = float(np.abs(slopes).sum()) + self.far * self.within
        low, high = _ends(self.offset) if self.offset else (0.0, 0.0)
        low, high = intercept - reach + low, intercept + reach + high
        if self.link == "identity":
            return low, high
        low, high = np.clip((low, high), -LARGEST_ETA, LARGEST_ETA)
        return float(low), float(high)

    @property
    def far(self) -> float:
        """Of a party's intercept from the common one."""
        return float(self.target[2]) if self.link == "identity" else FAR

    @property
    def _bounds(self) -> tuple[float, float]:
        """Of |s| and w; of a row's figures."""
        low, high = self.ends
        far, own = max(-low, high), max(map(abs, _ends(self.target)))
        top = 1.0 if self.link == "identity" else math.exp(high)
        s = {
            "logit": 1.0,
            "probit": 1.0 + far,
            "cloglog": 1.0 + top,
            "identity": own + far,
            "log": own + (min(top, 1 / self.alpha) if self.alpha else top),
        }[self.link]
        if self.family == "gamma":
            s = 1 + own * math.exp(-low)
        weight = _ends(self.weight)[1] if self.weight else 1.0
        weight = weight / (self.trim if self.estimand else 1.0)
        more = 0.0 if self.family == "gaussian" else 1 / min(_ends(self.target)[0] or 1.0, 1.0)
        deviance = 8 * (1 + own + s) * (2 + far + math.log(1 + own + more)) + far**2 + s**2
        return max(1.0, s) * max(1.0, weight), max(1.0, weight) * (deviance + 8 * top)

    def most(self, query: str) -> float:
        """Of all parts, each at its bound."""
        s, figure = self._bounds
        norm = self.row_norm * (1 + self.within)
        clusters = self.rows * (s * norm) ** 2 if self.clusters else 0.0
        return math.hypot(3 * figure, s * norm, s * norm**2, (s * norm) ** 2, clusters)

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """All parts, of one party's rows."""
        target = _read(x, y, self.target)
        weight, clipped = self.weights(x, y)
        offset = _read(x, y, self.offset) if self.offset else np.zeros(len(y))
        *slopes, intercept = self.theta
        x = x[:, list(self.columns)]
        eta = x @ np.array(slopes) + intercept + offset
        if self.within:
            eta = eta + self._own_intercept(eta, target, weight)
            counts = self._has_intercept(target[weight > 0])
            weight, clipped = weight * counts, clipped * counts
        figures, s, w = self.terms(eta, target, weight)
        if self.within:
            x = x - (w @ x) / max(float(w.sum()), TINY)
        else:
            x = np.column_stack([x, np.ones(len(x))])
        (bound, figure), norm = self._bounds, self.row_norm * (1 + self.within)
        scores = x * s[:, None]
        told = np.column_stack([figures, clipped, scores])
        parts: tuple[tuple[Callable[[slice], Array], float], ...] = (
            (lambda rows: told[rows], figure + bound * norm),
            (lambda rows: of_each(x[rows], w[rows]), bound * norm**2),
            (lambda rows: of_each(x[rows], s[rows] ** 2), (bound * norm) ** 2),
        )
        found = [
            Exact(*added(part, len(x), length, largest))
            for (part, largest), length in zip(parts, self.values, strict=False)
        ]
        if self.clusters:
            # Held to the bound as well: beyond the range, whole owners would be constants.
            long = np.maximum(lengths(scores, 2), TINY)
            total = (scores * np.minimum(1.0, SLACK * bound * norm / long)[:, None]).sum(axis=0)
            found.append(Exact.of(symmetric.flat(np.outer(total, total))))
        return joined(*found)

    def weights(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Of every row, and a one where its probability of the treatment was held."""
        weight = _read(x, y, self.weight) if self.weight else np.ones(len(y))
        if not self.estimand:
            return weight, np.zeros(len(y))
        *slopes, intercept = self.scores
        p = expit(x[:, list(self.scored)] @ np.array(slopes) + intercept)
        held = np.clip(p, self.trim, 1 - self.trim)
        treated, others = ESTIMANDS[self.estimand](held)
        weight = weight * np.asarray(np.where(x[:, self.treatment[0]] > 0.5, treated, others))
        return weight, (p != held).astype(np.float64)

    def terms(self, eta: Array, y: Array, weight: Array) -> tuple[Array, Array, Array]:
        """Figures but the last, s and w, weighted; shapes (rows, 6), (rows,) and (rows,)."""
        eta = np.clip(eta, *self.ends)
        mean, s, w, deviance = LINKS[self.family][self.link](eta, y, self.alpha)
        square = s * s * (self.family in ("gaussian", "gamma"))
        first = second = np.zeros(len(y))
        if self.alpha:
            r = 1 / self.alpha
            one = digamma(y + r) - digamma(r) - np.log1p(mean / r) + (mean - y) / (r + mean)
            two = polygamma(1, y + r) - polygamma(1, r) + mean / (r * (r + mean))
            two = two - (mean - y) / (r + mean) ** 2
            first, second = r * one, r * one + r * r * two
        figures = np.column_stack([np.ones(len(y)), y, deviance, square, first, second])
        return figures * weight[:, None], s * weight, w * weight

    def _own_intercept(self, eta: Array, y: Array, weight: Array) -> float:
        """Beside the common one, within `far` of it."""
        own, far = 0.0, self.far
        for _ in range(STEPS):
            _, s, w = self.terms(eta + own, y, weight)
            longest = LONGEST / FAR * far
            move = float(np.clip(s.sum() / max(float(w.sum()), TINY), -longest, longest))
            own = float(np.clip(own + move, -far, far))
            if abs(move) < 1e-14 * longest:
                break
        return own

    def _has_intercept(self, y: Array) -> bool:
        """Whether outcomes are not all at an end of what the family allows."""
        if self.family == "gaussian":
            return True
        return bool((y > 0).any() and (self.family != "binomial" or (y < 1).any()))


def _ends(place: tuple[int | float, ...]) -> tuple[float, float]:
    _, low, width = place
    return float(low), float(low + width)


def _read(x: Array, y: Array, place: tuple[int | float, ...]) -> Array:
    """In its own units; of a feature whether it is a one."""
    k, low, width = int(place[0]), *place[1:]
    return np.asarray(low + width * (y[:, k] if k < TARGETS else x[:, k - TARGETS] > 0.5))


# -- families: mean, s, w and unit deviance -------------------------------------------------------

Terms = tuple[Array, Array, Array, Array]


def _gaussian(eta: Array, y: Array, alpha: float) -> Terms:
    return eta, y - eta, np.ones_like(eta), (y - eta) ** 2


def _poisson(eta: Array, y: Array, alpha: float) -> Terms:
    mean = np.exp(eta)
    return mean, y - mean, mean, 2 * (xlogy(y, y) - y * eta - (y - mean))


def _gamma(eta: Array, y: Array, alpha: float) -> Terms:
    ratio = y * np.exp(-eta)
    return np.exp(eta), ratio - 1, np.ones_like(eta), 2 * (ratio - 1 - np.log(y) + eta)


def _negative_binomial(eta: Array, y: Array, alpha: float) -> Terms:
    mean, r = np.exp(eta), 1 / alpha
    slope = 1 + alpha * mean
    deviance = 2 * (
        xlogy(y, y) - y * eta - (y + r) * (np.log1p(alpha * y) - np.log1p(alpha * mean))
    )
    return mean, (y - mean) / slope, mean / slope, deviance


def _logit(eta: Array, y: Array, alpha: float) -> Terms:
    mean = expit(eta)
    return mean, y - mean, mean * (1 - mean), _entropy(y, log_expit(eta), log_expit(-eta))


def _probit(eta: Array, y: Array, alpha: float) -> Terms:
    yes, no = log_ndtr(eta), log_ndtr(-eta)
    log_density = -(eta**2) / 2 - math.log(2 * math.pi) / 2
    up, down = np.exp(log_density - yes), np.exp(log_density - no)
    return ndtr(eta), y * up - (1 - y) * down, up * down, _entropy(y, yes, no)


def _cloglog(eta: Array, y: Array, alpha: float) -> Terms:
    rate = np.exp(eta)  # 1 - mean = exp(-rate)
    mean = -np.expm1(-rate)
    up = rate * np.exp(-rate) / mean
    return mean, y * up - (1 - y) * rate, rate * up, _entropy(y, np.log(mean), -rate)


def _entropy(y: Array, yes: Array, no: Array) -> Array:
    """-2 ln of the likelihood of y, of yes and no: ln mu and ln (1 - mu); less that at mu = y."""
    return np.asarray(2 * (xlogy(y, y) + xlogy(1 - y, 1 - y) - y * yes - (1 - y) * no))


LINKS: Mapping[str, Mapping[str, Callable[[Array, Array, float], Terms]]] = {
    "binomial": {"logit": _logit, "probit": _probit, "cloglog": _cloglog},
    "poisson": {"log": _poisson},
    "gaussian": {"identity": _gaussian},
    "gamma": {"log": _gamma},
    "negative-binomial": {"log": _negative_binomial},
}
"""By family, the usual one first."""
