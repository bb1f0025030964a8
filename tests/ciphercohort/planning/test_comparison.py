"""Three protocols beside one another: the same update and iterations, an owner's line, a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from ciphercohort.job.config import SimulationConfig, configured
from ciphercohort.planning.comparison import Comparison, Way
from ciphercohort.planning.forecast import Forecast, forecast
from ciphercohort.planning.predicted import Line, Seconds
from protocols.model.plan import ModelPlan
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.privacy.calibrate.figures import PublicFigures

SHAPE = "--rows 60000 --features 20 --no-privacy --iterations 6 --degree 7"


pytestmark = pytest.mark.usefixtures("quick_machine")


def planned(words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["plan", *SHAPE.split(), *words.split(), "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)["comparison"]
    return found


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["protocol"]: each for each in found["protocols"]}


def foreseen(rows: int = 60_000, **options: Any) -> Forecast:
    config = configured("plan", no_privacy=True, iterations=6, degree=7, **options)
    return forecast(config, PublicFigures.even(rows=rows, features=20, parties=3))


def test_all_protocols_stand_for_the_same_training() -> None:
    found = by_name(planned("--update nag"))
    assert list(found) == [ENCRYPTED_ROWS, ENCRYPTED_MODEL, SECURE_AGGREGATION]
    assert {each["update"] for each in found.values()} == {"nag"}
    assert {each["iterations"] for each in found.values()} == {6}
    assert found[ENCRYPTED_ROWS]["revealed"] == found[ENCRYPTED_MODEL]["revealed"]
    assert "every iterate" in found[SECURE_AGGREGATION]["revealed"]
    # Whichever was asked for.
    for protocol in found:
        assert by_name(planned(f"--update nag --protocol {protocol}")) == found


def test_figures_are_those_of_each_protocols_own_forecast() -> None:
    found = foreseen(update="nag").comparison
    assert found is not None
    for way in found.ways:
        own = foreseen(update="nag", protocol=way.protocol)
        assert own.seconds is not None
        assert way.seconds == own.seconds
        assert way.num_bytes == sum(own.bytes_per_party.values())
        assert way.memory == own.memory["together"]


def test_a_barrier_is_gradient_descent_in_the_clear() -> None:
    found = by_name(planned("--update barrier"))
    assert [each["update"] for each in found.values()] == ["barrier", "barrier", "gd"]


def test_the_quadratic_gradient_runs_under_every_protocol() -> None:
    found = by_name(planned("--update quadratic-nag"))
    assert len(found) == 3 and not any("out" in each for each in found.values())


def test_what_a_protocol_does_not_take_is_said() -> None:
    found = by_name(planned("--update nag --cover 2"))
    assert "out" not in found[ENCRYPTED_ROWS] and "out" not in found[ENCRYPTED_MODEL]
    assert found[SECURE_AGGREGATION]["out"] == (
        "cover=2: nobody can stand in for an owner of secure-aggregation; leave it out"
    )
    told = CliRunner().invoke(app, ["plan", *SHAPE.split(), "--update", "nag", "--cover", "2"])
    assert "secure-aggregation: cover=2: nobody can stand in" in " ".join(told.stdout.split())


def test_the_line_enters_seconds() -> None:
    slow, fast = (by_name(planned(f"--update gd --bandwidth {b}")) for b in (1000, 10**6))
    far = by_name(planned("--update gd --bandwidth 1000000 --latency 50"))
    for name, near in fast.items():
        # Encrypted rows and sums have one layout; that of a model may follow the line.
        if name != ENCRYPTED_MODEL:
            for seconds, num_bytes in (
                ("seconds_per_iteration_line", "bytes_per_iteration"),
                ("total_seconds_line", "bytes_per_party"),
            ):
                more = slow[name][seconds] - near[seconds]
                assert more == pytest.approx(8 * near[num_bytes] * (1e-9 - 1e-12), rel=1e-6)
        trips = {ENCRYPTED_MODEL: 3, ENCRYPTED_ROWS: 2}.get(name, 1)
        for seconds, count in (
            ("seconds_per_iteration_line", trips),
            ("total_seconds_line", near["round_trips"]),
        ):
            assert far[name][seconds] - near[seconds] == pytest.approx(0.05 * count)
        for seconds in ("total_seconds", "seconds_per_iteration_path"):  # as a run states them
            assert far[name][seconds] == near[seconds]


def test_a_slow_line_takes_fewer_parts() -> None:
    slow, fast = (
        cast(ModelPlan, foreseen(10**6, update="gd", protocol=ENCRYPTED_MODEL, bandwidth=b).plan)
        for b in (1.0, 10**5)
    )
    assert slow.layout.num_parts < fast.layout.num_parts


def test_without_times_there_is_no_advice() -> None:
    found = planned("--update gd --no-timing")
    assert (found["recommended"], found["reason"]) == (None, "")
    for figure in ("total_seconds_line", "bytes_per_party", "party_memory_mb"):
        assert all(each[figure] is None for each in found["protocols"])


def test_other_models_have_no_other_protocol() -> None:
    words = "--rows 600 --features 5 --no-timing --model linear --no-privacy --json"
    done = CliRunner().invoke(app, ["plan", *words.split()])
    assert "comparison" not in json.loads(done.stdout)


# -- the advice ------------------------------------------------------------------------------------


def way(protocol: str, apart: float | None, **fields: Any) -> Way:
    """A run that takes so long."""
    timed = None
    if apart is not None:
        timed = Seconds(by_phase={"train": apart}, iteration=1, waiting=3, slowest=1, beside=0)
    return Way(protocol=protocol, seconds=timed, **fields)


def advised(rows: float | None, model: float | None, sums: float | None) -> Comparison:
    lasts = {ENCRYPTED_ROWS: rows, ENCRYPTED_MODEL: model, SECURE_AGGREGATION: sums}
    return Comparison(
        ways=tuple(way(n, t) if t else way(n, None, out="no") for n, t in lasts.items()),
        line=Line(),
    )


@pytest.mark.parametrize(
    ("seconds", "recommended", "words"),
    [
        ((100, 20, 1), ENCRYPTED_MODEL, "20.0 s against 100.0 s of encrypted-rows"),
        ((20, 100, 1), ENCRYPTED_ROWS, "20.0 s against 100.0 s of encrypted-model"),
        ((21, 20, 1), ENCRYPTED_ROWS, "as fast as 20.0 s of encrypted-model"),
        ((None, 20, 1), ENCRYPTED_MODEL, "secure-aggregation takes 1.0 s: owners stay online"),
        ((None, None, 1), SECURE_AGGREGATION, "every iterate is public"),
    ],
)
def test_the_fastest_that_hides_is_recommended(seconds: Any, recommended: str, words: str) -> None:
    found = advised(*seconds)
    assert found.recommended is not None
    assert found.recommended.protocol == recommended
    assert words in found.reason


def test_sums_are_named_where_they_are_much_faster() -> None:
    assert "secure-aggregation takes" in advised(100, 90, 29).reason
    assert "secure-aggregation" not in advised(100, 90, 31).reason
    assert advised(None, None, None).recommended is None


# -- who asks it -----------------------------------------------------------------------------------


def test_a_simulation_names_every_much_cheaper_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    from ciphercohort.planning import foresight

    lasts = {ENCRYPTED_ROWS: 100.0, ENCRYPTED_MODEL: 30.0, SECURE_AGGREGATION: 2.0}
    monkeypatch.setattr(
        foresight,
        "predict",
        lambda found, find: SimpleNamespace(costs=(lasts[found.template.protocol], 10**6)),
    )

    def told(protocol: str) -> list[str]:
        config = SimulationConfig(protocol=protocol, update="nag")
        found = foreseen(update="nag", protocol=protocol).calibration
        told_of = foresight.foresee(config, found)
        assert told_of is not None
        return [line for line in told_of.lines if "cheaper" in line]

    sums, model = told(ENCRYPTED_ROWS)
    assert "--protocol secure-aggregation --update nag takes about 2.0 s" in sums
    assert "--protocol encrypted-model --update nag takes about 30.0 s" in model
    assert "rows stay home" in model
    lasts |= {ENCRYPTED_ROWS: 9.0, ENCRYPTED_MODEL: 40.0, SECURE_AGGREGATION: 14.0}
    (rows,) = told(ENCRYPTED_MODEL)
    assert "--protocol encrypted-rows" in rows
    assert told(SECURE_AGGREGATION) == []


def test_nothing_is_foreseen_where_nothing_was_rehearsed() -> None:
    from ciphercohort.planning import foresight

    config = SimulationConfig(update="nag")
    assert foresight.foresee(config, foreseen(update="nag").calibration) is None


def test_a_budget_tries_all_three(monkeypatch: pytest.MonkeyPatch) -> None:
    from ciphercohort.planning import within

    tried = set[tuple[str, int | None]]()

    def calibrate(figures: Any, wanted: Any) -> Any:
        tried.add((wanted.protocol, wanted.degree))
        plan = SimpleNamespace(
            protocol=wanted.protocol, rounds=wanted.rounds, privacy=None, kind="rows",
            figures=lambda: {"update": "gd"},
        )  # fmt: skip
        return SimpleNamespace(template=plan, certificate=None, notes=())

    def costs(found: Any) -> tuple[float, int]:
        cheap = found.template.protocol == ENCRYPTED_MODEL
        return found.template.rounds * (1.0 if cheap else 10.0), 10**6

    monkeypatch.setattr(within, "calibrate", calibrate)
    monkeypatch.setattr(within, "expected_loss", lambda found, figures: 1 / found.template.rounds)
    figures = PublicFigures.even(rows=3000, features=5, parties=3)
    found = within.choose(configured(within="1m"), figures, costs, costs)
    assert tried == {
        *((name, degree) for name in (ENCRYPTED_ROWS, ENCRYPTED_MODEL) for degree in (None, 15)),
        (SECURE_AGGREGATION, None),
    }
    assert found.best.found.template.protocol == ENCRYPTED_MODEL
    assert found.best.found.template.rounds == 50


def test_two_runs_count_as_one() -> None:
    """Whitened rows: the run that sums their second moment comes on top."""
    config = configured("plan", epsilon=1.0, update="quadratic-gd")
    shape = PublicFigures.even(rows=30_000, features=10, parties=3)
    found = forecast(config, shape)
    assert found.calibration.first is not None and found.comparison is not None
    ways = {each.protocol: each for each in found.comparison.ways}
    lone = sum(found.bytes_per_party.values())
    assert ways[ENCRYPTED_ROWS].num_bytes > lone
    assert found.predicted is not None
    trips = found.predicted.trips[1]
    assert ways[ENCRYPTED_ROWS].trips[1] > trips
    twice = replace(ways[ENCRYPTED_ROWS], line=Line(latency=1.0))
    assert twice.apart - ways[ENCRYPTED_ROWS].apart > trips - 10
