"""`cohort plan`: certified settings for real sizes, those that `simulate` takes; refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ciphercohort.after.inference_cost import check_rows, inference_forecast, inference_line
from ciphercohort.cli.app import app
from ciphercohort.job.config import SimulationConfig
from ciphercohort.planning.forecast import forecast
from protocols.errors import PrivacyError
from protocols.model.errors import release_error_std
from protocols.privacy.calibrate.figures import PublicFigures
from protocols.statistics.inference.reach import Reach

pytestmark = pytest.mark.usefixtures("nothing_known")
PROMISE = "--parties 10 --colluders 3 --epsilon 1 --delta 1e-5 --update barrier --no-timing"


@pytest.fixture
def nothing_known(tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def cohort(words: str) -> Any:
    return CliRunner().invoke(app, ["plan", *words.split()])


def planned(words: str) -> dict[str, Any]:
    result = cohort(f"{words} --json")
    assert result.exit_code == 0, result.stderr
    body: dict[str, Any] = json.loads(result.stdout)
    return body


def test_every_condition_holds() -> None:
    """Of larger sizes: `tests/protocols/privacy/search/test_search.py`."""
    body = planned(f"--rows 1000 --features 9 {PROMISE}")
    names = [each["name"] for each in body["conditions"]]
    assert {"norm", "eta_barrier", "eta_overshoot", "barrier_positive", "alpha"} <= set(names)
    for each in body["conditions"]:
        assert each["satisfied"] is True
        left, right = each["left"], each["right"]
        assert {"<=": left <= right, "<": left < right, ">=": left >= right, ">": left > right}[
            each["relation"]
        ]
    assert body["binding"] in names
    assert body["columns_with_bias"] == 10
    epsilon = body["epsilon"]
    assert len(epsilon) == 10
    assert epsilon == sorted(epsilon)
    assert 0.99 < epsilon[3] <= 1 < epsilon[4]
    assert body["ckks"]["security_bits"] == 128
    assert body["ckks"]["log_qp"] <= body["ckks"]["max_log_qp"]
    assert body["decryption"]["flooding_bits"] >= 40


def test_the_plan_is_what_a_run_takes() -> None:
    config = SimulationConfig(
        parties=3, update="gd", epsilon=2.0, colluders=1, profile="fast-insecure"
    )
    shape = PublicFigures.even(rows=455, features=30, parties=3)
    found = forecast(config, shape, timing=False)
    assert found.plan.privacy is not None
    assert found.plan.layout.rows_by_party == (152, 152, 151)
    from parties.verifier.recompute import recompute

    cost = recompute(found.plan, 1.0)
    assert cost.epsilon == pytest.approx(found.epsilon_by_coalition[1], rel=1e-9)


def test_rounds_degree_and_norm_bound_are_taken() -> None:
    body = planned(
        "--rows 5000 --features 4 --iterations 30 --degree 5 --norm-bound 0.5 --no-timing"
    )
    assert (body["iterations"], body["degree"], body["norm_bound"]) == (30, 5, 0.5)


def test_a_toy_ring_is_rehearsed_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own, once: afterwards it is known."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("ciphercohort.planning.rehearsed.busy", lambda: False)
    words = "--rows 60 --features 4 --model linear --no-privacy --profile fast-insecure"
    result = cohort(f"{words} --ring-dim 1024 --iterations 3 --json")
    body = json.loads(result.stdout)
    assert body["seconds_per_iteration"] > 0
    assert body["total_seconds"] == pytest.approx(sum(body["seconds"].values()))
    assert body["rehearsed_rounds"] == 3
    assert 50 < body["peak_memory_mb"]["party"] < body["peak_memory_mb"]["together"]
    assert len(list(tmp_path.glob("ciphercohort/rehearsal-*.json"))) == 2  # and the second moment
    assert "INSECURE" in body
    assert "INSECURE" in result.stderr
    known = planned(f"{words} --ring-dim 1024 --iterations 3 --no-timing")
    assert (known["seconds"], known["bytes_per_party"]) == (
        body["seconds"],
        body["bytes_per_party"],
    )
    told = cohort(f"{words} --ring-dim 1024 --iterations 3 --no-timing").stdout
    assert "measured on this machine from 3 rounds" in " ".join(told.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--model linear --target a,b --no-privacy", ("encrypted-rows", "fixed-hessian", 12)),
        ("--model linear --epsilon 3", ("encrypted-rows", "fixed-hessian", 30)),
        ("--model lffr --no-privacy --iterations 7", ("encrypted-rows", "fixed-hessian", 7)),
        ("--model poisson --no-privacy --iterations 4", ("encrypted-rows", "nag", 4)),
        ("--protocol secure-aggregation --update nag", ("secure-aggregation", "nag", 50)),
    ],
)
def test_every_model_and_protocol_is_planned(
    words: str, expected: tuple[str, str, int], quick_machine: None
) -> None:
    """As `simulate` would run it; with bytes, operations and words for a person."""
    shape = "--rows 600 --features 5"
    body = planned(f"{shape} {words}")
    assert (body["protocol"], body["update"]["kind"], body["iterations"]) == expected
    assert sum(body["bytes_per_party"].values()) > 10_000
    assert bool(body["operations_per_iteration"]) is (expected[0] == "encrypted-rows")
    assert (body["privacy"] is None) is ("--no-privacy" in words)
    told = cohort(f"{shape} {words}").stdout
    assert f"protocol {expected[0]}" in told and "MB per party" in told


def test_rows_of_regressions_are_as_long_as_their_columns_allow() -> None:
    body = planned("--rows 600 --features 8 --model linear --no-privacy --no-timing")
    assert body["norm_bound"] == 3.0
    assert (
        planned("--rows 600 --features 8 --no-privacy --update gd --no-timing")["norm_bound"] == 1
    )


def test_data_give_their_own_shape() -> None:
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 3)), columns=["a", "b", "c"])
    frame["y"] = np.tile([0, 1], 200)
    with CliRunner().isolated_filesystem():
        frame.to_csv("data.csv", index=False)
        body = planned("--data data.csv --label y --parties 4 --epsilon 3 --update gd --no-timing")
        refused = cohort("--data data.csv --label y --rows 10")
    assert (body["rows"], body["features"], body["parties"]) == (320, 3, 4)
    assert refused.exit_code == 2
    assert "rows and data are both given" in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "give --rows and --features, --rows and --schema, or --data FILE"),
        ("--rows 2 --features 3", "rows=2 is below parties=3"),
        ("--rows 10 --features 0", "features=0 must be at least 1 (bias not counted)"),
        ("--rows 10 --features 3 --norm-bound nan", "norm_bound=nan"),
        ("--rows 10 --features 3 --split by:ward", "split='by:ward' needs data"),
        ("--rows 900 --features 3 --ring-dim 1000", "ring_dim=1000 is no power of two: take 1024"),
        (
            "--rows 60 --features 300 --epsilon 0.01 --update barrier",
            "no barrier setting is certified for rows=60, features=301, epsilon=0.01: condition",
        ),
        ("--rows 900 --features 3 --within 1m", "within and no_timing are both given"),
        ("--rows 900 --features 3 --rehearse", "rehearse and no_timing are both given"),
        ("--rows 900 --features 3 --model linaer", "did you mean 'linear'?"),
    ],
)
def test_refusals_name_the_cure(words: str, message: str) -> None:
    result = cohort(f"{words} --no-timing")
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_an_encrypted_models_error_is_that_of_its_own_release() -> None:
    """Few coefficients of it are opened."""
    config = SimulationConfig(protocol="encrypted-model", update="nag", epsilon=None, rounds=4)
    shape = PublicFigures.even(rows=900, features=4, parties=3)
    found = forecast(config, shape, timing=False)
    plan: Any = found.plan
    assert found.to_dict()["decryption"]["release_error_std"] == release_error_std(plan)


@pytest.mark.parametrize(
    ("epsilon", "words"), [(0.05, "; no intervals: 1,440"), (2.0, "; probably")]
)
def test_a_plan_says_how_many_rows_intervals_need(epsilon: float, words: str) -> None:
    """And that so many are enough, or so large an epsilon."""

    def told(rows: int, epsilon: float) -> tuple[dict[str, Any], str]:
        config = SimulationConfig(epsilon=epsilon, inference=True, protocol="secure-aggregation")
        shape = PublicFigures.even(rows=rows, features=5, parties=3, norm_bound=1.0)
        found = inference_forecast(config, shape)
        assert found is not None
        return found["reach"], inference_line(found)

    needs, line = told(1440, epsilon)
    assert words in line and needs["rows_least"] < needs["rows_usual"] > 1440
    for more in ((needs["rows_usual"], epsilon), (1440, needs["epsilon_usual"] * 1.001)):
        assert "; intervals, about" in told(*more)[1]
    # No epsilon that noise is drawn for would do for so few.
    assert told(60, epsilon)[1].endswith(" rows; rare categories need more rows")


def test_sums_are_told_of_too_few_rows_before_the_first() -> None:
    """As across machines, where no run of this program said it before."""
    told: list[str] = []
    found = Reach(least=100, usual=900, wider=math.nan, variance=0.04)

    def check(rows: int, **spreads: float) -> str:
        shape = PublicFigures.even(rows=rows, features=2, parties=3)
        shape = replace(shape, spreads=tuple(spreads.items()))
        check_rows(found, shape, told.append, however_noisy=True)
        words = told.pop()
        if "probably no" in words:
            with pytest.raises(PrivacyError, match="nothing was spent .*insist by --however-noisy"):
                check_rows(found, shape, told.append, however_noisy=False)
        else:
            check_rows(found, shape, told.append, however_noisy=False)
            assert told.pop() == words
        return words

    enough = check(900, age=0.1)
    assert "errors: intervals: every number needs a standard deviation of some 0.1" in enough
    wide = check(900, age=0.2, nodes=0.099)
    assert "probably no intervals" in wide and "less have nodes (0.099): narrow" in wide
    few = check(899)
    assert "probably no intervals: 899 rows" in few and "a larger epsilon" in few
    with pytest.raises(PrivacyError, match="no intervals: 99 rows are below 100"):
        check(99)  # whoever insists
