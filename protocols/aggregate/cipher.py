"""Public elements of the rounds.

    round t   ->   <- b_p = (a_t s_p + e_p + m_p), coefficients of the values only

The party's half is in parties/kernel/sums/aggregate_share.py, the coordinator's in
`coordinator_cipher`. Values beyond the n of
one ring element go to further elements a_(t, 1), a_(t, 2), …
Error: sum_p b_p - a_t s = sum_p m_p + e, std NOISE_STD sqrt(P) units, bound `error_bound`.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from protocols.aggregate.ntt import Residues
from protocols.aggregate.parameters import AggregateParameters
from protocols.errors import ParameterError

_WORD = 8
_SPARE = 16


def session_digest(params: AggregateParameters, session: str, seed: bytes) -> bytes:
    """SHA-256 of all that a run's public elements and signatures are bound to, 32 bytes.

    session: name of the run; seed: the joint seed, 32 bytes, chosen by nobody alone.
    """
    if len(seed) != 32:
        raise ParameterError(f"seed has {len(seed)} bytes, expected 32; take the joint one")
    shape = repr((params.ring_dim, params.primes, params.scale_bits, params.parties)).encode()
    name = session.encode()
    sizes = len(shape).to_bytes(4, "little") + len(name).to_bytes(4, "little")
    return hashlib.sha256(b"ciphercohort/aggregate/1\0" + sizes + shape + name + seed).digest()


# Parties of one process, and its coordinator, expand the same few elements one after the other.
@lru_cache(maxsize=8)
def public_element(params: AggregateParameters, digest: bytes, t: int, chunk: int) -> Residues:
    """Uniform a_(t, chunk) in transformed form, shape (primes, n), read-only.

    A transform of a uniform polynomial is uniform, so none is computed. Row k is SHAKE-256(digest
    | t | chunk | k) read as 64-bit words; words below floor(2^64 / p) p are kept, reduced mod p.
    """
    n = params.ring_dim
    rows = np.empty((len(params.primes), n), np.uint64)
    for k, p in enumerate(params.primes):
        label = t.to_bytes(8, "little") + chunk.to_bytes(4, "little") + k.to_bytes(2, "little")
        # A word is refused with probability p / 2^64 < 2^-33: 16 spare ones are enough.
        stream = hashlib.shake_256(digest + label).digest((n + _SPARE) * _WORD)
        words = np.frombuffer(stream, "<u8")
        kept = words[words < np.uint64((1 << 64) // p * p)][:n]
        rows[k] = kept % np.uint64(p)
    rows.setflags(write=False)
    return rows
