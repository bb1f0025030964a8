"""OpenFHE's objects of public keys, for calls of it that want one; a kernel hides with residues."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import openfhe
from numpy.typing import NDArray

from protocols.ckks import CkksParameters
from protocols.ckks import residues as rns
from protocols.ckks.context import RingContext, frames_of, open_context, refuse_forked_child
from protocols.ckks.residues import Residues


def public_key(context: RingContext, b: Residues, a: Residues) -> Any:
    """Public key (b, a) from residues at level 0."""
    key = _of(context.params, np.concatenate([b, a]))
    key.SetKeyTag(context.tag)
    return key


def encrypt(context: RingContext, key: Any, values: NDArray[np.float64]) -> Any:
    """Fresh ciphertext at level 0."""
    refuse_forked_child()
    return context.cc.Encrypt(key, context.encode(values))


@lru_cache(maxsize=8)
def zero_public_key(params: CkksParameters) -> Any:
    """The public key (0, 0), which hides nothing."""
    return _of(params, np.zeros((2 * params.num_towers, params.ring_dim), np.uint64))


def _of(params: CkksParameters, rows: Residues) -> Any:
    blob = rns.implant(frame(params), rows, frames_of(params).primes)
    return openfhe.DeserializePublicKeyString(blob, openfhe.BINARY)


@lru_cache(maxsize=8)
def frame(params: CkksParameters) -> bytes:
    """A serialised key whose residues get overwritten."""
    return bytes(openfhe.Serialize(open_context(params).KeyGen().publicKey, openfhe.BINARY))
