"""OpenFHE's own public keys, and encryption under them; a kernel hides with residues instead."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.context import RingContext, refuse_forked_child
from protocols.ckks.lift import key_of
from protocols.ckks.residues import Residues


def public_key(context: RingContext, b: Residues, a: Residues) -> Any:
    """Public key (b, a) from residues at level 0."""
    key = key_of(context.params, np.concatenate([b, a]))
    key.SetKeyTag(context.tag)
    return key


def encrypt(context: RingContext, key: Any, values: NDArray[np.float64]) -> Any:
    """Fresh ciphertext at level 0."""
    refuse_forked_child()
    return context.cc.Encrypt(key, context.encode(values))
