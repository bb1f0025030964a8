"""Packing for an encrypted model that meets rows in the clear: pairs of features, repeated.

A ciphertext of S complex slots holds B = S / k columns of k slots, and a slot two features:
w_f - i w_g for weights. Pair j of column c stands in slot c k + j; d features fill m ciphertexts,
the parts of an output. Weights repeat every k slots, so that they are elements of the subring
(`subring`), and a column belongs to a row. Every party packs its own rows, B to a group. Outputs
stand in parts of their own, one after the other, and share the rows.

Inner products. x_f w_f + x_g w_g is the real part of (x_f + i x_g)(w_f - i w_g): one conjugation
for a group of rows. Slot c k + j is to hold the sum over all pairs of column c. With x^(s) the rows
turned by s places within their column, that is sum_s x^(s) rot_s(w): plaintexts times k rotations
of w. In baby and giant steps, s = G b + r, it is sum_G rot_Gb(sum_r rot_-Gb(x^(s)) rot_r(w)): b - 1
rotations of each part of w a round, k / b - 1 of each group of rows. At k = 1 there are none.

Gradients. (x_f - i x_g) q(z) sums up to g_f - i g_g, as weights are packed.
"""

from __future__ import annotations

from dataclasses import dataclass
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

    num_slots: S, a power of two; num_features: d, bias included; rows_by_party: in the order of the
    plan; features_per_ciphertext: 2k, a power of two of 2 or more, at most `widest`; outputs: c
    where a vector has shape (d, c), None: (d,).

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
        return -(-rows // self.block_size)

    @property
    def baby_steps(self) -> int:
        """b: a power of two, for the quickest rotations of the party with most rows."""
        groups = max(map(self.groups_of, self.rows_by_party))
        powers = [1 << i for i in range(self.period.bit_length())]

        def rotations(b: int) -> float:
            # The rotations of a part share their digits: `cost.work`, "raise" and "hoisted".
            shared = 0.4 + 0.6 * (b - 1) if b > 1 else 0.0
            return self.output_parts * shared + groups * (self.period // b - 1)

        return min(powers, key=rotations)

    @property
    def giant_steps(self) -> range:
        """G b."""
        return range(0, self.period, self.baby_steps)

    @property
    def rotations(self) -> tuple[int, ...]:
        """Every key of an automorphism that a run needs; powers of two below k are among them."""
        return (CONJUGATION, *range(1, self.baby_steps), *self.giant_steps[1:])

    @property
    def feature_rotations(self) -> tuple[int, ...]:
        """Left rotations that sum what repeats every k slots over its features."""
        return tuple(1 << i for i in range(self.period.bit_length() - 1))

    @property
    def steps(self) -> list[tuple[int, int]]:
        """(G b, r) of every product that an inner product needs, of each part."""
        return [(giant, baby) for giant in self.giant_steps for baby in range(self.baby_steps)]

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

    def slots_of(self, rows: Array, part: int, giant: int = 0, baby: int = 0) -> Complexes:
        """Slots of one part of at most B rows, shape (rows, d): rot_-Gb(x^(G b + r))."""
        columns = np.zeros((self.block_size, self.period), np.complex128)
        columns[: len(rows)] = self._paired(rows)[:, part]
        return np.roll(np.roll(columns, -(giant + baby), axis=1).ravel(), giant)


def widest(features: int) -> int:
    """Most features per ciphertext that are worth it: all in a single part."""
    return max(2, next_power_of_two(features))
