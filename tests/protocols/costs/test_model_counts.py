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
from protocols.ckks import REFRESH_TOWERS
from protocols.ckks.circuits import periodic
from protocols.ckks.circuits.periodic import Way
from protocols.ckks.shared_keys import MemoryBudget
from protocols.costs.counts import cheapest_layout
from protocols.errors import ParameterError
from protocols.model import counts
from protocols.model.counts import iteration_cost
from protocols.model.plan import ModelPlan
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from tests.protocols.costs.test_counts import Spy

PARTIES, ROUNDS = 3, 5
OF_THE_POINT = ("raise", "hoisted")
"""Operations on the point, before any row."""


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
    predicted = dict(counts.party_tally(plan).of(groups))
    # Rotations of products are asked of the context, which the spies do not see.
    layout, last = plan.layout, plan.ckks.num_towers - REFRESH_TOWERS - 1
    sums, names = layout.sums, ("rotate", "gathered")
    first, back = (sum(predicted.pop((n, at), 0) for n in names) for at in (0, last))
    assert first == groups * (1 + len(layout.steps) + len(sums))
    assert back == layout.num_parts * (layout.rows_of_column - 1)
    turned = groups * sum(len(steps) - 1 for steps in sums)
    assert predicted.pop(("turned", 0), 0) == turned
    # The point's rotations are made once for all parties of the process.
    shared = {name: predicted.pop((name, 0), 0) for name in OF_THE_POINT}
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
    whole = counts.encoded_bytes(plan, rows)
    predicted = counts.party_tally(plan).of(plan.layout.groups_of(rows))
    every = sum(n for (name, _), n in predicted.items() if name == "encode")
    by_round = Counter[int]()
    for (index, _), n in encoded.items():
        by_round[index] += n
    first, *later = (by_round[index] for index in sorted(by_round))
    assert first == every
    held = sum(8 * plan.ckks.ring_dim * towers(plan, level) for *_, level in held_keys(kept))
    again = counts.encoded_again(plan, rows, 1 << 20)
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


def test_a_party_alone_has_all_the_room() -> None:
    """Ten parties of a process keep a tenth each, and encode the rest again; alone one does not."""
    plan = plan_of(2_000_000, 20, parties=10)
    assert 0 < counts.encoded_again(plan, 200_000, counts.CACHE // 10) < 1
    assert counts.encoded_again(plan, 200_000) == 0
    assert "keeps its rows encoded" in counts.cache_words(plan)
    assert "encodes the other" in counts.cache_words(plan, 1 << 27)


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
    chosen = cheapest_layout(plan, bandwidth)
    costs = {p.layout.num_parts: iteration_cost(p, bandwidth) for p in widths(plan)}
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
