"""Rows whitened by a private second moment: curvature first, so that few steps suffice.

C = X^T X / N + E is released once, over rows x of norm B at most; the owners then encode every row
as A x, clipped to norm 1, and train on that. Weights v of the whitened rows are weights A v of the
rows: <A x, v> = <x, A v>.

**Sensitivity.** |x x^T - y y^T|_F^2 = |x|^4 + |y|^4 - 2 <x, y>^2 <= 2 B^4, attained by orthogonal
rows of norm B: replacing one row moves C by at most sqrt(2) B^2 / N in Frobenius norm. E is
symmetric, E_ii ~ N(0, s^2) and E_ij ~ N(0, s^2 / 2), so that (C_ii, sqrt(2) C_ij), i < j, is a
Gaussian release in that norm: mu = sqrt(2) B^2 / (N sigma), sigma the part of s that the honest
parties alone leave.

**Tail.** The *total* noise has s = sqrt(P / (P - t)) sigma. E is s / sqrt(2) times a Gaussian
orthogonal matrix, whose largest eigenvalue has a mean of at most 2 sqrt(d) (Davidson, Szarek 2001,
Theorem 2.11: Slepian), and both extreme eigenvalues are s-Lipschitz in the Gaussian vector behind
E, because |E|_F is s times its norm. Hence |E| <= tau = s (sqrt(2 d) + sqrt(2 ln(2 / failure)))
except with probability `failure`, and then X^T X / N = C - E <= C + tau I in the Loewner order.

**Spectrum.** The second moment of the whitened rows is at most A (C + tau I) A, hence its largest
eigenvalue at most Lambda. Clipping multiplies rows by s_i <= 1: sum_i s_i^2 a_i a_i^T <= sum_i a_i
a_i^T, so Lambda stays a bound. It may NOT be claimed of a C over rows that are clipped otherwise
than those that are whitened: a C over rows of norm B says nothing about rows that nobody clipped
to B.

**Choice.** A = M / c, M = (C+ + k tau I)^(-1/2), C+ is C with its negative eigenvalues set to 0,
c^2 = trace(C+ (C+ + k tau I)^-1) is the mean square norm of a row M x. A is public and exact: it
needs no property beside `Whitening.check`, whoever made it.

**Without privacy** for the training (`guided`) a preconditioner need not be exact, and no row may
be clipped: c = |M| B. Where the noise of C drowns an entry, the schema's own guess stands for it.
With L from encoded rows to columns of typical value 0 and spread 1, L C L^T is about I, and

    K = I + W o (L C L^T - I),   W_ij = rho^2 / (rho^2 + nu_ij^2),

nu_ij^2 = s^2 / 2 (|l_i|^2 |l_j|^2 + <l_i, l_j>^2) the variance of (L E L^T)_ij, rho how far such
entries are from those of I, root mean square: M^2 = L^T (K+ + r)^-1 L, r^2 = max_i sum_j W_ij
nu_ij^2, which the norm of what is not known in K is about. rho is found in L C L^T itself, which
is public (empirical Bayes, Efron and Morris 1973): the mean of (L C L^T - I)_ij^2 - nu_ij^2, those
that say most weighing most, of the diagonal and of all others apart. Columns that correlate by .7
are told so from those that do not; and of rare categories, which a schema believes too wide, the
diagonal tells, while their correlations, all about 0, add no noise. Steps are bounded by the r of a
rho two standard errors larger, for a small table may not say that its columns correlate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers import clip_rows
from protocols.errors import ParameterError
from protocols.privacy.certificates.certificate import Condition
from protocols.privacy.laws.grid import discretisation_delta
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.budget import GRID_MARGIN

Array = NDArray[np.float64]

STRENGTH = 1.0
"""k, what is added to C in units of tau; .3 to 3 do about as well."""
ROUNDING = 2.0**-10
"""Of sigma: Frobenius norm of what fixed point may leave in C beside the noise."""
HAIR = 2.0**-20
"""Lambda is stated that much above what is found, so that every machine's rounding passes."""
LEAST = 2.0**-10
"""Of Lambda: rounding leaves room for a hair of it. Rows that fill their norm have more."""
LARGEST = 2.0**100
"""Of entries: products neither overflow, nor underflow by more than `_UNDERFLOW`."""
LONGEST_ROW = 2.0**8
"""Before whitening, for rounding alone: 65,536 columns in [-1, 1]."""
GUESSED = 0.2
"""rho where nothing is found, and where the weights of what is found begin to fall."""
LEAST_RHO = 0.05, GUESSED
"""Off the diagonal, on it; the largest is 1, for correlations are at most that."""
SURE = 2.0
"""Standard errors: steps are bounded by a rho so far above the one that is found."""
UNKNOWN = 1.0, 1.0
"""Parts of r that are added to K before it is inverted, and where steps are bounded by it."""
WARY = 4.0, 1.0
"""The same for losses that curve as much everywhere, so that no link holds a step that is too long:
27,000 rows x 23 columns, some with tails, were off by up to 7 times otherwise, and by 2.2 so."""
FLAT = 1e-4
"""Of a column of spread 1: curvature that is not told from none."""
_UNDERFLOW = 2.0**-700
_UNIT = 2.0**-53
_TRIES = 30
_RAISED = 1 + 1e-6
"""A sum of fewer than 2^30 numbers >= 0, each rounded a few times, is as large times this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Whitening:
    """Public numbers by which owners whiten their rows before encrypting.

    Attributes:
        moment: C, noise included, upper triangle in `np.triu_indices(d)` order, entries as in C.
        matrix: A = M / c, d rows of d numbers, symmetric.
        spectrum: Lambda, bound on the largest eigenvalue of the whitened rows' second moment.
        sigma: std that the honest parties alone leave on a diagonal entry of C; off the diagonal
            it is sigma / sqrt(2).
        failure: probability with which the tail bound of the noise may fail.

    Raises:
        ParameterError: shapes that do not fit, a number that is not finite or out of range, or a
            matrix that is not symmetric.
    """

    moment: tuple[float, ...]
    matrix: tuple[tuple[float, ...], ...]
    spectrum: float
    sigma: float
    failure: float

    def __post_init__(self) -> None:
        """Check the fields; numbers become floats, tables tuples."""
        rows = tuple(tuple(map(float, row)) for row in self.matrix)
        object.__setattr__(self, "matrix", rows)
        object.__setattr__(self, "moment", tuple(map(float, self.moment)))
        d = len(rows)
        if d < 1 or any(len(row) != d for row in rows):
            raise ParameterError(f"matrix of {d} rows is not square: give d rows of d numbers")
        if len(self.moment) != d * (d + 1) // 2:
            raise ParameterError(
                f"moment has {len(self.moment)} entries, {d} columns have {d * (d + 1) // 2} on "
                "and above the diagonal"
            )
        for name, values in (("matrix", np.array(rows)), ("moment", np.array(self.moment))):
            if not np.all(np.abs(values) <= LARGEST):
                raise ParameterError(f"{name} has an entry that is not finite, or above 2^100")
        if not np.array_equal(np.array(rows), np.array(rows).T):
            raise ParameterError("matrix is not symmetric")
        for name in ("spectrum", "sigma"):
            value = getattr(self, name)
            if not 0 < value <= LARGEST:
                raise ParameterError(f"{name}={value} is not a finite number > 0")
        if not 0 < self.failure < 1:
            raise ParameterError(f"failure={self.failure} is outside (0, 1)")

    @property
    def features(self) -> int:
        """d, bias included."""
        return len(self.matrix)

    @property
    def square(self) -> Array:
        """C, shape (d, d)."""
        found = np.zeros((self.features, self.features))
        found[np.triu_indices(self.features)] = self.moment
        return found + np.triu(found, 1).T

    @property
    def row_sum_bound(self) -> float:
        """2 d Lambda, of 2 mean |a_k| |a|_1 over rows a = A x: each mean product is in Lambda."""
        return 2 * self.features * self.spectrum

    def encode(self, rows: Array) -> Array:
        """A x of every row x, clipped to norm 1; shape (rows, d)."""
        return clip_rows(self._times(rows), 1.0)[0]

    def decode(self, weights: Array) -> Array:
        """Weights of the rows, from weights of whitened rows; shape (d,) or (T, d)."""
        return self._times(weights)

    def _times(self, values: Array) -> Array:
        if not values.ndim or values.shape[-1] != self.features:
            raise ParameterError(f"shape {values.shape} does not end in {self.features} columns")
        return np.asarray(values @ np.array(self.matrix))

    def tail(self, split: NoiseSplit) -> float:
        """tau, bound on the spectral norm of the TOTAL noise and of rounding; see the module."""
        total = split.total_std(self.sigma) * GRID_MARGIN
        deviation = math.sqrt(2 * math.log(2 / self.failure))
        return total * (math.sqrt(2 * self.features) + deviation) + ROUNDING * self.sigma

    def spent(self, split: NoiseSplit, *, rows: int, norm_bound: float) -> float:
        """mu of C as it is released, N rows of norm B: sqrt(2) B^2 / (N sigma), and rounding.

        Owners round (C_ii, sqrt(2) C_ij) to the noise's grid, each of two neighbours by half a unit
        in every entry: the sensitivity grows by sqrt(d (d + 1) / 2) units.
        """
        units = math.sqrt(len(self.moment)) * split.grid(self.sigma).unit
        return moment_sensitivity(rows, norm_bound) / self.sigma + units / self.sigma

    def delta(self, split: NoiseSplit, epsilon: float) -> float:
        """Beside mu: the tail, as much for the release itself, and the noise's grid in the tail."""
        return 2 * self.failure + discretisation_delta(
            units=split.grid(self.sigma).units(split.share_std(self.sigma) / math.sqrt(2)),
            shares=1,
            values=2 * len(self.moment),
            epsilon=epsilon,
        )

    def charged(
        self,
        counted: Mapping[str, float],
        split: NoiseSplit,
        *,
        rows: int,
        norm_bound: float,
        epsilon: float,
    ) -> dict[str, float]:
        """What a budget pays for beside the rounds, C included, for which a ledger was charged."""
        return {
            **counted,
            "other_delta": counted["other_delta"] + self.delta(split, epsilon),
            "paid_mu": self.spent(split, rows=rows, norm_bound=norm_bound),
        }

    def to_dict(self) -> dict[str, float]:
        """Figures of a certificate, JSON-ready; C and A are in the plan."""
        return {"spectrum": self.spectrum, "sigma": self.sigma, "failure": self.failure}

    def check(self, split: NoiseSplit) -> tuple[Condition, ...]:
        """Lambda bounds the whitened rows' second moment; nothing of it is believed.

        **Proof.** S = A (C + tau I) A. For any number s and any matrix L, R = s I - S - L L^T is
        symmetric, and s I - S = L L^T + R >= -|R| I, hence lambda_max(S) <= s + |R|, |R| at most
        the largest sum of a row of absolute values. L is a Cholesky factor as computed, of which
        nothing is claimed. R is computed in float64: a product of d terms X Y errs by at most
        gamma_d |X| |Y| in each entry, in any order of summation (Higham, Accuracy and Stability,
        section 3.5), gamma_n = n u / (1 - n u); so that A (C + tau I) A, its sums with tau
        rounded, errs by gamma_(2d+1) |A| |C + tau I| |A|, and L L^T by gamma_d |L| |L|^T.
        A row as encoded is A x to within e = (gamma_d + 4 u) |A|_oo B, clipping included, which
        moves the root of the largest eigenvalue by at most e (Minkowski); B is `LONGEST_ROW` here.

        split: P and t.
        """
        matrix = np.array(self.matrix)
        longest = float(np.abs(matrix).sum(axis=1).max()) * _RAISED
        e = (_gamma(self.features) + 4 * _UNIT) * longest * LONGEST_ROW
        noisy = self.square + self.tail(split) * np.eye(self.features)
        found = _largest_eigenvalue(matrix, noisy, self.spectrum * (1 - HAIR / 2))
        return (
            Condition(
                "whitening",
                (math.sqrt(found) + e) ** 2 * (1 + 8 * _UNIT),
                "<=",
                self.spectrum,
                "lambda_max(A (C + tau I) A) <= Lambda: no axis of the whitened rows is longer",
                by_design=True,
            ),
        )


