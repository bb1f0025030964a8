"""Predicted bytes and operations are those of real runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from protocols.ckks.circuits import cost, evaluator
from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.circuits.rows import REFRESH_LEVEL
from protocols.ckks.circuits.tally import OPERATIONS
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.parameters import CkksParameters
from protocols.costs import planner, traffic
from protocols.exchange.serialise import to_plain
from protocols.updates.update import Update
from tests.protocols.rows.test_encrypted_equals_plain import quadratic
from tests.support import helpers
from tests.support.helpers import NOISE, make_plan, make_rule, make_session

QUADRATIC = "quadratic-nag"
RULES = ("gd", "nag", "barrier-2", "ridge", QUADRATIC)


@pytest.fixture(autouse=True)
def quadratic_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule with an encrypted preconditioner beside those that the helpers know."""

    def rule_of(update: str, rounds: int) -> Update:
        return quadratic(5, rounds) if update == QUADRATIC else make_rule(update, rounds)

    monkeypatch.setattr(helpers, "make_rule", rule_of)


@pytest.mark.parametrize(("depth", "digits"), [(6, 1), (6, 2), (7, 3), (8, 3), (9, 4)])
def test_evaluation_keys_have_the_predicted_size(depth: int, digits: int) -> None:
    params = CkksParameters(ring_dim=1024, depth=depth, num_digits=digits, security_bits=0)
    assert params.key_rows == len(CkksContext(params, "rows").key_primes)


NAMES = {
    "EvalFastRotationPrecompute": "raise",
    "EvalFastRotationExt": "hoisted",
    "Rescale": "rescale",
    "Relinearize": "relinearise",
    "EvalMultNoRelin": "tensor",
    "RescaleInPlace": "rescale",
    "EvalAdd": "add",
    "EvalAddInPlace": "add",
    "EvalSub": "add",
}


class Spy:
    """Counts what a real run asks of OpenFHE."""

    def __init__(self, cc: Any) -> None:
        self._cc, self.counts = cc, Counter[tuple[str, int]]()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cc, name)

        def counted(*args: Any) -> Any:
            if name == "EvalMultNoRelin" and args[1].NumberCiphertextElements() == 1:
                self.counts["plain", args[0].GetLevel()] += 1
            elif name in NAMES:
                self.counts[NAMES[name], args[0].GetLevel()] += 1
            if name == "EvalSquare" or (name == "EvalMult" and hasattr(args[1], "GetKeyTag")):
                self.counts["tensor", args[0].GetLevel()] += 1
                self.counts["relinearise", args[0].GetLevel()] += 1
            return method(*args)

        return counted


def spy_on_rotations(context: Any, spy: Spy) -> None:
    """What the context is asked for, and OpenFHE in several steps."""
    rotated, gathered = context.rotated, context.gathered

    def counted(ct: Any, *rest: Any) -> Any:
        spy.counts["rotate", ct.GetLevel()] += 1
        return rotated(ct, *rest)

    def added(first: Any, turned: Any) -> Any:
        for k, (_, ct) in enumerate(turned):
            kind = "rotate" if k == 0 else "turned" if ct is turned[k - 1][1] else "gathered"
            spy.counts[kind, ct.GetLevel()] += 1
        return gathered(first, turned)

    context.rotated, context.gathered = counted, added


@contextmanager
def spies() -> Iterator[list[Spy]]:
    """One for each evaluator on OpenFHE that is made meanwhile."""
    found: list[Spy] = []
    build = evaluator.Evaluator.__init__

    def spied(self: Any, context: Any, layout: Any) -> None:
        build(self, context, layout)
        if isinstance(context, CkksContext):
            self.cc = Spy(context.cc)
            found.append(self.cc)
            if len(found) == 1:
                spy_on_rotations(context, self.cc)

    with patch.object(evaluator.Evaluator, "__init__", spied):
        yield found


def check_operations(counted: Counter[Any], total: Counter[Any], least: int) -> None:
    """Of more than `least` kinds and levels; the spy cannot tell masks from scalars."""
    compared = {key for key in {*total, *counted} if key[0] not in ("encode", "plain", "scalar")}
    assert len(compared) > least
    assert {key: counted[key] for key in compared} == {key: total[key] for key in compared}


