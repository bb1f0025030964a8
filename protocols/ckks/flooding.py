"""Flooding noise: what a partial decryption adds, so that it reveals the message and no more.

The decrypted polynomial is message + e, and e depends on secrets and data. Noise of standard
deviation

    sigma_flood = sqrt(12 tau) 2^(s/2) sigma_e

hides it to s bits over tau decryptions (Li, Micciancio, Schultz, Sorrell, CRYPTO 2022, Theorem 2).
Every party adds the full amount, because all others may collude.

sigma_e, per coefficient, for weights in the units in which they are encrypted:

- each iteration rounds once more. The rounding of a rescaling is tau_0 + tau_1 s, tau_i uniform
  below 1/2 in size and s the sum of P uniform ternary secrets: variance (1 + 2 n P / 3) / 12. The
  rule sums T of them up with a gain, sqrt(T) where no iteration expands distances;
- the rows carry the noise of P fresh encryptions, std sigma P sqrt(4 n / 3), and move the mean
  gradient by 1 / sqrt(N) of it, the same way in every iteration.

That errors add up as independent ones do is what this stands on. A key switch leaves K times the
variance of a rescaling and mean zero, as `key_switch` makes sure of; groups of rows that are alike
round independently, as their encryptions do, or as `clear_rows` makes sure of.

An encrypted model counts the noise of its gradients, with a margin of 2 for the rule's own path
(`ModelPlan.model_error_std`). Elsewhere MARGIN covers what is smaller: the columns' noise that a
refresh sums up, key switches, digits of its mask. Either is an estimate that tests compare with
measurements, not a proof. Random rows stay below 0.6 of it, from 2 to 200 rows, 1 to 40 columns,
degrees 3 to 15 and all rules. So do rows that are all alike, one or several groups of them in each
party: 0.06 to 0.13 of it for an encrypted model of few parts at rings 2^11, 2^13 and 2^15, up to 20
rounds, a quarter of it at 64 parts, a third of it for encrypted rows (`python -m tests.alike`). A
factor f above 1 would take 2 log2 f bits of s.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import openfhe
from numpy.typing import NDArray
from scipy.special import chdtri, ndtri

from protocols.ckks.context import CkksContext, message_primes, new_context
from protocols.ckks.parameters import CkksParameters
from protocols.ckks.residues import Residues
from protocols.errors import PlatformError
from protocols.privacy.randomness import RandomSource

STATISTICAL_SECURITY_BITS = 40
MARGIN = 3.0
# OpenFHE's standard deviation of key and encryption errors.
FRESH_ERROR_STD = 3.19


def rounding_std(params: CkksParameters, parties: int) -> float:
    """Noise of one rescaling under the joint secret, per coefficient [integer units]."""
    return math.sqrt((1 + 2 * params.ring_dim * parties / 3) / 12)


def fresh_std(params: CkksParameters, parties: int) -> float:
    """Noise of the sum of P fresh encryptions, per coefficient [integer units]."""
    return FRESH_ERROR_STD * parties * math.sqrt(4 * params.ring_dim / 3)


def scatter(count: int) -> float:
    """What the root mean square of `count` standard normal numbers exceeds once in 2^40."""
    return math.sqrt(float(chdtri(count, 2.0**-40)) / count)


def error_std(
    params: CkksParameters, parties: int, *, rounding_gain: float, row_gain: float
) -> float:
    """Estimate of sigma_e from above, per coefficient [integer units]; see the module.

    rounding_gain: std of the model's error over that of one iteration's; row_gain: of the model's
    error over that of the rows' encryption.
    """
    rounding = rounding_gain * rounding_std(params, parties)
    return MARGIN * math.hypot(rounding, row_gain * fresh_std(params, parties))


def flooding_std(sigma_e: float, decryptions: int = 1) -> float:
    """sigma_flood of one party, per coefficient [integer units]."""
    return math.sqrt(12 * decryptions) * 2 ** (STATISTICAL_SECURITY_BITS / 2) * sigma_e


def slot_std(params: CkksParameters, coefficient_std: float) -> float:
    """Standard deviation of a decoded slot for i.i.d. coefficients: sqrt(n / 2) std / scale."""
    return math.sqrt(params.ring_dim / 2) * coefficient_std / 2.0**params.scale_bits


def gaussian_polynomial(
    context: CkksContext, std: float, towers: int, randomness: RandomSource
) -> Residues:
    """Rounded Gaussian coefficients, i.i.d. with the given std, as residues, shape (towers, n).

    The canonical embedding of such a polynomial has i.i.d. complex Gaussian slots of variance
    n std^2; they are drawn and encoded, which rounds the coefficients.
    """
    params = context.params
    uniform = (randomness.words(params.ring_dim) >> np.uint64(11)).astype(np.float64)
    normal = ndtri((uniform + 0.5) / 2.0**53) * std * math.sqrt(params.ring_dim / 2)
    slots = (normal[::2] + 1j * normal[1::2]) / 2.0**params.scale_bits
    plaintext = encode_complex(context, slots, params.num_towers - towers)
    zero = context.ciphertext([np.zeros((towers, params.ring_dim), np.uint64)])
    return context.residues_of(context.cc.EvalAdd(zero, plaintext))


def encode_complex(context: CkksContext, slots: NDArray[np.complex128], level: int = 0) -> Any:
    """Plaintext of complex slot values, shape (<= num_slots,), at the given level."""
    complex_cc, primes = _complex_context(context.params)
    if primes != context.primes:
        raise PlatformError("this OpenFHE release picks other primes for complex plaintexts")
    return complex_cc.MakeCKKSPackedPlaintext(slots.tolist(), 1, level)


@lru_cache(maxsize=8)
def _complex_context(params: CkksParameters) -> tuple[Any, tuple[int, ...]]:
    cc = new_context(params, openfhe.COMPLEX)
    return cc, message_primes(cc, params)