def moment_sensitivity(rows: int, norm_bound: float) -> float:
    """sqrt(2) B^2 / N: replace-one, of C in Frobenius norm.

    Raises:
        ParameterError: an argument is out of range.
    """
    if rows < 1 or not 0 < norm_bound < math.inf:
        raise ParameterError(f"rows={rows}, norm_bound={norm_bound}: need >= 1 and > 0")
    return math.sqrt(2) * norm_bound**2 / rows


def whiten(moment: Array, *, sigma: float, split: NoiseSplit, failure: float) -> Whitening:
    """A and Lambda from a noisy C; public post-processing.

    Args:
        moment: C, noise included, shape (d, d), symmetric.
        sigma: see `Whitening`.
        split: P and t.
        failure: see `Whitening`.

    Raises:
        ParameterError: see `Whitening`; or C is noise alone, or no Lambda can be proven.
    """
    start = scaled(moment, norm_bound=1.0, sigma=sigma, split=split, failure=failure)
    values, axes = np.linalg.eigh(start.square)
    positive = np.maximum(values, 0.0)
    damped = positive + STRENGTH * start.tail(split)
    mean_square = float(np.sum(positive / damped))
    if not mean_square > 0:
        raise ParameterError("moment has no eigenvalue above 0: it is noise alone, lower sigma")
    root = (axes / np.sqrt(damped * mean_square)) @ axes.T
    return _proven(start, 0.5 * (root + root.T), split)


