"""Two sessions of one run: the gradient at zero first, and a plan that builds on it. Toy ring."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import parties.circuit_duties
import parties.gradient_duties
from parties import budget
from parties.party import Finished
from protocols import arithmetic
from protocols.errors import ParameterError, PolicyError, PrivacyError, ProtocolError
from protocols.plans import plan_from_dict
from protocols.rows import RowsPlan
from sims import simulation
from sims.config import SimulationConfig
from sims.ledgers import spent_lines
from sims.planning import Shape, forecast
from sims.prepare import prepare
from sims.release_start import run_start
from sims.verify import verify_run


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1500 rows with a nearly balanced label."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (1500, 3))
    y = (x @ [3.0, -2.0, 1.0] + 0.3 * rng.logistic(size=1500) > 0).astype(int)
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    pd.DataFrame(np.c_[x, y], columns=list("abcy")).to_csv(path, index=False)
    return path


def config(table: Path, **changes: Any) -> SimulationConfig:
    fields: dict[str, Any] = {
        "data": table,
        "label": "y",
        "parties": 2,
        "epsilon": 2.0,
        "profile": "fast-insecure",
        "ring_dim": 1024,
        "rounds": 2,
        "degree": 3,
        "seed": 1,
        "release_start": 0.05,
    }
    return SimulationConfig(**(fields | changes))


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """A finished run with ledgers."""
    home = tmp_path_factory.mktemp("run")
    yield simulation.simulate(config(table, out=home / "out", ledger=home / "ledgers")), home


def test_the_run_rests_on_what_was_released(run: tuple[Any, Path], table: Path) -> None:
    result, _ = run
    plan = result.plan
    assert isinstance(plan, RowsPlan)
    assert plan.start is not None
    assert result.max_abs_diff_to_twin < 1e-4
    setting = result.certificate["setting"]
    # The true gradient, from the rows themselves.
    prepared = prepare(config(table), np.random.default_rng(1))
    x, y = prepared.rows, prepared.labels
    bound = prepared.schema.norm_bound
    true = np.linalg.norm(((0.5 - y)[:, None] * x).mean(axis=0)) / bound
    assert true <= setting["d"] < true + 0.05 < 0.5
    released = -np.array(plan.start.released)
    noise = released - ((0.5 - y)[:, None] * x).mean(axis=0)
    sigma = plan.start.release.sigma
    assert 0 < np.abs(noise).max() < 5 * sigma
    events = budget.recompute(plan, bound).certificate.events
    assert [event.count for event in events] == [1, 2]


def test_verify_computes_it_again(run: tuple[Any, Path]) -> None:
    result, home = run
    assert all(check.passed for check in verify_run(home / "out"))
    names = {each["name"] for each in result.certificate["conditions"]}
    assert {"start_mu", "start_delta", "gradient_at_zero"} <= names
    again = plan_from_dict(json.loads(json.dumps(result.plan.to_dict())))
    assert again == result.plan


def test_a_forged_release_is_noticed(run: tuple[Any, Path]) -> None:
    from sims.verify_certificate import certificate_problems

    result, home = run
    certificate = json.loads((home / "out" / "certificate.json").read_text())
    plan = result.plan
    assert list(certificate_problems(certificate, plan, result.schema)) == []
    smaller = replace(plan.start, released=tuple(v / 2 for v in plan.start.released))
    found = "; ".join(
        certificate_problems(certificate, replace(plan, start=smaller), result.schema)
    )
    assert "setting.start" in found
    assert "setting.d" in found
    uncharged = json.loads(json.dumps(certificate))
    uncharged["setting"]["budget"]["spent_mu"] = arithmetic.FLOODING_MU
    found = "; ".join(certificate_problems(uncharged, plan, result.schema))
    assert "budget.spent_mu" in found


# -- what a party refuses -------------------------------------------------------------------------


def refused(table: Path, monkeypatch: pytest.MonkeyPatch, change: Any) -> str:
    """Why a run ends whose second session is changed; no key of it is made."""

    def started(*args: Any) -> Any:
        return change(run_start(*args))

    def no_key(*_: Any) -> None:
        raise AssertionError("a key was made")

    monkeypatch.setattr(simulation, "run_start", started)
    monkeypatch.setattr(parties.circuit_duties, "KeyShare", no_key)
    with pytest.raises(ProtocolError, match="refuses step 'agree'") as caught:
        simulation.simulate(config(table))
    return str(caught.value)


def test_a_release_that_the_party_did_not_see_is_refused(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def smaller(first: Any) -> Any:
        half = tuple(value / 2 for value in first.start.released)
        return replace(first, start=replace(first.start, released=half))

    assert "not the one that this party saw" in refused(table, monkeypatch, smaller)


def test_a_party_that_took_no_part_refuses(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(first: Any) -> Any:
        return replace(first, seen={})

    assert "not the one that this party saw" in refused(table, monkeypatch, forgotten)


def test_another_session_is_refused(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(first: Any) -> Any:
        return replace(
            first,
            seen={k: Finished(plan="0" * 64, weights=v.weights) for k, v in first.seen.items()},
        )

    assert "not the one that this party saw" in refused(table, monkeypatch, other)


def test_a_party_believes_no_price(run: tuple[Any, Path]) -> None:
    result, _ = run
    plan, bound = result.plan, result.schema.norm_bound
    cost = budget.recompute(plan, bound)
    assert cost.epsilon <= 2 * (1 + 1e-9)
    privacy = plan.privacy
    # The noise of a run that has not paid for its release: sigma of the whole budget.
    whole = cost.certificate.setting.budget
    less = replace(whole, spent_mu=arithmetic.FLOODING_MU)
    call = {"rounds": plan.rounds, "sensitivity": cost.sensitivity, "rows": plan.num_rows}
    factor = less.sigma(**call) / whole.sigma(**call)
    assert 0.95 < factor < 0.99
    cheap = replace(
        plan,
        privacy=replace(
            privacy, sigma=privacy.sigma * factor, share_std=privacy.share_std * factor
        ),
    )
    with pytest.raises(PolicyError, match="epsilon=2 of the plan is below 2.0"):
        budget.recompute(cheap, bound)
    # A clip that is not half of the rows' bound.
    with pytest.raises(PolicyError):
        budget.recompute(plan, bound * 1.01)


def test_a_session_of_other_parties_is_refused(run: tuple[Any, Path]) -> None:
    plan = run[0].plan
    members = (replace(plan.members[0], rows=plan.members[0].rows + 1), *plan.members[1:])
    with pytest.raises(ParameterError, match="other parties, rows, columns or colluders"):
        replace(plan, members=members)
    with pytest.raises(ParameterError, match="one step of rate 1"):
        update = {**plan.start.plan.update, "learning_rate": 0.5}
        replace(plan.start, plan=replace(plan.start.plan, update=update))
    with pytest.raises(ParameterError, match="finite values"):
        replace(plan.start, released=plan.start.released[1:])


# -- ledgers --------------------------------------------------------------------------------------


def test_both_sessions_are_charged_and_a_second_run_is_refused(
    run: tuple[Any, Path], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, home = run
    again = config(table, ledger=home / "ledgers")
    names = ("party-1", "party-2")
    lines = list(spent_lines(again, names))
    assert len(lines) == 2
    for name, line in zip(names, lines, strict=True):
        assert line.startswith(f"ledger of {name}: spent epsilon 1.9")
        assert line.endswith("in 2 sessions")

    def no_key(*_: Any, **__: Any) -> None:
        raise AssertionError("a key was made")

    monkeypatch.setattr(parties.circuit_duties, "KeyShare", no_key)
    monkeypatch.setattr(parties.gradient_duties, "AggregateShare", no_key)
    for share in (0.05, None):
        with pytest.raises(ProtocolError, match="'party-1'.*privacy budget is refused"):
            simulation.simulate(replace(again, release_start=share))
    assert list(spent_lines(again, names)) == lines


def test_a_ledger_without_its_budget_is_refused(table: Path, tmp_path: Path) -> None:
    (tmp_path / "budget.json").write_text("{}")
    with pytest.raises(ParameterError, match=r"budget\.json"):
        simulation.simulate(config(table, ledger=tmp_path, release_start=None))


# -- options and plans ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"release_start": 1.0}, "release_start=1.0 is outside"),
        ({"update": "gd"}, "release_start is for --protocol encrypted-rows --update barrier"),
        ({"epsilon": None}, "release_start needs a privacy promise"),
        ({"epsilon": None, "release_start": None, "ledger": Path("x")}, "ledger needs a privacy"),
        ({"accounting": "hope"}, "accounting='hope' is not one of"),
        (
            {
                "accounting": "paper",
                "protocol": "secure-aggregation",
                "release_start": None,
                "degree": None,
            },
            "accounting='paper' is for gradient training",
        ),
    ],
)
def test_options_that_do_not_go_together(table: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words.replace("(", r"\(")):
        config(table, **changes)


def test_a_plan_compares_with_and_without() -> None:
    shape = Shape.even(rows=20_000, features=10, parties=3)
    wanted = SimulationConfig(epsilon=1.0, release_start=0.05, rounds=50, degree=5)
    found = forecast(wanted, shape, timing=False, assumed_d=0.05).to_dict()
    assert found["start"]["d"] == pytest.approx(0.05, rel=1e-9)
    assert found["start"]["share"] == 0.05
    assert "is tightest, expected quality 0." in found["start"]["without"]
    assert {"sigma_exact", "sigma_paper"} <= found["figures"].keys()
    assert 1.5 < found["figures"]["sigma_paper"] / found["figures"]["sigma_exact"] < 2.2
    with pytest.raises((ParameterError, PrivacyError), match="assume_start"):
        forecast(wanted, shape, timing=False, assumed_d=0.7)
