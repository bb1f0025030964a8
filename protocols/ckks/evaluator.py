"""Arithmetic on encrypted vectors, in the notation of ordinary arrays.

An update rule written with +, - and * runs unchanged on NumPy arrays (the plaintext twin) and on
`EncryptedVector`. An encrypted vector of d weights is replicated: value j fills the columns of
block j, so that it multiplies rows of data directly.

Levels: a product, by a vector or by a public number, costs one; sums cost none. Operands at
different levels are brought to the deeper one, which under a constant scale only drops primes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.context import CkksContext
from protocols.ckks.packing import Layout


class EncryptedVector:
    """A ciphertext with array operators; immutable."""

    __slots__ = ("ct", "evaluator")
    # NumPy must leave array-scalar operators to this class.
    __array_ufunc__ = None

    def __init__(self, evaluator: Evaluator, ct: Any) -> None:
        self.evaluator = evaluator
        self.ct = ct

    @property
    def level(self) -> int:
        """Levels consumed since the last encryption or refresh."""
        return int(self.ct.GetLevel())

    def __add__(self, other: EncryptedVector | float) -> EncryptedVector:
        cc = self.evaluator.cc
        if isinstance(other, EncryptedVector):
            left, right = self.evaluator.align(self, other)
            return EncryptedVector(self.evaluator, cc.EvalAdd(left, right))
        return EncryptedVector(self.evaluator, cc.EvalAdd(self.ct, float(other)))

    def __sub__(self, other: EncryptedVector | float) -> EncryptedVector:
        cc = self.evaluator.cc
        if isinstance(other, EncryptedVector):
            left, right = self.evaluator.align(self, other)
            return EncryptedVector(self.evaluator, cc.EvalSub(left, right))
        return EncryptedVector(self.evaluator, cc.EvalSub(self.ct, float(other)))

    def __mul__(self, other: EncryptedVector | float) -> EncryptedVector:
        cc = self.evaluator.cc
        if isinstance(other, EncryptedVector):
            left, right = self.evaluator.align(self, other)
            square = left is right
            product = cc.EvalSquare(left) if square else cc.EvalMult(left, right)
        else:
            product = cc.EvalMult(self.ct, float(other))
        return EncryptedVector(self.evaluator, cc.Rescale(product))

    __rmul__ = __mul__

    def __matmul__(self, other: EncryptedVector) -> EncryptedVector:
        """Inner product over features, in every used slot; one level."""
        return self.evaluator.sum_features(self * other)


class Evaluator:
    """Vector operations that know the packing.

    context: CKKS context with this session's evaluation keys loaded; layout: the packing.
    """

    def __init__(self, context: CkksContext, layout: Layout) -> None:
        self.context = context
        self.layout = layout
        self.cc = context.cc
        # The last mask, by value and level: encoding it costs seven multiplications with it.
        self._last_mask: tuple[tuple[float, int], Any] | None = None

    def wrap(self, ct: Any) -> EncryptedVector:
        """Operators for a ciphertext."""
        return EncryptedVector(self, ct)

    def align(self, left: EncryptedVector, right: EncryptedVector) -> tuple[Any, Any]:
        """Both ciphertexts at the deeper level of the two."""
        level = max(left.level, right.level)
        first = self.drop_to(left, level).ct
        return first, (first if right is left else self.drop_to(right, level).ct)

    def drop_to(self, vector: EncryptedVector, level: int) -> EncryptedVector:
        """The same value at a deeper level: primes are dropped, the scale stays."""
        if vector.level == level:
            return vector
        return self.wrap(self.cc.Compress(vector.ct, self.context.params.num_towers - level))

    def rotate(self, vector: EncryptedVector, index: int) -> EncryptedVector:
        """Left rotation of the slots."""
        return self.wrap(self.cc.EvalRotate(vector.ct, index))

    def rotate_and_add(self, vector: EncryptedVector, indices: Sequence[int]) -> EncryptedVector:
        """v <- v + rot(v, k) for each k: len(indices) key switches, no level."""
        ct = vector.ct
        for index in indices:
            ct = self.cc.EvalAdd(ct, self.cc.EvalRotate(ct, index))
        return self.wrap(ct)

    def sum_features(self, vector: EncryptedVector) -> EncryptedVector:
        """Sum over blocks, in every block: the slots are a cyclic group, so no mask is needed."""
        return self.rotate_and_add(vector, self.layout.feature_rotations)

    def sum_columns(self, vector: EncryptedVector) -> EncryptedVector:
        """Sum over the columns of each block, right in column 0 and meaningless elsewhere."""
        return self.rotate_and_add(vector, self.layout.column_rotations)

    def replicate(self, heads: EncryptedVector) -> EncryptedVector:
        """Copy column 0 into all columns; every other slot must be zero."""
        if self.layout.spread_rotation:
            heads = self.rotate(heads, self.layout.spread_rotation)
        return self.rotate_and_add(heads, self.layout.column_rotations)

    def mask_heads(
        self, vector: EncryptedVector, values: NDArray[np.float64] | float = 1.0
    ) -> EncryptedVector:
        """Column 0 times public values, zero elsewhere; one level."""
        return self._rescaled(self._masked(vector, values))

    def mask_and_replicate(
        self, vector: EncryptedVector, values: NDArray[np.float64] | float
    ) -> EncryptedVector:
        """`replicate(mask_heads(vector, values))`; one level.

        Replicating doubles the key-switching noise log2(C) times. It runs before the rescaling,
        which divides that noise by the scale.
        """
        return self._rescaled(self.replicate(self._masked(vector, values)))

    def _masked(
        self, vector: EncryptedVector, values: NDArray[np.float64] | float
    ) -> EncryptedVector:
        return self.wrap(self.cc.EvalMult(vector.ct, self._mask(values, vector.level)))

    def _mask(self, values: NDArray[np.float64] | float, level: int) -> Any:
        if not isinstance(values, float):
            return self.context.encode(self.layout.heads(values), level)
        key = (values, level)
        if self._last_mask is None or self._last_mask[0] != key:
            self._last_mask = key, self.context.encode(self.layout.heads(values), level)
        return self._last_mask[1]

    def _rescaled(self, vector: EncryptedVector) -> EncryptedVector:
        return self.wrap(self.cc.Rescale(vector.ct))

    def sum_of_products(
        self, pairs: Iterable[tuple[EncryptedVector, EncryptedVector]]
    ) -> EncryptedVector:
        """sum_k left_k * right_k with one relinearisation; one level."""
        total: Any = None
        for left, right in pairs:
            product = self.cc.EvalMultNoRelin(*self.align(left, right))
            total = product if total is None else self.cc.EvalAdd(total, product)
        return self.wrap(self.cc.Rescale(self.cc.Relinearize(total)))
