"""Symmetric matrices as vectors of their upper triangle, so that distances stay (Frobenius)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parties.kernel.sums.integer_sums import Exact, IntegerRows

Array = NDArray[np.float64]


def flat(matrix: Array) -> Array:
    """A symmetric matrix, shape (d, d), as d (d + 1) / 2 values; distances stay (Frobenius)."""
    rows, columns = np.triu_indices(len(matrix))
    values: Array = matrix[rows, columns] * weights(len(matrix))
    return values


def weights(size: int) -> Array:
    """What the upper triangle is multiplied by in `flat`."""
    rows, columns = np.triu_indices(size)
    return np.where(rows == columns, 1.0, np.sqrt(2.0))


def of_each(rows: Array, factor: Array) -> Array:
    """`flat` of factor_i x_i x_i^T, shape (n, d (d + 1) / 2), each of its row alone."""
    d = rows.shape[1]
    found, start = np.empty((len(rows), length(d))), 0
    scaled = rows * factor[:, None]
    for k in range(d):
        np.multiply(rows[:, k:], scaled[:, k : k + 1], out=found[:, start : start + d - k])
        start += d - k
    found *= weights(d)
    return found


def square(values: Array) -> Array:
    """Inverse of `flat`."""
    size = int(np.sqrt(2 * len(values)))
    return full(values / weights(size), size)


def full(upper: Array, size: int) -> Array:
    """The symmetric matrix of an upper triangle, in `np.triu_indices` order."""
    found = np.zeros((size, size))
    found[np.triu_indices(size)] = upper
    return np.asarray(found + np.triu(found, 1).T)


def length(features: int) -> int:
    """Of `flat`."""
    return features * (features + 1) // 2


def products_of(x: Array, bound: float) -> Exact:
    """`flat` of sum_i x_i x_i^T for rows of norm at most `bound`, which is public.

    Of rows of integers, so that |x x^T - y y^T|^2 <= 2 bound^4 holds of them as of any rows.
    """
    rows = IntegerRows(x, bound)
    d = x.shape[1]
    found = rows.products(lambda some: rows.x[some])
    return Exact(found[np.triu_indices(d)], 2 * rows.bits).times(weights(d))
