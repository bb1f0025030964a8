"""What a row adds to life tables: a one in the cell of its group, its time and whether it died.

Times are on a public grid of K bins over the range of their column. Of a recorded unit (days, say)
bin k is the k-th value of it; else bin k holds times from k to k + 1 widths, the end included. A
row enters at the start, or late, at its time of entry: it is at risk in the bins after `Grid.entry`
and up to `Grid.exit`, as if it had entered at the end of its bin of entry: of those who live until
then hazards are those of all. One that leaves before, in that bin, counts nowhere.

A row is one count, or two with an entry, each in one of many cells: norm 1 or sqrt(2), and rows are
sqrt(2) times that apart at most.

**Factored**, for noise. Numbers at risk are suffix sums over bins, A = U U with U the upper
triangular Toeplitz matrix of c_j = binom(2 j, j) / 4^j (Fichtenberger, Henzinger and Upadhyay,
2023, of prefix sums). Counts x are then summed as U x: noise z on these moves suffix sums by U z,
whose variance grows with ln K where that of plain counts grows with K. A count is a column of U, of
norm |c| at most; no entry is negative, so that rows are sqrt(2) times that apart at most, here too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers.exact import Exact
from parties.kernel.study.described import add, check_places, chosen
from parties.kernel.sums.row_function import Array, SumFunction
from protocols.errors import ParameterError

BIGGEST = 1 << 12
"""Of bins."""
NEAR = 1e-9
"""Of a bin's width: a time so little beyond its end belongs to it, for times are rounded."""
Places = NDArray[np.intp]
FACTOR_BITS = 36
"""Of c: sums of 2^26 rows fit int64."""


def square_root(bins: int) -> Array:
    """c, shape (bins,)."""
    odd = np.arange(1, bins, dtype=np.float64)
    return np.concatenate([[1.0], np.cumprod((2 * odd - 1) / (2 * odd))])


@dataclass(frozen=True, slots=True)
class Grid:
    """bins: K; recorded: each is a value of the recorded unit, 0 to K - 1."""

    bins: int
    recorded: bool

    def __post_init__(self) -> None:
        if type(self.bins) is not int or not 2 <= self.bins <= BIGGEST:
            raise ParameterError(f"bins={self.bins} is no whole number from 2 to {BIGGEST}")

    def exit(self, time: Array) -> Places:
        """Last bin at risk, of times on [0, 1] of the range."""
        if self.recorded:
            return np.rint(time * (self.bins - 1)).astype(np.intp)
        return np.clip(np.ceil(time * self.bins - NEAR) - 1, 0, self.bins - 1).astype(np.intp)

    def entry(self, time: Array) -> Places:
        """Last bin not yet at risk, that of the entry; -1: none, for it is at the start."""
        return np.where((time * self.bins > NEAR) | self.recorded, self.exit(time), -1)

    def stay(self, y: Array, late: bool) -> tuple[Places, Places, NDArray[np.bool_]]:
        """Entry, exit and whether there was an event; of rows that count nowhere exit is -1.

        y: time, event and, if late, entry, each on [0, 1] of its range, shape (rows, 2 or 3).

        Raises:
            ParameterError: outcomes of another shape.
        """
        if y.shape[1:] != (2 + late,):
            raise ParameterError(
                f"outcomes of shape {y.shape[1:]} are not the {2 + late} of a stay"
            )
        out, event = self.exit(y[:, 0]), y[:, 1] > 0.5
        into = self.entry(y[:, 2]) if late else np.full(len(y), -1, dtype=np.intp)
        counts = (into < out) & (y[:, 2:] < y[:, :1]).all(axis=1)  # nor both at the start
        return np.where(counts, into, -1), np.where(counts, out, -1), event & counts


@dataclass(frozen=True, kw_only=True, slots=True)
class Lifetimes(SumFunction):
    """Rows by group, bin of their exit and event; then by group and bin of their entry, if late.

    bins, recorded: see `Grid`; late: whether rows have a time of entry; groups: see `Described`;
    factored: U times the counts, see the module.

    Raises:
        ParameterError: a field is out of range.
    """

    kind = "lifetimes"

    bins: int
    recorded: bool
    late: bool = False
    groups: tuple[int, ...] = ()
    factored: bool = False

    def __post_init__(self) -> None:
        _ = self.grid
        check_places(groups=self.groups)
        if {type(self.recorded), type(self.late), type(self.factored)} != {bool}:
            raise ParameterError("recorded, late and factored are true or false")

    @property
    def grid(self) -> Grid:
        """Of times."""
        return Grid(self.bins, self.recorded)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Groups, bins, and ends without event, events, entries."""
        return len(self.groups) + 1, self.bins, 2 + self.late

    def length(self, features: int) -> int:
        """Cells."""
        return math.prod(self.shape)

    def most(self, query: str) -> float:
        """Of one count or of two."""
        column = float(np.linalg.norm(square_root(self.bins))) if self.factored else 1.0
        return column * math.sqrt(1 + self.late)

    def moves(self, query: str) -> float:
        """Of two rows in cells that have nothing in common."""
        return math.sqrt(2) * self.most(query)

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """Counts, of one party's rows."""
        into, out, event = self.grid.stay(y, self.late)
        group, counted = chosen(x[:, list(self.groups)] > 0.5), out >= 0
        table = np.zeros(self.shape, np.int64)
        add(table, (group[counted], out[counted], event[counted].astype(np.intp)), 1)
        entered = counted & (into >= 0)
        if self.late:
            add(table, (group[entered], into[entered], 2), 1)
        if not self.factored:
            return Exact(table.ravel(), 0)
        # Rounded down, column by column, so that no norm grows.
        root = np.floor(np.ldexp(square_root(self.bins), FACTOR_BITS)).astype(np.int64)
        for group_counts in table:
            for own in group_counts.T:  # a view
                own[::-1] = np.convolve(own[::-1], root)[: self.bins]
        return Exact(table.ravel(), FACTOR_BITS)
