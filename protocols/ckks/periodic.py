"""Packing for an encrypted model that meets rows in the clear: pairs of features, repeated.

A ciphertext of S complex slots holds B = S / k columns of k slots, and a slot two features:
w_f - i w_g for weights. Pair j of column c stands in slot c k + j; d features fill m ciphertexts,
the parts of an output. Weights repeat every k slots, so that they are elements of the subring
(`subring`), and a column belongs to a row. Every party packs its own rows, B to a group. Outputs
stand in parts of their own, one after the other, and share the rows.

Inner products. x_f w_f + x_g w_g is the real part of (x_f + i x_g)(w_f - i w_g): one conjugation
for a group of rows. Slot c k + j is to hold the sum over all pairs of column c. Either

- weights are turned: sum_s x^(s) rot_s(w), x^(s) the rows turned by s places within their column.
  k - 1 rotations of each part of w a round, none of rows, and k plaintexts of each part;
- or products: sum_s rot_s(x w), where column c + 1 holds the row once more, so that the k slots
  that begin at c k + j are all pairs of the row, whatever j is. A plaintext of each part, and
  log4 k sums of rotations of a group, but only B / 2 rows to a group. What comes out in column
  c + 1 belongs to no row, and is multiplied by zero.

The second is for few rows. At k = 1 there is nothing to turn.

Gradients. (x_f - i x_g) q(z) sums up to g_f - i g_g, as weights are packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.context import CONJUGATION
from protocols.ckks.packing import next_power_of_two
from protocols.errors import ParameterError

Array = NDArray[np.float64]
Complexes = NDArray[np.complex128]


@dataclass(frozen=True, kw_only=True, slots=True)
class PeriodicLayout:
    """Packing of one run.

    num_slots: S, a power of two; num_features: d, bias included; rows_by_party: of a round, in the
    order of the plan; features_per_ciphertext: 2k, a power of two of 2 or more, at most `widest`;
    outputs: c where a vector has shape (d, c), None: (d,).

    Raises:
        ParameterError: no rows, no such k, or more parts than one decryption opens.
    """

    is_complex: ClassVar[bool] = True
    curvature: ClassVar[bool] = False
    num_slots: int
    num_features: int
    rows_by_party: tuple[int, ...]
    features_per_ciphertext: int
    outputs: int | None = None

    def __post_init__(self) -> None:
        held, most = self.features_per_ciphertext, widest(self.num_features)
        if not 2 <= held <= min(most, self.num_slots) or held & (held - 1):
            raise ParameterError(
                f"features_per_ciphertext={held} is not a power of two in 2..{most} at "
                f"{self.num_features} features and {self.num_slots} slots"
            )
        if not self.rows_by_party or min(self.rows_by_party) < 1:
            raise ParameterError("every party needs at least one row")
        if self.num_parts * held > 2 * self.num_slots:
            raise ParameterError(
                f"outputs={self.outputs} of {self.num_features} features: a ring of "
                f"{self.num_slots} slots opens {2 * self.num_slots} numbers at once; take fewer "
                "targets, or a larger ring"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a vector."""
        return (self.num_features,) + (() if self.outputs is None else (self.outputs,))

    @property
    def period(self) -> int:
        """k."""
        return self.features_per_ciphertext // 2

    @property
    def num_blocks(self) -> int:
        """Features per ciphertext, as of `Layout`."""
        return self.features_per_ciphertext

    @property
    def num_outputs(self) -> int:
        """c, or 1."""
        return self.outputs or 1

    @property
    def output_parts(self) -> int:
        """m."""
        return -(-self.num_features // self.features_per_ciphertext)

    @property
    def num_parts(self) -> int:
        """Of all outputs."""
        return self.num_outputs * self.output_parts

    @property
    def block_size(self) -> int:
        """B."""
        return self.num_slots // self.period

    @property
    def num_rows(self) -> int:
        """Rows of all parties."""
        return sum(self.rows_by_party)

    @property
    def groups(self) -> int:
        """Groups of rows of all parties."""
        return sum(map(self.groups_of, self.rows_by_party))

    def groups_of(self, rows: int) -> int:
        """Groups of so many rows of one party."""
        return -(-rows // self.rows_per_group)

    @property
    def rows_per_group(self) -> int:
        """B, or half of it."""
        return self.block_size // self.columns_of_row

    @property
    def columns_of_row(self) -> int:
        """2 where products are turned, 1 where weights are: what the party with most rows does."""
        rows, size, k = max(self.rows_by_party), self.block_size, self.period
        if k == 1 or size == 1:
            return 1
        # In rotations. Those of a part share their digits, and those of a sum their division as
        # well: `cost.work`, "raise", "hoisted" and "turned".
        weights = self.output_parts * (0.4 + 0.6 * (k - 1)) + -(-rows // size)
        sums = sum(1 + 0.15 * (len(steps) - 1) for steps in self.sums)
        return 2 if -(-2 * rows // size) * (1 + sums) < weights else 1

    @property
    def turns(self) -> int:
        """Rotations of a part of the weights that are multiplied with rows: 1 or k."""
        return self.period if self.columns_of_row == 1 else 1

    @property
    def sums(self) -> tuple[tuple[int, ...], ...]:
        """Left rotations that sum k slots: v + sum_s rot_s(v), one tuple after the other."""
        found, step = [], 1
        while step < self.period:
            radix = min(4, self.period // step)
            found.append(tuple(step * i for i in range(1, radix)))
            step *= radix
        return tuple(found)

    @property
    def rotations(self) -> tuple[int, ...]:
        """Every key of an automorphism that a run needs; powers of two below k are among them."""
        turned = range(1, self.turns) if self.turns > 1 else chain.from_iterable(self.sums)
        return (CONJUGATION, *turned)

    @property
    def feature_rotations(self) -> tuple[int, ...]:
        """Left rotations that sum what repeats every k slots over its features."""
        return tuple(1 << i for i in range(self.period.bit_length() - 1))

    # -- slots ------------------------------------------------------------------------------------

    def in_parts(self, vector: Array) -> Complexes:
        """x_f + i x_g of each output: `shape` to (parts, k), zero beyond the features."""
        outputs = vector.reshape(self.num_features, self.num_outputs).T
        return self._paired(outputs).reshape(self.num_parts, self.period)

    def of_parts(self, parts: Complexes) -> Array:
        """Inverse of `in_parts`."""
        found: Array = np.ascontiguousarray(parts).reshape(self.num_outputs, -1).view(np.float64)
        return found[:, : self.num_features].T.reshape(self.shape).copy()

    def _paired(self, rows: Array) -> Complexes:
        """Shape (rows, d) to (rows, m, k)."""
        k, m = self.period, self.output_parts
        padded = np.zeros((len(rows), 2 * m * k))
        padded[:, : self.num_features] = rows
        return padded.view(np.complex128).reshape(len(rows), m, k)

    def slots_of(self, rows: Array, part: int) -> Complexes:
        """Slots of one part of a group of rows, shape (rows, d): each in its first column."""
        return self.in_columns(self._paired(rows)[:, part])

    def slots_to_sum(self, rows: Array, part: int, turn: int) -> Complexes:
        """The same for inner products: in all columns of a row, turned by so many places."""
        slots: Complexes = self.slots_of(rows, part).reshape(-1, self.period)
        for _ in range(1, self.columns_of_row):
            slots = slots + np.roll(slots, 1, axis=0)
        return np.roll(slots, -turn, axis=1).ravel()

    def in_columns(self, values: Complexes) -> Complexes:
        """Slots of k values of each row, or of one that all of them are, in its first column."""
        columns = np.zeros((self.block_size, self.period), np.complex128)
        step = self.columns_of_row
        columns[: step * len(values) : step] = values.reshape(len(values), -1)
        return columns.ravel()


def widest(features: int) -> int:
    """Most features per ciphertext that are worth it: all in a single part."""
    return max(2, next_power_of_two(features))
