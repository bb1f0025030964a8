"""What a row adds to a descriptive table: a one in a cell of each column, and moments of numbers.

Of each group a count of its rows. Of each column and group: a numeric column has `bins` of equal
width over its public range, a cell for missing values, and sums of z and z^2, z on [-1/2, 1/2] the
place in that range; a categorical one has a cell for each category, and one for what is none of
them. A row adds to the cells of its own group, and nothing to the others; of a missing value z
counts as 0.

Of two rows and a numeric column, counts are sqrt(2) apart at most, z 1, z^2 1/4: 3 + 1/16 squared;
of a categorical one 2, and so are the counts of two groups. The squares of one row are 1 + 1/4 +
1/16, or 1, so that rows of two groups, whose cells have nothing in common, are no further apart
than that. A party of `sites` adds the same to a table of its own, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers.exact import Exact, joined
from parties.kernel.sums.row_function import LARGEST, Array, SumFunction, of_sites
from protocols.errors import ParameterError

MOMENT_BITS = 36
"""Of z and z^2: sums of 2^27 rows fit int64."""
MOST_CELLS = 1 << 16
Spec = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Described(SumFunction):
    """Cells and moments of all columns by group, of all rows, then of the sites.

    columns: (first, count, missing, bins) of each: place of its first feature, features without the
    indicator, place of the indicator or -1, and bins, 0 of a categorical column; places count
    through x and then the outcome, a label of two values as (no, yes). groups: places of the
    features that say which group a row is of; one more group has the rows of none. sites: parties
    with a table of their own.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "description"

    columns: tuple[Spec, ...]
    groups: tuple[int, ...] = ()
    sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        flat = [number for column in self.columns for number in column]
        if not flat or any(len(column) != 4 for column in self.columns):
            raise ParameterError("columns: none, or one that is not of four numbers")
        if any(type(n) is not int for n in flat):
            raise ParameterError("columns are not of whole numbers")
        for first, count, missing, bins in self.columns:
            if first < 0 or count < 1 or missing < -1 or bins < 0 or (bins and count != 1):
                raise ParameterError(f"columns: {(first, count, missing, bins)} is no column")
        check_places(groups=self.groups)
        if not all(isinstance(site, str) for site in self.sites) or len({*self.sites}) != len(
            self.sites
        ):
            raise ParameterError("sites are not different names")
        if self.cells * self.blocks > MOST_CELLS:
            raise ParameterError(
                f"{self.cells} cells in {self.blocks} groups are more than {MOST_CELLS}: leave out "
                "columns or groups, or take fewer bins"
            )

    @property
    def blocks(self) -> int:
        """Groups, that of no group included."""
        return len(self.groups) + 1

    @property
    def cells(self) -> int:
        """Values of one group."""
        return 1 + sum(bins + 3 if bins else count + 1 for _, count, _, bins in self.columns)

    def alone(self, roster: Collection[str], colluders: int) -> Collection[str]:
        """See `of_sites`."""
        return of_sites(self.sites, roster, colluders)

    def length(self, features: int) -> int:
        """Of all tables."""
        return self.cells * self.blocks * (1 + len(self.sites))

    def most(self, query: str) -> float:
        """Of one table or of two."""
        square = 1 + sum(1 + (5 / 16 if bins else 0) for *_, bins in self.columns)
        return math.sqrt(square * (2 if self.sites else 1))

    def moves(self, query: str) -> float:
        """Likewise."""
        square = 2 + sum(2 + (17 / 16 if bins else 0) for *_, bins in self.columns)
        return math.sqrt(square * (2 if self.sites else 1))

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """The tables, of one party's rows."""
        outcome = np.column_stack([1 - y, y]) if y.ndim == 1 else y
        # Numbers of x are on [-1, 1], those of an outcome on [0, 1].
        numbers = np.clip(np.column_stack([x / 2, outcome - 0.5]), -0.5, 0.5)
        ones = np.column_stack([x, outcome]) > 0.5
        last = max((*self.groups, *(max(f + c - 1, m) for f, c, m, _ in self.columns)))
        if last >= ones.shape[1]:
            raise ParameterError(f"place {last} is beyond a row's {ones.shape[1]} features")
        group = chosen(ones[:, list(self.groups)])
        table = np.zeros((self.blocks, self.cells), np.int64)
        add(table, (group, 0), 1 << MOMENT_BITS)
        start = 1
        for first, count, missing, bins in self.columns:
            empty = ones[:, missing] if missing >= 0 else np.zeros(len(x), bool)
            if not bins:
                code = np.where(empty, count, chosen(ones[:, first : first + count]))
                add(table, (group, start + code), 1 << MOMENT_BITS)
                start += count + 1
                continue
            z = numbers[:, first]
            code = np.where(empty, bins, np.minimum(((z + 0.5) * bins).astype(np.intp), bins - 1))
            add(table, (group, start + code), 1 << MOMENT_BITS)
            for k, moment in enumerate((z, z * z)):
                whole = np.trunc(np.ldexp(np.where(empty, 0.0, moment), MOMENT_BITS))
                add(table, (group, start + bins + 1 + k), whole.astype(np.int64))
            start += bins + 3
        found = Exact(table.ravel(), MOMENT_BITS)
        own = [found if site == name else Exact(0 * found.units, 0) for site in self.sites]
        return joined(found, *own)


def add(table: NDArray[Any], places: tuple[Any, ...], values: Any) -> None:
    """Each value to its place, repeated ones too."""
    np.add.at(table, places, values)


def chosen(ones: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Place of the first one of every row, the number of places where there is none."""
    padded = np.column_stack([ones, np.ones(len(ones), bool)])
    return np.asarray(np.argmax(padded, axis=1), dtype=np.intp)


def check_places(**places: tuple[int, ...]) -> None:
    """Each is of different features.

    Raises:
        ParameterError: names the field.
    """
    for name, each in places.items():
        if any(type(k) is not int or not 0 <= k < 1 << 16 for k in each):
            raise ParameterError(f"{name}={each} are not places of features")
        if len({*each}) != len(each):
            raise ParameterError(f"{name}={each}: a feature is named twice")


def check_numbers(size: int, **numbers: tuple[float, ...]) -> None:
    """So many of each, within LARGEST.

    Raises:
        ParameterError: names the field.
    """
    for name, each in numbers.items():
        if len(each) != size:
            raise ParameterError(f"{name} has {len(each)} entries, and not {size}")
        if not np.abs(each).max(initial=0.0) <= LARGEST:
            raise ParameterError(f"{name}: an entry is not within {LARGEST:g}")
