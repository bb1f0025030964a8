"""Slots and sums of the Gram protocol for wide tables: the matrix in blocks, by its diagonals.

One ciphertext of S slots no longer holds d^2 numbers. With d' >= d a power of two, d'^2 >= S, it
holds M = S / d' diagonals of d' entries, and the matrix takes R = d' / M = n1 n2 ciphertexts
(g, b), g < n2, b < n1. Slot (j, m), m innermost, of ciphertext (g, b) has

    H[(j - n1 (n2 m + g)) mod d', (j + b) mod d'].

A vector v stands in every m, one ciphertext for each output. Then

    (H v)_j = sum_{m,g} P_g((j + n1 (n2 m + g)) mod d', m),   P_g = sum_b block_{g,b} o rot(v, b),

so that (baby steps, giant steps) n1 - 1 rotations of v and n2 - 1 of the P_g do for all R blocks,
with one relinearisation for each g; log2 M more sum over m: a rotation by R M + 1 slots takes
(j, m) to (j + R, m + 1). From m = M - 1 it goes on to m = 0, one j too far, so that sums are right
in m = 0 alone: the heads. What multiplies them next is zero elsewhere, and copies them into all m.

The whole ciphertext is one cyclic group: nothing has copies that might differ. All rotations but
those of v run before a rescaling, which divides their noise by the scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.packing import next_power_of_two
from protocols.ckks.evaluation import CkksContext
from protocols.errors import ParameterError

Array = NDArray[np.float64]
MOST_BLOCKS = 64
"""Ciphertexts of a matrix: 300 MB of a party's at ring 2^15, for 1,024 columns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockLayout:
    """Where the blocks of a d x d matrix stand, and vectors of c outputs.

    num_slots: slots per ciphertext, a power of two; num_features: d, bias included; outputs: c.

    Raises:
        ParameterError: more than MOST_BLOCKS ciphertexts, or more outputs than M.
    """

    num_slots: int
    num_features: int
    outputs: int

    def __post_init__(self) -> None:
        asked = f"num_features={self.num_features} (bias included), outputs={self.outputs}"
        if self.num_features < 1 or self.outputs < 1:
            raise ParameterError(f"{asked}: both must be at least 1")
        if self.side**2 > MOST_BLOCKS * self.num_slots:
            raise ParameterError(
                f"{asked} need {self.side**2 // self.num_slots} ciphertexts of {self.num_slots} "
                f"slots for a matrix of {self.side} x {self.side}, the most is {MOST_BLOCKS}; take "
                "a larger ring or fewer columns"
            )
        if self.outputs > self.width:
            raise ParameterError(
                f"{asked}: a model of {self.side} rows leaves room for {self.width} outputs; take "
                "a larger ring or fewer outputs"
            )

    @property
    def side(self) -> int:
        """d'."""
        least = next_power_of_two(self.num_features)
        while least**2 < self.num_slots:
            least *= 2
        return least

    @property
    def width(self) -> int:
        """M."""
        return self.num_slots // self.side

    @property
    def blocks(self) -> int:
        """R."""
        return self.side // self.width

    @property
    def babies(self) -> int:
        """n1, the root of R or twice that of R / 2."""
        return 1 << self.blocks.bit_length() // 2

    @property
    def giants(self) -> int:
        """n2."""
        return self.blocks // self.babies

    @property
    def counts(self) -> tuple[int, int, int]:
        """Ciphertexts of a matrix, of targets and of row sums."""
        return self.blocks, self.outputs, self.giants

    @property
    def kept(self) -> float:
        """Share of the slots that the release keeps."""
        return self.num_features * self.outputs / self.num_slots

    # -- rotations ------------------------------------------------------------------------------

    def baby_rotation(self, b: int) -> int:
        """Left rotation of v."""
        return b * self.width

    def giant_rotation(self, g: int) -> int:
        """Left rotation of P_g."""
        return g * self.babies * self.width

    @property
    def fold_rotations(self) -> tuple[int, ...]:
        """Left rotations that sum over m into m = 0."""
        step = self.blocks * self.width + 1
        return tuple((step << i) % self.num_slots for i in range(self.width.bit_length() - 1))

    @property
    def copy_rotations(self) -> tuple[int, ...]:
        """Left rotations that copy m = 0 into every m."""
        return tuple(self.num_slots - (1 << i) for i in range(self.width.bit_length() - 1))

    @property
    def rotations(self) -> tuple[int, ...]:
        """Every rotation key that a run needs: about 2 sqrt(R) + 2 log2 M."""
        steps = {self.baby_rotation(b) for b in range(self.babies)}
        steps |= {self.giant_rotation(g) for g in range(self.giants)}
        return tuple(sorted({*steps, *self.fold_rotations, *self.copy_rotations} - {0}))

    # -- slots ----------------------------------------------------------------------------------

    def matrices(self, values: Array) -> list[Array]:
        """Slots of the blocks of a matrix, shape (d, d), block g n1 + b."""
        d, side = self.num_features, self.side
        whole = np.zeros((side, side))
        whole[:d, :d] = values
        j = np.arange(side)[:, None]
        return [
            whole[self._rows(g), (j + b) % side].ravel()
            for g in range(self.giants)
            for b in range(self.babies)
        ]

    def targets(self, values: Array) -> list[Array]:
        """Slots of a vector of each output, shape (d, c)."""
        return [self._spread(values[:, o]) for o in range(self.outputs)]

    def row_sums(self, values: Array) -> list[Array]:
        """Slots of one value of each row, shape (d, 1), where the blocks g hold that row.

        The first has value j in the heads, as vectors do.
        """
        whole = np.pad(values[:, 0], (0, self.side - len(values)))
        return [whole[self._rows(g)].ravel() for g in range(self.giants)]

    def heads(self) -> Array:
        """One where m = 0 and a value stands."""
        return self._columns(0, 1)

    def released(self) -> Array:
        """One where a released value stands, zero elsewhere: output o in m = o."""
        return self._columns(0, self.outputs)

    def released_part(self, output: int) -> Array:
        """Of one output."""
        return self._columns(output, output + 1)

    def read_heads(self, slots: Array) -> Array:
        """Released values, shape (d, c)."""
        grid = slots.reshape(self.side, self.width)
        return grid[: self.num_features, : self.outputs].copy()

    def _rows(self, g: int) -> NDArray[np.intp]:
        """Of the matrix, in slots (j, m) of the blocks g."""
        j, m = np.arange(self.side)[:, None], np.arange(self.width)[None, :]
        return (j - self.babies * (self.giants * m + g)) % self.side

    def _columns(self, start: int, stop: int) -> Array:
        grid = np.zeros((self.side, self.width))
        grid[: self.num_features, start:stop] = 1.0
        return grid.ravel()

    def _spread(self, values: Array) -> Array:
        return np.repeat(np.pad(values, (0, self.side - len(values))), self.width)


