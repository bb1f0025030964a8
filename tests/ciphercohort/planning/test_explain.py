"""`cohort plan --explain`: the ten best, the plan's own among them, and why it is not the first."""

from __future__ import annotations

import json
from functools import cache

import pytest
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from ciphercohort.planning import explain
from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.parameters import CkksParameters
from tests.protocols.costs.test_candidates import model_times
from tests.support.helpers import make_plan

PARAMS = choose_parameters(5)


@pytest.fixture(autouse=True)
def model_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timing: a machine on which every unit of work takes a nanosecond."""
    monkeypatch.setattr(explain, "unit_times", model_times)


@cache
def found(params: CkksParameters = PARAMS) -> explain.Explanation:
    profile = "secure" if params.security_bits else "fast-insecure"
    return explain.explain(
        make_plan(rows=(400, 400), features=10, rounds=4, ckks=params, profile=profile)
    )


def test_ten_best_and_a_reason() -> None:
    searched = found()
    assert len(searched.best) == explain.BEST
    assert searched.chosen in searched.best
    assert searched.best[0].scale_bits == 57
    assert "prefers precision" in searched.reason
    assert "2.0 bits less precision" in searched.reason
    assert sum(searched.out.values()) > 100


def test_no_reason_where_the_plan_is_the_best() -> None:
    best = found().best[0].params
    assert best is not None
    assert found(best).reason == ""


def test_a_toy_ring_is_no_candidate() -> None:
    toy = CkksParameters(ring_dim=2048, depth=7, security_bits=0)
    searched = found(toy)
    assert searched.chosen.params == toy
    assert "INSECURE" in searched.reason


def test_json_holds_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    from ciphercohort.planning import predicted

    monkeypatch.setattr(predicted, "_unit_times", model_times)
    shape = [
        "plan",
        "--rows",
        "800",
        "--features",
        "9",
        "--no-privacy",
        "--degree",
        "7",
        "--explain",
    ]
    done = CliRunner().invoke(app, [*shape, "--json"])
    assert done.exit_code == 0, done.output
    body = json.loads(done.stdout)
    assert len(body["search"]["best"]) == explain.BEST
    assert body["search"]["chosen"]["seconds"] == pytest.approx(body["total_seconds"])
    refused = CliRunner().invoke(app, [*shape, "--no-timing"])
    assert refused.exit_code != 0
