"""Ring, modulus and scale of the aggregation: what they must satisfy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocols.aggregate.security import NOISE_STD, TAIL
from protocols.errors import ParameterError

# Largest log2(Q) for 128-bit classical security, ternary secret and errors of std 3.19
# (eprint 2024/463); secrets drawn like errors, as here, would be allowed 2 bits more.
MAX_LOG_Q_128 = {2048: 53, 4096: 106, 8192: 214}
# Sums of two residues stay below 2^32, products of two below 2^62.
MAX_PRIME_BITS = 31
# 12 NOISE_STD sqrt(P) < 2^15: the joint opening key fits 16 bits (`setup`).
MAX_PARTIES = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class AggregateParameters:
    """One set of parameters, public and the same for all; see `choice.choose`.

    ring_dim: polynomial degree n: 2048, 4096 or 8192.
    primes: distinct NTT primes p = 1 mod 2n below 2^31; Q is their product.
    scale_bits: log2 of the fixed-point scale; the unit is 2^-scale_bits [bits], -256 .. 256.
    parties: P, 1 .. 2^16.

    Raises:
        ParameterError: a field is out of range, or log2(Q) exceeds the 128-bit bound.
    """

    ring_dim: int
    primes: tuple[int, ...]
    scale_bits: int
    parties: int

    def __post_init__(self) -> None:
        n = self.ring_dim
        if n not in MAX_LOG_Q_128:
            raise ParameterError(f"ring_dim={n} is none of {list(MAX_LOG_Q_128)}")
        for p in self.primes:
            if p >> MAX_PRIME_BITS or p % (2 * n) != 1 or not is_prime(p):
                raise ParameterError(f"primes: {p} is no prime = 1 mod {2 * n} below 2^31")
        if not self.primes or len(set(self.primes)) != len(self.primes):
            raise ParameterError(f"primes={self.primes} are not distinct, or none")
        if self.modulus.bit_length() > MAX_LOG_Q_128[n]:
            raise ParameterError(
                f"log2(Q)={math.log2(self.modulus):.1f} at ring_dim={n} exceeds "
                f"{MAX_LOG_Q_128[n]}, the bound for 128-bit security; take a larger ring"
            )
        if not -256 <= self.scale_bits <= 256:
            raise ParameterError(f"scale_bits={self.scale_bits} is outside -256 .. 256")
        if not 1 <= self.parties <= MAX_PARTIES:
            raise ParameterError(f"parties={self.parties} is outside 1 .. {MAX_PARTIES}")
        if self.max_units < 1:
            raise ParameterError(
                f"primes={self.primes} leave no range beside the noise of {self.parties} parties"
            )

    @property
    def modulus(self) -> int:
        """Q."""
        return math.prod(self.primes)

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of one residue on the wire, by prime."""
        return tuple(p.bit_length() for p in self.primes)

    @property
    def noise_std_units(self) -> float:
        """Standard deviation of the opened sum's error e [units of 2^-scale_bits]."""
        return NOISE_STD * math.sqrt(self.parties)

    @property
    def noise_units(self) -> int:
        """Bound on the error e of the opened sum, and on its key, `TAIL` deviations [units]."""
        return math.ceil(TAIL * self.noise_std_units)

    @property
    def max_units(self) -> int:
        """Largest |m| of one party, its share of the range [units]."""
        return ((self.modulus - 1) // 2 - self.noise_units) // self.parties

    @property
    def max_value(self) -> float:
        """Largest |v| of one party: max_units 2^-scale_bits, rounded down to a float64."""
        exact = float(self.max_units)
        below = exact if exact <= self.max_units else math.nextafter(exact, 0.0)
        return math.ldexp(below, -self.scale_bits)

    @property
    def error_bound(self) -> float:
        """Bound on |opened - sum v|: noise_units and half a unit of rounding per party.

        Where the sum exceeds 2^53 units, float64 rounds it: 2^-51 |sum| comes on top.
        """
        return math.ldexp(self.noise_units + self.parties / 2, -self.scale_bits)

    def num_bytes(self, length: int) -> int:
        """Bytes of one message of `length` values."""
        return -(-length * sum(self.widths) // 8)

    def num_chunks(self, length: int) -> int:
        """Ring elements that `length` values need."""
        return -(-length // self.ring_dim)


def is_prime(p: int) -> bool:
    """Miller-Rabin, exact below 3.2e9 with the bases 2, 3, 5, 7 (Jaeschke 1993)."""
    if p < 11 or p % 2 == 0:
        return p in (2, 3, 5, 7)
    twos = ((p - 1) & (1 - p)).bit_length() - 1
    for base in (2, 3, 5, 7):
        x = pow(base, (p - 1) >> twos, p)
        if x != 1 and all(pow(x, 1 << k, p) != p - 1 for k in range(twos)):
            return False
    return True
