"""Metrics of a regression's twin, iteration by iteration."""

from __future__ import annotations

import numpy as np

from parties.data.schema import Targets
from protocols.models.regression_models import RegressionModel
from sims.prepare import PreparedData
from sims.regression_result import RegressionMetrics, score_regression, targets_of
from sims.result import Array


class Course:
    """Metrics of every iteration."""

    def __init__(self, data: PreparedData, model: RegressionModel) -> None:
        self._data, self._model = data, model
        self._x, self._y = data.rows, data.labels
        self.metrics: list[RegressionMetrics] = []

    def record(self, t: int, weights: Array) -> None:
        """After iteration t, counted from 0."""
        targets: Targets = targets_of(self._data.schema.label)
        test = self._data.test
        tested = score_regression(self._model, weights, test.x, test.y, targets)
        trained = score_regression(self._model, weights, self._x, self._y, targets)
        self.metrics.append(
            RegressionMetrics(
                iteration=t + 1,
                training_mse=trained.mean_relative_mse,
                relative_mse=tested.relative_mse,
                mean_relative_mse=tested.mean_relative_mse,
                weight_norm=float(np.linalg.norm(weights)),
            )
        )
