"""What a simulation is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocols.approximation import SIGMOID_DEGREES
from protocols.errors import ParameterError
from protocols.updates.catalogue import KINDS

PROFILES = ("secure", "fast-insecure")


@dataclass(frozen=True, kw_only=True)
class SimulationConfig:
    """One `cohort simulate`.

    data: CSV or Parquet file, pandas frame or (X, y) arrays; None: a data set that scikit-learn
    ships. label: label column; positive: its positive value. schema: schema file; None: inferred
    from the data, which a deployment may not do. test: file with test rows, or None to hold out
    the share `holdout`. parties: number of parties (None only with split "by:COLUMN"). split:
    "even", "by:COLUMN" or "dirichlet:ALPHA". update: "barrier", "gd" or "nag". rounds: iterations;
    None: chosen. degree: of the sigmoid polynomial; None: chosen (7 without privacy). epsilon,
    delta, colluders: the privacy promise; epsilon None: no privacy noise. learning_rate, radius:
    of gd and nag; None: chosen. seed: of splits and noise: a seeded run is NOT PRIVATE.
    profile: "secure" (128 bits) or "fast-insecure" (toy ring). processes: each party in its own
    spawned process. strict: refuse values outside the schema. optimum: also fit the non-private
    optimum. out: run folder, or None.

    Raises:
        ParameterError: a field is out of range; the message names field, value, bound and cure.
    """

    data: Any = None
    label: str | None = None
    positive: str | None = None
    schema: Path | None = None
    test: Path | None = None
    holdout: float = 0.2
    exclude: tuple[str, ...] = ()
    parties: int | None = 3
    split: str = "even"
    update: str = "barrier"
    rounds: int | None = None
    degree: int | None = None
    learning_rate: float | None = None
    radius: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    colluders: int = 0
    accounting: str = "exact"
    seed: int | None = None
    profile: str = "secure"
    ring_dim: int | None = None
    processes: bool = False
    strict: bool = False
    out: Path | None = None

    def __post_init__(self) -> None:
        if self.parties is None and not self.split.startswith("by:"):
            raise ParameterError(f"split={self.split!r} needs parties, the number of data owners")
        if self.parties is not None and self.parties < 2:
            raise ParameterError(
                f"parties={self.parties} is below 2: joint training needs at least two data owners"
            )
        if self.update not in KINDS:
            raise ParameterError(f"update={self.update!r} is not one of {', '.join(KINDS)}")
        if self.degree is not None and self.degree not in SIGMOID_DEGREES:
            raise ParameterError(
                f"degree={self.degree} is not one of {', '.join(map(str, SIGMOID_DEGREES))}"
            )
        if self.rounds is not None and self.rounds < 1:
            raise ParameterError(f"iterations={self.rounds} must be at least 1")
        if self.profile not in PROFILES:
            raise ParameterError(f"profile={self.profile!r} is not one of {', '.join(PROFILES)}")
        if self.epsilon is not None and not self.epsilon > 0:
            raise ParameterError(f"epsilon={self.epsilon} must be positive")
        if not 0 < self.delta < 1:
            raise ParameterError(f"delta={self.delta} is outside (0, 1); 1e-5 is usual")
        if self.colluders < 0:
            raise ParameterError(f"colluders={self.colluders} must not be negative")
        if self.parties is not None and self.colluders >= self.parties:
            raise ParameterError(
                f"colluders={self.colluders} must be below parties={self.parties}: someone has "
                "to be honest"
            )
        for name in ("learning_rate", "radius"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ParameterError(f"{name}={value} must be positive")
        if self.test is None and not 0 < self.holdout < 1:
            raise ParameterError(f"holdout={self.holdout} is outside (0, 1); 0.2 is usual")
        if self.data is not None and self.label is None:
            raise ParameterError("label is missing: name the column to predict, such as --label y")
