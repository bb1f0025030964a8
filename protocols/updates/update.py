"""What an update rule is: a pure pair, written once for arrays and for ciphertexts.

    point(state)               where the gradient of round t = 0, 1, … is wanted
    step(gradient, state, t)   the next state; gradient = gradient_factor(t) (mean there + noise)

Rules see vectors through +, - and * alone. `gradient_factor` is public data and no part of a step:
under encryption the refresh's mask multiplies by it for free.

A state is a tuple of different vectors. After round t the first `sums(t)` of them hold that round's
gradient, once each, as it was given; they are what a refresh makes. The others, if any, are the
first vectors of the state before, unchanged.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import msgspec

from protocols.errors import ParameterError
from protocols.rows.curvature import Curvature
from protocols.words import Fact, count, number

# NDArray[np.float64] in the twin, EncryptedVector under encryption.
V = TypeVar("V")
# A plan's rounds are unrolled into sequences before anything else is known of it.
MOST_ROUNDS = 2**20

SMALLEST = 2.0**-100
"""Of learning rates and the like: bounds take squares and quotients of them."""


class Update(ABC):
    """One iteration of a first-order method: a frozen dataclass of its public parameters.

    kind: its name in a plan; words: what a report calls it; rounds: iterations T >= 1; curvature:
    of the quadratic gradient B^-1 grad, which whoever drives the rule multiplies; None without;
    default_rounds: T on encrypted rows without privacy, where none is given; usual_rate: the
    learning rate where none is given; None: 1 / L, L the smoothness of the loss.

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    __slots__ = ()
    kind: ClassVar[str]
    words: ClassVar[str]
    default_rounds: ClassVar[int] = 20
    usual_rate: ClassVar[float | None] = None
    rounds: int
    curvature: Curvature | None = None

    def __post_init__(self) -> None:
        """No rule has a number that is not finite."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ParameterError(f"{field.name}={value} must be finite")
        if not 1 <= self.rounds <= MOST_ROUNDS:
            raise ParameterError(f"rounds={self.rounds} must be at least 1, at most {MOST_ROUNDS}")

    def start(self, weights: V) -> tuple[V, ...]:
        """State before the first iteration."""
        return (weights,)

    def point(self, state: tuple[V, ...]) -> V:
        """Where the next gradient is wanted."""
        return state[0]

    @abstractmethod
    def step(self, gradient: V, state: tuple[V, ...], t: int, unit: float = 1.0) -> tuple[V, ...]:
        """State after round t; all vectors, and the gradient, are in units of `unit`."""

    def weights(self, state: tuple[V, ...], t: int | None = None) -> V:
        """w after round t; by default after the last, which is what gets released."""
        return state[0]

    def gradient_factor(self, t: int) -> float:
        """What the gradient of round t is multiplied by before the step."""
        return 1.0

    def sums(self, t: int) -> int:
        """Vectors of the state after round t that hold its gradient."""
        return 1

    @abstractmethod
    def levels(self) -> int:
        """Levels of the rule's own path, beside the gradient's.

        Raises:
            ParameterError: the rule is not for ciphertexts.
        """

    def noise_gain(self) -> float:
        """Std of w_T's error over that of one iteration's, for independent errors.

        sqrt(T): no iteration expands distances.
        """
        return math.sqrt(self.rounds)

    @property
    def largest_learning_rate(self) -> float:
        """Most that one iteration moves w, over its gradient."""
        return max(map(self.gradient_factor, range(self.rounds)))

    @property
    def least_learning_rate(self) -> float:
        """Least that one iteration moves w, over its gradient."""
        return min(map(self.gradient_factor, range(self.rounds)))

    @property
    def row_path(self) -> float:
        """w_T's error over that of the mean of independent noise in the rows' entries, about."""
        return self.rounds * self.largest_learning_rate

    def noise_shares(self) -> tuple[float, ...]:
        """Each iteration's share of the privacy budget (epsilon or rho); they sum to 1."""
        return (1 / self.rounds,) * self.rounds

    @property
    def inverse_gain(self) -> float:
        """Bound of w_T's error over the relative one of the preconditioner, from all rounds."""
        return 0.0

    def facts(self) -> Iterator[Fact]:
        """For a reader."""
        rate = getattr(self, "learning_rate", None)
        words = self.words if rate is None else f"{self.words}; learning rate {number(rate)}"
        yield "Update", f"{self.kind}, {count(self.rounds, 'iteration')}", words

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types with the field `kind`, for the run plan."""
        return {"kind": self.kind, **msgspec.json.decode(msgspec.json.encode(self))}


def check_positive(rule: Update, *names: str) -> None:
    """Refuse fields that are not above 0, or whose squares are no numbers any more."""
    for name in names:
        value = getattr(rule, name)
        if not value > 0:
            raise ParameterError(f"{name}={value} must be positive")
        if not SMALLEST <= value <= 1 / SMALLEST:
            raise ParameterError(
                f"{name}={value} is outside {SMALLEST:.3g} … {1 / SMALLEST:.3g}: take one nearer 1"
            )


def check_fraction(rule: Update, *names: str) -> None:
    """Refuse fields outside [0, 1)."""
    for name in names:
        if not 0 <= getattr(rule, name) < 1:
            raise ParameterError(f"{name}={getattr(rule, name)} is outside [0, 1)")
