"""Shares of others' keys, for owners who vanish. Here: what a run asks of a party."""

from __future__ import annotations

from dataclasses import dataclass

from parties.kernel.keys import KeysSheet


@dataclass(frozen=True, kw_only=True, slots=True)
class CoveredSheet(KeysSheet):
    """See `KeysSheet`; cover: how many stand in for others."""

    cover: int
