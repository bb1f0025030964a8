"""Symmetric matrices as vectors of their upper triangle, so that distances stay (Frobenius)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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


def square(values: Array) -> Array:
    """Inverse of `flat`."""
    size = int(np.sqrt(2 * len(values)))
    found = np.zeros((size, size))
    found[np.triu_indices(size)] = values / weights(size)
    return np.asarray(found + np.triu(found, 1).T)


def length(features: int) -> int:
    """Of `flat`."""
    return features * (features + 1) // 2
