"""What an update rule is: pure steps on vectors, the same for arrays and for ciphertexts.

A rule sees vectors through +, - and * alone. Its state is a tuple of vectors, so that whoever
drives it can refresh each of them, and public numbers live in the rule itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

# NDArray[np.float64] in the twin, EncryptedVector under encryption.
V = TypeVar("V")
# (weights, step) -> step * (mean gradient at weights + this round's noise)
ScaledGradient = Callable[[V, float], V]


class UpdateRule(Protocol):
    """One iteration of a first-order method.

    The learning rate multiplies the gradient inside the oracle, because under encryption that
    product is free (it is part of the mask).
    """

    @property
    def rounds(self) -> int:
        """Iterations T."""
        ...

    def start(self, weights: V) -> tuple[V, ...]:
        """State before the first iteration."""
        ...

    def step(self, t: int, state: tuple[V, ...], gradient: ScaledGradient[V]) -> tuple[V, ...]:
        """State after iteration t = 0, 1, …; calls `gradient` exactly once."""
        ...

    def weights(self, state: tuple[V, ...]) -> V:
        """Model of a state; after the last iteration this is what gets released."""
        ...

    def levels(self) -> int:
        """Levels of the rule's own path, beside the gradient's."""
        ...

    def noise_gain(self) -> float:
        """Std of the final weights' error over that of one iteration's, for independent errors."""
        ...

    def in_units(self, unit: float) -> UpdateRule:
        """The same rule for vectors w / unit, given step * gradient / unit.

        Under encryption weights are kept in units of the sigmoid interval's radius.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types with the field `kind`, for the run plan."""
        ...


def iterate(rule: UpdateRule, t: int, state: tuple[V, ...]) -> V:
    """w after iteration t, for rules whose state holds a multiple of it (`scale`) in between."""
    weights: Any = rule.weights(state)
    scale = getattr(rule, "scale", None)
    result: V = weights if scale is None else weights * (1 / scale(t))
    return result
