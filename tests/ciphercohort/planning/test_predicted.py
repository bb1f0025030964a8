"""Predictions beside executed runs: bytes and steps are the same, seconds are carried by counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.job.config import configured
from ciphercohort.job.layout import RELEASE, SECOND_MOMENT, TRANSCRIPT
from ciphercohort.planning import rehearsed as cache
from ciphercohort.planning.predicted import Line, Predicted, like
from ciphercohort.planning.rehearsed import Rehearsal, fingerprint, rehearsed, shortened
from coordinator.replay import evidence
from protocols.costs.counts import iterations, units
from protocols.errors import ParameterError
from protocols.names import COORDINATOR
from protocols.plan.protocol import FINISH
from protocols.plan.run_plan import RunPlan
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures
from sims.rehearsal import rehearse
from sims.simulation import simulate
from tests.support.rehearsals import LASTS, made_up

MODEL, SUMS = {"protocol": "encrypted-model"}, {"protocol": "secure-aggregation"}
KINDS: dict[str, dict[str, Any]] = {
    "rows": {"update": "nag", "iterations": 11, "parties": 5, "no_privacy": True},
    "rows-private": {"update": "barrier", "iterations": 3, "parties": 2, "epsilon": 3.0},
    "rows-whitened": {"update": "quadratic-gd", "iterations": 6, "epsilon": 3.0},
    "curvature": {"update": "quadratic-nag", "iterations": 6, "parties": 4, "no_privacy": True},
    "cover": {"update": "gd", "iterations": 5, "parties": 5, "cover": 3, "no_privacy": True},
    "gram": {"model": "linear", "iterations": 20, "no_privacy": True},
    "gram-private": {"model": "linear", "iterations": 4, "epsilon": 5.0},
    "lffr": {"model": "lffr", "iterations": 6, "parties": 2, "no_privacy": True},
    "lffr-private": {"model": "lffr", "iterations": 5, "epsilon": 5.0},
    "model": {**MODEL, "update": "nag", "iterations": 11, "parties": 5, "no_privacy": True},
    "model-private": {**MODEL, "update": "barrier", "iterations": 3, "epsilon": 3.0},
    "batches": {**MODEL, "update": "gd", "iterations": 5, "batches": 2, "no_privacy": True},
    "sums": {**SUMS, "update": "nag", "iterations": 21, "epsilon": 2.0},
    "sums-many": {**SUMS, "update": "gd", "iterations": 3, "parties": 15, "no_privacy": True},
    "sums-curvature": {**SUMS, "update": "quadratic-gd", "iterations": 3, "epsilon": 2.0},
    "dual": {**SUMS, "update": "scd", "iterations": 20, "epsilon": 2.0},
}
WEIGHT = 24
"""Digits of a released weight, at most: the one text whose length no plan says."""


def table(rows: int) -> pd.DataFrame:
    x = np.random.default_rng(3).uniform(-1, 1, (rows, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    return frame.assign(y=x @ [1.0, 2.0, -1.0], z=(x.sum(axis=1) > 0).astype(int))


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[tuple[Any, Path]]:
    """A run on an INSECURE ring, and its folder."""
    options = dict(KINDS[request.param])
    if options.get("protocol") != SUMS["protocol"]:
        options |= {"profile": "fast-insecure", "ring_dim": 512}
    out = tmp_path_factory.mktemp("run") / "out"
    frame = table(3000 if "batches" in options else 240)
    named = {"target": "y", "exclude": "z"} if "model" in options else {"label": "z"}
    named |= {} if "model" in options else {"exclude": "y"}
    yield simulate(configured(data=frame, seed=1, out=out, **named, **options)), out / RELEASE


def test_bytes_and_steps_are_those_of_a_run(run: tuple[Any, Path]) -> None:
    result, release = run
    before = None
    if (release / SECOND_MOMENT).exists():
        first = evidence(release / SECOND_MOMENT).plan
        before = Predicted(first, rehearse(shortened(first), apart=False))
    played = rehearse(shortened(result.plan), apart=False)
    found = Predicted(result.plan, played, before)
    lines = [json.loads(line) for line in (release / TRANSCRIPT).read_text().splitlines()]
    assert tuple(found.steps) == tuple(dict.fromkeys(each["step"] for each in lines))
    plans = [found] if before is None else [before, found]
    measured = result.costs.bytes_per_party
    for phase, size in measured.items():
        text = WEIGHT * (result.weights.size + 20) * len(plans) if phase == "decrypt" else 0
        predicted = sum(each.bytes_per_party[phase] for each in plans)
        assert abs(predicted - size) <= text, phase
    assert sum(measured.values()) == pytest.approx(found.costs[1], abs=2000)
    sent = Counter[str]()
    for each in lines:
        if each["recipient"] == COORDINATOR and each["step"] != FINISH:
            sent[each["sender"]] += each["bytes"]
    relayed = sum(sent.values()) - min(sent.values())
    assert found.replica[1] == pytest.approx(relayed, abs=2000) and found.replica[0] > 0
    assert found.memory["together"] >= found.rehearsal.loaded > 0


# -- carried over ----------------------------------------------------------------------------------


def plan_of(rows: int = 900, parties: int = 3, features: int = 5, **options: Any) -> RunPlan:
    given = {"update": "nag", "iterations": 9, "no_privacy": True, **options}
    if given.get("protocol") != SUMS["protocol"]:
        given |= {"profile": "fast-insecure"}
    figures = PublicFigures.even(rows=rows, features=features, parties=parties)
    return calibrate(figures, configured("plan", parties=parties, **given).wanted()).template


def changed(found: Rehearsal, step: str, **fields: Any) -> Rehearsal:
    trips = tuple(
        replace(trip, **fields) if trip.step.partition("/")[0] == step else trip
        for trip in found.trips
    )
    return replace(found, trips=trips)


@pytest.mark.parametrize("options", [{}, MODEL, SUMS, {"update": "quadratic-nag"}], ids=str)
def test_seconds_of_a_steady_machine_are_counts(options: dict[str, Any]) -> None:
    """Its own rounds, parties and rows, times a millisecond."""
    plan = plan_of(parties=7, **options)
    found = Predicted(plan, made_up(plan))
    steps = len(found.steps)
    parties = sum(
        found._carries(name, party) / (found._carries(trip.step, 0, was_played=True) or 1)
        for name, trip in found.steps.items()
        for party in range(7)
        if trip
    )
    assert found.seconds.total >= LASTS * steps
    if not isinstance(options.get("protocol"), str):
        work = sum(name.startswith("commit-refresh") for name in found.steps)
        own = steps + work * (found._work - 1)
        assert found.seconds.total == pytest.approx(LASTS * (own + parties))
    assert found.trips[1] == steps
    # One party after the other, or one alone.
    assert found.seconds.waiting == pytest.approx(7 * found.seconds.slowest)
    assert found.seconds.path + found.seconds.hidden == pytest.approx(
        found.seconds.iteration + found.seconds.slowest
    )
    assert 0 < found.seconds.beside < found.seconds.total


def test_each_role_counts_where_it_works() -> None:
    plan = plan_of(parties=5)
    made = made_up(plan)
    free = replace(
        made,
        trips=tuple(replace(t, own=0.0, waits=(0.0,) * 3, reading=0.0) for t in made.trips),
    )

    def seconds(step: str, **fields: Any) -> Any:
        return Predicted(plan, changed(free, step, **fields)).seconds

    first = seconds("refresh", waits=(4.0, 1.0, 3.0))
    # The first of a process makes what all share: 4, then 1 for each of four others; alone 3.
    assert (first.waiting, first.slowest) == (8.0, 3.0)
    assert first.by_phase["refresh"] == 9 * 8.0 == first.total
    assert seconds("refresh", own=1.0).by_phase["train"] == 9.0
    read = seconds("refresh", reading=1.0)
    assert (read.iteration, read.by_phase["refresh"]) == (5.0, 45.0)
    assert seconds("decrypt", waits=(1.0,) * 3).by_phase["decrypt"] == 5.0


def test_the_circuit_grows_with_its_operations() -> None:
    """Rows are rehearsed as many as there are; a rehearsal of fewer is carried over."""
    few, many = plan_of(2_000, features=20), plan_of(40_000, features=20)
    rows = few.num_rows
    assert rows <= shortened(few).num_rows < rows + 3
    found = Predicted(many, made_up(few))
    work = [
        units(iterations(p)[p.rounds // 2].operations, p.ckks)  # type: ignore[arg-type, attr-defined]
        for p in (many, found.played)
    ]
    assert found._work == work[0] / work[1] > 5
    assert found.seconds.iteration == pytest.approx(LASTS * (1 + found._work))


def test_gradients_of_uneven_parties_count_by_their_rows() -> None:
    plan = plan_of(60_000, **MODEL)
    rows = (50_000, 5_000, 5_000)
    members = tuple(replace(m, rows=n) for m, n in zip(plan.members, rows, strict=True))
    uneven = replace(plan, members=members)
    found = Predicted(uneven, made_up(uneven))._gradients
    assert found[0] == 1 and found[1] == found[2] < 0.3


def test_memory_grows_with_the_parties() -> None:
    small, large = (plan_of(parties=parties) for parties in (2, 50))
    few, many = (Predicted(plan, made_up(plan)).memory for plan in (small, large))
    assert few["party"] == many["party"] < few["together"] < many["together"]


def test_a_line_takes_bytes_and_trips() -> None:
    assert Line(bandwidth=1e6, latency=0.02).seconds(10**6, 3) == pytest.approx(8.06)
    assert Line().seconds(10**9, 10**3) == 0


# -- what is rehearsed -----------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [2, 3, 9])
@pytest.mark.parametrize("options", [{}, MODEL, SUMS], ids=str)
def test_a_rehearsal_is_short(options: dict[str, Any], parties: int) -> None:
    plan = plan_of(parties=parties, iterations=50, **options)
    short = shortened(plan)
    assert short.rounds <= 12
    assert 3 <= len(short.members) <= max(3, parties)
    assert short.num_features == plan.num_features
    # However many rounds the plan has.
    assert fingerprint(short) == fingerprint(
        shortened(plan_of(parties=parties, iterations=60, **options))
    )
    assert fingerprint(short) != fingerprint(
        shortened(plan_of(parties=parties, features=6, iterations=50, **options))
    )


def test_a_rehearsal_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own; not of a busy machine; a cache that cannot be read is no error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = plan_of(**SUMS)
    monkeypatch.setattr(cache, "busy", lambda: True)
    first = rehearsed(plan)
    assert first.apart and first.alone > 0 < first.loaded <= first.together
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(cache, "busy", lambda: False)
    monkeypatch.setattr(cache, "_play", lambda short, told: first)
    assert rehearsed(plan) == first
    (path,) = tmp_path.glob("ciphercohort/rehearsal-*.json")
    other = replace(first, loaded=1)
    monkeypatch.setattr(cache, "_play", lambda short, told: other)
    assert rehearsed(plan) == first
    assert rehearsed(plan, again=True) == other == rehearsed(plan)
    for broken in ("[", "{}"):
        path.write_text(broken)
        assert rehearsed(plan) == other


def test_what_cannot_be_played_says_why() -> None:
    broken: Any = SimpleNamespace(to_dict=lambda: {"protocol": "no-such"})
    with pytest.raises(ParameterError, match="(?s)ended early: .*version None"):
        cache._play(broken, False)


def test_settings_that_are_compared_share_one_rehearsal(quick_machine: None) -> None:
    find, plan = like(), plan_of()
    first = find(plan)
    assert first is not None
    assert find(plan_of(degree=15)) is first
    assert find(plan_of(**MODEL)) is not first
