"""The search certifies what it returns, and names what binds where it finds nothing."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any

import pytest

from protocols.errors import ParameterError, PrivacyError
from protocols.privacy.certificates.certificate import Certificate, Condition, Relation
from protocols.privacy.loss import budget
from protocols.privacy.loss.budget import Budget
from protocols.privacy.search import search
from protocols.privacy.search.search import Method, find_setting

QUERY: dict[str, Any] = {
    **{"rows": 30_000, "features": 24, "norm_bound": 1.0, "epsilon": 1.0, "delta": 1e-5},
    **{"parties": 10, "colluders": 3},
}


@lru_cache
def _find(**changes: Any) -> Certificate:
    return find_setting(**{**QUERY, **changes})


@pytest.mark.parametrize(
    ("rows", "features", "rounds", "method"),
    [
        (1000, 10, None, "barrier"),
        (12_000, 51, None, "ridge"),
        (50_000, 101, 100, "barrier"),
        (50_000, 101, 100, "ridge"),
    ],
)
def test_small_and_wide_tables_are_certified(
    rows: int, features: int, rounds: int | None, method: Method
) -> None:
    certificate = _find(rows=rows, features=features, method=method, rounds=rounds)
    assert certificate.satisfied
    assert certificate.method == method
    assert certificate.epsilon_by_coalition[3] <= 1.0 + 1e-9
    assert certificate.epsilon_by_coalition[4] > 1.0
    assert certificate.figures["delta_total"] <= 1e-5
    data = json.loads(json.dumps(certificate.to_dict(), allow_nan=False))
    assert all(condition["satisfied"] for condition in data["conditions"])
    assert {"name", "left", "right", "satisfied"} <= set(data["conditions"][0])


@pytest.mark.parametrize("method", ["barrier", "ridge"])
def test_a_checker_that_halves_sigma_is_caught_by_another_accountant(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dp-accounting shares no code with it."""
    true_sigma = Budget.sigma
    monkeypatch.setattr(search, "_ATTEMPTS", 2)
    monkeypatch.setattr(Budget, "sigma", lambda self, **query: true_sigma(self, **query) / 2)
    # As if it were asked for the first time: certificates are remembered by their query.
    with pytest.raises(PrivacyError, match="privacy_cross_check"):
        find_setting.__wrapped__(**QUERY, method=method, rounds=50, degree=7)


@pytest.mark.parametrize("method", ["barrier", "ridge"])
def test_without_noise_the_rate_is_one_over_the_smoothness(method: Method) -> None:
    certificate = _find(rows=1000, features=10, method=method, epsilon=None, rounds=139)
    assert certificate.satisfied
    assert certificate.setting.sigma == certificate.figures["sigma_total"] == 0.0
    assert certificate.events == certificate.epsilon_by_coalition == ()
    assert not any(c.name.startswith("privacy") for c in certificate.conditions)
    slope = certificate.setting.sigmoid.max_slope
    assert certificate.setting.learning_rate == pytest.approx(1 / slope, rel=0.5)


@pytest.mark.parametrize("method", ["barrier", "ridge"])
def test_a_hopeless_case_is_refused_by_name(method: Method) -> None:
    with pytest.raises(PrivacyError, match="condition (norm|descent_bound|eta|sigmoid)"):
        _find(
            rows=12,
            features=30,
            epsilon=0.05,
            delta=1e-6,
            colluders=9,
            rounds=400,
            method=method,
        )


@pytest.mark.parametrize(
    "change", [{"rows": 0}, {"norm_bound": 0.0}, {"rounds": 0}, {"method": "magic"}, {"degree": 4}]
)
def test_impossible_arguments_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        _find(**change)


def test_conditions_compare_as_written() -> None:
    cases: list[tuple[Relation, float, float, float]] = [
        ("<=", 1.0, 2.0, 0.5),
        (">=", 1.0, 2.0, -0.5),
        ("<", 1.0, 1.0, 0.0),
        (">", -1.0, 0.0, -1.0),
    ]
    for relation, left, right, slack in cases:
        condition = Condition(name="x", left=left, relation=relation, right=right, meaning="")
        assert condition.slack == pytest.approx(slack)
        assert condition.satisfied == (slack > 0 or (slack == 0 and "=" in relation))
    lost = Condition(name="x", left=math.nan, relation="<=", right=1.0, meaning="")
    assert not lost.satisfied
    assert lost.slack == -math.inf


def test_an_epsilon_that_the_grid_is_too_coarse_for_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In words that say how small it must be; no accountant is asked for a hopeless one."""
    small: dict[str, Any] = {"rows": 900, "features": 6, "method": "ridge"}

    def asked(*_: object, **__: object) -> float:
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(budget, "library_epsilon", asked)
        with pytest.raises(
            PrivacyError, match=r"epsilon=30 is above [\d.]+: .*smaller epsilon"
        ) as e:
            _find(**small, epsilon=30.0)
    most = float(str(e.value).split("above ")[1].split(":")[0])
    assert 15 < most < 20
    assert _find(**small, epsilon=most - 0.5).satisfied
    # What a second moment has cost already leaves nothing.
    words = r"other_delta=2e-05, .* not below delta=1e-05: .* take epsilon=24.7 in place of 30"
    with pytest.raises(ParameterError, match=words):
        _find(**small, epsilon=30.0, other_delta=2e-5)
    with pytest.raises(ParameterError, match="take a delta above 4e-05"):
        _find(**small, epsilon=1.0, other_delta=2e-5)


@pytest.mark.parametrize("method", ["barrier", "ridge"])
def test_the_error_of_the_arithmetic_is_paid_for(method: Method) -> None:
    exact = _find(rounds=100, method=method)
    certificate = _find(rounds=100, method=method, encryption_error=0.01, other_delta=1e-7)
    assert certificate.satisfied
    widened = certificate.figures["sensitivity"] - certificate.figures["D2"]
    assert widened == pytest.approx(2 * 0.01 * math.sqrt(24))
    assert certificate.setting.sigma > 1.03 * exact.setting.sigma
    assert certificate.figures["delta_total"] <= 1e-5
