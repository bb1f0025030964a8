"""A party's gradient of an encrypted model: rows in the clear, weights under encryption.

    z' = sum_f x_f w'_f + o' plaintext products, summed, rotations, a conjugation, one rescaling
    q(z') / A                the polynomial's factors, ciphertext by ciphertext
    u x_f q(z') / A          plaintext products, summed over all groups of rows, one rescaling

w' = w / R, R the radius of the link's interval, q = p - p(0) and A its leading coefficient in z'; x
stands for c times a row, c as in `RowUnits`, which brings the noise of replies below a rounding's;
u for its weight on [0, 1], o' for c / R times its offset; packing: `Columns`. Sums over columns are
left to the next refresh (`TraceMap`). No step needs a key switch but the factors' products, the
conjugation and the rotations. A group of rows costs k plaintext products of each part for z', one
where products are turned, and r for the gradient (`circuits.periodic`). Of a link of degree 1,
q(z') / A is z' itself.

Noise. Every key switch comes before a rescaling, which divides its noise by a prime, but for the
turns of w'. A rescaling's rounding follows from its operand: it would be the same in all groups
of rows that are alike, in every party, and add up. So the sum z' of a group g has an encryption of
zero added before it is rescaled, Z + g Z', of error far below the prime. Modulo a prime these are
pairwise independent and uniform, hence roundings of two groups are uncorrelated, whatever the rows.

| level | 1 | 2 | 3 … | last |
|---|---|---|---|---|
| ready | z' | z'^2, of odd polynomials | factors, their products | the sums |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.kernel import EVERY, named
from parties.kernel.model import Array, Columns, Complexes
from protocols.ckks import REFRESH_TOWERS, CkksParameters
from protocols.ckks.context import CONJUGATION
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.factored import Link
from protocols.ckks.flooding import encode_complex
from protocols.ckks.residues import Residues
from protocols.errors import PolicyError


@dataclass(frozen=True, slots=True)
class Gained:
    """A ciphertext, and the known number that its value is too large by: q / A must not drift.

    A product is off by the dropped prime's distance from the scale, 2^-40 or so of itself, round
    after round in the same direction. Sums with public numbers take the gain along.
    """

    context: CkksContext
    ct: Any
    gain: float = 1.0

    @property
    def level(self) -> int:
        """Primes that were dropped."""
        return int(self.ct.GetLevel())

    def lowered(self, level: int) -> Any:
        """The ciphertext, at a deeper level."""
        if self.level == level:
            return self.ct
        return self.context.cc.Compress(self.ct, self.context.params.num_towers - level)

    def __add__(self, other: float) -> Gained:
        total = self.context.cc.EvalAdd(self.ct, other * self.gain)
        return Gained(self.context, total, self.gain)

    def __mul__(self, other: Gained) -> Gained:
        cc, level = self.context.cc, max(self.level, other.level)
        if self.ct is other.ct:
            found = cc.EvalSquare(self.ct)
        else:
            found = cc.EvalMult(self.lowered(level), other.lowered(level))
        cc.RescaleInPlace(found)
        return Gained(
            self.context, found, self.gain * other.gain * self.context.rescaling_gain(level)
        )


CIRCUITS = {
    "link": "parties.kernel.model.clear_rows:ClearRows",
    "lffr": "parties.kernel.lffr.clear:ClearLffr",
}


class ClearRows:
    """A party's rows, encoded, and the gradient that they make of encrypted weights.

    context: with the joint evaluation keys; link: p, of c times a row; rows: shape (N, d), bias
    last, never copied; scale: c; zeros: two encryptions of zero, of this process, at level 0 and at
    the scale of a product; cache: for encoded rows [bytes]; weight, offset: u, o', shape (N,),
    None: ones, zeros; targets: y, for slopes that are not linear in it.
    """

    def __init__(
        self,
        context: CkksContext,
        layout: Columns,
        link: Link,
        rows: Array,
        zeros: tuple[Any, Any],
        cache: int,
        *,
        scale: float = 1.0,
        weight: Array | None = None,
        offset: Array | None = None,
        targets: Array | None = None,
    ) -> None:
        self._context, self._layout, self._link = context, layout, link
        self._targets = targets
        self._zero, self._next_zero = zeros
        self._rows, self._cache = rows, cache
        self._scale, self._weight, self._offset = scale, weight, offset
        self._encoded: dict[tuple[int, int, int, int], Any] = {}
        # Where the last product is rescaled to what a refresh takes.
        self._last_level = context.params.num_towers - REFRESH_TOWERS - 1

    def gradient(self, rotated: Sequence[Sequence[Any]]) -> list[list[Residues]]:
        """sum over groups of x_f q(z') / A: (c0, c1) of each part, at REFRESH_TOWERS towers.

        rotated: of that name, of w' of each part in all columns: (c0, c1) at level 0.
        """
        cc, layout = self._context.cc, self._layout
        shifts = range(layout.rows_of_column)
        sums: list[list[Any]] = [[None for _ in shifts] for _ in range(layout.num_parts)]
        for group in range(-(-len(self._rows) // layout.rows_per_group)):
            scores = self._scores(group, rotated)
            found = self._slopes(group, [Gained(self._context, z) for z in scores])
            lowered = [q.lowered(self._last_level) for q in found]
            for part, shift in product(range(layout.output_parts), shifts):
                # All outputs take the same products, hence have the same gain.
                slots = partial(self._conjugated, group, part, shift, found[0].gain)
                rows = self._plaintext((group, part, shift, 1), self._last_level, slots)
                for output, q in enumerate(lowered):
                    own = sums[output * layout.output_parts + part]
                    own[shift] = _added(cc, own[shift], cc.EvalMultNoRelin(q, rows))
        totals = []
        while sums:
            totals.append(self._turned_back(sums.pop(0)))
            cc.RescaleInPlace(totals[-1])
        return [self._context.polynomials_of(total) for total in totals]

    def _turned_back(self, shifted: Sequence[Any]) -> Any:
        """sum_s rot_s of the s-th, in two steps, whose keys are those of `_scores`."""
        gathered, size = self._context.gathered, self._layout.turns
        found = []
        for k in range(0, len(shifted), size):
            first, *others = shifted[k : k + size]
            found.append((k, gathered(first, list(enumerate(others, 1)))))
        return gathered(found[0][1], found[1:])

    def only(self, rows: NDArray[np.intp], weight: Array) -> ClearRows:
        """The same circuit on some of the rows, of these weights beside their own; keeps nothing.

        weight: shape of `rows`.
        """
        found = copy(self)
        found._rows = self._rows[rows]
        found._weight = weight if self._weight is None else weight * self._weight[rows]
        found._offset = None if self._offset is None else self._offset[rows]
        found._targets = None if self._targets is None else self._targets[rows]
        found._cache, found._encoded = 0, {}
        return found

    @staticmethod
    def known(link: Sequence[float], radius: float, t: int, targets: Array, offset: Array) -> Array:
        """What of the slopes needs no weights: p(0) - y; where these are zero, t = 0, all of it.

        link: p, in z / radius; offset: of scores; targets: encoded.
        """
        score = (np.zeros(1) if t else offset) / radius
        p = 0.0 * score
        for coefficient in reversed(link):
            p = p * score + coefficient
        found: Array = p.reshape(-1, *(1,) * (targets.ndim - 1)) - targets
        return found

    @staticmethod
    def side(leading: float) -> float:
        """What slopes are divided by: A; leading: A."""
        return leading

    def _slopes(self, group: int, scores: Sequence[Gained]) -> list[Gained]:
        """q(z') / A of each output; of any other loss what its weighted rows are multiplied by."""
        _ = group
        return [self._link.quotient(z)[1] for z in scores]

    def rotated(self, weights: Sequence[Sequence[Residues]]) -> list[list[Any]]:
        """rot_r of every part, r below the layout's `turns`; no row is in it."""
        context, steps = self._context, range(1, self._layout.turns)
        parts = [context.ciphertext(each) for each in weights]
        if not steps:
            return [parts]
        pairs = [(part, context.cc.EvalFastRotationPrecompute(part)) for part in parts]
        return [
            parts,
            *([context.rotated(part, r, digits) for part, digits in pairs] for r in steps),
        ]

    def _scores(self, group: int, rotated: Sequence[Sequence[Any]]) -> list[Any]:
        """z' of one group of rows, at level 1, of each output; outputs share a zero."""
        layout, cc = self._layout, self._context.cc
        steps = (0, *layout.steps)
        products: list[list[Any]] = [[None] * len(steps) for _ in range(layout.num_outputs)]
        parts, turns = range(layout.output_parts), range(layout.turns)
        for (place, step), part, turn in product(enumerate(steps), parts, turns):
            slots = partial(self._halved, group, part, turn, step)
            rows = self._plaintext((group, part, step + turn, 0), 0, slots)
            for output, found in enumerate(products):
                weights = rotated[turn][output * layout.output_parts + part]
                found[place] = _added(cc, found[place], cc.EvalMultNoRelin(weights, rows))
        cc.EvalAddInPlace(self._zero, self._next_zero)
        scores = [self._joined(found) for found in products]
        if self._offset is not None:
            level = scores[0].GetLevel()
            slots = partial(self._repeated, self._offset, group)
            offset = self._plaintext((group, 0, 0, 2), level, slots)
            for score in scores:
                cc.EvalAddInPlace(score, offset)
        return scores

    def _joined(self, totals: Sequence[Any]) -> Any:
        """Sums over features, from those of each step of products; their real part."""
        cc, (first, *others) = self._context.cc, totals
        turned = list(zip(self._layout.steps, others, strict=True))
        total = self._context.gathered(first, turned)
        for steps in self._layout.sums:
            total = self._context.gathered(total, [(step, total) for step in steps])
        cc.EvalAddInPlace(total, self._zero)
        cc.EvalAddInPlace(total, self._context.rotated(total, CONJUGATION))
        cc.RescaleInPlace(total)
        return total

    def _halved(self, group: int, part: int, turn: int, step: int) -> Complexes:
        """Half the rows: a number and its conjugate are twice the real part."""
        half = self._scale / (2 * self._context.rescaling_gain(0))
        return half * self._layout.slots_to_sum(self._group(self._rows, group), part, turn, step)

    def _conjugated(self, group: int, part: int, shift: int, gain: float) -> Complexes:
        """Weighted rows, by what takes away the gain of q, and that of their own product."""
        factor: Any = self._scale / (gain * self._context.rescaling_gain(self._last_level))
        if self._weight is not None:
            factor = factor * self._group(self._weight, group)[:, None]
        rows = factor * self._group(self._rows, group)
        return self._layout.slots_of(rows, part, shift).conj()

    def _repeated(self, values: Array, group: int) -> Complexes:
        """One number of each row."""
        return self._layout.in_columns(self._group(values, group).astype(np.complex128))

    def _group(self, values: Array, group: int) -> Array:
        size = self._layout.rows_per_group
        return values[group * size : (group + 1) * size]

    def _encode(self, slots: Callable[[], Complexes], level: int) -> Any:
        return encode_complex(self._context, slots(), self._context.params.num_towers - level)

    def _plaintext(
        self, key: tuple[int, int, int, int], level: int, slots: Callable[[], Complexes]
    ) -> Any:
        """Encoded rows, from the cache while it has room."""
        found = self._encoded.get(key)
        if found is None:
            found = self._encode(slots, level)
            size = encoded_size(self._context.params, level)
            if size <= self._cache:
                self._cache -= size
                self._encoded[key] = found
        return found


def party_circuit(name: str, protocols: Collection[str] = EVERY) -> type[ClearRows]:
    """Of a sheet. Raises PolicyError: there is none, or the owner takes no part in it."""
    if name not in CIRCUITS:
        raise PolicyError("the sheet of this run is refused: circuit")
    found: type[ClearRows] = named(CIRCUITS[name], protocols)
    return found


def encoded_size(params: CkksParameters, level: int) -> int:
    """Of a plaintext's residues [bytes]."""
    return 8 * params.ring_dim * (params.num_towers - level)


def _added(cc: Any, total: Any, more: Any) -> Any:
    if total is None:
        return more
    cc.EvalAddInPlace(total, more)
    return total
