"""Nominal intervals of private inference hold the truth as often as they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from protocols.statistics.inference.estimate import Estimate
from sims.lab.studies.coverage import cover, inferred

STUDIES = 150
# Of 450 intervals of three coefficients, in part dependent: as 150 independent ones at worst.
LOW = binom.ppf(1e-4, STUDIES, 0.95) / STUDIES


def test_intervals_hold_the_truth() -> None:
    for name, epsilon in (("small", 1.0), ("linear", 1.0), ("counts", 1.0)):
        found = cover(name, epsilon, STUDIES)
        assert found["coverage"] >= LOW and found["refused"] <= 0.03 * STUDIES
        assert min(found["width_over_plain"]) > 1.3  # else noise would not be of interest


@pytest.mark.parametrize("name", ["small", "linear"])
def test_intervals_without_the_noise_of_privacy_do_not(name: str) -> None:
    def narrow(study: Any, epsilon: float, rng: np.random.Generator) -> Estimate:
        found = inferred(study, epsilon, rng)
        return Estimate(
            theta=found.theta,
            covariance=found.covariance - found.noise,
            noise=np.zeros_like(found.noise),
        )

    assert cover(name, 1.0, STUDIES, infer=narrow)["coverage"] < LOW
