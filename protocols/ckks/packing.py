"""Feature-major packing: where row i of feature j stands, and what that layout costs in rotations.

A ciphertext of S slots holds d' blocks of B = S / d' slots, d' the power of two >= d. Block j
belongs to feature j. Row g of all parties' rows stands in ciphertext g // C, column g % C of every
block, C = min(B, power of two >= rows). Parties fill disjoint columns and the coordinator adds, so
training costs what the rows cost, not what the parties cost.

Everything is rotated right by an offset o. Key switching rounds with a small bias, the same in all
coefficients, and sum_k X^k at slot i is 2 / (1 - zeta^(5^i)): 2^14 at slot 0 of a ring 2^15. The
offset puts column 0, where sums and the model stand, as far from such slots as there is room.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError

# A run's whole noise is uploaded before training: bounds the side ciphertexts of one party.
MAX_SIDE_CIPHERTEXTS = 32


def next_power_of_two(n: int) -> int:
    """Smallest power of two >= n, n >= 1."""
    return 1 << (n - 1).bit_length()


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Packing of one run.

    num_slots: slots per ciphertext, a power of two.
    num_features: columns of a row, bias included.
    rows_by_party: row capacity of each party, in the order of the plan.
    rounds: iterations, each with one side column (label term + noise).
    curvature: whether a column of row sums stands before those of the rounds.

    Raises:
        ParameterError: too many features, no rows, or more rounds than the side ciphertexts hold.
    """

    num_slots: int
    num_features: int
    rows_by_party: tuple[int, ...]
    rounds: int
    curvature: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.num_features <= self.num_slots:
            raise ParameterError(
                f"num_features={self.num_features} (bias included) is outside 1..{self.num_slots}, "
                "the slots of a ciphertext; take a larger ring or fewer columns"
            )
        if not self.rows_by_party or min(self.rows_by_party) < 1:
            raise ParameterError("every party needs at least one row")
        limit = MAX_SIDE_CIPHERTEXTS * self.block_size - self.curvature
        if not 1 <= self.rounds <= limit:
            raise ParameterError(
                f"iterations={self.rounds} is outside 1..{limit}: the noise ciphertexts hold "
                f"{limit} at {self.num_features} features; take fewer iterations or a "
                "larger ring"
            )

    @property
    def num_blocks(self) -> int:
        """d': feature blocks per ciphertext."""
        return next_power_of_two(self.num_features)

    @property
    def block_size(self) -> int:
        """B: slots per block."""
        return self.num_slots // self.num_blocks

    @property
    def num_rows(self) -> int:
        """Rows of all parties."""
        return sum(self.rows_by_party)

    @property
    def columns(self) -> int:
        """C: columns of a block that hold rows."""
        return min(self.block_size, next_power_of_two(self.num_rows))

    @property
    def num_data_ciphertexts(self) -> int:
        """Ciphertexts that hold all rows."""
        return -(-self.num_rows // self.columns)

    @property
    def side_columns(self) -> int:
        """Side columns: the row sums, if any, then one for each round."""
        return self.curvature + self.rounds

    @property
    def num_side_ciphertexts(self) -> int:
        """Ciphertexts that hold the side columns."""
        return -(-self.side_columns // self.block_size)

    def first_row(self, party: int) -> int:
        """Global index of a party's first row."""
        return sum(self.rows_by_party[:party])

    def ciphertexts_of(self, party: int) -> range:
        """Data ciphertexts in which a party has rows."""
        first = self.first_row(party)
        last = first + self.rows_by_party[party] - 1
        return range(first // self.columns, last // self.columns + 1)

    # -- rotations ------------------------------------------------------------------------------

    @property
    def feature_rotations(self) -> tuple[int, ...]:
        """Left rotations that sum over blocks into every block."""
        return tuple(self.block_size << k for k in range(self.num_blocks.bit_length() - 1))

    @property
    def column_rotations(self) -> tuple[int, ...]:
        """Left rotations that sum over columns into column 0, and replicate after `spread`."""
        return tuple(1 << k for k in range(self.columns.bit_length() - 1))

    @property
    def spread_rotation(self) -> int:
        """Left rotation that takes column 0 to column C - 1 (0: none needed)."""
        return (self.num_slots - (self.columns - 1)) % self.num_slots

    @property
    def rotations(self) -> tuple[int, ...]:
        """Every rotation key that a run needs."""
        side_step = (1,) if self.side_columns > 1 and self.block_size > 1 else ()
        spread = (self.spread_rotation,) if self.spread_rotation else ()
        wanted = {*self.feature_rotations, *self.column_rotations, *spread, *side_step}
        return tuple(sorted(wanted))

    # -- slots ------------------------------------------------------------------------------------

    def pack_rows(self, rows: NDArray[np.float64], party: int) -> dict[int, NDArray[np.float64]]:
        """Slots of a party's rows, shape (rows, num_features), by data ciphertext.

        Raises:
            ParameterError: the shape differs from what the plan says of this party.
        """
        expected = (self.rows_by_party[party], self.num_features)
        if rows.shape != expected:
            raise ParameterError(f"rows have shape {rows.shape}, the plan says {expected}")
        packed: dict[int, NDArray[np.float64]] = {}
        first = self.first_row(party)
        for index in self.ciphertexts_of(party):
            start = max(first, index * self.columns)
            stop = min(first + len(rows), (index + 1) * self.columns)
            grid = np.zeros((self.num_blocks, self.block_size))
            at = slice(start - index * self.columns, stop - index * self.columns)
            grid[: self.num_features, at] = rows[start - first : stop - first].T
            packed[index] = self._to_slots(grid)
        return packed

    def pack_side(self, columns: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Slots of the side vectors, shape (side_columns, num_features), the k-th in column k % B.

        Raises:
            ParameterError: another shape.
        """
        expected = (self.side_columns, self.num_features)
        if columns.shape != expected:
            raise ParameterError(f"side columns have shape {columns.shape}, expected {expected}")
        packed = []
        for start in range(0, self.side_columns, self.block_size):
            part = columns[start : start + self.block_size]
            grid = np.zeros((self.num_blocks, self.block_size))
            grid[: self.num_features, : len(part)] = part.T
            packed.append(self._to_slots(grid))
        return packed

    def heads(self, values: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Slots with values (scalar or shape (num_features,)) in column 0, zero elsewhere."""
        grid = np.zeros((self.num_blocks, self.block_size))
        grid[: self.num_features, 0] = values
        return self._to_slots(grid)

    def read_heads(self, slots: NDArray[np.float64]) -> NDArray[np.float64]:
        """Column 0 of the used blocks, shape (num_features,)."""
        grid = np.roll(slots, -self.offset).reshape(self.num_blocks, self.block_size)
        return grid[: self.num_features, 0].copy()

    def replicated(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Slots with value j in all C columns of block j."""
        grid = np.zeros((self.num_blocks, self.block_size))
        grid[: self.num_features, : self.columns] = values[:, None]
        return self._to_slots(grid)

    @property
    def offset(self) -> int:
        """o: block j's column i stands in slot (j B + i + o) mod S."""
        return _offset(self.block_size)

    def _to_slots(self, grid: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.roll(grid.ravel(), self.offset)


@lru_cache(maxsize=64)
def _offset(block_size: int) -> int:
    """The o whose slots o + j B keep farthest from angle 0.

    Their exponents are 5^(o + j B) = 5^o mod 4 B, evenly spaced by 4 B: aim at the middle, 2 B.
    """
    modulus, middle = 4 * block_size, 2 * block_size
    exponent, best, best_distance = 1, 0, middle
    for o in range(block_size):
        if abs(exponent - middle) < best_distance:
            best, best_distance = o, abs(exponent - middle)
        exponent = exponent * 5 % modulus
    return best
