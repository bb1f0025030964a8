"""Feature-major packing: where row i of feature j stands, and what that layout costs in rotations.

A ciphertext of S slots holds k blocks of B = S / k slots, k a power of two, one block per feature.
The d features fill m = ceil(d / k) ciphertexts, the parts of a row: feature p k + j is block j of
part p. Row g of all parties' rows stands in column g % B of every block of the parts m (g // B) ….
Parties fill disjoint columns and the coordinator adds, so training costs what the rows cost, not
what the parties cost.

Sums over features are rotations by multiples of B, a subgroup. Sums over columns, and copies of the
weights in all columns, are made by refreshes (`column_map`). Fewer features per ciphertext: fewer
groups of rows, and shorter sums over features; but every part is refreshed.

Everything is rotated right by an offset o. Key switching rounds with a small bias, the same in all
coefficients, and sum_k X^k at slot i is 2 / (1 - zeta^(5^i)): 2^14 at slot 0 of a ring 2^15. The
offset puts column 0, where sums and the model stand, as far from such slots as there is room.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ParameterError

Array = NDArray[np.float64]
# A run's whole noise is uploaded before training: bounds the side ciphertexts of one party.
MAX_SIDE_CIPHERTEXTS = 32


def next_power_of_two(n: int) -> int:
    """Smallest power of two >= n, n >= 1."""
    return 1 << (n - 1).bit_length()


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Packing of one run.

    num_slots: slots per ciphertext, a power of two.
    num_features: d, columns of a row, bias included.
    rows_by_party: row capacity of each party, in the order of the plan.
    rounds: iterations, each with one side vector (label term + noise).
    curvature: whether a vector of row sums stands before those of the rounds.
    features_per_ciphertext: k, a power of two; None: the least one with a single part.
    outputs: c: every vector then has shape (d, c), else (d,). A block belongs to a pair (feature j,
        output o), block j c' + o, c' the power of two >= c; k and m count pairs.

    A side vector takes m columns, one per part, in ciphertexts of k blocks like those of the rows.

    Raises:
        ParameterError: too many features, no rows, no such k, or more rounds than the side
            ciphertexts hold.
    """

    is_complex: ClassVar[bool] = False
    kinds: ClassVar[int] = 1
    """Data ciphertexts for one part of one group of rows."""

    num_slots: int
    num_features: int
    rows_by_party: tuple[int, ...]
    rounds: int
    curvature: bool = False
    features_per_ciphertext: int | None = None
    outputs: int | None = None

    def __post_init__(self) -> None:
        asked = f"num_features={self.num_features} (bias included)"
        asked += f" and outputs={self.outputs}" if self.outputs is not None else ""
        if min(self.shape) < 1:
            raise ParameterError(f"{asked} need >= 1")
        if self.num_pairs > self.num_slots:
            raise ParameterError(
                f"{asked} need {self.num_pairs} slots, a ciphertext has {self.num_slots}; take a "
                "larger ring or fewer columns"
            )
        k, most = self.num_blocks, next_power_of_two(self.num_pairs)
        if not self.depth <= k <= most or k & (k - 1):
            raise ParameterError(
                f"features_per_ciphertext={k} is not a power of two in {self.depth}..{most}, at "
                f"{self.num_features} features"
            )
        if not self.rows_by_party or min(self.rows_by_party) < 1:
            raise ParameterError("every party needs at least one row")
        limit = MAX_SIDE_CIPHERTEXTS * self.block_size // self.num_parts - self.curvature
        if not 1 <= self.rounds <= limit:
            raise ParameterError(
                f"iterations={self.rounds} is outside 1..{limit}: the noise ciphertexts hold "
                f"{limit} at {self.num_features} features; take fewer iterations or a "
                "larger ring"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a vector: (d,) or (d, c)."""
        return (self.num_features,) + (() if self.outputs is None else (self.outputs,))

    @property
    def depth(self) -> int:
        """c', 1 without outputs."""
        return next_power_of_two(self.outputs or 1)

    @property
    def num_pairs(self) -> int:
        """d c'."""
        return self.num_features * self.depth

    @property
    def num_blocks(self) -> int:
        """k: blocks per ciphertext."""
        if self.features_per_ciphertext is None:
            return next_power_of_two(self.num_pairs)
        return self.features_per_ciphertext

    @property
    def num_parts(self) -> int:
        """m: ciphertexts of a vector, and of a group of rows."""
        return -(-self.num_pairs // self.num_blocks)

    @property
    def block_size(self) -> int:
        """B: slots per block."""
        return self.num_slots // self.num_blocks

    @property
    def num_rows(self) -> int:
        """Rows of all parties."""
        return sum(self.rows_by_party)

    @property
    def groups(self) -> int:
        """Groups of rows of all parties."""
        return -(-self.num_rows // self.block_size)

    @property
    def num_data_ciphertexts(self) -> int:
        """Ciphertexts that hold all rows."""
        return self.kinds * self.num_parts * self.groups

    @property
    def side_vectors(self) -> int:
        """Side vectors: the row sums, if any, then one for each round."""
        return self.curvature + self.rounds

    @property
    def side_columns(self) -> int:
        """Columns of all side vectors."""
        return self.side_vectors * self.num_parts

    @property
    def num_side_ciphertexts(self) -> int:
        """Ciphertexts that hold the side columns."""
        return -(-self.side_columns // self.block_size)

    def first_row(self, party: int) -> int:
        """Global index of a party's first row."""
        return sum(self.rows_by_party[:party])

    def ciphertexts_of(self, party: int) -> range:
        """Data ciphertexts in which a party has rows."""
        groups, each = self._groups_of(party), self.kinds * self.num_parts
        return range(each * groups.start, each * groups.stop)

    def _groups_of(self, party: int) -> range:
        first = self.first_row(party)
        last = first + self.rows_by_party[party] - 1
        return range(first // self.block_size, last // self.block_size + 1)

    @property
    def feature_rotations(self) -> tuple[int, ...]:
        """Left rotations that sum over features into every block, for each output by itself."""
        stride, count = self.block_size * self.depth, self.num_blocks // self.depth
        return tuple(stride << k for k in range(count.bit_length() - 1))

    @property
    def rotations(self) -> tuple[int, ...]:
        """Every rotation key that a run needs."""
        return self.feature_rotations

    # -- slots ------------------------------------------------------------------------------------

    def pack_rows(self, rows: Array, party: int) -> dict[int, Array]:
        """Slots of a party's rows, shape (rows, *shape), by ciphertext of a kind.

        Raises:
            ParameterError: the shape differs from what the plan says of this party.
        """
        expected = (self.rows_by_party[party], *self.shape)
        if rows.shape != expected:
            raise ParameterError(f"rows have shape {rows.shape}, the plan says {expected}")
        packed: dict[int, Array] = {}
        first, parts = self.first_row(party), self._in_parts(rows)
        for group in self._groups_of(party):
            start = max(first, group * self.block_size)
            stop = min(first + len(rows), (group + 1) * self.block_size)
            for part in range(self.num_parts):
                columns = parts[start - first : stop - first, part]
                slots = self._to_slots(columns, start - group * self.block_size)
                packed[group * self.num_parts + part] = slots
        return packed

    def pack_side(self, vectors: Array) -> list[Array]:
        """Slots of the side vectors, shape (side_vectors, *shape).

        Part p of the i-th stands in column c % B of ciphertext c // B, c = i m + p.

        Raises:
            ParameterError: another shape.
        """
        expected = (self.side_vectors, *self.shape)
        if vectors.shape != expected:
            raise ParameterError(f"side vectors have shape {vectors.shape}, expected {expected}")
        columns = self._in_parts(vectors).reshape(self.side_columns, self.num_blocks)
        starts = range(0, self.side_columns, self.block_size)
        return [self._to_slots(columns[start : start + self.block_size]) for start in starts]

    def masks(self, values: Array | float) -> list[Array]:
        """Slots of every part with values (scalar or of `shape`) in column 0 alone."""
        return self._spread(values, 1)

    def replicated(self, values: Array | float, part: int = 0) -> Array:
        """Slots of one part with the values, scalar or of `shape`, in all B columns."""
        return self._spread(values, self.block_size)[part]

    def heads(self, values: Array | float) -> Array:
        """Slots of a released vector: column 0 of part p, moved p - (m - 1) columns to the right.

        All other slots are zero. values: scalar or of `shape`.
        """
        parts = reversed(self.masks(values))
        found: Array = np.sum([np.roll(p, -k) for k, p in enumerate(parts)], axis=0)
        return found

    def read_heads(self, slots: Array) -> Array:
        """Inverse of `heads`, of `shape`."""
        last = self.num_parts - 1
        grid = np.roll(slots, last - self.offset).reshape(self.num_blocks, self.block_size)
        pairs = grid[:, : last + 1].T.reshape(-1)[: self.num_pairs]
        outputs = pairs.reshape(self.num_features, self.depth)[:, : self.outputs or 1]
        return outputs.reshape(self.shape).copy()

    @property
    def indicator(self) -> Array:
        """1 in column 0 of every block, 0 elsewhere."""
        return self._to_slots(np.ones((1, self.num_blocks)))

    @property
    def offset(self) -> int:
        """o: block j's column i stands in slot (j B + i + o) mod S."""
        return _offset(self.block_size)

    def _in_parts(self, vectors: Array) -> Array:
        """Shape (…, *shape) to (…, m, k), zero beyond the outputs and beyond the features."""
        before = vectors.shape[: -len(self.shape)]
        pairs, count = np.zeros((*before, self.num_features, self.depth)), self.outputs or 1
        pairs[..., :count] = vectors.reshape(*before, self.num_features, count)
        padded = np.zeros((*before, self.num_parts * self.num_blocks))
        padded[..., : self.num_pairs] = pairs.reshape(*before, self.num_pairs)
        return padded.reshape(*before, self.num_parts, self.num_blocks)

    def _spread(self, values: Array | float, columns: int) -> list[Array]:
        """Slots of every part with the values in the first columns of its blocks."""
        if np.ndim(values) and np.shape(values) != self.shape:
            raise ParameterError(f"values have shape {np.shape(values)}, expected {self.shape}")
        parts = self._in_parts(np.broadcast_to(values, self.shape))
        return [self._to_slots(np.tile(part, (columns, 1))) for part in parts]

    def _to_slots(self, columns: Array, start: int = 0) -> Array:
        """Slots of columns, shape (columns, k), from column `start` of every block on."""
        grid = np.zeros((self.num_blocks, self.block_size))
        grid[:, start : start + len(columns)] = columns.T
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
