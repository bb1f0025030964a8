"""How ring, modulus and scale of the aggregation are chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator

from protocols.aggregate import (
    MAX_LOG_Q_128,
    MAX_PARTIES,
    MAX_PRIME_BITS,
    NOISE_STD,
    TAIL,
    AggregateParameters,
    error_units,
    is_prime,
)
from protocols.errors import ParameterError


def choose(*, parties: int, largest_sum: float, precision: float) -> AggregateParameters:
    """Fewest bits per value, then the smallest ring, for sums of a range and a precision.

    Bytes per value do not depend on the ring, because only the coefficients that carry values
    travel. On any grid of 2^-g with 2^-g >= precision, values are represented exactly.

    Args:
        parties: P.
        largest_sum: bound on |sum_p v_p|, each party keeping to a P-th of it; > 0.
        precision: bound on |opened - sum_p v_p|, see `AggregateParameters.error_bound`; > 0.

    Raises:
        ParameterError: an argument is out of range, or no ring has room.
    """
    for name, value in (("largest_sum", largest_sum), ("precision", precision)):
        if not (math.isfinite(value) and value > 0):
            raise ParameterError(f"{name}={value} is not a finite number > 0")
    if not 1 <= parties <= MAX_PARTIES:
        raise ParameterError(f"parties={parties} is outside 1 .. {MAX_PARTIES}")
    noise = math.ceil(TAIL * NOISE_STD * math.sqrt(parties))
    scale_bits = math.ceil(math.log2(error_units(parties)) - math.log2(precision))
    most = max(MAX_LOG_Q_128.values())
    if math.log2(largest_sum) + scale_bits <= most:
        share = math.ceil(math.ldexp(largest_sum / parties, scale_bits)) + 1
        least = 2 * (parties * share + noise) + 1
        for ring_dim, max_bits in MAX_LOG_Q_128.items():
            if primes := smallest_modulus(ring_dim, least, max_bits):
                return AggregateParameters(
                    ring_dim=ring_dim, primes=primes, scale_bits=scale_bits, parties=parties
                )
    raise ParameterError(
        f"largest_sum={largest_sum} at precision={precision} needs a modulus above {most} bits; "
        "take a coarser precision or scale the values down"
    )


def smallest_modulus(ring_dim: int, least: int, max_bits: int) -> tuple[int, ...]:
    """NTT primes with product >= least in the fewest bits, then the fewest primes; () if none."""
    for total in range(least.bit_length(), max_bits + 1):
        for count in range(-(-total // MAX_PRIME_BITS), total // ring_dim.bit_length() + 1):
            widths = [(total + k) // count for k in range(count)]
            primes = _primes_of(ring_dim, widths)
            if primes and math.prod(primes) >= least:
                return primes
    return ()


def _primes_of(ring_dim: int, widths: list[int]) -> tuple[int, ...]:
    """The largest distinct NTT primes below 2^width, one for each width; () if there are none."""
    found: list[int] = []
    for width in widths:
        prime = next((p for p in _below(ring_dim, width) if p not in found), None)
        if prime is None:
            return ()
        found.append(prime)
    return tuple(found)


def _below(ring_dim: int, width: int) -> Iterator[int]:
    step = 2 * ring_dim
    first = ((1 << width) - 2) // step * step + 1
    return (p for p in range(first, max(1, 1 << (width - 1)), -step) if is_prime(p))
