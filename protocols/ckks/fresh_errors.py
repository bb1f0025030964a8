"""Fresh errors in evaluation form: an encryption of zero under the public key (0, 0).

    c0 = 0 v + e0 + 0,    c1 = 0 v + e1,

so that one call of OpenFHE's `Encrypt` draws two errors and transforms them.
"""

from __future__ import annotations

from protocols.ckks.context import CkksContext, refuse_forked_child, zero_public_key
from protocols.ckks.residues import Residues


def fresh_errors(context: CkksContext, count: int) -> list[Residues]:
    """Independent errors, so many or one more, each of shape (towers, n).

    Coefficients are i.i.d. discrete Gaussians of std `flooding.FRESH_ERROR_STD`, OpenFHE's of keys
    and encryptions, from OpenFHE's generator.
    """
    refuse_forked_child()
    key = zero_public_key(context.params)
    found: list[Residues] = []
    while len(found) < count:
        found += context.polynomials_of(context.cc.Encrypt(key, context.zero))
    return found
