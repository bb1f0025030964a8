"""What a search for a certified setting is about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocols.numerics.whitening import Whitening
from protocols.privacy.loss.budget import Budget

LEARNING_RATES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
"""What a search tries, for rows of norm 1."""
WHITENED_RATES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Times 1 / Lambda, where that is known: the loss curves by at most Lambda / 4."""
WHITENED_ROUNDS = (4, 6, 8, 10)
WHITENED_DEGREES = (7, 15)


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """Steps of gradient descent that are asked for, as long as they may be; see `calibrate.pace`.

    rounds: T; rate: at most, times 1 / Lambda; wander: most that `chance` may make of a weight;
    saturates: whether a row on the wrong side says no more than one at 0 (`push`).
    """

    rounds: int
    rate: float
    wander: float
    saturates: bool = False

    def shorter(self, factor: float) -> Steps:
        """The same, times a factor below 1."""
        return replace(self, rate=factor * self.rate, wander=factor * self.wander)

    def learning_rate(
        self, *, spectrum: float, rounds: int, noise: float, rows: int, features: int
    ) -> float:
        """The rate, for rows of norm 1."""
        found = chance(rounds=rounds, noise=noise, rows=rows, features=features)
        return min(self.rate / spectrum, self.wander / found)


def chance(*, rounds: int, noise: float, rows: int, features: int) -> float:
    """Std of a weight after T steps of rate 1, of rows of norm 1 that say nothing.

    noise: tau of ALL parties, drawn anew in every step: sqrt(T) tau. What N rows themselves leave
    to chance is the same in all: T sqrt(E[r^2 x_j^2] / N) <= T / sqrt(4 N d), r = 1/2 at w = 0.
    """
    return math.sqrt(rounds * noise**2 + rounds**2 / (4 * rows * features))


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
