"""Sums of products of rows, as a party encrypts them: arithmetic on arrays, which holds nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers import symmetric
from parties.kernel.integers.exact import Exact, joined
from parties.kernel.integers.integer_rows import IntegerRows
from protocols.errors import ParameterError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GramSums:
    """gram: X^T X, shape (d, d); cross: X^T Y, shape (d, c); row_sums: b, shape (d,)."""

    gram: Array
    cross: Array
    row_sums: Array

    @classmethod
    def of(cls, rows: Array, targets: Array) -> GramSums:
        """The sums of rows, shape (rows, d), and encoded targets, shape (rows, c)."""
        size = np.abs(rows)
        return cls(rows.T @ rows, rows.T @ targets, 2 * size.T @ size.sum(axis=1))

    def __add__(self, other: GramSums) -> GramSums:
        """Sums of both sets of rows."""
        return GramSums(
            self.gram + other.gram, self.cross + other.cross, self.row_sums + other.row_sums
        )


def gram_sums(
    rows: Array,
    targets: Array,
    noise: Array,
    weight: Array | float,
    bounds: tuple[float, float] | None,
    num_rows: int,
    bits: int,
) -> GramSums:
    """One party's sums as it encrypts them, and as a twin adds them.

    rows: shape (rows, d), bias last; targets: encoded, shape (rows, c); weight: u on [0, 1], shape
    (rows,). X^T U X and X^T U Y are the sums of sqrt(u) x and sqrt(u) y, within the bounds of x and
    y, so that their sensitivity is. bounds: norms of both, None: no noise.
    """
    root = np.sqrt(np.reshape(weight, (-1, 1)))
    rows, targets = root * rows, root * targets
    if bounds is not None:
        return with_noise(rows, targets, bounds, noise, num_rows, bits)
    return GramSums.of(rows, targets)


def with_noise(
    rows: Array, targets: Array, bounds: tuple[float, float], noise: Array, num_rows: int, bits: int
) -> GramSums:
    """Sums with noise, shape (noise_size,), on their means; row sums, which are not sent, are 0.

    rows, targets: of norms within `bounds`, rounded toward zero to integers, whose products are
    added exactly: the sensitivity is that of any vectors within the bounds. Sums are rounded to the
    grid of 2^-bits, which the noise is on, so that nothing finer than the noise shows.

    Entries off the diagonal count sqrt(2) times, as in the Frobenius norm that the sensitivity is
    measured in, so their noise is divided by sqrt(2).
    """
    d = rows.shape[1]
    size, weights = symmetric.length(d), symmetric.weights(d)
    x, y = IntegerRows(rows, bounds[0]), IntegerRows(targets, bounds[1])
    gram = Exact(x.products(lambda some: x.x[some])[np.triu_indices(d)], 2 * x.bits)
    cross = Exact(x.products(lambda some: y.x[some]).ravel(), x.bits + y.bits)
    sums = joined(gram.times(weights / num_rows), cross.times(1 / num_rows))
    units = sums.on(bits) + np.ldexp(noise, bits).astype(np.int64)
    noisy = num_rows * Exact(units, bits).values
    return GramSums(symmetric.square(noisy[:size]), noisy[size:].reshape(d, -1), np.zeros(d))


def scaled_sums(sums: GramSums, unit: float, row_sums: bool) -> list[Array]:
    """2 X^T X, 2 X^T Y and row sums times their unit: shapes (d, d), (d, c), (d, 1)."""
    found = [2 * unit * sums.gram, 2 * unit * sums.cross]
    return [*found, unit * sums.row_sums[:, None]] if row_sums else found


def gram_sensitivity(norm_bound: float, target_bound: float) -> float:
    """Replace-one L2 sensitivity D of (X^T X, X^T Y); see `protocols.privacy.certificates.gram`.

    norm_bound: B, of every row; target_bound: Y, of every row's encoded targets.

    Raises:
        ParameterError: a bound is not positive and finite.
    """
    for name, value in (("norm_bound", norm_bound), ("target_bound", target_bound)):
        if not 0 < value < math.inf:
            raise ParameterError(f"{name}={value} must be positive and finite")
    if target_bound**2 <= 2 * norm_bound**2:
        return math.sqrt(2) * (norm_bound**2 + target_bound**2 / 2)
    return 2 * norm_bound * target_bound
