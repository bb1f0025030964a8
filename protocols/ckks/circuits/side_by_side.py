"""The parts of a vector side by side in one ciphertext: a rule's own path, once for all parts.

Parts p = 0 … m - 1 are elements w_p of the subring Z[Y], Y = X^(n / 2k) (`subring`). With V =
X^(n / 2kM), M the least power of two that is m or more,

    w = sum_p V^p w_p,       and V^-p w, projected on the subring, is w_p.

Products with V are exact, and a refresh projects. So sums, products with public numbers, and with
ciphertexts that hold one number in all slots, take one operation where there were m. A product of
two such vectors is no product of their entries: rules have none. What the last refresh left in the
other coefficients of m parts comes along: sqrt(m) times the errors of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from protocols.ckks import REFRESH_TOWERS
from protocols.ckks import residues as rns
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.packing import next_power_of_two
from protocols.ckks.circuits.periodic import PeriodicLayout
from protocols.ckks.circuits.projection import shifted
from protocols.ckks.circuits.rows import ColumnSum
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.residues import Residues

Pair: TypeAlias = Sequence[Residues]
"""(c0, c1) of a ciphertext."""


class Parts:
    """A refreshed vector: (c0, c1) of each part at level 0, each of shape (towers, n).

    It stands in a rule's state where other runs have an array; nothing is computed with it there.
    """

    __slots__ = ("pairs",)

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = list(pairs)


class SideBySide(Evaluator):
    """Arithmetic on vectors whose parts stand side by side."""

    layout: PeriodicLayout

    def __init__(self, context: CkksContext, layout: PeriodicLayout) -> None:
        super().__init__(context, layout)
        count = layout.num_parts
        self._places = context.params.ring_dim // (2 * layout.period * next_power_of_two(count))
        self._lowered: list[tuple[EncryptedVector, Parts]] = []

    def lowered(self, state: Sequence[Parts], level: int) -> tuple[EncryptedVector, ...]:
        """Vectors of a rule's state, side by side, at a level: primes are dropped."""
        towers = self.context.params.num_towers - level
        self._lowered = []
        for parts in state:
            pairs = [[polynomial[:towers] for polynomial in pair] for pair in parts.pairs]
            vector = self.wrap(self.context.ciphertext(self._joined(pairs)))
            self._lowered.append((vector, Parts(pairs)))
        return tuple(vector for vector, _ in self._lowered)

    def scaled(self, vector: EncryptedVector, number: float) -> EncryptedVector:
        """To the last bit: the rest of a rule's own path has no rescaling."""
        return self.times(vector, number)

    def inner(self, left: EncryptedVector, right: EncryptedVector) -> EncryptedVector:
        """<w, w> of a vector of the state, from its parts; in all slots."""
        for vector, parts in self._lowered:
            if left is vector and right is vector:
                own = self.wrap(*map(self.context.ciphertext, parts.pairs))
                return super().inner(own, own)
        raise AssertionError("an inner product is of a vector of the state with itself")

    def sum_features(self, vector: EncryptedVector) -> EncryptedVector:
        """Sum over features, in every slot."""
        for steps in self.layout.feature_sums:
            vector = self.wrap(
                self.context.gathered(vector.ct, [(step, vector.ct) for step in steps])
            )
        return vector

    def own_share(self, total: ColumnSum) -> list[Pair] | None:
        """Of `ColumnSum.spread`, what needs no terms, part by part, at REFRESH_TOWERS towers.

        None: all of it is terms.
        """
        if total.rest is None:
            return None
        share = 1 / (total.factor * self.layout.block_size)
        return self._parted(self.times(total.rest, share).ct)

    def spread(self, terms: Sequence[Pair], own: Sequence[Pair] | None) -> list[Pair]:
        """Terms, a pair for each part, and such a share: what a refresh takes."""
        low = self.context.primes[:REFRESH_TOWERS]
        if own is None:
            return list(terms)
        return [
            [rns.add(term, more, low) for term, more in zip(*both, strict=True)]
            for both in zip(terms, own, strict=True)
        ]

    def _parted(self, rest: Any) -> list[Pair] | None:
        """The parts of what stands side by side."""
        polynomials = self.context.polynomials_of(rest)
        return self._split([each[:REFRESH_TOWERS] for each in polynomials])

    def _joined(self, pairs: Sequence[Pair]) -> Pair:
        """w, by Horner's rule in V."""
        *others, total = pairs
        primes = self.context.primes[: len(total[0])]
        for pair in reversed(others):
            moved = [shifted(each, primes, self._places) for each in total]
            total = [rns.add(each, own, primes) for each, own in zip(moved, pair, strict=True)]
        return total

    def _split(self, pair: Pair) -> list[Pair]:
        """V^-p w for each p."""
        found = [pair]
        primes = self.context.primes[: len(pair[0])]
        while len(found) < self.layout.num_parts:
            found.append([shifted(each, primes, -self._places) for each in found[-1]])
        return found


def zero(context: CkksContext, layout: PeriodicLayout) -> Parts:
    """An encryption of zero without randomness: it adds no noise to a start that is public."""
    blank = np.zeros((context.params.num_towers, context.params.ring_dim), np.uint64)
    return Parts([[blank, blank]] * layout.num_parts)
