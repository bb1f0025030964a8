"""Poisson regression of a count, log link, on a bounded interval of scores.

Of counts on [0, high] with t = value / high and a score z on [-R, R], the mean of t is exp(z - R):
between e^(-2R) and 1. The gradient of the mean negative log-likelihood is X^T (exp(Xw - R) - t) / N
for counts as they are and for t alike, which move the intercept by ln(high) alone. Scaled so, mean,
residual and curvature are at most 1, and steps of 1 / B^2 descend for rows of norm B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlogy

from parties.kernel.sums.links import RADIUS, decoded, largest_deviance
from protocols.errors import SchemaError
from protocols.models.model import Array, Measure, TargetModel
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS
from protocols.numerics.approximation import (
    Approximation,
    Polynomial,
    exponential_approximation,
    exponential_error,
)
from protocols.words import Fact, number


@dataclass(frozen=True, slots=True)
class Poisson(TargetModel):
    """radius: R; means are held within [high e^(-2R), high]."""

    name = "poisson"
    title = "Poisson regression"
    link = (
        "value = exp(intercept + coef . x), held within [high * exp(-2 * radius), high], with high "
        "of the target in the schema"
    )
    unit = "logarithm of the mean count per unit of the column"
    update = "nag"
    stand_in = ("exponential", "in parts of the target's range")
    reference = "poisson"
    optimum = ("optimum without privacy", "Poisson regression, all rows in clear, no noise")
    curvature = 1.0
    protocols = (ENCRYPTED_ROWS, ENCRYPTED_MODEL)
    certified = False
    measures = (
        Measure(
            key="deviance",
            title="Mean deviance [counts; 0 is perfect]",
            form="{:.4g}",
            words="mean deviance {:.4g}",
        ),
        Measure(
            key="mae",
            title="Mean absolute error [target’s unit]",
            form="{:.4g}",
            words="mean absolute error {:.4g}",
        ),
        *TargetModel.measures,
        Measure(
            key="d2",
            title="D² [deviance explained; 1 is perfect, 0 the mean]",
            form="{:.4f}",
            words="D² {:.4f}",
        ),
    )

    radius: float = RADIUS

    def approximation(self, degree: int, radius: float | None = None) -> Approximation:
        """Of exp(z - R); R is the model's own."""
        return exponential_approximation(degree, self.radius)

    def link_error(self, link: Polynomial) -> float:
        """Of exp(z - R)."""
        return exponential_error(link)

    def check_ranges(self, lows: Mapping[str, float]) -> None:
        """Refuse targets that do not count from 0."""
        for name, low in lows.items():
            if low != 0:
                raise SchemaError(
                    f"low={low:g} of target {name} is not 0, from which model {self.name} counts: "
                    "give a schema with low = 0 and the largest count as high (cohort schema init)"
                )

    def facts(self) -> Iterator[Fact]:
        """R."""
        yield (
            "Least mean",
            number(math.exp(-2 * self.radius)),
            "of the target's range; its largest is the range itself: scores are held in between",
        )

    def encode(self, targets: Array) -> Array:
        """What is fitted, from targets in [0, 1], shape (rows, c)."""
        return targets

    def decode(self, scores: Array) -> Array:
        """exp(z - R), z held on [-R, R]."""
        return decoded(self.name, scores, radius=self.radius)

    def loss(self, scores: Array, y: Array) -> Array:
        """Half the deviance on [-R, R]; straight on beyond, with the slope of its end."""
        beyond = scores - np.clip(scores, -self.radius, self.radius)
        own = xlogy(y, y) - y * (1 + scores - self.radius)
        found: Array = self.decode(scores) * (1 + beyond) + own
        return found

    def bound(self, outputs: int) -> float:
        """Bound on the Euclidean norm of a row's encoded targets."""
        return math.sqrt(outputs)

    def in_data_units(
        self, coef: Array, intercept: Array, low: Array, width: Array
    ) -> tuple[Array, Array]:
        """Of the logarithm of the mean count."""
        return coef, intercept + np.log(width) - self.radius

    def metrics(self, weights: Array, x: Array, y: Array, width: Any = 1.0) -> dict[str, Any]:
        """Deviance and absolute error in the target's unit, D² beside the mean, squared errors.

        D² = 1 - deviance / deviance of the mean, NaN where the targets are constant.
        """
        mean = self.decode(x @ weights)
        deviance, spread = _deviance(y, mean), _deviance(y, y.mean(axis=0))
        with np.errstate(divide="ignore", invalid="ignore"):
            d2 = np.where(np.ptp(y, axis=0) > 0, 1 - deviance / spread, np.nan)
        return {
            "deviance": (deviance * width).tolist(),
            "mae": (np.abs(mean - y).mean(axis=0) * width).tolist(),
            **TargetModel.metrics(self, weights, x, y, width),
            "d2": d2.tolist(),
        }

    def of_tallies(self, mean: Mapping[str, Array], width: Array) -> dict[str, Any]:
        """Deviance [counts] and D², as `metrics`; the mean's own is 2 (y ln y - m ln m)."""
        deviance = 2 * largest_deviance(self.radius) * mean["deviance"]
        middle = np.maximum(mean["y"], 0.0)
        spread = -2 * (mean["entropy"] / math.e + xlogy(middle, middle))
        with np.errstate(divide="ignore", invalid="ignore"):
            d2 = np.where(spread > 0, 1 - deviance / spread, np.nan)
        return {"deviance": (deviance * width).tolist(), "d2": d2.tolist()}

    def course(
        self, weights: Array, train: tuple[Array, Array], test: tuple[Array, Array]
    ) -> dict[str, Any]:
        """Mean loss on the training rows, and what every regression tells."""
        loss = float(np.mean(self.loss(train[0] @ weights, train[1])))
        return {"loss": loss, **TargetModel.course(self, weights, train, test)}


def _deviance(y: Array, mean: Array) -> Array:
    """Mean of 2 (y ln(y / mean) - y + mean), by target."""
    found: Array = 2 * np.mean(xlogy(y, y) - xlogy(y, mean) - y + mean, axis=0)
    return found