@pytest.mark.parametrize(
    ("parties", "rows", "features", "rounds", "degree", "update", "width"),
    [
        (2, 20, 3, 1, 3, "gd", None),
        (3, [5, 600, 40], 5, 3, 5, "nag", 2),
        (5, 40, 17, 2, 7, "barrier-2", None),
        (2, 300, 30, 6, 7, "ridge", 8),
        (2, 150, 4, 6, 3, QUADRATIC, 1),
        (2, 150, 4, 6, 7, QUADRATIC, 4),
    ],
)
def test_bytes_and_operations_are_those_of_a_run(
    parties: int, rows: Any, features: int, rounds: int, degree: int, update: str, width: int | None
) -> None:
    privacy = None if update == QUADRATIC else NOISE
    shape: dict[str, Any] = {"ring_dim": 1024, "features_per_ciphertext": width}
    with spies() as found:
        session = make_session(
            parties, rows, features, rounds, degree, update, privacy=privacy, **shape
        )
        session.run()
    plan, costs = session.plan, session.coordinator.costs
    assert plan is not None
    predicted = traffic.bytes_per_party(plan)
    for phase, measured in costs.bytes_per_party.items():
        # Only weights and seeds as text have another length: 2 % of a phase without residues.
        assert abs(predicted[phase] - measured) <= (0.02 if phase == "agree" else 1e-3) * measured
    for name, by_phase in traffic.bytes_by_party(plan).items():
        assert by_phase["encrypt"] == costs.traffic["encrypt"][name]
        assert by_phase["keys"] == costs.traffic["keys"][name]
    total = Counter(planner.inversion(plan))
    for iteration in planner.iterations(plan):
        total.update(iteration.operations)
    # The released vector's sum is no part of an iteration.
    total.update({("add", REFRESH_LEVEL): plan.layout.num_parts - 1})
    check_operations(found[0].counts, total, 5)


def times(params: CkksParameters) -> cost.UnitTimes:
    names = [f for f in cost.UnitTimes.__dataclass_fields__ if f != "operations"]
    return cost.UnitTimes(
        operations=dict.fromkeys(OPERATIONS, (1.0,) * params.depth), **dict.fromkeys(names, 0.0)
    )


@pytest.mark.parametrize("update", RULES)
def test_seconds_are_counts_times_unit_times(update: str) -> None:
    plan = make_plan(rounds=5, update=update)
    predicted = planner.seconds(plan, times(plan.ckks))
    course = planner.iterations(plan)
    before = sum(planner.inversion(plan).values())
    assert (before > 0) is (update == QUADRATIC)
    assert predicted.by_phase["train"] == before + sum(i.total(*OPERATIONS) for i in course)
    assert predicted.iteration == course[2].total(*OPERATIONS)
    assert predicted.by_phase["refresh"] == 0


@pytest.mark.parametrize("update", RULES)
def test_refreshes_cost_what_the_plans_maps_say(update: str) -> None:
    """A unit time of 1 for maps, 1000 for readings, 10^6 without a map; parties and coordinator."""
    plan = make_plan(rows=(30, 30), rounds=6, update=update, features_per_ciphertext=2)
    free = replace(times(plan.ckks), operations=dict.fromkeys(OPERATIONS, (0.0,)))
    joining = replace(free, map_join=1.0, read=1e3, refresh_join=1e6)
    maps = [plan.column_maps(step) for step in range(len(plan.refreshes))]
    through = [None not in step for step in maps]
    assert all(mapped or set(step) == {None} for step, mapped in zip(maps, through, strict=True))
    each = sum(
        len(step) * (1 if mapped else 1e6) for step, mapped in zip(maps, through, strict=True)
    )
    joins = each + 1e3 * (len(maps) + sum(through))
    # Each of two parties reads once a step, and so does the wait for the slower one; what they have
    # encrypted is read one by one.
    joins += 1e3 * (2 * len(maps) + traffic.num_ciphertexts(plan))
    found = planner.seconds(plan, joining)
    middle = len(maps[planner.refresh_after(plan, 3)])
    assert (found.total, found.iteration) == (joins, middle + 2e3)
    found = planner.seconds(plan, replace(free, map_share=1.0, refresh_share=1e6))
    assert (found.total, found.waiting, found.iteration) == (2 * each, 2 * middle, 0)


def test_memory_grows_with_keys_and_parties() -> None:
    small, large = make_plan(rows=(20,) * 2), make_plan(rows=(20,) * 8)
    assert planner.memory(small)["coordinator"] < planner.memory(large)["coordinator"]
    secure = replace(small, ckks=choose_parameters(5), profile="secure")
    assert planner.memory(secure)["coordinator"] > 4e8


TINY = CkksParameters(ring_dim=512, depth=6, security_bits=0)


