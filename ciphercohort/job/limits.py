"""A budget in words, such as 10m or 10m,2GB: seconds of a run, and bytes that a party moves."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from protocols.errors import ParameterError
from protocols.exchange.documents import shown

SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
BYTES = {"kb": 1e3, "mb": 1e6, "gb": 1e9}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_CURE = "give a time (90s, 10m, 2h), traffic per party (500MB, 2GB), or both: 10m,2GB"


@dataclass(frozen=True, slots=True)
class Limits:
    """seconds: of the whole protocol on one machine; num_bytes: of the busiest party."""

    seconds: float = math.inf
    num_bytes: float = math.inf

    @classmethod
    def of(cls, text: str) -> Limits:
        """Inverse of `str`.

        Raises:
            ParameterError: no number with a known unit, a kind twice, or zero.
        """
        found: dict[str, float] = {}
        for part in text.lower().split(","):
            match = _PART.fullmatch(part.strip())
            amount, unit = match.groups() if match else ("0", "")
            kind = "seconds" if unit in SECONDS else "num_bytes"
            value = float(amount) * {**SECONDS, **BYTES}.get(unit, 0.0)
            if not value or kind in found:
                raise ParameterError(f"within={shown(text)} is no budget: {_CURE}")
            found[kind] = value
        return cls(**found)

    def __str__(self) -> str:
        """In words."""
        from protocols.words import duration, size  # loads libraries

        words = [duration(self.seconds)] if self.seconds < math.inf else []
        words += [f"{size(self.num_bytes)} per party"] if self.num_bytes < math.inf else []
        return " and ".join(words)

    def over(self, seconds: float, num_bytes: float) -> float:
        """The larger of both costs over their limits; at most 1 where they fit."""
        return max(seconds / self.seconds, num_bytes / self.num_bytes)


def asked(seconds: float, num_bytes: float, like: Limits) -> str:
    """The least budget, of the same kinds as `like`, that holds these costs: as an option."""
    words = [f"{math.ceil(seconds)}s"] if like.seconds < math.inf else []
    words += [f"{math.ceil(num_bytes / 1e6)}MB"] if like.num_bytes < math.inf else []
    return ",".join(words)
