"""What a simulated regression returns: errors by output beside the twin's and least squares'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from parties.data.schema import Targets
from protocols.models.linear import Linear
from protocols.models.regression_models import RegressionModel
from sims.regression_twin import mean_squared_errors, predict
from sims.result import Array, SimulationResult


@dataclass(frozen=True, kw_only=True)
class RegressionScores:
    """Quality of one model on the test rows, one entry per output.

    outputs: names; mse: mean squared error [data units squared]; relative_mse: the same over the
    squared width of the public range; r2: 1 - mse / variance, NaN where the targets are constant.
    """

    outputs: tuple[str, ...]
    mse: tuple[float, ...]
    relative_mse: tuple[float, ...]
    r2: tuple[float, ...]

    @property
    def mean_relative_mse(self) -> float:
        """Mean over the outputs."""
        return float(np.mean(self.relative_mse))

    def to_dict(self) -> dict[str, Any]:
        """Figure by name."""
        return {
            "mse": list(self.mse),
            "relative_mse": list(self.relative_mse),
            "mean_relative_mse": self.mean_relative_mse,
            "r2": list(self.r2),
        }

    def words(self) -> str:
        """In a line."""
        each = zip(self.outputs, self.mse, self.r2, strict=True)
        return "; ".join(
            f"{name}: root mean squared error {mse**0.5:.4g}, R² {r2:.4f}" for name, mse, r2 in each
        )


@dataclass(frozen=True, kw_only=True)
class RegressionMetrics:
    """The twin after iteration t (the encrypted run shows nothing before its end).

    relative_mse, mean_relative_mse: on the test rows, as in `RegressionScores`;
    training_mse: the latter on the training rows; weight_norm: |W| over all outputs.
    """

    iteration: int
    training_mse: float
    relative_mse: tuple[float, ...]
    mean_relative_mse: float
    weight_norm: float


@dataclass(frozen=True, kw_only=True)
class RegressionResult(SimulationResult[RegressionScores, RegressionMetrics]):
    """Weights have shape (num_features, outputs); the optimum is scikit-learn's least squares."""

    @property
    def targets(self) -> Targets:
        """What is predicted, in the order of the outputs."""
        return targets_of(self.schema.label)


def targets_of(label: object) -> Targets:
    """The label of a regression's schema.

    Raises:
        TypeError: it is that of another model.
    """
    if not isinstance(label, Targets):
        raise TypeError(f"a {type(label).__name__} where targets are due")
    return label


def score_regression(
    model: RegressionModel, weights: Array, x: Array, y: Array, targets: Targets
) -> RegressionScores:
    """Errors of a model; weights: shape (d, c); x, y: encoded rows and targets."""
    errors = mean_squared_errors(predict(model, weights, x), y)
    spread = y.var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        r2 = np.where(spread > 0, 1 - errors / spread, np.nan)
    return RegressionScores(
        outputs=targets.names,
        mse=_floats(errors * targets.width**2),
        relative_mse=_floats(errors),
        r2=_floats(r2),
    )


def score_least_squares(weights: Array, x: Array, y: Array, targets: Targets) -> RegressionScores:
    """The same of the optimum, which is linear whatever the model."""
    return score_regression(Linear(), weights, x, y, targets)


def _floats(values: Array) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
