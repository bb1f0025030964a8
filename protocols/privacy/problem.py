"""What a search for a certified setting is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocols.privacy.budget import Budget

LEARNING_RATES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
"""What a search tries, for rows of norm 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Fields as in `search.find_setting`; rounds, degree: None tries several."""

    method: str
    rows: int
    features: int
    norm_bound: float
    budget: Budget
    encryption_error: float = 0.0
    rounds: int | None = None
    degree: int | None = None

    def tried_rounds(self, several: Sequence[int] = (25, 50, 100, 200, 400)) -> Sequence[int]:
        """Values of T."""
        return several if self.rounds is None else (self.rounds,)

    @property
    def degrees(self) -> Sequence[int]:
        """Of the sigmoid's polynomial."""
        return (3, 5, 7) if self.degree is None else (self.degree,)

    @property
    def common(self) -> dict[str, Any]:
        """Fields of every setting."""
        names = ("rows", "features", "norm_bound", "budget", "encryption_error")
        return {name: getattr(self, name) for name in names}
