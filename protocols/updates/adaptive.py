"""Adagrad and Adam, plain and on the quadratic gradient. NOT for the encrypted-rows protocol.

Both divide by a root of each entry, so they run where the coordinator sees the noisy gradient: in
the plaintext twin and in the secure-aggregation protocol. Their vectors are arrays.

    Adagrad   s <- s + g^2,                        w <- w - eta g / (tau + sqrt(s))
    Adam      m <- b1 m + (1 - b1) g,  s <- b2 s + (1 - b2) g^2,
              w <- w - eta m / (1 - b1^t) / (tau + sqrt(s / (1 - b2^t))),  t = 1, 2, …

The quadratic variants have g = B^-1 grad(w), which whoever drives the rule multiplies in.
Sources: Duchi et al., JMLR 12 (2011) 2121; Kingma and Ba, arXiv:1412.6980, Algorithm 1; rates:
Chiang, "Privacy-Preserving Logistic Regression Training with a Faster Gradient Variant".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.curvature import Curvature
from protocols.errors import ParameterError
from protocols.fields import from_fields
from protocols.updates.rule import ScaledGradient

Array = NDArray[np.float64]
# tau: keeps the first divisions finite.
STABILITY = 1e-8
RATES = {"adagrad": 0.01, "quadratic-adagrad": 0.07, "adam": 0.001, "quadratic-adam": 0.011}
"""Learning rates of the paper's figures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Adaptive:
    """What the two have in common.

    rounds: iterations; learning_rate: eta > 0, see RATES; curvature: B of the quadratic variant, or
    None.

    Raises:
        ParameterError: a field is out of range.
    """

    rounds: int
    learning_rate: float
    curvature: Curvature | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ParameterError(f"rounds={self.rounds} must be at least 1")
        if not self.learning_rate > 0:
            raise ParameterError(f"learning_rate={self.learning_rate} must be positive")

    def weights(self, state: tuple[Array, ...]) -> Array:
        """w."""
        return state[0]

    def levels(self) -> int:
        """Not a polynomial in its inputs.

        Raises:
            ParameterError: always.
        """
        raise ParameterError(
            f"update {self.kind!r} would divide by roots of encrypted numbers; under encrypted "
            "rows take quadratic-nag, or the secure-aggregation protocol"
        )

    def noise_gain(self) -> float:
        """As `levels`."""
        return float(self.levels())

    def in_units(self, unit: float) -> Adaptive:
        """As `levels`: steps do not scale with the weights."""
        self.levels()
        return self

    @property
    def kind(self) -> str:
        """Name of the rule in a plan."""
        name = type(self).__name__.lower()
        return f"quadratic-{name}" if self.curvature else name

    def to_dict(self) -> dict[str, Any]:
        """For the plan."""
        fields = asdict(self)
        if self.curvature is None:
            del fields["curvature"]
        return {"kind": self.kind, **fields}


@dataclass(frozen=True, kw_only=True, slots=True)
class Adagrad(Adaptive):
    """Steps divided by the root of the summed squares."""

    def start(self, weights: Array) -> tuple[Array, ...]:
        """State (w, s)."""
        return (weights, np.zeros_like(weights))

    def step(
        self, t: int, state: tuple[Array, ...], gradient: ScaledGradient[Array]
    ) -> tuple[Array, ...]:
        """One iteration."""
        w, squares = state
        g = gradient(w, 1.0)
        squares = squares + g * g
        return (w - self.learning_rate * g / (STABILITY + np.sqrt(squares)), squares)


@dataclass(frozen=True, kw_only=True, slots=True)
class Adam(Adaptive):
    """Steps by the running mean over the root of the running mean square, both unbiased.

    beta1, beta2: in [0, 1), how slowly the two means forget.
    """

    beta1: float = 0.9
    beta2: float = 0.999

    def __post_init__(self) -> None:
        Adaptive.__post_init__(self)
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ParameterError(f"{name}={getattr(self, name)} is outside [0, 1)")

    def start(self, weights: Array) -> tuple[Array, ...]:
        """State (w, m, s)."""
        return (weights, np.zeros_like(weights), np.zeros_like(weights))

    def step(
        self, t: int, state: tuple[Array, ...], gradient: ScaledGradient[Array]
    ) -> tuple[Array, ...]:
        """One iteration."""
        w, mean, square = state
        g = gradient(w, 1.0)
        mean = self.beta1 * mean + (1 - self.beta1) * g
        square = self.beta2 * square + (1 - self.beta2) * g * g
        root = np.sqrt(square / (1 - self.beta2 ** (t + 1)))
        move = mean / (1 - self.beta1 ** (t + 1)) / (STABILITY + root)
        return (w - self.learning_rate * move, mean, square)


def adaptive_from_dict(fields: Mapping[str, Any]) -> Adagrad | Adam:
    """Inverse of `Adaptive.to_dict`.

    Raises:
        MessageError: a field is missing, unknown or of a wrong type.
        ParameterError: the kind is unknown, or kind and curvature do not go together.
    """
    rest = {k: v for k, v in fields.items() if k not in ("kind", "curvature")}
    kind = str(fields.get("kind"))
    if kind not in RATES:
        raise ParameterError(f"update kind {kind!r} is not one of {', '.join(RATES)}")
    if kind.startswith("quadratic-") != ("curvature" in fields):
        raise ParameterError(f"update {kind!r}: quadratic kinds, and only they, have a curvature")
    if "curvature" in fields:
        rest["curvature"] = Curvature.from_dict(fields["curvature"])
    if kind.endswith("adagrad"):
        return from_fields(Adagrad, rest)
    return from_fields(Adam, rest)
