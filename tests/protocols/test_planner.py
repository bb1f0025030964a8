"""Predicted bytes and operations are those of real runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.costs import PHASES
from protocols import planner
from protocols.ckks import timing
from protocols.ckks.context import CkksContext
from protocols.ckks.parameters import CkksParameters, choose_parameters
from protocols.ckks.tally import OPERATIONS, tally_iterations
from tests.helpers import NOISE, make_plan, make_session


def test_phases_are_those_of_a_run() -> None:
    assert planner.PHASES == PHASES


@pytest.mark.parametrize(
    ("parties", "rows", "features", "rounds", "degree", "update", "width"),
    [
        (2, 20, 3, 1, 3, "gd", None),
        (3, [5, 600, 40], 5, 3, 5, "nag", 2),
        (5, 40, 17, 2, 7, "barrier-2", None),
        (2, 300, 30, 6, 5, "ridge", 8),
    ],
)
def test_bytes_are_those_of_a_run(
    parties: int, rows: Any, features: int, rounds: int, degree: int, update: str, width: int | None
) -> None:
    session = make_session(
        parties,
        rows,
        features,
        rounds,
        degree,
        update,
        privacy=NOISE,
        ring_dim=1024,
        features_per_ciphertext=width,
    )
    session.run()
    assert session.plan is not None
    predicted = planner.bytes_per_party(session.plan)
    for phase, measured in session.coordinator.costs.bytes_per_party.items():
        # Only weights and seeds as text have another length: 2 % of a phase without residues.
        assert abs(predicted[phase] - measured) <= (0.02 if phase == "agree" else 1e-3) * measured
    traffic = session.coordinator.costs.traffic
    for name, by_phase in planner.bytes_by_party(session.plan).items():
        assert by_phase["encrypt"] == traffic["encrypt"][name]
        assert by_phase["keys"] == traffic["keys"][name]


@pytest.mark.parametrize(("depth", "digits"), [(6, 1), (6, 2), (7, 3), (8, 3), (9, 4)])
def test_evaluation_keys_have_the_predicted_size(depth: int, digits: int) -> None:
    params = CkksParameters(ring_dim=1024, depth=depth, num_digits=digits, security_bits=0)
    assert planner.key_rows(params) == len(CkksContext(params, "rows").key_primes)


NAMES = {
    "EvalRotate": "rotate",
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
            if name in NAMES:
                self.counts[NAMES[name], args[0].GetLevel()] += 1
            if name == "EvalSquare" or (name == "EvalMult" and hasattr(args[1], "GetKeyTag")):
                self.counts["tensor", args[0].GetLevel()] += 1
                self.counts["relinearise", args[0].GetLevel()] += 1
            return method(*args)

        return counted


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("update", ["gd", "nag", "barrier-2"])
@pytest.mark.parametrize("degree", [3, 7])
def test_operations_are_those_of_a_run(
    update: str, degree: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from protocols.ckks import evaluator

    spies: list[Spy] = []
    build = evaluator.Evaluator.__init__

    def spied(self: Any, context: Any, layout: Any) -> None:
        build(self, context, layout)
        if isinstance(context, CkksContext):
            self.cc = Spy(context.cc)
            spies.append(self.cc)

    monkeypatch.setattr(evaluator.Evaluator, "__init__", spied)
    session = make_session(
        2, 150, 4, 6, degree, update, ring_dim=1024, features_per_ciphertext=width
    )
    session.run()
    plan = session.plan
    assert plan is not None
    total: Counter[tuple[str, int]] = Counter()
    for iteration in planner.iterations(plan):
        total.update(iteration.operations)
    counted = spies[0].counts
    assert counted.total() > 100
    # The released vector is no part of an iteration; the spy cannot tell masks from scalars.
    last, parts = max(level for _, level in counted), plan.layout.num_parts
    total.update({("rescale", last): 1, ("rotate", last): parts - 1, ("add", last): parts - 1})
    compared = {key for key in {*total, *counted} if key[0] not in ("mask", "scalar")}
    assert {key: counted[key] for key in compared} == {key: total[key] for key in compared}


def test_iterations_in_the_middle_are_alike() -> None:
    plan = make_plan(rows=(300, 300), rounds=9, update="nag")
    course = planner.iterations(plan)
    assert len(course) == 9
    assert course[2] == course[6]
    assert course[2].refreshed == 2
    assert course[-1].refreshed == 0


def test_rows_cost_data_ciphertexts_and_nothing_else() -> None:
    plan = make_plan(rows=(2000, 2000), features=8, degree=7, update="gd")
    one = replace(plan.layout, rows_by_party=(plan.layout.columns,))
    few = tally_iterations(plan.ckks, one, plan.link, plan.rule)
    many = planner.iterations(plan)
    extra = plan.layout.num_data_ciphertexts - 1
    assert extra > 0
    # One inner product per data ciphertext, log2(d') rotations; one relinearisation after the sum.
    features = len(plan.layout.feature_rotations)
    assert many[-1].total("rotate") - few[-1].total("rotate") == extra * features
    # Degree 7: three more products to relinearise: with the weights, z^2, x z; two factors.
    assert many[-1].total("relinearise") - few[-1].total("relinearise") == extra * 5


def times(params: CkksParameters) -> timing.UnitTimes:
    names = [f for f in timing.UnitTimes.__dataclass_fields__ if f != "operations"]
    return timing.UnitTimes(
        operations=dict.fromkeys(OPERATIONS, (1.0,) * params.depth), **dict.fromkeys(names, 0.0)
    )


def test_seconds_are_counts_times_unit_times() -> None:
    plan = make_plan(rounds=5)
    predicted = planner.seconds(plan, times(plan.ckks))
    course = planner.iterations(plan)
    assert predicted.by_phase["train"] == sum(i.total(*OPERATIONS) for i in course)
    assert predicted.iteration == course[2].total(*OPERATIONS)
    assert predicted.by_phase["refresh"] == 0


def test_memory_grows_with_keys_and_parties() -> None:
    small, large = make_plan(rows=(20,) * 2), make_plan(rows=(20,) * 8)
    assert planner.memory(small)["coordinator"] < planner.memory(large)["coordinator"]
    secure = replace(small, ckks=choose_parameters(5), profile="secure")
    assert planner.memory(secure)["coordinator"] > 5e8


def test_times_are_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "busy", lambda: False)
    params = CkksParameters(ring_dim=1024, depth=6, security_bits=0)
    first = timing.unit_times(params, tmp_path)
    (file,) = tmp_path.glob("timing-*.json")
    assert timing.unit_times(params, tmp_path) == first
    assert all(len(first.operations[name]) == params.depth for name in OPERATIONS)
    assert min(value for value in first.to_dict().values() if isinstance(value, float)) > 0
    file.write_text("{}")
    assert timing.unit_times(params, tmp_path).operations.keys() == set(OPERATIONS)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    params = CkksParameters(ring_dim=1024, depth=6, security_bits=0)
    assert timing.unit_times(params, tmp_path / "file" / "folder").setup > 0


def test_times_of_a_busy_machine_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "busy", lambda: True)
    params = CkksParameters(ring_dim=1024, depth=6, security_bits=0)
    assert timing.unit_times(params, tmp_path).setup > 0
    assert not list(tmp_path.iterdir())


def test_the_lesser_of_two_measurements() -> None:
    params = CkksParameters(ring_dim=1024, depth=6, security_bits=0)
    fast, slow = times(params), replace(times(params), sign=2.0)
    slow = replace(slow, operations={**slow.operations, "mask": (0.5,) * 6})
    both = timing.lesser(fast, slow)
    assert (both.sign, both.of("mask", 3), both.of("rotate", 3)) == (0.0, 0.5, 1.0)


def test_other_parameters_have_another_fingerprint() -> None:
    a, b = (CkksParameters(ring_dim=1024, depth=d, security_bits=0) for d in (6, 7))
    assert timing.fingerprint(a) != timing.fingerprint(b)


# -- several iterations between two refreshes -------------------------------------------


@pytest.mark.parametrize("update", ["gd", "nag", "barrier-2"])
def test_fewer_refreshes_carry_fewer_ciphertexts(update: str) -> None:
    plan = make_plan(rounds=7, update=update, degree=3)
    levels = plan.ckks.depth - 2
    deep = replace(plan, ckks=replace(plan.ckks, depth=3 * levels + 2))
    counts = [i.refreshed for i in planner.iterations(deep, 3)]
    state = planner.iterations(plan)[1].refreshed
    assert counts == [0, 0, state, 0, 0, state, 0]
    assert planner.refreshed(deep, 3) == [state, state]
    # An iteration does the same work wherever it stands: only the levels differ.
    one, three = planner.iterations(plan), planner.iterations(deep, 3)
    assert [i.total("rotate") for i in three] == [i.total("rotate") for i in one]
    assert max(level for _, level in three[2].operations) > levels
    shares = sum(e.blob_bytes for e in planner.exchanges(deep, "hospital-1", 3))
    assert shares < sum(e.blob_bytes for e in planner.exchanges(deep, "hospital-1"))
