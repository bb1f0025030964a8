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


def gradient_factors(rule: UpdateRule) -> tuple[tuple[float | None, ...], ...]:
    """For each iteration, what this iteration's gradient is multiplied by in the next state.

    One entry for each distinct vector of the state, of the weights alone after the last iteration;
    None: an older vector, without this gradient.
    """
    found: list[tuple[float | None, ...]] = []
    state: tuple[Any, ...] = rule.start(_Traced(None))
    for t in range(rule.rounds):
        state = rule.step(t, state, lambda weights, step: _Traced(step))
        vectors = state if t + 1 < rule.rounds else (rule.weights(state),)
        found.append(tuple(each.factor for each in distinct(vectors)))
        state = tuple(_Traced(None) for _ in state)
    return tuple(found)


def distinct(state: tuple[V, ...]) -> list[V]:
    """Its vectors, each once: a rule may keep one of them twice."""
    return list({id(vector): vector for vector in state}.values())


class _Traced:
    """A vector of which only this iteration's gradient is known, by its factor."""

    __slots__ = ("factor",)

    def __init__(self, factor: float | None) -> None:
        self.factor = factor

    def __add__(self, other: Any) -> _Traced:
        return self._with(other, 1.0)

    def __sub__(self, other: Any) -> _Traced:
        return self._with(other, -1.0)

    def __mul__(self, other: Any) -> _Traced:
        return _Traced(None if self.factor is None else self.factor * float(other))

    __rmul__ = __mul__

    def __matmul__(self, other: Any) -> _Traced:
        return _Traced(None)

    def _with(self, other: Any, sign: float) -> _Traced:
        added = other.factor if isinstance(other, _Traced) else None
        if self.factor is not None and added is not None:
            raise AssertionError("a rule adds up two gradients")
        return _Traced(self.factor if added is None else sign * added)


def iterate(rule: UpdateRule, t: int, state: tuple[V, ...]) -> V:
    """w after iteration t, for rules whose state holds a multiple of it (`scale`) in between."""
    weights: Any = rule.weights(state)
    scale = getattr(rule, "scale", None)
    result: V = weights if scale is None else weights * (1 / scale(t))
    return result
