"""OpenFHE's public half: one context, frames for its objects, wire forms of keys and ciphertexts.

Nothing here takes or returns a secret key. The frames (see `residues`) are made once per
parameter set from a throwaway key pair, whose residues are all overwritten before use.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import openfhe
from numpy.typing import NDArray

from protocols.ckks import CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.residues import Residues
from protocols.errors import MessageError, ParameterError, PlatformError

_NUMBERS = itertools.count()
# Sessions whose evaluation keys stand in OpenFHE's static maps.
LOADED: set[str] = set()
CONJUGATION = 0
"""Stands for complex conjugation where rotations are listed: no key turns slots by nothing."""
# Where a map of rotation keys has it: 1 byte order | 4 pointer id | 8 map size | 4 automorphism.
AUTOMORPHISM = 13
_OWNER = {"pid": os.getpid(), "forked": False}
os.register_at_fork(after_in_child=lambda: _OWNER.update(forked=True))
# Objects are read into contexts that were made here, which have their tables: 16 ms an object.
openfhe.DisablePrecomputeCRTTablesAfterDeserializaton()


def refuse_forked_child() -> None:
    """Raise PlatformError in a process forked after OpenFHE was loaded."""
    if _OWNER["forked"]:
        raise PlatformError(
            "this process was forked after OpenFHE was loaded: it would draw the same keys and "
            "encryption randomness as its parent. Start processes with "
            "multiprocessing.get_context('spawn')."
        )


@dataclass(frozen=True)
class Frames:
    """Objects whose residues get overwritten; primes in the order of the towers."""

    ciphertext: Any
    rotation_key: bytes
    relinearisation_key: bytes
    primes: tuple[int, ...]
    extended_primes: tuple[int, ...]


class RingContext:
    """What is public about a CKKS context, but for what keys do to ciphertexts (`evaluation`).

    Attributes:
        params: the parameters.
        tag: names the joint key of one session; OpenFHE finds evaluation keys by it.
        cc: OpenFHE's context.
        primes: the primes of Q, first (message) prime first.
        extended_primes: the primes of Q and P, as in evaluation keys.
    """

    def __init__(self, params: CkksParameters, tag: str) -> None:
        refuse_forked_child()
        self.params = params
        # A session that is resumed in the same process gets keys of its own.
        self.tag = f"{tag}#{next(_NUMBERS)}"
        self.cc = open_context(params)
        self._frames = frames_of(params)
        self.primes = self._frames.primes
        self.extended_primes = self._frames.extended_primes
        self._nothing: dict[int, Any] = {}

    # -- shapes -------------------------------------------------------------------------------

    @property
    def num_slots(self) -> int:
        """Real slots per ciphertext."""
        return self.params.num_slots

    @property
    def key_primes(self) -> tuple[int, ...]:
        """Primes of one half (a or b) of an evaluation key: all digits in a row."""
        return self.extended_primes * self.params.num_digits

    # -- plaintexts ---------------------------------------------------------------------------

    def encode(self, values: NDArray[np.float64], level: int = 0) -> Any:
        """Plaintext of real slot values, shape (<= num_slots,), at the given level."""
        return self.cc.MakeCKKSPackedPlaintext(values.tolist(), 1, level)

    # -- objects <-> residues -----------------------------------------------------------------

    def residues_of(self, obj: Any) -> Residues:
        """All residue rows of a public key, ciphertext or evaluation key."""
        blob = openfhe.Serialize(obj, openfhe.BINARY)
        return rns.read(blob, self.params.ring_dim, self.extended_primes)[0]

    def evaluation_key(self, a: Residues, b: Residues) -> Any:
        """Key-switching key from its halves, each of shape (digits * extended towers, n)."""
        blob = self._implant(self._frames.relinearisation_key, [a, b])
        return openfhe.DeserializeEvalKeyString(blob, openfhe.BINARY)

    def automorphism(self, index: int) -> int:
        """Exponent of X of a left rotation by index, or of CONJUGATION."""
        if index == CONJUGATION:
            return 2 * self.params.ring_dim - 1
        return int(self.cc.FindAutomorphismIndex(index))

    def ciphertext(self, polynomials: Sequence[Residues]) -> Any:
        """Ciphertext of one to three polynomials; their number of towers fixes the level.

        Raises:
            MessageError: none, or more than a product has, or their residues do not fit.
        """
        towers, count = {len(polynomial) for polynomial in polynomials}, len(polynomials)
        if not 1 <= count <= 3:
            raise MessageError(f"{count} polynomials in a ciphertext, expected 1 to 3")
        if len(towers) > 1 or not 1 <= min(towers) <= self.params.num_towers:
            raise MessageError(f"polynomials of {sorted(towers)} towers in a ciphertext")
        (size,) = towers
        frame = ciphertext_frame(self.params, size, count)
        found = self.read(self._implant(frame, polynomials), size)
        found.SetLevel(self.params.num_towers - size)
        found.SetKeyTag(self.tag)
        return found

    def read(self, blob: bytes, towers: int) -> Any:
        """A ciphertext of so many towers, which this process serialised."""
        found = openfhe.DeserializeCiphertextString(blob, openfhe.BINARY)
        # Drops nothing; but what OpenFHE has read is slow to copy, by 4 ms at ring 2^15.
        return self.cc.Compress(found, towers)

    def nothing(self, towers: int = 0) -> Any:
        """The polynomial 0 modulo so many primes, all by default; never to be changed."""
        towers = towers or self.params.num_towers
        if towers not in self._nothing:
            zero = np.zeros((towers, self.params.ring_dim), np.uint64)
            self._nothing[towers] = self.ciphertext([zero])
        return self._nothing[towers]

    @property
    def special_primes(self) -> tuple[int, ...]:
        """Of P."""
        return self.extended_primes[len(self.primes) :]

    def _implant(self, frame: bytes, polynomials: Sequence[Residues]) -> bytes:
        return rns.implant(frame, np.concatenate(polynomials), self.extended_primes)

    def uniform_polynomial(self, seed: bytes, label: str) -> Residues:
        """Public uniform polynomial, from the joint seed."""
        return rns.uniform(seed, label, self.primes, self.params.ring_dim)

    @staticmethod
    def refresh_label(label: str, c1: Residues) -> str:
        """Label of the uniform a' of one refresh, bound to the c1 that it refreshes.

        Security: who knew a' first would send c1 = a' - delta and read the key share from
        h0 + h1 = -delta s_p + e. As a hash of c1, a' comes after it.
        """
        return f"{label}/{hashlib.sha256(c1.tobytes()).hexdigest()}"

    def uniform_key_half(self, seed: bytes, label: str) -> Residues:
        """Public uniform half of an evaluation key, from the joint seed."""
        return rns.uniform(seed, label, self.key_primes, self.params.ring_dim)


@lru_cache(maxsize=8)
def open_context(params: CkksParameters) -> Any:
    """OpenFHE's context for these parameters, one for all sessions; slots are complex.

    Raises:
        ParameterError: OpenFHE refuses them.
    """
    p = openfhe.CCParamsCKKSRNS()
    p.SetRingDim(params.ring_dim)
    p.SetMultiplicativeDepth(params.depth)
    p.SetScalingModSize(params.scale_bits)
    p.SetFirstModSize(params.first_mod_bits)
    # Manual rescaling: refreshes need 3 towers (FLEXIBLEAUTO: 5) and levels add up as in CRYPTO.
    p.SetScalingTechnique(openfhe.FIXEDMANUAL)
    p.SetNumLargeDigits(params.num_digits)
    p.SetBatchSize(params.num_slots)
    p.SetCKKSDataType(openfhe.COMPLEX)
    p.SetInteractiveBootCompressionLevel(openfhe.COMPACT)
    secure = openfhe.HEStd_128_classic if params.security_bits else openfhe.HEStd_NotSet
    p.SetSecurityLevel(secure)
    try:
        cc = openfhe.GenCryptoContext(p)
    except RuntimeError as error:
        raise ParameterError(f"OpenFHE refuses {params}: {error}") from error
    for feature in ("PKE", "KEYSWITCH", "LEVELEDSHE", "ADVANCEDSHE", "MULTIPARTY"):
        cc.Enable(getattr(openfhe, feature))
    return cc


@lru_cache(maxsize=8)
def frames_of(params: CkksParameters) -> Frames:
    """One for all sessions."""
    cc, n = open_context(params), params.ring_dim
    throwaway = cc.KeyGen()
    tag = throwaway.publicKey.GetKeyTag()
    ciphertext = cc.Encrypt(throwaway.publicKey, cc.MakeCKKSPackedPlaintext([0.0]))
    blob = openfhe.Serialize(ciphertext, openfhe.BINARY)
    primes = _repeated(blob, n, 2, "ciphertexts", params.num_towers)
    evaluation_key = cc.KeySwitchGen(throwaway.secretKey, throwaway.secretKey)
    relinearisation_key = openfhe.Serialize(evaluation_key, openfhe.BINARY)
    extended = _repeated(relinearisation_key, n, 2 * params.num_digits, "evaluation keys")

    cc.EvalAtIndexKeyGen(throwaway.secretKey, [1])
    rotation_key = openfhe.Serialize(cc.GetEvalAutomorphismKeyMap(tag), openfhe.BINARY)
    automorphism = int(cc.FindAutomorphismIndex(1)).to_bytes(4, "little")
    if rotation_key[AUTOMORPHISM : AUTOMORPHISM + 4] != automorphism:
        raise PlatformError("this OpenFHE release serialises rotation keys in an unknown layout")
    return Frames(ciphertext, rotation_key, relinearisation_key, primes, extended)


def _repeated(
    blob: bytes, ring_dim: int, count: int, kind: str, towers: int = 0
) -> tuple[int, ...]:
    """The primes of one of `count` polynomials of an object; towers: how many, where known."""

    def found(known: tuple[int, ...] = ()) -> tuple[int, ...]:
        return tuple(tower.prime for tower in rns.find_towers(blob, ring_dim, known))

    # Only a first vector can be misread while the primes are unknown: take those of the last ones.
    every = found()
    primes = every[-(towers or len(every) // count) :]
    if found(primes) != primes * count:
        raise PlatformError(f"this OpenFHE release serialises {kind} in an unknown layout")
    return primes


@lru_cache(maxsize=64)
def ciphertext_frame(params: CkksParameters, towers: int, count: int) -> bytes:
    """One serialised object with so many polynomials of so many towers."""
    frame = open_context(params).Compress(frames_of(params).ciphertext, towers)
    frame.SetElements(frame.GetElements()[:1] * count)
    return bytes(openfhe.Serialize(frame, openfhe.BINARY))
