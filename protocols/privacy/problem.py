"""What a search for a certified setting is about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocols.privacy.budget import Budget
from protocols.whitening import Whitening

LEARNING_RATES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
"""What a search tries, for rows of norm 1."""
WHITENED_RATES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Times 1 / Lambda, where that is known: the loss curves by at most Lambda / 4."""
WHITENED_ROUNDS = (4, 6, 8, 10)
WHITENED_DEGREES = (7, 15)


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """Steps of gradient descent that are asked for, as long as they may be; see `calibrate.pace`.

    rounds: T; rate: at most, times 1 / Lambda; wander: most that rate sqrt(T) tau may be, tau the
    noise of ALL parties, for rows of norm 1.
    """

    rounds: int
    rate: float
    wander: float

    def eta(self, *, spectrum: float, rounds: int, noise: float) -> float:
        """The rate, for rows of norm 1."""
        most = self.wander / (math.sqrt(rounds) * noise) if noise else math.inf
        return min(self.rate / spectrum, most)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Fields as in `search.find_setting`; rounds, degree: None tries several.

    spectrum: Lambda of whitened rows, in the rows' own units; None without whitening. whitening:
    what it follows from, where C is known; steps: those that are tried, None: several.
    """

    method: str
    rows: int
    features: int
    norm_bound: float
    budget: Budget
    encryption_error: float = 0.0
    rounds: int | None = None
    degree: int | None = None
    spectrum: float | None = None
    whitening: Whitening | None = None
    steps: Steps | None = None

    @property
    def longest(self) -> float:
        """Lambda of rows that are divided by their norm's bound."""
        return 1.0 if self.spectrum is None else self.spectrum / self.norm_bound**2

    @property
    def learning_rates(self) -> Sequence[float]:
        """For rows of norm 1."""
        if self.spectrum is None:
            return LEARNING_RATES
        return tuple(rate / self.longest for rate in WHITENED_RATES)

    def tried_rounds(self, several: Sequence[int] = (25, 50, 100, 200, 400)) -> Sequence[int]:
        """Values of T; several: without whitening."""
        if self.rounds is not None:
            return (self.rounds,)
        if self.steps is not None:
            return (self.steps.rounds,)
        return several if self.spectrum is None else WHITENED_ROUNDS

    @property
    def degrees(self) -> Sequence[int]:
        """Of the sigmoid's polynomial."""
        if self.degree is not None:
            return (self.degree,)
        return (3, 5, 7) if self.spectrum is None else WHITENED_DEGREES

    @property
    def common(self) -> dict[str, Any]:
        """Fields of every setting."""
        fields = "rows features norm_bound budget encryption_error spectrum whitening"
        return {name: getattr(self, name) for name in fields.split()}
