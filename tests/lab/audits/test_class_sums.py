"""Sums of several classes, attacked: the promise holds, and too little noise is caught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.sums.objectives import OF_CLASSES
from protocols.sums.plan import GradientPlan
from sims.lab.audits.sums import attack, pair_epsilon, steady, worst_pair


@pytest.mark.parametrize("kind", OF_CLASSES)
def test_an_attack_stays_below_the_promise_and_catches_little_noise(kind: str) -> None:
    wanted = Wanted(model=kind, protocol="secure-aggregation", update="gd", epsilon=1.0, rounds=1)
    figures = replace(PublicFigures.even(rows=40, features=4, parties=2), outputs=4)
    plan = calibrate(figures, wanted).template
    assert isinstance(plan, GradientPlan) and plan.privacy is not None
    pair = worst_pair(plan)
    assert steady(plan, pair)
    assert pair_epsilon(plan, pair, delta=1e-5) <= 1.0
    rng = np.random.default_rng(5)
    terms: dict[str, Any] = {"runs": 20_000, "delta": 1e-5, "confidence": 0.999, "rng": rng}
    assert attack(plan, pair, **terms) <= 1.0
    quiet = replace(plan, noise_scales=tuple(scale / 6 for scale in plan.noise_scales))
    assert attack(quiet, pair, **terms) > 1.0
