"""How many cells of each column are empty, over all parties: one secure sum of zeros and ones.

A row adds 1 for each of its empty cells, in the k columns that the schema fills in; other columns
have none. Two rows are at most sqrt(k) apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.kernel.sums.integer_sums import Exact
from protocols.errors import ParameterError
from protocols.one_sum import MISSING, OneSum
from protocols.serialise import to_plain

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingObjective(OneSum):
    """Count empty cells; columns: k; exact: without privacy.

    Raises:
        ParameterError: there is no column.
    """

    kind = "missing-cells"
    released = "how many cells of each column are empty, over all parties together"
    view = MISSING
    several = None

    columns: int
    exact: bool

    def __post_init__(self) -> None:
        if self.columns < 1:
            raise ParameterError(
                "the schema fills no cells in (missing: typical or indicator), so none is empty"
            )

    def length(self, features: int) -> int:
        """k.

        Raises:
            ParameterError: rows have other columns.
        """
        if features != self.columns + 1:
            raise ParameterError(f"columns={self.columns} for {features} features, bias included")
        return self.columns

    def norm_bound(self, query: str) -> float:
        """sqrt(k)."""
        return math.sqrt(self.columns)

    def diameter(self, query: str) -> float:
        """The same: all values are 0 or 1."""
        return math.sqrt(self.columns)

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """Empty cells; x: 1 for an empty one, -1 for another, the bias last."""
        return Exact((x[:, :-1] > 0).sum(axis=0, dtype=np.int64), 0)

    def remarks(self) -> tuple[str, ...]:
        """What is exact."""
        return ("counts are exact: a column with few empty cells shows their rows",) * self.exact

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": self.kind, **to_plain(self)}
