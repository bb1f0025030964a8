"""Sums of private vectors: one small ciphertext per party and round, only the sum opens.

Here: what ring, modulus and scale must satisfy; and why only sums open, by a reduction to RLWE with
its loss for T rounds.

Scheme: private stream aggregation from lattices, as LaPS (Becker, Guajardo and Zimmermann, NDSS
2018), in the ring form of SLAP (Takeshita, Karl, Gong and Jung, J. Cryptology 2023) and TERSE
(Takeshita, Carmichael, Karl and Jung, SecureComm 2022). Party p sends in round t

    b_p = a_t s_p + e_p + m_p  mod (X^n + 1, Q),    coefficients 0 .. L - 1 only,

a_t uniform from the joint seed, s_p and every e_p from the discrete Gaussian D of std
sigma = NOISE_STD. The coordinator holds s = sum_p s_p and opens sum_p b_p - a_t s = e + m.

Claim. Let H >= 2 parties be honest. Coordinator and all other parties together, who also know s
and every sum m of the H, cannot tell the honest m_p from any others with the same sums, chosen
adaptively, over T rounds with N = n + L T coefficients drawn per party. Their advantage is at most

    2 (H - 1) (Adv_RLWE(n, Q, RLWE_STD; T ceil(L / n) samples) + N delta_hint) + 2 H N delta_table

of which all but Adv_RLWE is below 2^-80 for N = 10^9 and H = 50,
plus that of breaking X25519 with HKDF and ChaCha20, Ed25519, or the commitment to the joint seed.
Proof.
1. Two messages with the same sum differ by H - 1 moves m_i + d, m_j - d between neighbours. In
   each move give away the secrets and errors of all other parties: two parties are left, of whom
   s_1 + s_2 = h and, per round, e_1 + e_2 = h_t are known: T hints on errors, one on the secret.
   As h_t is known, b_2 follows from b_1, and nothing else depends on how m_1 and m_2 differ.
2. These hints are exact and linear. D(x) D(h - x) ~ exp(-(x - h/2)^2 / sigma^2): given h, s_1 is
   a discrete Gaussian of variance sigma^2 / 2 with centre h / 2. Likewise each e_1, on its own: the
   errors are independent, so T rounds never shrink the variance further.
3. Centre h / 2 may lie between integers, but RLWE is about centre 0. With
   RLWE_STD = sigma / 2, a sum of a centred draw of std RLWE_STD and one of centre h / 2 of the
   same std has that law up to delta_hint = 2 exp(-pi^2 RLWE_STD^2) = 2^-143.8 (Poisson summation,
   see `protocols.privacy.laws.grid`). So an RLWE sample a s' + e' of std RLWE_STD, plus a s'' + e''
   that the reduction draws, is a s_1 + e_1 given the hints; if RLWE samples look uniform, so does
   b_1, whatever m_1 is. This is Hint-RLWE: Kim, Lee, Seo and Song, CRYPTO 2023, Theorem 1, whose
   1 / sigma_0^2 = 2 (1 / sigma_1^2 + 1 / sigma_2^2) gives the same sigma_0 = sigma / 2.
4. The sampler's table is off by at most delta_table = 2^-119 per draw (`discrete`).

The halved std is the price of the fractional centre: with sigma = sqrt(2) 3.19, steps 1 and 2
alone give variance 3.19^2, but the reduction would only reach RLWE of std 2.26.

H = 1: the sum without the colluders' parts is the party's own vector. No encryption helps; the
privacy noise for P - 1 colluders covers it. No flooding is needed for any H: what opens besides m
is a sum of fresh errors, independent of the data and used once.

Not covered: a party can send a false vector, and anybody who is given s can open sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from protocols.errors import ParameterError

RLWE_STD = 3.19
"""Std of secret and error in the RLWE problem that the security rests on (HEStd's table)."""

NOISE_STD = 2 * RLWE_STD
"""Std of every s_p and e_p, per coefficient [units of 2^-scale_bits]."""

ROUNDING_STD = 1
"""Std of the Gaussian that is added to an owner's part without privacy noise before it is rounded
[units]."""

TAIL = 12.0
"""Bounds are TAIL standard deviations; P(beyond) <= 2 exp(-TAIL^2 / 2) < 2^-102 a coefficient."""

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
        """Bound on |opened - sum v|, see `error_units`.

        Where the sum exceeds 2^53 units, float64 rounds it: 2^-51 |sum| comes on top.
        """
        return math.ldexp(error_units(self.parties), -self.scale_bits)

    def num_bytes(self, length: int) -> int:
        """Bytes of one message of `length` values."""
        return -(-length * sum(self.widths) // 8)

    def num_chunks(self, length: int) -> int:
        """Ring elements that `length` values need."""
        return -(-length // self.ring_dim)


def error_units(parties: int) -> int:
    """Bound on |opened - sum v| [units]: errors and rounding, `TAIL` deviations, a unit each."""
    return math.ceil(TAIL * math.hypot(NOISE_STD, ROUNDING_STD) * math.sqrt(parties)) + parties


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
