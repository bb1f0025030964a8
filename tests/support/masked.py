"""Shares of a refresh, and contributions, of whatever has a key share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from parties.kernel.keys.key_share import Asked, Halves
from parties.kernel.keys.session import KeySession
from parties.kernel.model.pads import draw_masks
from parties.kernel.rows import masks as row_masks
from parties.kernel.rows.session import encrypt
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.exchange.messages import Body
from protocols.plan.circuit_plan import Packed


def refresh_shares(keys: Any, asked: Sequence[Asked]) -> list[Halves]:
    """Through maps between columns, or none; keys: a key share, or its session."""
    found: list[Halves] = _asking(keys, False)(asked, row_masks.drawn)
    return found


def trace_shares(keys: Any, asked: Sequence[Asked]) -> list[Halves]:
    """Through maps of the subring."""
    found: list[Halves] = _asking(keys, True)(asked, draw_masks)
    return found


def contribution(context: CkksContext, keys: Any, public: Halves, packed: Packed) -> Body:
    """A party's rows or sums: of each vector of slots a ciphertext under the joint public key."""
    meta, vectors = packed
    ciphertexts = (
        rns.pack(encrypt(keys, public, slots, f"contribute/{k}"), context.primes * 2)
        for k, slots in enumerate(vectors)
    )
    return Body(meta, tuple(ciphertexts))


def _asking(keys: Any, of_model: bool) -> Any:
    is_session = isinstance(keys, KeySession) or type(keys).__name__ == "KeySession"
    return partial(keys.shares, of_model=of_model) if is_session else keys.shares
