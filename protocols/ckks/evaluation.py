"""A context that computes on ciphertexts: rotations under evaluation keys, products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openfhe

from protocols.ckks import key_switch
from protocols.ckks.context import (
    CONJUGATION,
    LOADED,
    RingContext,
    ciphertext_frame,
    frames_of,
    open_context,
    zero_public_key,
)
from protocols.ckks.parameters import CkksParameters
from protocols.ckks.residues import Residues


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

    def summed(self, ciphertext: Any, indices: Sequence[int]) -> Any:
        """The ciphertext and its rotations, added up: they share digits, and one division by P."""
        cc, digits = self.cc, self.cc.EvalFastRotationPrecompute(ciphertext)
        wide = self._turned(ciphertext, indices[0], digits)
        for index in indices[1:]:
            cc.EvalAddInPlace(wide, self._turned(ciphertext, index, digits))
        total = self._lowered(ciphertext, wide)
        cc.EvalAddInPlace(total, ciphertext)
        return total

    def gathered(self, first: Any, turned: Sequence[tuple[int, Any]]) -> Any:
        """The first ciphertext, and left rotations of others, added up: they share one division.

        turned: (index, ciphertext); none: the first one itself.
        """
        wide: Any = None
        for index, ciphertext in turned:
            digits = self.cc.EvalFastRotationPrecompute(ciphertext)
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
        """`key_switch.centre` twice, modulo so many primes of Q and those of P."""
        if towers not in self._centres:
            primes, count = self.extended_primes, len(self.primes)
            half = key_switch.centre(primes, self.params.ring_dim, len(primes) - count)
            half = np.concatenate([half[:towers], half[count:]])
            zero = np.zeros((towers, self.params.ring_dim), np.uint64)
            frame = self.cc.KeySwitchExt(self.ciphertext([zero, zero]), True)
            blob = self._implant(openfhe.Serialize(frame, openfhe.BINARY), [half, half])
            self._centres[towers] = openfhe.DeserializeCiphertextString(blob, openfhe.BINARY)
        return self._centres[towers]

    def products(self, each: Sequence[Sequence[Residues]]) -> list[Any]:
        """`ciphertexts` at twice the scale, as products before their rescaling."""
        found = self.ciphertexts(each) if each else []
        for ciphertext in found:
            ciphertext.SetNoiseScaleDeg(2)
            ciphertext.SetScalingFactor(ciphertext.GetScalingFactor() ** 2)
        return found

    def rotation_key_map(self, index: int, a: Residues, b: Residues) -> Any:
        """Map {automorphism of a left rotation by index: key}."""
        at = self._frames.automorphism_offset
        automorphism = self.automorphism(index)
        frame = self._frames.rotation_key
        frame = frame[:at] + automorphism.to_bytes(4, "little") + frame[at + 4 :]
        blob = self._implant(frame, [a, b])
        return openfhe.DeserializeEvalKeyMapString(blob, openfhe.BINARY)

    def polynomials_of(self, ciphertext: Any) -> list[Residues]:
        """The polynomials of a ciphertext, each of shape (towers, n)."""
        rows = self.residues_of(ciphertext)
        return np.split(rows, ciphertext.NumberCiphertextElements())

    def load_evaluation_keys(self, relinearisation: Any, rotations: Sequence[Any]) -> None:
        """Make keys usable for ciphertexts of this session, in OpenFHE's static maps."""
        LOADED.add(self.tag)
        self.cc.InsertEvalMultKey([relinearisation], self.tag)
        for key_map in rotations:
            openfhe.CryptoContext.InsertEvalAutomorphismKey(key_map, self.tag)

    def unload_evaluation_keys(self) -> None:
        """This session needs its evaluation keys no more.

        OpenFHE cannot forget those of one session: memory is freed when the last one is over.
        """
        unload(self.tag)

    def refresh_element(self, seed: bytes, label: str, c1: Residues) -> Residues:
        """Public uniform a' of one refresh, bound to the c1 that it refreshes.

        Security: who knew a' first would send c1 = a' - delta and read the key share from
        h0 + h1 = -delta s_p + e. As a hash of c1, a' comes after it.
        """
        return self.uniform_polynomial(seed, self.refresh_label(label, c1))


def unload(tag: str) -> None:
    """See `CkksContext.unload_evaluation_keys`."""
    LOADED.discard(tag)
    if not LOADED:
        _clear_keys()


def _clear_keys() -> None:
    openfhe.ClearEvalMultKeys()
    openfhe.CryptoContext.ClearEvalAutomorphismKeys()


def release() -> None:
    """Forget every context and key of this process (OpenFHE keeps them for ever otherwise)."""
    LOADED.clear()
    _clear_keys()
    open_context.cache_clear()
    frames_of.cache_clear()
    ciphertext_frame.cache_clear()
    zero_public_key.cache_clear()
    openfhe.ReleaseAllContexts()
