"""Figures of a large study in no time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sims.lab.studies.noise.grid import Grid, cells_of
from sims.lab.studies.noise.measurement import Measurement

GRID = Grid(
    parties=(1, 2, 5, 10, 20, 50, 100, 200),
    modes=("fixed", "growing"),
    noises=("honest", "all"),
    iterations=(None, 100),
    encrypted=(2, 5, 10, 20),
)


def made_up() -> list[Measurement]:
    """Figures of a large study in no time; the page does not know."""
    found = []
    for cell in cells_of([GRID], 32_000):
        p, t = cell.parties, cell.colluders
        for seed in (0, 1, 2):
            off = 1 + 0.01 * (seed - 1)
            total = (p / (p - t)) ** 0.5
            values: Mapping[str, Any] = {
                "privacy_ratio": total * off,
                "privacy_noise": 1e-3 * total * off,
                "left_ratio": off,
                "sigma": 1e-3,
                "model_noise": 0.1 * total * off,
                "accuracy": 0.83 - 1e-3 * total * off,
                "largest_iterate": 5.0,
            }
            if cell.kind == "encrypted":
                values = {"secret": p**0.5 * off, "encryption": 600 * p**0.5 * off}
            predicted = {"privacy_ratio": total, "secret": p**0.5, "largest_iterate": 10.0}
            predicted = {name: v for name, v in predicted.items() if name in values}
            facts = {"T": 400 if p < 50 else 50, "rows": 32_000}
            found.append(
                Measurement(cell=cell, seed=seed, values=values, predicted=predicted, facts=facts)
            )
    return found
