"""A public projection: many columns become a few, where each row becomes a vector.

    z -> M (z - c)        z: a row's features, scaled and clamped by the schema

M and c are public numbers of the schema, so that its digest covers them: of `schema init --project`
they are the principal components and the mean of a PUBLIC sample, which nobody needs afterwards.

Privacy: M (z - c) is exact, and so a function of the row alone, bit for bit, whatever stands
in other rows: z is rounded to a grid of 2^-20, M and c are whole numbers of units of 2^-12, and no
sum of their products reaches 2^53.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from protocols.errors import SchemaError
from protocols.exchange.documents import Checked, Text

FloatArray = NDArray[np.float64]
UNIT_BITS, GRID_BITS = 12, 20
MOST_UNITS = 1 << 14
"""Of an entry of M or c."""
MOST_SUM = 1 << 30
"""Of columns times the largest entry of M: |z - c| < 2^3, and 3 + 20 + 30 bits are 53."""


class Projection(Checked, frozen=True):
    """M and c, as texts of whole numbers with spaces between them [2^-12].

    rows: of M, one for each component, at least one; centre: c. All have one number for each
    feature.

    Raises:
        SchemaError: texts hold something else, too few or too large numbers, or a row of zeros.
    """

    REFUSAL: ClassVar[type[SchemaError]] = SchemaError
    rows: Annotated[tuple[Text, ...], Meta(min_length=1)]
    centre: Text

    def __post_init__(self) -> None:
        """Check that there is a matrix in the texts."""
        Checked.__post_init__(self)
        matrix, centre = _units(self)
        largest = max(np.abs(matrix).max(), np.abs(centre).max())
        if largest > MOST_UNITS or len(centre) * np.abs(matrix).max() > MOST_SUM:
            raise SchemaError(
                f"projection has entries of {largest:g} units for {len(centre)} features: at most "
                f"{MOST_UNITS}, and {MOST_SUM // len(centre)} for so many; scale the matrix down"
            )
        if not np.abs(matrix).max(axis=1).all():
            raise SchemaError("projection has a row of zeros: leave it out")

    @classmethod
    def of_public(cls, sample: FloatArray, components: int) -> Projection:
        """Mean and principal components of a PUBLIC sample, shape (rows, features), by variance.

        Raises:
            SchemaError: not 1 <= components < features, or fewer rows than components.
        """
        if not 1 <= components < sample.shape[1] or len(sample) <= components:
            raise SchemaError(
                f"project={components} of {sample.shape[1]} features and {len(sample)} rows: give "
                "a number below both"
            )
        centre = sample.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(sample, rowvar=False))
        chosen = vectors[:, np.argsort(-values, kind="stable")[:components]].T
        return cls(rows=tuple(map(_text, chosen)), centre=_text(centre))

    @property
    def features(self) -> int:
        """How many there are before."""
        return int(self.matrix.shape[1])

    @property
    def names(self) -> tuple[str, ...]:
        """Of the components."""
        return tuple(f"component {k + 1}" for k in range(len(self.rows)))

    @property
    def matrix(self) -> FloatArray:
        """M, shape (components, features)."""
        return np.ldexp(_units(self)[0], -UNIT_BITS)

    @property
    def shift(self) -> FloatArray:
        """c, shape (features,)."""
        return np.ldexp(_units(self)[1], -UNIT_BITS)

    def __call__(self, z: FloatArray) -> FloatArray:
        """Rows of features, shape (rows, features), |z| <= 2, as components; exact on the grid."""
        matrix, centre = _units(self)
        moved = np.rint(np.ldexp(z, GRID_BITS)) - np.ldexp(centre, GRID_BITS - UNIT_BITS)
        found: FloatArray = np.ldexp(moved @ matrix.T, -GRID_BITS - UNIT_BITS)
        return found

    def norm_bound(self, bounds: FloatArray) -> float:
        """Of what a row becomes whose features are at most `bounds`, shape (features,)."""
        longest = float(np.linalg.norm(bounds + np.abs(self.shift)))
        return longest * float(np.linalg.norm(self.matrix, 2)) * (1 + 1e-9)

    def undone(self, weights: FloatArray) -> tuple[FloatArray, float]:
        """(u, b) with weights @ M (z - c) = u @ z + b, for all z."""
        found: FloatArray = weights @ self.matrix
        return found, -float(found @ self.shift)


def _text(values: FloatArray) -> str:
    return " ".join(f"{unit:d}" for unit in np.rint(np.ldexp(values, UNIT_BITS)).astype(int))


@lru_cache(maxsize=8)
def _units(projection: Projection) -> tuple[FloatArray, FloatArray]:
    """M and c in units; read-only."""
    try:
        lines = [[int(word) for word in line.split()] for line in projection.rows]
        centre = np.array([int(word) for word in projection.centre.split()], dtype=np.float64)
        matrix = np.array(lines, dtype=np.float64)
    except (ValueError, OverflowError):
        raise SchemaError(
            "projection: rows and centre are whole numbers with spaces between them, as many in "
            "each"
        ) from None
    if matrix.ndim != 2 or matrix.shape[1:] != centre.shape or not matrix.size:
        raise SchemaError(
            f"projection: {len(centre)} numbers of centre and {matrix.shape[1:]} of each row: give "
            "one for each feature"
        )
    for array in (matrix, centre):
        array.setflags(write=False)
    return matrix, centre
