"""Keys as people compare them."""

from __future__ import annotations


def spoken(key: str) -> str:
    """A key in groups of four, to be compared by telephone."""
    return " ".join(key[k : k + 4] for k in range(0, len(key), 4))
