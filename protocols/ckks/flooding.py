"""Flooding noise: what a partial decryption adds, so that it reveals the message and no more.

The decrypted polynomial is message + e, and e depends on secrets and data. Noise of covariance
Sigma hides it to s bits over tau decryptions (Li, Micciancio, Schultz, Sorrell, CRYPTO 2022,
Theorem 2, of which noise is Gaussian in the norm of Sigma), where

    e^T Sigma^-1 e <= 1 / (12 tau 2^s)        for the whole error vector e.

Coordinates. Slots m_j of a polynomial with coefficients c have sum |m_j|^2 = n / 2 sum c_i^2, so
that sqrt(2 / n) times their real and imaginary parts are coordinates in an orthonormal basis, as
the coefficients are. `shown`: those k of them that are released, real parts of slots, or, of an
encrypted model, coefficients. All n others are zero but for errors, which nobody reads. So they get
more noise, at no price, and what is released need only be hidden by the error in it:

    sigma_shown = c sqrt(17/16 k) sigma_k,   sigma_rest = c sqrt(17 n) sigma_e,
    c = sqrt(12 tau) 2^(s/2),                e^T Sigma^-1 e <= (16/17 + 1/17) / c^2,

sigma_k bounds the error of a coordinate that is shown, sigma_e that of all n in the mean. Every
party adds the full amount, because all others may collude. Coefficients are rounded, which is the
same as rounding message + e + noise.

How large sigma_e is: `protocols.ckks.circuits.errors`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from protocols.ckks import CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext
from protocols.ckks.residues import Residues
from protocols.ckks.transform import from_slots, to_slots
from protocols.errors import ParameterError
from protocols.privacy.laws import RandomSource

Floats = NDArray[np.float64]
STATISTICAL_SECURITY_BITS = 40
# Of e^T Sigma^-1 e, what all that is not shown counts for, over the rest.
_REST = 1 / 16
# Of this std, coefficients of doubles are right to one; of the largest to 2^30.
FINE, MOST = 2.0**46, 2.0**80
# Of the errors of keys and encryptions [standard deviation].
FRESH_ERROR_STD = 3.19


def rounding_std(params: CkksParameters, parties: int) -> float:
    """Noise of one rescaling under the joint secret, per coefficient [integer units]."""
    return math.sqrt((1 + 2 * params.ring_dim * parties / 3) / 12)


@dataclass(frozen=True, eq=False, slots=True)
class Flooding:
    """One party's noise; see the module.

    shown: flags, of n / 2 slots or of n coefficients; std: of these coordinates; rest: of all
    others [integer units].
    """

    shown: NDArray[np.bool_]
    std: float
    rest: float

    @classmethod
    def of(
        cls, shown: NDArray[np.bool_], ring_dim: int, error: float, whole: float, tau: int = 1
    ) -> Flooding:
        """For errors of std `error` in a coordinate that is shown, `whole` in the mean of all."""
        unit, count = math.sqrt(12 * tau) * 2 ** (STATISTICAL_SECURITY_BITS / 2), int(shown.sum())
        std = unit * math.sqrt(count * (1 + _REST)) * error
        return cls(shown, std, unit * math.sqrt(ring_dim * (1 + 1 / _REST)) * whole)

    @classmethod
    def even(cls, ring_dim: int, std: float) -> Flooding:
        """The same in every coefficient."""
        return cls(np.ones(ring_dim, np.bool_), std, std)

    def rms(self, ring_dim: int) -> float:
        """Per coefficient, in the mean [integer units]."""
        part = int(self.shown.sum()) / ring_dim
        return math.sqrt(part * self.std**2 + (1 - part) * self.rest**2)

    def draw(self, context: RingContext, towers: int, randomness: RandomSource) -> Residues:
        """Rounded coefficients as residues, shape (towers, n).

        Doubles beyond 2^53 are multiples of 2, 4, …, and would show what is added to them modulo
        that: finer noise covers it.

        Raises:
            ParameterError: noise that leaves no room for the message.
        """
        params, largest = context.params, max(self.std, self.rest)
        if largest > MOST:
            raise ParameterError(
                f"flooding of std {largest:.3g} is above 2^{math.log2(MOST):.0f}: take fewer "
                "parties or iterations"
            )
        drawn = standard_normal(params.ring_dim, randomness)
        if len(self.shown) == params.ring_dim:
            slots = to_slots(drawn * np.where(self.shown, self.std, self.rest))
        else:
            real, imaginary = drawn.reshape(2, -1) * math.sqrt(params.ring_dim / 2)
            slots = np.where(self.shown, self.std, self.rest) * real + 1j * self.rest * imaginary
        encoded = encode_complex(context, slots / 2.0**params.scale_bits, towers)
        found = context.residues_of(encoded)
        if largest <= FINE:
            return found
        fine = Flooding.even(params.ring_dim, FINE).draw(context, towers, randomness)
        return rns.add(found, fine, context.primes[:towers])


def standard_normal(count: int, randomness: RandomSource) -> Floats:
    """Independent draws, to 53 bits."""
    uniform = (randomness.words(count) >> np.uint64(11)).astype(np.float64)
    found: Floats = ndtri((uniform + 0.5) / 2.0**53)
    return found


def encode_complex(context: RingContext, slots: NDArray[np.complex128], towers: int = 0) -> Any:
    """A ciphertext of one polynomial: complex slot values, shape (<= num_slots,), not hidden.

    towers: of it, all by default; a plaintext keeps its slots beside the residues.

    OpenFHE refuses coefficients of at most 1/2 that are not all zero: a refusal, or more work then,
    would tell of them. Their mean square is 2 / n^2 of the sum of the slots' squares.
    """
    scale, n = 2.0**context.params.scale_bits, context.params.ring_dim
    exact = np.pad(slots, (0, n // 2 - len(slots)))
    with np.errstate(over="ignore", invalid="ignore"):  # OpenFHE refuses such values
        rounded = to_slots(np.rint(from_slots(scale * exact))) / scale
        is_small = not np.linalg.norm(exact) * scale > n / 2  # a mean square of 1/2
    nothing = context.nothing(towers)
    values = [exact, rounded][is_small].tolist()
    plaintext = context.cc.MakeCKKSPackedPlaintext(values, 1, nothing.GetLevel())
    return context.cc.EvalAdd(nothing, plaintext)