class BlockEvaluator(Evaluator):
    """Products of the blocked matrix with vectors.

    context: CKKS context with this session's evaluation keys loaded; layout: see `BlockLayout`.
    """

    def __init__(self, context: CkksContext, layout: BlockLayout) -> None:
        super().__init__(context, cast(Any, layout))
        self.slots = layout

    def product(
        self, blocks: Sequence[EncryptedVector], vector: EncryptedVector
    ) -> EncryptedVector:
        """H v, right in the heads; one level. vector: one output, in every m."""
        slots, cc = self.slots, self.cc
        level = max(vector.level, blocks[0].level)
        babies = [vector := self.drop_to(vector, level)]
        babies += [self.rotate(vector, slots.baby_rotation(b)) for b in range(1, slots.babies)]
        total: EncryptedVector | None = None
        for g in range(slots.giants):
            part: EncryptedVector | None = None
            for b, baby in enumerate(babies):
                block = self.drop_to(blocks[g * slots.babies + b], level)
                term = self.wrap(cc.EvalMultNoRelin(block.ct, baby.ct))
                if part is None:
                    part = term
                else:
                    self._add_to(part, term)
            part = self.each(cc.Relinearize, cast(EncryptedVector, part))
            if total is None:
                total = part
            else:
                self._add_to(total, self.rotate(part, slots.giant_rotation(g)))
        return self.rescaled(self.rotate_and_add(cast(Any, total), slots.fold_rotations))

    def spread_public(self, values: Array, vector: EncryptedVector) -> EncryptedVector:
        """values o vector, of which values is zero outside the heads, in every m; one level."""
        product = self._times(vector, values)
        return self.rescaled(self.rotate_and_add(product, self.slots.copy_rotations))

    def times_public(self, vector: EncryptedVector, values: Array) -> EncryptedVector:
        """The product of one part with public slots; one level."""
        return self.rescaled(self._times(vector, values))

    def add_public(self, vector: EncryptedVector, values: Array) -> EncryptedVector:
        """Sum with public slots, shape (num_slots,)."""
        return self.wrap(self.cc.EvalAdd(vector.ct, self.context.encode(values, vector.level)))

    def mask_released(self, vector: EncryptedVector, factor: float = 1.0) -> EncryptedVector:
        """All outputs in one ciphertext, times a factor, zero elsewhere; one level."""
        parts = self.parts(vector)
        kept, *others = (
            self._times(part, factor * self.slots.released_part(o)) for o, part in enumerate(parts)
        )
        return self.rescaled(sum(others, kept))

    def _times(self, vector: EncryptedVector, values: Array) -> EncryptedVector:
        mask = self.context.encode(values, vector.level)
        return self.wrap(self.cc.EvalMult(vector.ct, mask))
