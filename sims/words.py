"""Figures in words: sizes, durations, counts."""

from __future__ import annotations


def size(num_bytes: float) -> str:
    """Bytes with a decimal unit."""
    for unit in ("bytes", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "bytes" else f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} GB"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def number(value: float) -> str:
    """Four significant digits, no trailing zeros."""
    return f"{value:.4g}".replace("-", "−")


def count(amount: int, noun: str) -> str:
    """1 row, 2 rows, 3 parties."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{amount:,} {noun if amount == 1 else plural}"