def scaled(
    moment: Array, *, norm_bound: float, sigma: float, split: NoiseSplit, failure: float
) -> Whitening:
    """Rows divided by their norm's bound, and no more: where a second moment is of no use.

    It has been released and is paid for all the same. Arguments and errors as of `whiten`.
    """
    c = np.asarray(moment, dtype=np.float64)
    if c.ndim != 2 or not np.array_equal(c, c.T):
        raise ParameterError(f"moment of shape {c.shape} is not a symmetric matrix")
    d = len(c)
    start = Whitening(
        moment=tuple(c[np.triu_indices(d)].tolist()),
        matrix=tuple(map(tuple, np.eye(d).tolist())),
        spectrum=1.0,
        sigma=sigma,
        failure=failure,
    )
    return _proven(start, np.eye(d) / norm_bound, split)


@dataclass(frozen=True, kw_only=True, slots=True)
class Usual:
    """What a schema says that encoded rows are like, without looking at any.

    middles, spreads: typical value and spread of each column but the bias, shape (d - 1,); bias:
    value of the bias column.
    """

    middles: tuple[float, ...]
    spreads: tuple[float, ...]
    bias: float

    @property
    def scaling(self) -> Array:
        """L, shape (d, d): of columns of typical value 0 and spread 1, and a bias of 1."""
        found: Array = np.diag(1 / np.array([*self.spreads, self.bias]))
        found[:-1, -1] = -np.array(self.middles) / np.array(self.spreads) / self.bias
        return found

    @property
    def moment(self) -> Array:
        """C of such columns, uncorrelated."""
        root = np.linalg.inv(self.scaling)
        return np.asarray(root @ root.T)


