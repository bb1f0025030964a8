"""A context that computes on ciphertexts: rotations under evaluation keys, products.

What a key switch is off by on average, and the public number that takes it away.

A key switch ends with a division by P, the product of K special primes: (x - S) / P, S = x mod P.
OpenFHE takes S from residues by themselves,

    S = P (y_1 / p_1 + ... + y_K / p_K),    y_i = x (P / p_i)^-1 mod p_i in [0, p_i),

with no multiple of P taken off. x is uniform modulo P, hence the K fractions are uniform in [0, 1)
and independent: every coefficient is too small by K/2 on average, with variance K/12, in both
polynomials. Under a secret s that is

    -K/2 (1 + X + ... + X^(n-1)) (1 + s)    and noise, sqrt(K) times that of a rescaling.

The first is the same in every key switch of a run: such errors do not average out, over rounds or
over rows that are alike. `centre`, added before the division, takes it away, for odd K as well. Of
it is left what P / 2 is rounded by, and what fractions stop short of 1: below K 2^-59.

Digits of size Q_d are raised from Q to P Q in the same way. Each of their k primes adds Q_d / 2 on
average, times the key's errors and over P: below 2^-50 of a rounding wherever fewer than six primes
of 59 bits make a digit. Beyond, where Q_d is 2^-5 P, it is a fifth of a switch's noise, the same
under one key.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import openfhe

from protocols.ckks import CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.context import AUTOMORPHISM, CONJUGATION, LOADED, RingContext
from protocols.ckks.residues import Residues
from protocols.ckks.transform import evaluations


class CkksContext(RingContext):
    """A CKKS context with everything that is public about it."""

    def __init__(self, params: CkksParameters, tag: str) -> None:
        super().__init__(params, tag)
        self._centres: dict[int, Any] = {}

    def rescaling_gain(self, level: int) -> float:
        """What a product made at this level is too large by: scale / prime that is dropped."""
        prime = self.primes[self.params.num_towers - 1 - level]
        return 2.0**self.params.scale_bits / prime

    def rotated(self, ciphertext: Any, index: int, digits: Any = None) -> Any:
        """Left rotation of the slots, or for CONJUGATION their conjugates.

        The session has the key. digits: what OpenFHE's EvalFastRotationPrecompute makes of the
        ciphertext, where several rotations share them. The mean error of key switches is not in it.
        """
        if digits is None:
            digits = self.cc.EvalFastRotationPrecompute(ciphertext)
        return self._lowered(ciphertext, self._turned(ciphertext, index, digits))

    def gathered(self, first: Any, turned: Sequence[tuple[int, Any]]) -> Any:
        """The first ciphertext, and left rotations of others, added up: they share one division.

        turned: (index, ciphertext), none: the first one itself; the same one in turn shares digits.
        """
        wide, last, digits = None, None, None
        for index, ciphertext in turned:
            if ciphertext is not last:
                last, digits = ciphertext, self.cc.EvalFastRotationPrecompute(ciphertext)
            found = self._turned(ciphertext, index, digits)
            if wide is None:
                wide = found
            else:
                self.cc.EvalAddInPlace(wide, found)
        if wide is None:
            return first
        total = self._lowered(first, wide)
        self.cc.EvalAddInPlace(total, first)
        return total

    def _turned(self, ciphertext: Any, index: int, digits: Any) -> Any:
        """P times a rotation, modulo P Q."""
        automorphism = self.automorphism(index) if index == CONJUGATION else index
        return self.cc.EvalFastRotationExt(ciphertext, automorphism, digits, True)

    def _lowered(self, ciphertext: Any, wide: Any) -> Any:
        """What is P times too large, divided by it; ciphertext: of its level."""
        centre = self._centre(self.params.num_towers - ciphertext.GetLevel())
        centre.SetKeyTag(wide.GetKeyTag())
        # Of one scale with it, or OpenFHE copies and multiplies it first.
        centre.SetNoiseScaleDeg(wide.GetNoiseScaleDeg())
        self.cc.EvalAddInPlace(wide, centre)
        return self.cc.KeySwitchDown(wide)

    def _centre(self, towers: int) -> Any:
        """`centre` twice, modulo so many primes of Q and those of P."""
        if towers not in self._centres:
            primes, count = self.extended_primes, len(self.primes)
            half = centre(primes, self.params.ring_dim, len(primes) - count)
            half = np.concatenate([half[:towers], half[count:]])
            zero = np.zeros((towers, self.params.ring_dim), np.uint64)
            frame = self.cc.KeySwitchExt(self.ciphertext([zero, zero]), True)
            blob = self._implant(openfhe.Serialize(frame, openfhe.BINARY), [half, half])
            self._centres[towers] = openfhe.DeserializeCiphertextString(blob, openfhe.BINARY)
        return self._centres[towers]

    def products(self, each: Sequence[Sequence[Residues]]) -> list[Any]:
        """Ciphertexts at twice the scale, as products before their rescaling."""
        found = [self.ciphertext(polynomials) for polynomials in each]
        for ciphertext in found:
            ciphertext.SetNoiseScaleDeg(2)
            ciphertext.SetScalingFactor(ciphertext.GetScalingFactor() ** 2)
        return found

    def rotation_key_map(self, index: int, a: Residues, b: Residues) -> Any:
        """Map {automorphism of a left rotation by index: key}."""
        frame, own = self._frames.rotation_key, self.automorphism(index).to_bytes(4, "little")
        frame = frame[:AUTOMORPHISM] + own + frame[AUTOMORPHISM + 4 :]
        blob = self._implant(frame, [a, b])
        return openfhe.DeserializeEvalKeyMapString(blob, openfhe.BINARY)

    def polynomials_of(self, ciphertext: Any) -> list[Residues]:
        """The polynomials of a ciphertext, each of shape (towers, n)."""
        rows = self.residues_of(ciphertext)
        return np.split(rows, ciphertext.NumberCiphertextElements())

    def load_evaluation_keys(self, relinearisation: Any, rotations: Sequence[Any]) -> None:
        """Make keys usable for ciphertexts of this session while it lasts, in OpenFHE's maps."""
        LOADED.add(self.tag)
        weakref.finalize(self, unload, self.tag)
        self.cc.InsertEvalMultKey([relinearisation], self.tag)
        for key_map in rotations:
            openfhe.CryptoContext.InsertEvalAutomorphismKey(key_map, self.tag)


def unload(tag: str) -> None:
    """A session needs its evaluation keys no more.

    OpenFHE cannot forget those of one session: memory is freed when the last one is over.
    """
    if {tag} == LOADED:
        openfhe.ClearEvalMultKeys()
        openfhe.CryptoContext.ClearEvalAutomorphismKeys()
    LOADED.discard(tag)


@lru_cache(maxsize=8)
def centre(primes: tuple[int, ...], ring_dim: int, special: int) -> Residues:
    """Residues of P K / 2 (1 + X + ...), shape (len(primes), n).

    primes: of Q, and last the `special` ones, K of them, whose product is P.
    """
    half = prod(primes[-special:]) * special // 2
    every = evaluations(np.ones(ring_dim, np.int64), primes)
    return rns.scale(every, [half] * len(primes), primes)
