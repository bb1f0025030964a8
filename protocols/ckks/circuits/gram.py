"""Slots and sums of the Gram protocol: W <- M W + G with M a d x d matrix, never a row in sight.

Slot (k, j, o), o innermost, holds entry (k, j) of a matrix for output o; k and j run to d', o to
c', the powers of two >= d and c. The d'^2 c' slots repeat to fill the ciphertext, so that they are
a cyclic group of their own. A vector stands in one of two orientations:

    outer: value k in every j        inner: value j in every k

Summing M o W over k, the outermost index, goes round the cycle: no mask, and the result is `inner`.
Summing over j is right in j = 0 only: a mask and replication make it `outer`. The matrix stays
where it is, so two iterations take 1 + 2 levels.

Copies carry noise of their own, and a sum over k that starts in one copy ends in the next: what
differs between copies is multiplied by partial sums of M, which accelerated iterations do not keep
below 1 (measured: 1.3 an iteration). So the sum over j takes the mean of all copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.packing import next_power_of_two
from protocols.ckks.evaluation import CkksContext
from protocols.errors import ParameterError

Array = NDArray[np.float64]
CONTRACT_OUTER_LEVELS = 1
CONTRACT_INNER_LEVELS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class GramLayout:
    """Where a d x d matrix for c outputs stands.

    num_slots: slots per ciphertext, a power of two; num_features: d, bias included; outputs: c.

    Raises:
        ParameterError: d'^2 c' exceeds num_slots.
    """

    num_slots: int
    num_features: int
    outputs: int

    def __post_init__(self) -> None:
        if self.num_features < 1 or self.outputs < 1:
            raise ParameterError(
                f"num_features={self.num_features}, outputs={self.outputs}: both must be at least 1"
            )
        if self.period > self.num_slots:
            raise ParameterError(
                f"num_features={self.num_features} (bias included) and outputs={self.outputs} need "
                f"{self.side}^2 * {self.depth} = {self.period} slots, a ciphertext has "
                f"{self.num_slots}; take a larger ring or fewer columns"
            )

    @property
    def side(self) -> int:
        """d'."""
        return next_power_of_two(self.num_features)

    @property
    def depth(self) -> int:
        """c'."""
        return next_power_of_two(self.outputs)

    @property
    def period(self) -> int:
        """d'^2 c': slots after which everything repeats."""
        return self.side**2 * self.depth

    @property
    def counts(self) -> tuple[int, int, int]:
        """Ciphertexts of a matrix, of targets and of row sums: vectors in both orientations."""
        return 1, 2, 2

    @property
    def kept(self) -> float:
        """Share of the slots that the release keeps."""
        return self.side * self.depth / self.num_slots

    # -- rotations ------------------------------------------------------------------------------

    @property
    def inner_rotations(self) -> tuple[int, ...]:
        """Left rotations that sum over j into j = 0, and replicate after `spread`."""
        return tuple(self.depth << i for i in range(self.side.bit_length() - 1))

    @property
    def outer_rotations(self) -> tuple[int, ...]:
        """Left rotations that sum over k into every k."""
        return tuple(self.side * stride for stride in self.inner_rotations)

    @property
    def copy_rotations(self) -> tuple[int, ...]:
        """Left rotations that sum over the copies of a period."""
        copies = self.num_slots // self.period
        return tuple(self.period << i for i in range(copies.bit_length() - 1))

    @property
    def spread_rotation(self) -> int:
        """Left rotation that takes j = 0 to j = d' - 1 (0: none needed)."""
        return -(self.side - 1) * self.depth % self.num_slots

    @property
    def rotations(self) -> tuple[int, ...]:
        """Every rotation key that a run needs: log2(slots / c') + log2(d'), and one."""
        sums = (*self.inner_rotations, *self.outer_rotations, *self.copy_rotations)
        wanted = {*sums, self.spread_rotation}
        return tuple(sorted(wanted - {0}))

    # -- slots ----------------------------------------------------------------------------------

    def matrix(self, values: Array) -> Array:
        """Slots of a matrix, shape (d, d), the same for every output."""
        d = self.num_features
        grid = np.zeros((self.side, self.side, self.depth))
        grid[:d, :d, : self.outputs] = values[:, :, None]
        return self._repeat(grid)

    def matrices(self, values: Array) -> list[Array]:
        """The one ciphertext's."""
        return [self.matrix(values)]

    def targets(self, values: Array) -> list[Array]:
        """Inner, outer."""
        return [self.inner(values), self.outer(values)]

    def row_sums(self, values: Array) -> list[Array]:
        """Inner, outer."""
        return self.targets(values)

    def inner(self, values: Array) -> Array:
        """Slots of value j, shape (d, c) or (d, 1), in every k."""
        return self._repeat(self._padded(values)[None])

    def outer(self, values: Array) -> Array:
        """Slots of value k, shape (d, c) or (d, 1), in every j."""
        return self._repeat(self._padded(values)[:, None])

    def heads(self) -> Array:
        """One where j = 0 and a value stands."""
        first = np.arange(self.side)[None, :, None] == 0
        return self._repeat(self._padded(1.0)[:, None] * first)

    def released(self) -> Array:
        """One in the first copy of an `inner` vector's values, zero elsewhere."""
        first = self._padded(1.0).ravel()
        return np.pad(first, (0, self.num_slots - first.size))

    def read_heads(self, slots: Array) -> Array:
        """Values of an `inner` vector, shape (d, c)."""
        grid = slots[: self.side * self.depth].reshape(self.side, self.depth)
        return grid[: self.num_features, : self.outputs].copy()

    def _padded(self, values: Array | float) -> Array:
        grid = np.zeros((self.side, self.depth))
        grid[: self.num_features, : self.outputs] = values
        return grid

    def _repeat(self, grid: Array) -> Array:
        whole = np.broadcast_to(grid, (self.side, self.side, self.depth))
        return np.tile(whole.ravel(), self.num_slots // self.period)


class GramEvaluator(Evaluator):
    """Sums over either index, and what else the Gram protocol needs.

    context: CKKS context with this session's evaluation keys loaded; layout: see `GramLayout`.
    """

    def __init__(self, context: CkksContext, layout: GramLayout) -> None:
        super().__init__(context, cast(Any, layout))
        self.slots = layout

    def contract_outer(self, product: EncryptedVector) -> EncryptedVector:
        """Sum over k, `inner`."""
        return self.rotate_and_add(product, self.slots.outer_rotations)

    def contract_inner(self, product: EncryptedVector, factor: float = 1.0) -> EncryptedVector:
        """Sum over j, `outer`, times a factor; one level.

        Replicating runs before the rescaling, which divides its key-switching noise by the scale.
        """
        slots = self.slots
        sums = self.rotate_and_add(product, (*slots.inner_rotations, *slots.copy_rotations))
        heads = self._times(sums, factor * slots.period / slots.num_slots * slots.heads())
        if self.slots.spread_rotation:
            heads = self.rotate(heads, self.slots.spread_rotation)
        copies = self.rotate_and_add(heads, self.slots.inner_rotations)
        return self.wrap(self.cc.Rescale(copies.ct))

    def mask_released(self, vector: EncryptedVector, factor: float = 1.0) -> EncryptedVector:
        """An `inner` vector once, times a factor, zero elsewhere; one level."""
        mask = factor * self.slots.released()
        return self.wrap(self.cc.Rescale(self._times(vector, mask).ct))

    def add_public(self, vector: EncryptedVector, values: Array) -> EncryptedVector:
        """Sum with public slots, shape (num_slots,)."""
        return self.wrap(self.cc.EvalAdd(vector.ct, self.context.encode(values, vector.level)))

    def _times(self, vector: EncryptedVector, values: Array) -> EncryptedVector:
        mask = self.context.encode(values, vector.level)
        return self.wrap(self.cc.EvalMult(vector.ct, mask))
