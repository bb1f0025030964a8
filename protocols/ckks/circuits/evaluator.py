"""Arithmetic on encrypted vectors, in the notation of ordinary arrays.

An update rule written with +, - and * runs unchanged on NumPy arrays (the plaintext twin) and on
`EncryptedVector`. An encrypted vector of d weights is replicated: a value fills the columns of its
block, part by part, so that it multiplies rows of data directly.

Levels: a product, by a vector or by a public number, costs one; sums cost none. Operands at
different levels are brought to the deeper one, which under a constant scale only drops primes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from itertools import starmap
from typing import Any

import numpy as np

from protocols.ckks.circuits.packing import Layout
from protocols.ckks.circuits.periodic import PeriodicLayout
from protocols.ckks.context import CONJUGATION
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues

NUMBERS = (int, float, np.number)


class EncryptedVector:
    """A vector of features in one ciphertext per part, with array operators; immutable.

    cts: the parts, all at one level. What has one part, such as an inner product, combines with
    every part of the other operand.
    """

    __slots__ = ("cts", "evaluator")
    # NumPy must leave array-scalar operators to this class.
    __array_ufunc__ = None

    def __init__(self, evaluator: Evaluator, *cts: Any) -> None:
        self.evaluator = evaluator
        self.cts = cts

    @property
    def ct(self) -> Any:
        """The ciphertext of a vector that has one part."""
        (ct,) = self.cts
        return ct

    @property
    def level(self) -> int:
        """Levels consumed since the last encryption or refresh."""
        return int(self.cts[0].GetLevel())

    def __add__(self, other: EncryptedVector | float) -> EncryptedVector:
        return self._combined(self.evaluator.cc.EvalAdd, other)

    def __sub__(self, other: EncryptedVector | float) -> EncryptedVector:
        return self._combined(self.evaluator.cc.EvalSub, other)

    def __mul__(self, other: EncryptedVector | float) -> EncryptedVector:
        evaluator, cc = self.evaluator, self.evaluator.cc
        if self is other:
            return evaluator.rescaled(evaluator.each(cc.EvalSquare, self))
        if isinstance(other, NUMBERS):
            return evaluator.scaled(self, float(other))
        product = self._combined(cc.EvalMult, other)
        return product if product is NotImplemented else evaluator.rescaled(product)

    __rmul__ = __mul__

    def __matmul__(self, other: EncryptedVector) -> EncryptedVector:
        """Inner product over features, one part, in every used slot; one level."""
        return self.evaluator.inner(self, other)

    def _combined(
        self, operation: Callable[[Any, Any], Any], other: EncryptedVector | float
    ) -> EncryptedVector:
        if isinstance(other, EncryptedVector):
            pairs = self.evaluator.align(self, other)
            return EncryptedVector(self.evaluator, *starmap(operation, pairs))
        if not isinstance(other, NUMBERS):
            return NotImplemented
        return self.evaluator.each(lambda ct: operation(ct, float(other)), self)


class Evaluator:
    """Vector operations that know the packing.

    context: CKKS context with this session's evaluation keys loaded; layout: the packing.
    """

    def __init__(self, context: CkksContext, layout: Layout | PeriodicLayout) -> None:
        self.context = context
        self.layout: Any = layout
        self.cc = context.cc

    def wrap(self, *cts: Any) -> EncryptedVector:
        """Operators for ciphertexts, the parts of a vector."""
        return EncryptedVector(self, *cts)

    def join(self, vectors: Iterable[EncryptedVector]) -> EncryptedVector:
        """The vector of all their parts."""
        return self.wrap(*(ct for vector in vectors for ct in vector.cts))

    def parts(self, vector: EncryptedVector) -> list[EncryptedVector]:
        """Every part by itself."""
        return [self.wrap(ct) for ct in vector.cts]

    def each(self, operation: Callable[[Any], Any], vector: EncryptedVector) -> EncryptedVector:
        """The operation on every part's ciphertext."""
        return self.wrap(*map(operation, vector.cts))

    def align(self, left: EncryptedVector, right: EncryptedVector) -> Iterable[tuple[Any, Any]]:
        """Pairs of parts at the deeper level of the two; a single part pairs with all."""
        level = max(left.level, right.level)
        first, second = self.drop_to(left, level).cts, self.drop_to(right, level).cts
        count = max(len(first), len(second))
        wide = [cts * count if len(cts) == 1 else cts for cts in (first, second)]
        return zip(*wide, strict=True)

    def drop_to(self, vector: EncryptedVector, level: int) -> EncryptedVector:
        """The same value at a deeper level: primes are dropped, the scale stays."""
        if vector.level == level:
            return vector
        towers = self.context.params.num_towers - level
        return self.each(lambda ct: self.cc.Compress(ct, towers), vector)

    def lowered(self, state: Sequence[Any], level: int) -> tuple[EncryptedVector, ...]:
        """`drop_to` of every vector of a rule's state."""
        return tuple(self.drop_to(vector, level) for vector in state)

    def rotate(self, vector: EncryptedVector, index: int) -> EncryptedVector:
        """Left rotation of the slots, or their conjugates: see `CkksContext.rotated`."""
        return self.each(lambda ct: self.context.rotated(ct, index), vector)

    def rotate_and_add(self, vector: EncryptedVector, indices: Sequence[int]) -> EncryptedVector:
        """v <- v + rot(v, k) for each k: len(indices) key switches per part, no level."""
        for index in indices:
            rotated = self.rotate(vector, index)
            self._add_to(rotated, vector)
            vector = rotated
        return vector

    def rescaled(self, product: EncryptedVector) -> EncryptedVector:
        """One level down, in place: a product that nobody else holds."""
        for ct in product.cts:
            self.cc.RescaleInPlace(ct)
        return product

    def _add_to(self, total: EncryptedVector, other: EncryptedVector) -> None:
        """total += other, in place: a sum that nobody else holds."""
        for ct, part in zip(total.cts, other.cts, strict=True):
            self.cc.EvalAddInPlace(ct, part)

    def inner(self, left: EncryptedVector, right: EncryptedVector) -> EncryptedVector:
        """See `EncryptedVector.__matmul__`."""
        if self.layout.is_complex:
            right = self.rotate(right, CONJUGATION)
        parts = zip(self.parts(left), self.parts(right), strict=True)
        product = left * right if len(left.cts) == 1 else self.sum_of_products(parts)
        return self.sum_features(product)

    def sum_features(self, vector: EncryptedVector) -> EncryptedVector:
        """Sum over blocks, in every block: the slots are a cyclic group, so no mask is needed."""
        return self.rotate_and_add(vector, self.layout.feature_rotations)

    def scaled(self, vector: EncryptedVector, number: float) -> EncryptedVector:
        """vector * number; one level.

        Off by the dropped prime's distance from the scale, as products of vectors are: so a
        recursion of such products alone keeps its fixed point.
        """
        return self.rescaled(self.each(lambda ct: self.cc.EvalMult(ct, number), vector))

    def times(self, vector: EncryptedVector, number: float) -> EncryptedVector:
        """vector * number to the last bit; one level.

        Otherwise weights that pass here in every iteration would drift.
        """
        gain = self.context.rescaling_gain(vector.level)
        return Evaluator.scaled(self, vector, number / gain)

    def total(self, vector: EncryptedVector) -> EncryptedVector:
        """The sum of all parts, in one part."""
        first, *others = self.parts(vector)
        return sum(others, first)

    def column(self, vector: EncryptedVector, index: int, value: float = 1.0) -> EncryptedVector:
        """Column `index` of a vector of one part times a number, zero elsewhere; one level."""
        mask = value * np.roll(self.layout.indicator, index)
        encoded = self.context.encode(mask, vector.level)
        return self.rescaled(self.each(lambda ct: self.cc.EvalMult(ct, encoded), vector))

    def sum_of_products(
        self, pairs: Iterable[tuple[EncryptedVector, EncryptedVector]]
    ) -> EncryptedVector:
        """sum_k left_k * right_k with one relinearisation per part; one level."""
        return self.finished(self.products(pairs))

    def products(self, pairs: Iterable[tuple[EncryptedVector, EncryptedVector]]) -> EncryptedVector:
        """sum_k left_k * right_k before relinearisation and rescaling: see `finished`.

        Three polynomials a part, at twice the scale. Such sums add up exactly, in any order.
        """
        return self.added(
            self.wrap(*starmap(self.cc.EvalMultNoRelin, self.align(left, right)))
            for left, right in pairs
        )

    def added(self, vectors: Iterable[EncryptedVector]) -> EncryptedVector:
        """Their sum, which takes the first one's place."""
        total: EncryptedVector | None = None
        for vector in vectors:
            if total is None:
                total = vector
            else:
                self._add_to(total, vector)
        if total is None:
            raise AssertionError("a sum of nothing")
        return total

    def finished(self, products: EncryptedVector) -> EncryptedVector:
        """What `products` makes, relinearised and rescaled; one level."""
        return self.rescaled(self.each(self.cc.Relinearize, products))

    # -- groups of rows ---------------------------------------------------------------------------

    def store(self) -> MutableMapping[int, Residues]:
        """Where data ciphertexts, both polynomials in a row, are kept by index until `hold`."""
        return {}

    def hold(self, data: MutableMapping[int, Residues]) -> Any:
        """The groups of rows of such a store, for `over_groups`."""
        return self.grouped([self.wrap(ct) for ct in self.read(data)])

    def read(self, data: MutableMapping[int, Residues]) -> list[Any]:
        """Ciphertexts from their residues, in order."""
        return [self.context.ciphertext(np.split(data[index], 2)) for index in sorted(data)]

    def grouped(self, data: Sequence[EncryptedVector]) -> list[EncryptedVector]:
        """The data ciphertexts of a group of rows as the parts of one vector."""
        parts = self.layout.num_parts
        return [self.join(data[k : k + parts]) for k in range(0, len(data), parts)]

    def over_groups(
        self, terms: MakeTerms, units: Any, rows: Any, diagonal: EncryptedVector | None
    ) -> Terms:
        """Of all groups together; `workers` has others compute them."""
        return terms(self, units, rows, diagonal)


# Weights to the `products` of a gradient, summed over groups of rows.
Terms = Callable[[EncryptedVector], EncryptedVector]
# (evaluator, units, groups of rows, diagonal of a preconditioner): a class of an own module, so
# that its name alone can travel.
MakeTerms = Callable[[Evaluator, Any, Sequence[EncryptedVector], EncryptedVector | None], Terms]
