"""What the defaults prove about slots, and what whoever runs them reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from ciphercohort.job.config import SimulationConfig
from ciphercohort.planning.forecast import forecast
from ciphercohort.planning.words import encryption_lines
from ciphercohort.results.slot_report import slot_lines, slot_problems, unproven_warnings
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.rows.plan import RowsPlan
from sims.simulation import simulate
from tests.ciphercohort.report import test_calibration


def plan_of(rows: int = 456, features: int = 30, **changes: Any) -> RowsPlan:
    """As `cohort simulate` plans it on data of this shape."""
    figures = PublicFigures.even(rows=rows, features=features, parties=3)
    return cast(RowsPlan, calibrate(figures, Wanted(**changes)).template)


@pytest.mark.parametrize("epsilon", [None, 1.0])
@pytest.mark.parametrize("update", ["barrier", "gd"])
def test_defaults_are_proven(update: str, epsilon: float | None) -> None:
    """No owner has to accept anything for these; nor a figure without sense."""
    plan = plan_of(update=update, epsilon=epsilon)
    assert plan.slot_bound is not None and plan.slot_bound < 100
    assert unproven_warnings(plan, 1.0) == ()
    (line,) = slot_lines(plan, 1.0)
    assert f"at most {plan.slot_bound:.4g}" in line


@pytest.mark.parametrize("update", ["nag", "quadratic-nag"])
def test_accelerated_defaults_are_proven_with_privacy_alone(update: str) -> None:
    assert plan_of(update=update, epsilon=1.0, rows=5000).slot_bound is not None
    plan = plan_of(update=update)
    assert plan.slot_bound is None
    first, cure = unproven_warnings(plan, 1.0)
    assert "NO PROOF" in first and "log2(2P)" in first and "accept_unbounded" in cure


@pytest.mark.parametrize("model", ["linear", "improved-lffr", "lffr"])
@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_defaults_of_regressions(model: str, epsilon: float | None) -> None:
    """Gram models always; LFFR with noise, and without it where a ridge bounds the descent."""
    for ridge in (None, 2.0):
        found = test_calibration.calibration(model=model, epsilon=epsilon, ridge=ridge)
        plan: Any = found.template
        is_proven = model != "lffr" or epsilon is not None or ridge is not None
        assert (plan.slot_bound is not None) == is_proven, ridge


def test_a_simulation_goes_on_with_a_warning() -> None:
    """Who runs it stands for all owners; a plan with a proof needs no words but one line."""
    common: dict[str, Any] = {"profile": "fast-insecure", "seed": 1, "parties": 2}
    result = simulate(SimulationConfig(update="nag", rounds=6, **common))
    assert result.plan.slot_bound is None
    assert any("NO PROOF" in warning for warning in result.warnings)
    proven = simulate(SimulationConfig(update="gd", rounds=2, **common))
    assert not any("NO PROOF" in warning for warning in proven.warnings)
    plan: Any = proven.plan
    assert list(slot_problems(plan, proven.schema)) == []
    for forged in (None, plan.slot_bound / 2, plan.slot_bound * 1.01):
        assert list(slot_problems(replace(plan, slot_bound=forged), proven.schema))


def test_a_forecast_says_it() -> None:
    shape = PublicFigures.even(rows=300, features=5, parties=2)
    body = forecast(SimulationConfig(parties=2, update="gd"), shape, timing=False).to_dict()
    assert body["slot_bound"] > 0
    assert any(line.startswith("slots of refreshes: at most") for line in encryption_lines(body))