def test_times_are_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on a busy machine; a cache that cannot be read or written is no error."""
    monkeypatch.setattr(cost, "busy", lambda: True)
    assert cost.unit_times(TINY, tmp_path).setup > 0
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(cost, "busy", lambda: False)
    first = cost.unit_times(TINY, tmp_path)
    (file,) = tmp_path.glob("timing-*.json")
    assert cost.unit_times(TINY, tmp_path) == first
    assert all(len(first.operations[name]) == TINY.depth for name in OPERATIONS)
    assert min(value for value in to_plain(first).values() if isinstance(value, float)) > 0
    plain = to_plain(first)
    for broken in ("[", json.dumps(plain | {"operations": {}})):
        file.write_text(broken)
        assert cost.unit_times(TINY, tmp_path).operations.keys() == set(OPERATIONS)
        assert json.loads(file.read_text())["operations"].keys() == set(OPERATIONS)
    assert cost.unit_times(TINY, file / "folder").setup > 0
    assert cost.fingerprint(TINY) != cost.fingerprint(replace(TINY, depth=7))


# -- every kind of plan ----------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "gram": {"model": "linear", "rounds": 9, "epsilon": None},
    "gram-private": {"model": "linear", "rounds": 4, "epsilon": 5.0},
    "lffr": {"model": "lffr", "rounds": 3, "epsilon": None},
    "lffr-private": {"model": "lffr", "rounds": 3, "epsilon": 5.0},
    "model": {"protocol": "encrypted-model", "update": "nag", "rounds": 6, "epsilon": None},
    "model-barrier": {"protocol": "encrypted-model", "update": "barrier", "rounds": 3}
    | {"epsilon": None},
    "sums": {"protocol": "secure-aggregation", "update": "nag", "rounds": 5, "epsilon": 2.0},
    "sums-curvature": {"protocol": "secure-aggregation", "update": "quadratic-gd", "rounds": 3},
}


@pytest.fixture(scope="module")
def runs() -> dict[str, tuple[Any, Counter[Any]]]:
    """A run of each kind, and what its circuit asked of OpenFHE; rings are INSECURE."""
    from ciphercohort.job.config import SimulationConfig
    from sims.simulation import simulate

    found: dict[str, tuple[Any, Counter[Any]]] = {}
    for name, options in KINDS.items():
        if options.get("protocol") != "secure-aggregation":
            options = {**options, "profile": "fast-insecure"}
        with spies() as watched:
            result = simulate(SimulationConfig(seed=1, **options))
        found[name] = result, watched[0].counts if watched else Counter()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_every_kind_are_those_of_a_run(kind: str, runs: Any) -> None:
    result, _ = runs[kind]
    predicted = traffic.bytes_per_party(result.plan)
    for phase, measured in result.costs.bytes_per_party.items():
        # Weights and seeds as text; a query without decimals.
        assert abs(predicted[phase] - measured) <= 0.02 * measured
    assert sum(predicted.values()) > 1000


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("sums")])
def test_operations_of_every_circuit_are_those_of_a_run(kind: str, runs: Any) -> None:
    result, counted = runs[kind]
    course = planner.iterations(result.plan)
    assert len(course) == result.plan.rounds
    assert sum(each.refreshed for each in course) == sum(result.plan.refreshes)
    total = Counter[Any]()
    for iteration in course:
        total.update(iteration.operations)
    check_operations(counted, total, 2 if kind.startswith("model") else 10)


# Of an encrypted model: `test_model_cost`.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind[:4] in ("gram", "lffr")])
def test_seconds_of_every_circuit_count_operations_refreshes_and_messages(
    kind: str, runs: Any
) -> None:
    plan = runs[kind][0].plan
    one = planner.seconds(plan, times(plan.ckks))
    operations = sum(each.total(*OPERATIONS) for each in planner.iterations(plan))
    assert one.by_phase["train"] == operations
    free = replace(times(plan.ckks), operations=dict.fromkeys(OPERATIONS, (0.0,)))
    mapped = sum(None not in plan.column_maps(k) for k in range(len(plan.refreshes)))
    read = planner.seconds(plan, replace(free, read=1.0)).total
    encrypted = traffic.num_ciphertexts(plan)
    assert read == encrypted + (1 + len(plan.names)) * len(plan.refreshes) + mapped
    assert mapped == (0 if plan.kind == "gram" else plan.rounds + (plan.privacy is None))
    asked = sum(1 for _ in traffic.exchanges(plan, plan.names[0]))
    assert planner.seconds(plan, replace(free, message=1.0)).total == asked * len(plan.members)
    assert planner.memory(plan)["coordinator"] > planner.BASE_MEMORY


def test_seconds_of_sums_are_counts_times_unit_times(runs: Any) -> None:
    from ciphercohort.planning import sums_cost

    plan = runs["sums-curvature"][0].plan
    parties, rounds, rows = 3, 4, plan.num_rows
    assert len(plan.queries) == rounds
    names = tuple(sums_cost.SumTimes.__dataclass_fields__)
    for name, amount in {
        "row": rounds * rows,
        **dict.fromkeys(("contribution", "noise", "encrypt", "read"), rounds * parties),
        "open": rounds,
        "message": (rounds + 6) * parties,
        "secret": parties,
        "mask": parties * (parties - 1),
    }.items():
        only = {each: 1.0 if each == name else 0.0 for each in names}
        assert sums_cost.seconds(plan, sums_cost.SumTimes(**only)).total == amount, name
    asked = sum(1 for _ in traffic.exchanges(plan, plan.names[0]))
    assert asked == rounds + 6
    found = to_plain(sums_cost.measure(plan))
    assert all(value >= 0 for value in found.values())
    assert min(found[name] for name in ("contribution", "encrypt", "open", "secret")) > 0