def guided(
    moment: Array,
    usual: Usual,
    *,
    norm_bound: float,
    sigma: float,
    split: NoiseSplit,
    failure: float,
    shortened: bool = True,
    unknown: tuple[float, float] = UNKNOWN,
) -> tuple[Whitening, Array]:
    """A that clips no row of norm B, and about the eigenvalues of A X^T X / N A, in order.

    Arguments as of `whiten`; usual: of the same columns; shortened: whether rows get to norm 1 at
    most; else they are about as long as columns of spread 1 make them; unknown: see UNKNOWN.

    Raises:
        ParameterError: see `Whitening`, or no Lambda can be proven.
    """
    start = scaled(moment, norm_bound=norm_bound, sigma=sigma, split=split, failure=failure)
    to_usual, one = usual.scaling, np.eye(start.features)
    products = to_usual @ to_usual.T
    lengths = np.diag(products)
    noise = split.total_std(sigma) ** 2 / 2 * (np.outer(lengths, lengths) + products**2)
    unlike = to_usual @ start.square @ to_usual.T - one
    known = _known(unlike, noise)
    found = one + known * unlike
    most = _known(unlike, noise, SURE)
    damp, reach = (
        part * math.sqrt(float((each * noise).sum(axis=1).max()))
        for part, each in zip(unknown, (known, most), strict=True)
    )
    values, axes = np.linalg.eigh((found + found.T) / 2)
    root = to_usual.T @ (axes / np.sqrt(np.maximum(values, 0.0) + max(damp, FLAT)))
    # Of the same curvature as root^T x, up to a rotation, and symmetric.
    values, axes = np.linalg.eigh(root @ root.T)
    roots = np.sqrt(np.maximum(values, 0.0))
    roots /= math.sqrt(values[-1]) * norm_bound if shortened else 1.0
    matrix = (axes * roots) @ axes.T
    back = np.linalg.inv(to_usual)
    largest = matrix @ back @ (found + reach * one) @ back.T @ matrix
    made = _proven(start, 0.5 * (matrix + matrix.T), split)
    guess = np.linalg.eigvalsh((largest + largest.T) / 2)
    return made, np.minimum(guess, made.spectrum)


