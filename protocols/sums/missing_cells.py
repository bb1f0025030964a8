"""How many cells of each column are empty, over all parties: one secure sum of zeros and ones.

A row adds 1 for each of its empty cells, in the k columns that the schema fills in; other columns
have none. Two rows are at most sqrt(k) apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from parties.kernel.sums.products import MissingCells
from protocols.exchange.serialise import to_plain
from protocols.names import EMPTY_VIEW
from protocols.sums.one_sum import OneSum


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingObjective(OneSum):
    """Count empty cells; columns: k; exact: without privacy.

    Raises:
        ParameterError: there is no column.
    """

    kind = "missing-cells"
    statistic = "counts of missing cells"
    begins: ClassVar[Mapping[str, tuple[str, ...]]] = {"check": ()}
    released = "how many cells of each column are empty, over all parties together"
    view = EMPTY_VIEW
    several = None

    columns: int
    exact: bool

    def __post_init__(self) -> None:
        _ = self.row_function

    @property
    def row_function(self) -> MissingCells:
        """Ones and zeros."""
        return MissingCells(columns=self.columns)

    def remarks(self) -> tuple[str, ...]:
        """What is exact."""
        return ("counts are exact: a column with few empty cells shows their rows",) * self.exact

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        return {"kind": self.kind, **to_plain(self)}
