"""Public elements of the rounds, and real vectors as integers mod Q, exactly.

    round t   ->   <- b_p = (a_t s_p + e_p + m_p), coefficients of the values only

The party's half is in parties/kernel/sums/aggregate_share.py, the coordinator's in
`coordinator_cipher`. Values beyond the n of
one ring element go to further elements a_(t, 1), a_(t, 2), …
Back from integers: `coordinator_cipher.decode`.
Error: sum_p b_p - a_t s = sum_p m_p + e, std NOISE_STD sqrt(P) units, bound `error_bound`.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.aggregate import AggregateParameters
from protocols.aggregate.ntt import Residues, ring_of
from protocols.errors import DataError, ParameterError

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


def encode(params: AggregateParameters, values: NDArray[Any]) -> Residues:
    """round(v 2^scale_bits) mod each prime, ties to even, shape (primes, length).

    values: float64 array, shape (length,); or units of 2^-scale_bits, int64 or Python's integers.

    Raises:
        DataError: not a vector, not finite, or beyond this party's share of the range. The
            message goes to the coordinator, hence names the bound and not the value.
    """
    if np.asarray(values).dtype.kind in "iO":
        return _of_units(params, values)
    v = np.asarray(values, np.float64)
    if v.ndim != 1 or not v.size:
        raise DataError(f"values have shape {v.shape}, expected (length,) with length >= 1")
    # NaN fails the comparison too.
    if not bool((np.abs(v) <= params.max_value).all()):
        raise DataError(
            "values: an entry is not finite or its magnitude exceeds "
            f"max_value={params.max_value:.6g}, one party's share of the range; clip the vector, "
            "or choose parameters with a larger largest_sum"
        )
    m = np.rint(np.ldexp(v, params.scale_bits))
    if params.max_units < 1 << 62:
        return ring_of(params).residues(m.astype(np.int64))
    primes = np.array(params.primes, np.float64)[:, None]
    # fmod of two float64 is exact, whatever their ratio; ten times as slow as integers.
    signed = np.fmod(m, primes)
    return np.where(signed < 0, signed + primes, signed).astype(np.uint64)


def _of_units(params: AggregateParameters, units: NDArray[Any]) -> Residues:
    if units.ndim != 1 or not units.size or not bool((abs(units) <= params.max_units).all()):
        raise DataError(
            f"values are no vector, or beyond max_units={params.max_units}, one party's share of "
            "the range"
        )
    if params.max_units < 1 << 62:
        return ring_of(params).residues(units.astype(np.int64))
    return np.stack([(units.astype(object) % p).astype(np.uint64) for p in params.primes])


def mask_key_text(digest: bytes, name: str, key: str) -> bytes:
    """What a party signs of the key of its masks; digest: of the session."""
    return b"ciphercohort/mask-key/1\0" + digest + bytes.fromhex(key) + name.encode()
