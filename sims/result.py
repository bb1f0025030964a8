"""What a simulation returns, and its one-object JSON summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator.costs import Costs
from parties.schema import Schema
from protocols.plan import RunPlan

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Quality of one model on the test rows: accuracy in [0, 1], area under the ROC curve."""

    accuracy: float
    auc: float


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
class RunResult:
    """A finished simulation.

    weights: jointly decrypted, scaled units, bias last; twin_weights: of the plaintext twin with
    the same noise and polynomial; optimum_weights: non-private maximum likelihood on the same
    rows; scores, twin, optimum: on the test rows; iterations: the twin's course; test_x, test_y:
    encoded test rows (for plots); clamped: rows and values clamped, by party; warnings: sentences
    for the reader; noise: "none", "system" or "seeded (NOT PRIVATE)".
    """

    plan: RunPlan
    schema: Schema
    weights: Array
    twin_weights: Array
    optimum_weights: Array
    scores: Scores
    twin: Scores
    optimum: Scores
    iterations: tuple[IterationMetrics, ...]
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

    @property
    def max_abs_diff_to_twin(self) -> float:
        """Largest difference of a weight to the twin's, scaled units."""
        return float(np.abs(self.weights - self.twin_weights).max())

    @property
    def insecure(self) -> bool:
        """Whether a toy ring was used."""
        return self.plan.ckks.security_bits < 128

    def summary(self) -> dict[str, Any]:
        """One JSON object: scores, figures and costs."""
        params = self.plan.ckks
        body: dict[str, Any] = {
            "session": self.plan.session,
            "parties": len(self.plan.members),
            "rows": self.plan.layout.num_rows,
            "features": self.plan.num_features,
            "update": self.plan.update["kind"],
            "iterations": self.plan.rounds,
            "degree": len(self.plan.link.coefficients) - 1,
            "accuracy": self.scores.accuracy,
            "auc": self.scores.auc,
            "twin": {"accuracy": self.twin.accuracy, "auc": self.twin.auc},
            "optimum": {"accuracy": self.optimum.accuracy, "auc": self.optimum.auc},
            "max_abs_diff_to_twin": self.max_abs_diff_to_twin,
            "seconds_per_iteration": float(np.median(self.costs.iteration_seconds)),
            "seconds": {k: round(v, 4) for k, v in self.costs.seconds.items()},
            "bytes_per_party": self.costs.bytes_per_party,
            "ring_dim": params.ring_dim,
            "depth": params.depth,
            "scale_bits": params.scale_bits,
            "security_bits": params.security_bits,
            "log_qp": params.log_qp,
            "peak_memory_mb": round(self.peak_memory_mb, 1),
            "total_seconds": round(self.total_seconds, 3),
            "privacy": self._privacy(),
            "noise": self.noise,
            "warnings": list(self.warnings),
        }
        if self.insecure:
            body["INSECURE"] = "toy ring without security; for tests only"
        return body

    def _privacy(self) -> dict[str, Any] | None:
        privacy = self.plan.privacy
        if privacy is None:
            return None
        return {
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "colluders": privacy.colluders,
            "sigma": privacy.sigma,
        }
