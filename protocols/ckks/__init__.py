"""Threshold CKKS: its parameters here; OpenFHE's public half beside them.

What parameters are, what they must satisfy, what they cost in modulus bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocols.errors import ParameterError, PlatformError

try:
    import openfhe  # noqa: F401  # fails here, once, with a cause and a cure
except ImportError as error:
    raise PlatformError(
        f"openfhe does not load ({error}; is LD_LIBRARY_PATH set?): it is not installed, is another"
        " interpreter's, or the system's libgomp.so.1, or a new enough libstdc++, is missing; "
        "`python -m protocols.platform` says what is needed, and the cure"
    ) from error

# Largest log2(QP), 128-bit classical security, ternary secret, errors of 3.19: eprint 2024/463.
MAX_LOG_QP_128 = {
    1024: 26,
    2048: 53,
    4096: 106,
    8192: 214,
    16384: 430,
    32768: 868,
    65536: 1747,
    131072: 3523,
}
# Kept below the table. At ring 2^15 the lattice estimator gives 126.1 bits at 881 (the table of
# 2018), 128.0 at 868, 133.6 at 831, the largest that is chosen, with errors of std 1.
RESERVED_BITS = 2
# Of rotation keys and the first relinearisation round: log2(3.19) = 1.7 bits of modulus.
NARROW_ERROR_STD = 1.0
SPECIAL_PRIME_BITS = 60
# OpenFHE keeps P 4 bits longer than a digit, which may be 1 bit longer than its primes' sizes.
SPECIAL_SPARE_BITS = 5
# A refresh keeps three primes; its masks use the room of all three (`ckks/sampling.py`).
REFRESH_TOWERS = 3
# One prime would bound the weights by 2^(first_mod_bits - scale_bits - 1).
DECRYPTION_TOWERS = 2
# Smallest ring that OpenFHE accepts with these prime sizes and that the tests use.
MIN_RING_DIM = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class CkksParameters:
    """One set of RNS-CKKS parameters.

    ring_dim: polynomial degree n, a power of two; there are n / 2 slots.
    depth: multiplicative depth from encryption to decryption [levels].
    scale_bits: log2 of the scaling factor and of every prime but the first [bits].
    first_mod_bits: size of the first prime [bits].
    num_digits: digits of the hybrid key switch; fewer digits mean a larger special modulus.
    security_bits: 128, or 0 for an INSECURE toy ring.

    Raises:
        ParameterError: a field is out of range, or log2(QP) exceeds the 128-bit bound.
    """

    ring_dim: int
    depth: int
    scale_bits: int = 59
    first_mod_bits: int = 60
    num_digits: int = 2
    security_bits: int = 128

    def __post_init__(self) -> None:
        low, high = MIN_RING_DIM, max(MAX_LOG_QP_128)
        if not low <= self.ring_dim <= high or self.ring_dim & (self.ring_dim - 1):
            raise ParameterError(f"ring_dim={self.ring_dim} is not a power of two in {low}..{high}")
        if not 1 <= self.depth <= 60:
            raise ParameterError(f"depth={self.depth} levels is outside 1..60")
        if not 20 <= self.scale_bits <= 59:
            raise ParameterError(f"scale_bits={self.scale_bits} is outside 20..59")
        if not self.scale_bits < self.first_mod_bits <= 60:
            raise ParameterError(
                f"first_mod_bits={self.first_mod_bits} must lie above "
                f"scale_bits={self.scale_bits} and be at most 60"
            )
        if not 1 <= self.num_digits <= self.depth + 1:
            raise ParameterError(
                f"num_digits={self.num_digits} is outside 1..{self.depth + 1} (depth + 1)"
            )
        if self.security_bits not in (0, 128):
            raise ParameterError(f"security_bits={self.security_bits} is neither 128 nor 0")
        if self.security_bits and self.log_qp > self.max_log_qp:
            raise ParameterError(
                f"log2(QP)={self.log_qp} bits at ring_dim={self.ring_dim} exceeds "
                f"{self.max_log_qp}, our bound for 128-bit security; take a larger ring, "
                "fewer levels or more digits, or the profile fast-insecure for a toy run"
            )

    @property
    def num_slots(self) -> int:
        """Real slots per ciphertext."""
        return self.ring_dim // 2

    @property
    def num_towers(self) -> int:
        """Primes in Q."""
        return self.depth + 1

    @property
    def num_special_towers(self) -> int:
        """Primes in P, at most: enough 60-bit ones to cover the largest key-switching digit."""
        towers_per_digit = math.ceil(self.num_towers / self.num_digits)
        digit_bits = self.scale_bits * (towers_per_digit - 1) + self.first_mod_bits
        return math.ceil((digit_bits + SPECIAL_SPARE_BITS) / SPECIAL_PRIME_BITS)

    @property
    def log_qp(self) -> int:
        """log2(QP), an upper estimate [bits]; OpenFHE checks the exact value again."""
        return (
            self.first_mod_bits
            + self.depth * self.scale_bits
            + self.num_special_towers * SPECIAL_PRIME_BITS
        )

    @property
    def max_log_qp(self) -> int:
        """Largest log2(QP) that we hold for 128-bit security at this ring [bits]."""
        return MAX_LOG_QP_128.get(self.ring_dim, RESERVED_BITS) - RESERVED_BITS
