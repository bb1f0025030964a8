"""Real vectors as integers mod Q, exactly; back: `coordinator_cipher.decode`."""

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
