"""Shares of a refresh, of whatever has a key share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from parties.kernel.keys.key_share import Asked, Halves
from parties.kernel.keys.session import KeySession
from parties.kernel.model.pads import draw_masks
from parties.kernel.rows import masks as row_masks


def refresh_shares(keys: Any, asked: Sequence[Asked]) -> list[Halves]:
    """Through maps between columns, or none; keys: a key share, or its session."""
    found: list[Halves] = _asking(keys, False)(asked, row_masks.drawn)
    return found


def trace_shares(keys: Any, asked: Sequence[Asked]) -> list[Halves]:
    """Through maps of the subring."""
    found: list[Halves] = _asking(keys, True)(asked, draw_masks)
    return found


def _asking(keys: Any, of_model: bool) -> Any:
    is_session = isinstance(keys, KeySession) or type(keys).__name__ == "KeySession"
    return partial(keys.shares, of_model=of_model) if is_session else keys.shares
