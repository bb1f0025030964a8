"""What the rounds of secure sums ask for: what all objectives have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from parties.kernel.sums.row_function import RowFunction


class Objective(ABC):
    """Public description of the rounds' queries.

    has_places: rows have places in batches, of which `rate` and `public_batches` say how many a row
    is in, and each counts once, whatever its party weighs; drops: why a run of it takes no weights
    or offsets of rows.
    """

    __slots__ = ()
    has_places: ClassVar[bool] = False
    drops: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def queries(self, rounds: int) -> tuple[str, ...]:
        """Name of the query of every round, for so many iterations."""

    @abstractmethod
    def norm_bound(self, query: str) -> float:
        """Bound on one row's contribution, in the norm of the mechanism."""

    @abstractmethod
    def diameter(self, query: str) -> float:
        """Largest distance of two rows' contributions, in the same norm."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types with the field `kind`."""

    def function_of(self, *, rows: int, rounds: int, norm: int) -> RowFunction | None:
        """What one of so many rows adds, clipped in that norm; None: the update has a say, too."""
        _ = rows, rounds, norm
        return None

    def check_rows(self, norm_bound: float) -> None:
        """Of rows of this norm.

        Raises:
            ParameterError: they are too long for it.
        """
        _ = norm_bound

    @property
    def rate(self) -> float:
        """Chance of a row to take part in a round, by its owner's secret coin."""
        return 1.0

    @property
    def public_batches(self) -> int:
        """Of which a row is in one."""
        return 1
