"""The search certifies what it returns, and its figure of merit picks settings that learn."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from protocols.errors import ParameterError, PrivacyError
from protocols.privacy.certificate import Certificate, Condition, Relation
from protocols.privacy.search import Method, find_setting

SIZES = [(30_000, 24), (1000, 10), (12_000, 51), (50_000, 101)]


@lru_cache
def _find(**changes: Any) -> Certificate:
    query = {"rows": 30_000, "features": 24, "norm_bound": 1.0, "epsilon": 1.0, "delta": 1e-5}
    return find_setting(**{**query, "parties": 10, "colluders": 3, **changes})


@pytest.mark.parametrize(
    ("rows", "features", "method"),
    [
        *((*size, "barrier") for size in SIZES),
        *((*size, "ridge") for size in SIZES[:2]),
        *(pytest.param(*size, "ridge", marks=pytest.mark.slow) for size in SIZES[2:]),
    ],
)
def test_four_sizes_are_certified(rows: int, features: int, method: Method) -> None:
    certificate = _find(rows=rows, features=features, method=method)
    assert certificate.satisfied
    assert certificate.method == method
    assert certificate.epsilon_by_coalition[3] <= 1.0 + 1e-9
    assert certificate.epsilon_by_coalition[4] > 1.0
    assert certificate.figures["delta_total"] <= 1e-5
    data = json.loads(json.dumps(certificate.to_dict(), allow_nan=False))
    assert all(condition["satisfied"] for condition in data["conditions"])
    assert {"name", "left", "right", "satisfied"} <= set(data["conditions"][0])


@pytest.mark.parametrize("method", ["barrier", "ridge"])
def test_without_noise_the_rate_is_one_over_the_smoothness(method: Method) -> None:
    certificate = _find(rows=1000, features=10, method=method, epsilon=None, rounds=139)
    assert certificate.satisfied
    assert certificate.setting.sigma == 0.0
    slope = certificate.setting.sigmoid.max_slope
    assert certificate.setting.eta == pytest.approx(1 / slope, rel=0.5)


def test_norm_bound_only_rescales() -> None:
    wide, one = _find(norm_bound=math.sqrt(24), rounds=100), _find(rounds=100, method="barrier")
    assert wide.setting.eta * 24 == pytest.approx(one.setting.eta)
    assert wide.figures["interval"] == pytest.approx(one.figures["interval"], rel=1e-6)


def test_rounds_and_degree_are_obeyed() -> None:
    certificate = _find(parties=2, colluders=0, rounds=60, degree=5, method="ridge")
    assert certificate.setting.rounds == 60
    assert certificate.setting.sigmoid.polynomial.degree == 5


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


def _breast_cancer() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Columns by rough public scales, a bias column, rows clipped to norm 1."""
    x, y = load_breast_cancer(return_X_y=True)
    scale = 10.0 ** np.floor(np.log10(np.abs(x).max(axis=0)))
    z = np.hstack([np.clip(x / scale - 1.5, -2, 2), np.ones((len(x), 1))]) / 4
    return z / np.maximum(1, np.linalg.norm(z, axis=1, keepdims=True)), y.astype(float)


def _train(
    certificate: Certificate, x: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The barrier's or the ridge's plain run, noise of all parties included."""
    s = certificate.setting
    rng = np.random.default_rng(3)
    noise = certificate.figures["sigma_total"]
    w = np.zeros(x.shape[1])
    for _ in range(s.rounds):
        pull = s.lam * w
        if certificate.method == "barrier":
            pull = 2 * s.lam * s.reciprocal.polynomial(s.theta - w @ w) * w
        gradient = (s.sigmoid.polynomial(x @ w) - y) @ x / len(x)
        w = w - s.eta * (pull + gradient + noise * rng.standard_normal(w.size))
        assert np.linalg.norm(w) <= certificate.figures["R"]
    return w


@pytest.mark.slow
@pytest.mark.parametrize("method", ["barrier", "ridge"])
def test_settings_learn_on_held_out_rows(method: Method) -> None:
    x, y = _breast_cancer()
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:455], order[455:]
    accuracy = []
    for epsilon in (None, 8.0):
        made = {"rows": 455, "features": 31, "delta": 1e-4, "parties": 4, "colluders": 1}
        certificate = _find(**made, epsilon=epsilon, method=method)
        w = _train(certificate, x[train], y[train])
        accuracy.append(float(np.mean((x[test] @ w > 0) == (y[test] > 0.5))))
    assert accuracy[0] > 0.88
    assert accuracy[1] > 0.85


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


@pytest.mark.parametrize("method", ["barrier", "ridge"])
def test_the_error_of_the_arithmetic_is_paid_for(method: Method) -> None:
    exact = _find(rounds=100, method=method)
    certificate = _find(rounds=100, method=method, encryption_error=0.01, other_delta=1e-7)
    assert certificate.satisfied
    widened = certificate.figures["sensitivity"] - certificate.figures["D2"]
    assert widened == pytest.approx(2 * 0.01 * math.sqrt(24))
    assert certificate.setting.sigma > 1.03 * exact.setting.sigma
    assert certificate.figures["delta_total"] <= 1e-5
