"""Small integer polynomials, from coefficients modulo the refresh's primes to evaluations in Q.

The transform is OpenFHE's: its collective refresh lifts a polynomial modulo three primes to all of
Q, and takes coefficients as well as evaluations, as the form that the object names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from protocols.ckks import REFRESH_TOWERS, CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext, ciphertext_frame
from protocols.ckks.objects import zero_public_key
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
    frame = _frame(context.params, len(polynomials) + 1)
    blank = np.zeros((REFRESH_TOWERS, context.params.ring_dim), np.uint64)
    blob = rns.implant(frame, np.concatenate([blank, *polynomials]), context.primes)
    zero, rest = context.read_parts(blob, [1, len(polynomials)], REFRESH_TOWERS)
    key, nothing = zero_public_key(context.params), context.nothing()
    found = []
    for _ in polynomials:
        # Of the first polynomial of each.
        lifted = context.cc.IntMPBootEncrypt(key, [rest, nothing], nothing, zero)
        rest.RemoveElement(0)
        lifted.RemoveElement(1)
        found.append(context.residues_of(lifted))
    return found


@lru_cache(maxsize=8)
def _frame(params: CkksParameters, count: int) -> bytes:
    """One serialised object with `count` polynomials that say that they hold coefficients.

    Raises:
        PlatformError: this OpenFHE release writes polynomials in another layout.
    """
    frame, n = bytearray(ciphertext_frame(params, (REFRESH_TOWERS,) * count)), params.ring_dim
    for k, tower in enumerate(rns.find_towers(bytes(frame), n)[-REFRESH_TOWERS * count :]):
        end = tower.offset + 8 * n
        _set_form(frame, end + _FORM)
        if k % REFRESH_TOWERS == REFRESH_TOWERS - 1:
            is_new = frame[end + _OBJECT + 3] & 0x80
            _set_form(frame, end + _END + (_FIELDS if is_new else 0))
    return bytes(frame)


def _set_form(frame: bytearray, at: int) -> None:
    if frame[at : at + 4] != bytes(4):
        raise PlatformError("this OpenFHE release serialises polynomials in an unknown layout")
    frame[at : at + 4] = _COEFFICIENTS
