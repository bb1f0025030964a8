"""What a simulation returns, and its one-object JSON summary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from coordinator.costs import Costs
from parties.data.schema import Label, Schema
from protocols.plan import RunPlan
from sims.plan_figures import plan_figures

Array = NDArray[np.float64]


class Quality(Protocol):
    """Scores of one model on the test rows."""

    def to_dict(self) -> dict[str, Any]:
        """Figure by name."""
        ...

    def words(self) -> str:
        """In a line."""
        ...


Q = TypeVar("Q", bound=Quality)
M = TypeVar("M")


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Quality of one model on the test rows: accuracy in [0, 1], area under the ROC curve."""

    accuracy: float
    auc: float

    def to_dict(self) -> dict[str, Any]:
        """Figure by name."""
        return asdict(self)

    def words(self) -> str:
        """In a line."""
        return f"accuracy {100 * self.accuracy:.2f} %, area under ROC {self.auc:.4f}"


@dataclass(frozen=True, kw_only=True)
class IterationMetrics:
    """The twin after iteration t (the encrypted run shows nothing before its end).

    loss: mean logistic loss on the training rows; accuracy, auc: on the test rows;
    weight_norm: |w|; largest_logit: max |<w, x>| seen so far on training rows.
    """

    iteration: int
    loss: float
    accuracy: float
    auc: float
    weight_norm: float
    largest_logit: float


@dataclass(frozen=True, kw_only=True)
class SimulationResult(Generic[Q, M]):
    """A finished simulation, whatever the model.

    weights: jointly decrypted, scaled units, bias last; twin_weights: of the plaintext twin with
    the same noise and polynomial; optimum_weights: what plain training on the same rows gives;
    scores, twin, optimum: on the test rows; iterations: the twin's course; test_x, test_y:
    encoded test rows (for plots); clamped: rows and values clamped, by party; warnings: sentences
    for the reader; noise: "none", "system" or "seeded (NOT PRIVATE)"; missing: parties that others
    stood in for.
    """

    plan: RunPlan
    schema: Schema
    weights: Array
    twin_weights: Array
    optimum_weights: Array
    scores: Q
    twin: Q
    optimum: Q
    iterations: tuple[M, ...]
    costs: Costs
    rows_by_party: dict[str, int]
    test_x: Array = field(repr=False)
    test_y: Array = field(repr=False)
    clamped: dict[str, dict[str, Any]]
    warnings: tuple[str, ...]
    noise: str
    peak_memory_mb: float
    total_seconds: float
    transcript_head: str
    certificate: dict[str, Any] | None = None
    missing: tuple[str, ...] = ()

    @property
    def max_abs_diff_to_twin(self) -> float:
        """Largest difference of a weight to the twin's, scaled units."""
        return float(np.abs(self.weights - self.twin_weights).max())

    @property
    def insecure(self) -> bool:
        """Whether a toy ring was used."""
        return self.plan.security_bits < 128

    def summary(self) -> dict[str, Any]:
        """One JSON object: scores, figures and costs."""
        body: dict[str, Any] = {
            **plan_figures(self.plan),
            **self.scores.to_dict(),
            "twin": self.twin.to_dict(),
            "optimum": self.optimum.to_dict(),
            "max_abs_diff_to_twin": self.max_abs_diff_to_twin,
            "seconds_per_iteration": float(np.median(self.costs.iteration_seconds)),
            "seconds": {k: round(v, 4) for k, v in self.costs.seconds.items()},
            "bytes_per_party": self.costs.bytes_per_party,
            "peak_memory_mb": round(self.peak_memory_mb, 1),
            "total_seconds": round(self.total_seconds, 3),
            "noise": self.noise,
            "missing": list(self.missing),
            "warnings": list(self.warnings),
        }
        if self.insecure:
            body["INSECURE"] = "toy ring without security; for tests only"
        return body


@dataclass(frozen=True, kw_only=True)
class RunResult(SimulationResult[Scores, IterationMetrics]):
    """Of a logistic model; the optimum is that of non-private maximum likelihood."""

    @property
    def label(self) -> Label:
        """What is predicted."""
        label = self.schema.label
        if not isinstance(label, Label):
            raise TypeError(f"a {type(label).__name__} where a label is due")
        return label


AnyRun = SimulationResult[Any, Any]
"""A finished simulation of any model."""
