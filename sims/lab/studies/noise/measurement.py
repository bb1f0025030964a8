"""One line of a study's results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sims.lab.studies.noise.grid import Cell


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One line of a study: a cell, a seed, what was found and what was predicted.

    values, predicted: by component; courses: by component, one value per step of the run.
    refusal: why nothing was run, empty otherwise; facts: the setting. Values that are not finite
    are left out.
    """

    cell: Cell
    seed: int
    values: Mapping[str, float] = field(default_factory=dict)
    predicted: Mapping[str, float] = field(default_factory=dict)
    courses: Mapping[str, list[float]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    refusal: str = ""

    @property
    def name(self) -> tuple[str, int]:
        """What a resumed study knows it by."""
        return self.cell.key, self.seed

    @property
    def order(self) -> tuple[Any, ...]:
        """By cell and seed: the order of arrival does not show."""
        c = self.cell
        return c.kind, c.protocol, c.mode, c.coalition, c.parties, c.key, self.seed

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "key": self.cell.key,
            **asdict(self),
            "values": _finite(self.values),
            "predicted": _finite(self.predicted),
            "courses": {name: list(map(float, course)) for name, course in self.courses.items()},
        }

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Measurement:
        """Inverse of `to_dict`.

        Raises:
            KeyError, TypeError, ParameterError: not what `to_dict` wrote.
        """
        fields = {name: body[name] for name in cls.__dataclass_fields__}
        return cls(**{**fields, "cell": Cell(**body["cell"])})


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}
