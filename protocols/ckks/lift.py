"""Small integer polynomials, from coefficients modulo the refresh's primes to evaluations in Q.

The transform is OpenFHE's: its collective refresh lifts a polynomial modulo three primes to all of
Q, and takes coefficients as well as evaluations, as the form that the object names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import openfhe

from protocols.ckks import REFRESH_TOWERS, CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext, ciphertext_frame, frames_of, open_context
from protocols.ckks.residues import Residues
from protocols.errors import PlatformError

# Behind the residues: prime 8 | form 4 | kind 4 | object 4, and its fields 40 where it is new.
_FORM, _OBJECT, _END, _FIELDS = 8, 16, 20, 40
_COEFFICIENTS = (1).to_bytes(4, "little")


def lift(context: RingContext, polynomials: Sequence[Residues]) -> list[Residues]:
    """Evaluation form in Q, shape (towers, n), of each.

    polynomials: coefficients modulo the first REFRESH_TOWERS primes, of integers in the middle half
    of their product's range.
    """
    blank = rns.zeros(REFRESH_TOWERS, context.params.ring_dim)
    zero, *every = (
        context.read(rns.implant(_frame(context.params), own, context.primes), REFRESH_TOWERS)
        for own in (blank, *polynomials)
    )
    key, nothing = zero_public_key(context.params), context.nothing()
    found = []
    for own in every:
        lifted = context.cc.IntMPBootEncrypt(key, [own, nothing], nothing, zero)
        lifted.RemoveElement(1)
        found.append(context.residues_of(lifted))
    return found


@lru_cache(maxsize=8)
def _frame(params: CkksParameters) -> bytes:
    """A serialised object with one polynomial that says that it holds coefficients.

    Raises:
        PlatformError: this OpenFHE release writes polynomials in another layout.
    """
    frame, n = bytearray(ciphertext_frame(params, REFRESH_TOWERS, 1)), params.ring_dim
    for tower in rns.find_towers(bytes(frame), n)[-REFRESH_TOWERS:]:
        end = tower.offset + 8 * n
        _set_form(frame, end + _FORM)
    is_new = frame[end + _OBJECT + 3] & 0x80
    _set_form(frame, end + _END + (_FIELDS if is_new else 0))
    return bytes(frame)


def _set_form(frame: bytearray, at: int) -> None:
    if frame[at : at + 4] != bytes(4):
        raise PlatformError("this OpenFHE release serialises polynomials in an unknown layout")
    frame[at : at + 4] = _COEFFICIENTS


@lru_cache(maxsize=8)
def zero_public_key(params: CkksParameters) -> Any:
    """The public key (0, 0), which hides nothing: for calls of OpenFHE that want one."""
    return key_of(params, np.zeros((2 * params.num_towers, params.ring_dim), np.uint64))


def key_of(params: CkksParameters, rows: Residues) -> Any:
    """OpenFHE's public key (b, a), one above the other."""
    blob = rns.implant(key_frame(params), rows, frames_of(params).primes)
    return openfhe.DeserializePublicKeyString(blob, openfhe.BINARY)


@lru_cache(maxsize=8)
def key_frame(params: CkksParameters) -> bytes:
    """A serialised public key whose residues get overwritten."""
    return bytes(openfhe.Serialize(open_context(params).KeyGen().publicKey, openfhe.BINARY))
