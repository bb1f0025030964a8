"""Real vectors as integers mod Q and back, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.aggregate.ntt import Residues, ring_of
from protocols.aggregate.parameters import AggregateParameters
from protocols.errors import DataError


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


def decode(params: AggregateParameters, residues: Residues) -> NDArray[np.float64]:
    """x 2^-scale_bits for the x in (-Q/2, Q/2) with these residues, shape (length,).

    Balanced mixed radix (Garner): x = d_0 + p_0 (d_1 + p_1 (d_2 + …)) with |d_i| < p_i / 2, which
    is the centred x because all p_i are odd. Exact for |x| < 2^53, then within a few roundings.
    """
    digits: list[NDArray[np.int64]] = []
    for i, p in enumerate(params.primes):
        rest = residues[i].astype(np.int64)
        for digit, earlier in zip(digits, params.primes, strict=False):
            # rest <- (rest - d) / p_earlier mod p; factors are below 2^31.
            rest = (rest - digit) % p * pow(earlier, -1, p) % p
        digits.append(np.where(rest > p // 2, rest - p, rest))
    x: NDArray[np.float64] = np.zeros(residues.shape[1])
    for digit, p in zip(reversed(digits), reversed(params.primes), strict=True):
        x = x * p + digit
    values: NDArray[np.float64] = np.ldexp(x, -params.scale_bits)
    return values
