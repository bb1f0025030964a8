"""Masks of a refresh of an encrypted model, and what its map of the subring makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.ckks import residues as rns
from protocols.ckks import subring
from protocols.ckks.context import RingContext
from protocols.ckks.masks import WORD, mask_bits
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.ckks.residues import Residues
from protocols.ckks.subring import TraceMap
from protocols.privacy.laws.randomness import ExpandedRandomness, RandomSource, SystemRandomness


def drawn(
    context: RingContext, parties: int, maps: Sequence[TraceMap]
) -> list[tuple[Residues, Residues]]:
    """M_p modulo the refresh's primes, and T(M_p) at level 0.

    Uniform in the room of these primes on the subring's coefficients, modulo them on all others.
    """
    low, n = context.primes[:REFRESH_TOWERS], context.params.ring_dim

    def mask(trace_map: TraceMap) -> tuple[Residues, Residues]:
        count = 2 * trace_map.period
        inner = mask_values(low, parties, count, SystemRandomness())
        outer = subring.kernel(low, n, trace_map.period, ExpandedRandomness())
        whole = rns.add(outer, subring.embed(inner, low, n), low)
        return whole, subring.embed(trace_map.apply(inner), context.primes, n)

    return rns.each(mask, maps)


def mask_values(
    primes: Sequence[int], parties: int, count: int, randomness: RandomSource
) -> list[int]:
    """So many coefficients of one party's mask, as integers."""
    bits = mask_bits(primes, parties)
    words = randomness.words(-(-bits // WORD) * count).reshape(count, -1)
    drawn = (int.from_bytes(row.tobytes(), "little") for row in words)
    return [(value & (1 << bits) - 1) - (1 << bits - 1) for value in drawn]
