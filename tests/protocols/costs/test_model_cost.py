"""Costs of an encrypted model: counts are those of a run, and layouts the cheapest of all."""

from __future__ import annotations

import gc
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from parties.kernel.model.clear_rows import ClearRows
from protocols.ckks.circuits import cost, periodic
from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.circuits.periodic import Way
from protocols.ckks.circuits.tally import OPERATIONS
from protocols.ckks.parameters import REFRESH_TOWERS, CkksParameters
from protocols.ckks.shared_keys import MemoryBudget
from protocols.costs import model_cost, planner
from protocols.errors import ParameterError
from protocols.model.plan import ModelPlan
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from tests.protocols.costs.test_planner import Spy, times

PARTIES, ROUNDS = 3, 5


def plan_of(
    rows: int, features: int, parties: int = PARTIES, update: str = "gd", **wanted: Any
) -> ModelPlan:
    """A template, at 128 bits unless it says otherwise; nothing is encrypted here."""
    figures = PublicFigures.even(rows=rows, features=features, parties=parties)
    asked = {"rounds": ROUNDS, "degree": 7, "update": update, **wanted}
    found = calibrate(figures, Wanted(protocol="encrypted-model", **asked)).template
    assert isinstance(found, ModelPlan)
    return found


def widths(plan: ModelPlan) -> list[ModelPlan]:
    """Every layout there is."""
    found = []
    for k in range(1, 20):
        with suppress(ParameterError):
            found.append(replace(plan, features_per_ciphertext=2**k))
    return found


# -- operations ------------------------------------------------------------------------------------


