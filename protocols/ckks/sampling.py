"""Secrets, errors and the size of masks under threshold CKKS.

All small polynomials are drawn here, from the operating system's generator, expanded by AES-256 in
counter mode. OpenFHE's own is seeded from the processor's instruction alone, so it draws nothing
that protects anybody: it transforms and multiplies what stands here.

Masks of a collective refresh use the whole room of its primes. With Q3 the product of these and P
parties, every M_p is uniform over

    -2^(k-1) … 2^(k-1) - 1,    k = floor(log2((Q3 - 2 room) / P)),

so that |m - sum_p M_p| < Q3 / 2 for every message with |m| <= room: the sum does not wrap, and
lifts to Q exactly.

Security: what colluders see of a coefficient m is m - M_p mod Q3, within |m| / 2^k of uniform in
total variation. A message scaled beyond the room still shows its place among the at most
Q3 / 2^k < 2 P (1 + 2^-38) intervals of a mask's size alone: in the mean at most log2(2 P) bits of a
coefficient, however large it is, because I(m; m - M) = H(m - M) - H(M) <= log2(Q3 / 2^k). One
refresh shows that. Several of one value, scaled differently, add up: some 25 show all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext
from protocols.ckks.flooding import FRESH_ERROR_STD, encode_complex
from protocols.ckks.residues import Residues
from protocols.ckks.transform import Integers, evaluations, to_slots
from protocols.privacy.laws import ExpandedRandomness, uniform_below
from protocols.privacy.laws.discrete import narrow_gaussian

# The lift finds the multiple of Q3 in double precision: a message stays 2^-40 off the edge.
ROOM_BITS = 40
WORD = 64
"""Bits of one."""


def ternary(ring_dim: int) -> Integers:
    """Coefficients of a secret, exactly uniform on -1, 0, 1, shape (n,)."""
    return uniform_below(ExpandedRandomness(), 3, ring_dim) - 1


def gaussian(ring_dim: int, std: float = FRESH_ERROR_STD) -> Integers:
    """Coefficients of an error, i.i.d. discrete Gaussians, shape (n,); std: 1 … 16."""
    return narrow_gaussian(std, ring_dim, ExpandedRandomness())


def in_q(context: RingContext, coefficients: Integers, towers: int = 0) -> Residues:
    """Evaluation form modulo so many primes of Q, all by default, shape (towers, n).

    By OpenFHE's encoder, which is faster than `transform`: slots of so small a polynomial at the
    scale are right to 2^-40 of a coefficient, which it rounds.
    """
    slots = to_slots(coefficients.astype(np.float64)) / 2.0**context.params.scale_bits
    return context.residues_of(encode_complex(context, slots, towers))


def in_pq(context: RingContext, coefficients: Integers) -> Residues:
    """The same modulo the primes of Q and P."""
    special = evaluations(coefficients, context.special_primes)
    return np.concatenate([in_q(context, coefficients), special])


def fresh_errors(context: RingContext, count: int) -> list[Residues]:
    """So many independent errors, each of shape (towers, n)."""
    return [in_q(context, gaussian(context.params.ring_dim)) for _ in range(count)]


def encryption(
    context: RingContext, b: Residues, a: Residues, towers: int = 0
) -> tuple[Residues, Residues]:
    """A fresh encryption of zero, (b v + e0, a v + e1), v ternary, modulo so many primes of Q.

    b, a: the public key, shape (towers or more, n).
    """
    primes = context.primes[: towers or context.params.num_towers]
    n = context.params.ring_dim
    v = in_q(context, ternary(n), len(primes))
    c0, c1 = (
        rns.add(
            rns.product(half[: len(primes)], v, primes),
            in_q(context, gaussian(n), len(primes)),
            primes,
        )
        for half in (b, a)
    )
    return c0, c1


def room(primes: Sequence[int]) -> int:
    """Largest |coefficient| of a message that the refresh carries; primes: the refresh's."""
    return math.prod(primes) >> ROOM_BITS


def mask_bits(primes: Sequence[int], parties: int) -> int:
    """k of the module: a mask takes 2^k values."""
    return ((math.prod(primes) - 2 * room(primes)) // parties).bit_length() - 1
