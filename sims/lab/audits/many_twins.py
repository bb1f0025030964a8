"""Many plaintext-twin runs at once: the update rule's own code on one weight vector per run.

The noise is float64 Gaussian in place of the discrete sampler's, for speed. The two are equal in
law to within the certificate's `delta_grid`; `privacy/laws/test_discrete.py` tests the
sampler itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.updates.update import Update

Floats = NDArray[np.float64]
# (round t, weights of shape (runs, d)) -> noisy mean gradients, shape (runs, d)
Oracle = Callable[[int, Floats], Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One vector (runs, d) or number (runs, 1) per run, with the operations that rules use."""

    values: Floats

    def __add__(self, other: Any) -> Batch:
        """Sum with another batch or a public number."""
        return Batch(self.values + _plain(other))

    def __sub__(self, other: Any) -> Batch:
        """Difference to another batch or a public number."""
        return Batch(self.values - _plain(other))

    def __mul__(self, other: Any) -> Batch:
        """Product with a public number, or run by run with a number or entry by entry."""
        return Batch(self.values * _plain(other))

    def __matmul__(self, other: Batch) -> Batch:
        """Inner product, run by run, shape (runs, 1)."""
        return Batch(np.einsum("ij,ij->i", self.values, other.values)[:, None])


def _plain(value: Any) -> Any:
    return value.values if isinstance(value, Batch) else value


def train_many(rule: Update, oracle: Oracle, *, runs: int, features: int) -> Floats:
    """Weights after the last iteration of every run, shape (runs, features)."""
    state = rule.start(Batch(np.zeros((runs, features))))
    for t in range(rule.rounds):
        gradient = rule.gradient_factor(t) * oracle(t, rule.point(state).values)
        state = rule.step(Batch(gradient), state, t)
    return rule.weights(state).values
