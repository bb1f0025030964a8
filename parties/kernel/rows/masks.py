"""Masks of a refresh of encrypted rows, and what a map between columns makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protocols.ckks import REFRESH_TOWERS
from protocols.ckks import residues as rns
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.context import RingContext
from protocols.ckks.lift import lift
from protocols.ckks.residues import Residues, each
from protocols.ckks.sampling import WORD, mask_bits
from protocols.privacy.laws import RandomSource, SystemRandomness


def drawn(
    context: RingContext, parties: int, maps: Sequence[ColumnMap | None]
) -> list[tuple[Residues, Residues]]:
    """M_p in the room of the refresh's primes, modulo these, and T(M_p) at level 0."""
    low, n, random = context.primes[:REFRESH_TOWERS], context.params.ring_dim, SystemRandomness()
    masks = each(lambda _: draw_mask(low, parties, n, random), maps)

    def mapped(column_map: ColumnMap | None, mask: Residues) -> tuple[Residues, Residues]:
        primes = context.primes
        through = column_map.apply(mask, primes, primes[-1]) if column_map else mask
        return mask[: len(low)], through

    return each(mapped, maps, lift(context, masks))


def draw_mask(
    primes: Sequence[int], parties: int, ring_dim: int, randomness: RandomSource
) -> Residues:
    """Coefficients of one party's mask modulo each prime, shape (len(primes), ring_dim)."""
    bits = mask_bits(primes, parties)
    count = -(-bits // WORD)
    words = randomness.words(count * ring_dim).reshape(count, ring_dim)
    top = words[-1] >> np.uint64(count * WORD - bits)
    modulus = np.array(primes, np.uint64)[:, None]

    total = top % modulus
    for word in words[-2::-1]:
        shifted = rns.scale(total, [1 << WORD] * len(primes), primes)
        total = rns.add(shifted, word % modulus, primes)
    half = np.array([[(1 << bits - 1) % prime] for prime in primes], np.uint64)
    return rns.subtract(total, half, primes)