def _known(unlike: Array, noise: Array, errors: float = 0.0) -> Array:
    """W, from L C L^T - I and the variance nu^2 of its noise, each of shape (d, d).

    errors: standard errors that rho^2 is taken above what is found; entries off the diagonal stand
    there twice.
    """
    diagonal, known = np.eye(len(noise), dtype=bool), np.empty_like(noise)
    for part, least, times in ((~diagonal, LEAST_RHO[0], 2), (diagonal, LEAST_RHO[1], 1)):
        weights = 1 / (GUESSED**2 + noise[part]) ** 2
        excess = float(np.sum(weights * (unlike[part] ** 2 - noise[part])))
        excess += errors * math.sqrt(2 * times * float(np.sum((weights * noise[part]) ** 2)))
        square = min(max(least**2, excess / max(float(np.sum(weights)), _UNDERFLOW)), 1.0)
        known[part] = square / (square + noise[part])
    return known


def rescaled(
    moment: Array, *, norm_bound: float, sigma: float, split: NoiseSplit, failure: float
) -> tuple[Whitening, float]:
    """A = B^(-1/2) / s, b_k = sum_j |C_kj|, s such that no row of norm B is clipped; and s^2.

    B - C >= 0 for any symmetric C: a step of s^2 / c along A's gradient is B^-1's of the loss, c
    the bound of its second derivative. Arguments and errors as of `whiten`.
    """
    start = scaled(moment, norm_bound=norm_bound, sigma=sigma, split=split, failure=failure)
    bound = np.abs(start.square).sum(axis=1)
    roots = 1 / np.sqrt(np.maximum(bound, max(HAIR * bound.max(), _UNDERFLOW)))
    scale = float(roots.max()) * norm_bound
    return _proven(start, np.diag(roots / scale), split), scale**2


def _proven(start: Whitening, matrix: Array, split: NoiseSplit) -> Whitening:
    """With this matrix, and the least Lambda that `Whitening.check` lets pass."""
    noisy = start.square + start.tail(split) * np.eye(start.features)
    own = max(float(np.linalg.eigvalsh(matrix @ noisy @ matrix)[-1]), LEAST)
    made = replace(start, matrix=tuple(map(tuple, matrix.tolist())), spectrum=own * (1 + HAIR))
    for _ in range(_TRIES):
        if all(condition.satisfied for condition in made.check(split)):
            return made
        made = replace(made, spectrum=own + 2 * (made.spectrum - own))
    raise ParameterError("moment is too ill conditioned: no Lambda can be proven")


def _largest_eigenvalue(matrix: Array, middle: Array, guess: float) -> float:
    """Certain bound on lambda_max(A G A), A and G symmetric; above `guess` if that is too low.

    The proof is in `Whitening.check`, G = C + tau I; it holds for any guess s.
    """
    d = len(matrix)
    product = matrix @ middle @ matrix
    for s in (guess, float(np.linalg.norm(product)) * (1 + HAIR)):
        difference = s * np.eye(d) - product
        try:
            factor = np.linalg.cholesky(difference)
        except np.linalg.LinAlgError:
            continue
        break
    else:
        return math.inf
    sizes, lower = np.abs(matrix), np.abs(factor)
    rounding = _gamma(2 * d + 1) * (sizes @ (np.abs(middle) @ sizes.sum(axis=1)))
    rounding += _gamma(d) * (lower @ lower.sum(axis=0))
    rounding += 2 * _UNIT * np.abs(np.diag(difference))
    residual = np.abs(difference - factor @ factor.T).sum(axis=1)
    return s + float(np.max(residual + rounding)) * _RAISED + _UNDERFLOW


def _gamma(terms: int) -> float:
    """n u / (1 - n u), rounded up."""
    return terms * _UNIT / (1 - terms * _UNIT) * _RAISED
