"""What one watched run shows, and the twin's course that it is compared with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.rows import RowsPlan
from protocols.train import PlainGradient
from sims.party_process import PartySpec

Floats = NDArray[np.float64]


@dataclass
class Stages:
    """Noise by component, measured and predicted, and courses over the steps of the run."""

    values: dict[str, float] = field(default_factory=dict)
    predicted: dict[str, float] = field(default_factory=dict)
    courses: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def note(self, name: str, measured: float, predicted: float) -> None:
        """One component."""
        self.values[name], self.predicted[name] = measured, predicted


def twin_states(plan: RowsPlan, specs: Collection[PartySpec]) -> list[list[Floats]]:
    """The twin's vectors that the refresh after every iteration makes; the weights in the last."""
    x = np.concatenate([spec.shard.x for spec in specs])
    y = np.concatenate([spec.shard.y for spec in specs])
    drawn = np.sum([plan.draw_noise(spec.noise_source()) for spec in specs], axis=0)
    first, noise = plan.divide_noise(drawn)
    inverse = plan.curvature.preconditioner(x, first) if plan.curvature else 1.0
    gradient: Any = PlainGradient(x, y, noise, plan.link, inverse)
    rule, found = plan.rule, []
    zero: Floats = np.zeros(plan.num_features)
    state = rule.start(zero)
    for t in range(rule.rounds):
        move = gradient(rule.point(state), rule.gradient_factor(t))
        state = rule.step(move, state, t)
        found.append(list(state[: rule.sums(t)]))
    return found