@pytest.fixture(
    scope="module",
    params=[
        (512, 4, Way(columns=1, rows=1, turns=2)),
        (512, 8, Way(columns=1, rows=2, turns=1)),
        (512, 16, Way(columns=1, rows=4, turns=2)),
        (1024, 16, Way(columns=2, rows=1, turns=1)),
    ],
)
def whole(request: pytest.FixtureRequest) -> Any:
    """A run on an INSECURE ring whose parties have several groups of rows and room for some.

    Its plan; what OpenFHE was asked of all parties' gradients, round by round, and of the points;
    how often a party's rows were encoded; what it kept.
    """
    from ciphercohort.job.config import SimulationConfig
    from sims.simulation import simulate

    rounds, encoded, kept = list[Counter[Any]](), Counter[Any](), list[ClearRows]()
    points, rotated = list[Counter[Any]](), ClearRows.rotated
    init, encode, gradient = ClearRows.__init__, ClearRows._encode, ClearRows.gradient

    class Spied:
        """A context whose own operations are not seen."""

        def __init__(self, context: Any) -> None:
            self.unseen, self.cc = context, Spy(context.cc)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.unseen, name)

    def spied(self: Any, weights: Any) -> Any:
        context = Spied(self._context)
        rounds.append(context.cc.counts)
        with patch.object(self, "_context", context):
            return gradient(self, weights)

    def watched(self: Any, weights: Any) -> Any:
        spy = Spy(self._context.cc)
        points.append(spy.counts)
        with patch.object(self._context, "cc", spy):
            return rotated(self, weights)

    def first(self: Any, *args: Any, **terms: Any) -> None:
        init(self, *args, **terms)
        kept.append(self)

    def counted(self: Any, slots: Any, level: int) -> Any:
        if self is kept[0]:
            encoded[len(rounds) // PARTIES, level] += 1
        own = getattr(self._context, "unseen", self._context)
        with patch.object(self, "_context", own):
            return encode(self, slots, level)

    ring, width, way = request.param

    def fixed(plan: Any, *_: Any) -> Any:
        return replace(plan, features_per_ciphertext=width)

    room = MemoryBudget(PARTIES << 20)
    config = SimulationConfig(
        seed=1, protocol="encrypted-model", update="gd", rounds=ROUNDS, profile="fast-insecure",
        ring_dim=ring, degree=3,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ClearRows, "gradient", spied)
        patched.setattr(ClearRows, "__init__", first)
        patched.setattr(ClearRows, "_encode", counted)
        patched.setattr(ClearRows, "rotated", watched)
        patched.setattr("protocols.privacy.calibrate.rows.cheapest_layout", fixed)
        patched.setattr("protocols.ckks.shared_keys.ENCODED_ROWS", room)
        patched.setattr(periodic, "_cheapest", lambda *_: way)
        result = simulate(config)
    return way, (result.plan, (rounds, points), encoded, kept[0])


@pytest.fixture
def run(whole: Any) -> Any:
    """What `whole` has seen, while plans have its layout."""
    way, seen = whole
    with patch.object(periodic, "_cheapest", lambda *_: way):
        yield seen


def test_a_partys_operations_are_those_of_a_run(run: Any) -> None:
    plan, (rounds, points), _, _ = run
    groups = plan.layout.groups_of(plan.members[0].rows)
    assert groups > 1
    assert len(rounds) == PARTIES * (ROUNDS - 1)
    predicted = dict(model_cost.party_tally(plan).of(groups))
    # Rotations of products are asked of the context, which the spies do not see.
    layout, last = plan.layout, plan.ckks.num_towers - REFRESH_TOWERS - 1
    sums, names = layout.sums, ("rotate", "gathered")
    first, back = (sum(predicted.pop((n, at), 0) for n in names) for at in (0, last))
    assert first == groups * (1 + len(layout.steps) + len(sums))
    assert back == layout.num_parts * (layout.rows_of_column - 1)
    turned = groups * sum(len(steps) - 1 for steps in sums)
    assert predicted.pop(("turned", 0), 0) == turned
    # The point's rotations are made once for all parties of the process.
    shared = {name: predicted.pop((name, 0), 0) for name in model_cost.OF_THE_POINT}
    assert (shared["hoisted"] > 0) == (plan.layout.turns > 1)
    assert len(points) == ROUNDS - 1
    for counted in points:
        assert {name: counted[name, 0] for name in shared} == shared
    for counted in rounds:
        compared = {key for key in {*predicted, *counted} if key[0] not in ("encode", "scalar")}
        assert {key: counted[key] for key in compared} == {
            key: predicted.get(key, 0) for key in compared
        }
    plain = sum(n for (name, _), n in predicted.items() if name == "plain")
    assert plain == sum(n for (name, _), n in predicted.items() if name == "encode")


def test_rows_without_room_are_encoded_again(run: Any) -> None:
    """As often as the plan says, to within one group's plaintexts."""
    plan, _, encoded, kept = run
    rows = plan.members[0].rows
    whole = model_cost.encoded_bytes(plan, rows)
    predicted = model_cost.party_tally(plan).of(plan.layout.groups_of(rows))
    every = sum(n for (name, _), n in predicted.items() if name == "encode")
    by_round = Counter[int]()
    for (index, _), n in encoded.items():
        by_round[index] += n
    first, *later = (by_round[index] for index in sorted(by_round))
    assert first == every
    held = sum(8 * plan.ckks.ring_dim * towers(plan, level) for *_, level in held_keys(kept))
    again = model_cost.encoded_again(plan, rows, 1 << 20)
    assert held <= 1 << 20
    assert held == pytest.approx(min(1 << 20, whole), rel=0.06)
    for count in later:
        assert count == pytest.approx(again * every, abs=every / 8)
    assert bool(later) is (again > 0)


def towers(plan: ModelPlan, level: int) -> int:
    return plan.ckks.num_towers - level


def held_keys(rows: ClearRows) -> list[tuple[Any, int]]:
    last = rows._last_level
    return [(key, last if key[-1] else 0) for key in rows._encoded]


# -- seconds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("update", ["gd", "nag", "barrier"])
def test_seconds_are_counts_times_unit_times(update: str) -> None:
    plan = plan_of(60_000, 20, update=update)
    parts, shares = plan.layout.num_parts, sum(plan.refreshes)
    free = replace(times(plan.ckks), operations=dict.fromkeys(OPERATIONS, (0.0,)))
    replies = PARTIES * ROUNDS * parts
    for name, amount in {
        "trace_share": PARTIES * shares,
        "trace_join": shares,
        "fresh_reply": replies,
        "pad": replies * (PARTIES - 1),
        # Parties of what they multiply, the coordinator of its state and of what it adds to sums.
        "read": (ROUNDS - 1) + 2 * ROUNDS,
        "load": 2 * parts * (towers(plan, 0) * (ROUNDS - 1) + (towers(plan, 0) + 3) * ROUNDS),
    }.items():
        one: Any = {name: 1.0}
        found = planner.seconds(plan, replace(free, **one))
        assert found.total == pytest.approx(amount), name
    rows = plan.members[0].rows
    party = model_cost.party_tally(plan).of(plan.layout.groups_of(rows))
    course = planner.iterations(plan)
    for name in OPERATIONS:
        only = replace(free, operations={**free.operations, name: (1.0,)})
        own = sum(n for (operation, _), n in party.items() if operation == name)
        # Encoded rows are kept.
        made = 1 if name == "encode" else ROUNDS - 1
        sharers = 1 if name in model_cost.OF_THE_POINT else PARTIES
        expected = sharers * made * own + sum(each.total(name) for each in course)
        found = planner.seconds(plan, only)
        assert found.total == pytest.approx(expected), name
        middle = course[ROUNDS // 2].total(name)
        assert found.iteration == middle
        assert found.slowest == (0 if name == "encode" else own)
        assert found.waiting == pytest.approx(sharers * found.slowest)


def test_the_slowest_path_is_one_partys() -> None:
    """Of uneven parties the largest; of the run, everything but what the others do meanwhile."""
    plan = plan_of(60_000, 20)
    rows = (50_000, 5_000, 5_000)
    members = tuple(replace(m, rows=n) for m, n in zip(plan.members, rows, strict=True))
    plan = replace(plan, members=members)
    free = replace(times(plan.ckks), operations=dict.fromkeys(OPERATIONS, (0.0,)))
    found = planner.seconds(plan, replace(free, operations={**free.operations, "plain": (1.0,)}))
    by_party = [
        sum(
            n
            for (name, _), n in model_cost.party_tally(plan).of(plan.layout.groups_of(m)).items()
            if name == "plain"
        )
        for m in rows
    ]
    assert by_party[0] > 3 * by_party[1]
    assert (found.slowest, found.waiting) == (by_party[0], sum(by_party))
    assert found.total - found.beside == (ROUNDS - 1) * by_party[0]
    assert (found.path, found.everybody) == (by_party[0], sum(by_party))


def test_a_party_alone_has_all_the_room() -> None:
    """Ten parties of a process keep a tenth each, and encode the rest again; alone one does not."""
    plan = plan_of(2_000_000, 20, parties=10)
    assert 0 < model_cost.encoded_again(plan, 200_000, model_cost.CACHE // 10) < 1
    assert model_cost.encoded_again(plan, 200_000) == 0
    free = replace(times(plan.ckks), operations=dict.fromkeys(OPERATIONS, (0.0,)))
    found = planner.seconds(plan, replace(free, operations={**free.operations, "encode": (1.0,)}))
    assert found.slowest == 0 < found.waiting
    assert "keeps its rows encoded" in model_cost.cache_words(plan)
    assert "encodes the other" in model_cost.cache_words(plan, 1 << 27)


# -- memory ----------------------------------------------------------------------------------------


def test_parties_of_a_process_share_its_room() -> None:
    class Party:
        pass

    room, parties = MemoryBudget(1200), [Party() for _ in range(3)]
    assert room.share == 1200
    for party in parties:
        room.enter(party)
        room.enter(party)
    assert room.share == 400
    room.leave(parties[0])
    room.leave(parties[0])
    assert room.share == 600
    del parties[1], party
    gc.collect()
    assert room.share == 1200


def test_a_million_rows_fit_in_one_process() -> None:
    plan = plan_of(1_000_000, 20, parties=10)
    assert planner.memory_together(plan) < 4e9
    # Rows alone are 168 MB, encoded 2.6 GB: a round encodes few of them again.
    assert planner.memory_together(plan) > 2.6e9
    assert 0 < model_cost.encoded_again(plan, 100_000, model_cost.CACHE // 10) < 0.1
    assert planner.memory(plan)["party"] < planner.memory_together(plan)


def test_two_hundred_parties_fit_in_one_process() -> None:
    plan = plan_of(20_000, 20, parties=200)
    assert planner.memory_together(plan) < 6e9


# -- the cheapest layout ---------------------------------------------------------------------------

SHAPES = [
    (12_000, 50, 3),
    (1253, 9, 3),
    (1_000_000, 20, 10),
    (20_000, 20, 200),
    (1000, 200, 3),
    (5, 1, 2),
]


@pytest.mark.parametrize("bandwidth", [1e7, 1e9])
@pytest.mark.parametrize(("rows", "features", "parties"), SHAPES)
def test_no_other_layout_is_cheaper(
    rows: int, features: int, parties: int, bandwidth: float
) -> None:
    plan = plan_of(rows, features, parties)
    chosen = planner.cheapest_layout(plan, bandwidth)
    costs = {p.layout.num_parts: model_cost.iteration_cost(p, bandwidth) for p in widths(plan)}
    least = min(costs.values())
    good = [parts for parts, spent in costs.items() if spent <= 1.02 * least]
    assert chosen.layout.num_parts == min(good)


def test_large_tables_take_several_parts_and_many_parties_one() -> None:
    def parts(rows: int, features: int, parties: int = PARTIES, **more: Any) -> int:
        return int(plan_of(rows, features, parties, **more).layout.num_parts)

    assert parts(1_000_000, 20, 10) > 1
    assert parts(20_000, 20, 200) == 1
    assert parts(300, 20) == 1
    # At 10 Mbit/s bytes decide.
    assert parts(1_000_000, 20, 10, bandwidth=10.0) == 1


def test_bytes_of_a_slow_line_are_seconds() -> None:
    plan = plan_of(100_000, 20)
    fast, slow = (model_cost.iteration_cost(plan, bandwidth) for bandwidth in (1e9, 1e6))
    assert slow - fast == pytest.approx(8 * planner.iteration_bytes(plan) * (1e-6 - 1e-9))
    line = planner.Line(bandwidth=1e6, latency=0.02)
    assert line.seconds(10**6, 3) == pytest.approx(8.06)
    assert planner.trips(plan)[0] == 3
    assert planner.Line().seconds(10**9, 10**3) == 0


# -- unit times ------------------------------------------------------------------------------------


def test_unit_times_of_the_model_are_measured_and_carried_over() -> None:
    params = CkksParameters(ring_dim=1024, depth=6, security_bits=0)
    found = cost.measure(params)
    names = ("load", "trace_share", "trace_join", "subring", "fresh_reply", "pad")
    assert min(getattr(found, name) for name in names[1:]) > 0
    wide = found.scaled(params, choose_parameters(5))
    by_row, by_towers = 32, 32 * 8 / 7
    factors = dict(zip(names, (by_row, by_towers, by_towers, 1, by_row, 1), strict=True))
    for name, factor in factors.items():
        assert getattr(wide, name) == pytest.approx(factor * getattr(found, name))
