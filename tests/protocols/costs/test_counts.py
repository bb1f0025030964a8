"""Counted operations are those of real runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from protocols.ckks import CkksParameters
from protocols.ckks.circuits import evaluator
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.rows import REFRESH_LEVEL
from protocols.ckks.circuits.tally import CountingContext, Shadow, Tally
from protocols.ckks.evaluation import CkksContext
from protocols.costs.counts import iterations
from protocols.exchange.messages import Exchange
from protocols.rows.plan import RowsPlan
from protocols.steps.precondition import precondition
from protocols.updates.update import Update
from tests.protocols.rows.test_encrypted_quadratic import quadratic
from tests.support import helpers
from tests.support.helpers import NOISE, make_rule, make_session

QUADRATIC = "quadratic-nag"


@pytest.fixture(autouse=True)
def quadratic_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule with an encrypted preconditioner beside those that the helpers know."""

    def rule_of(update: str, rounds: int) -> Update:
        return quadratic(5, rounds) if update == QUADRATIC else make_rule(update, rounds)

    monkeypatch.setattr(helpers, "make_rule", rule_of)


def inversion(plan: RowsPlan) -> Tally:
    """Operations of the curvature's inversion, which no iteration has."""
    if plan.curvature is None:
        return {}
    context: Any = CountingContext(plan.ckks)
    counted = Evaluator(context, plan.layout)

    def refresh(vectors: Sequence[EncryptedVector]) -> Exchange[tuple[EncryptedVector, ...]]:
        yield from ()
        return tuple(counted.wrap(*[Shadow(0)] * len(vector.cts)) for vector in vectors)

    list(precondition(counted, plan.curvature, counted.wrap(Shadow(0)), refresh))
    counts: Tally = context.take()
    return counts


@pytest.mark.parametrize(("depth", "digits"), [(6, 1), (6, 2), (7, 3), (8, 3), (9, 4)])
def test_evaluation_keys_have_the_predicted_size(depth: int, digits: int) -> None:
    params = CkksParameters(ring_dim=1024, depth=depth, num_digits=digits, security_bits=0)
    assert (params.num_towers + params.num_special_towers) * params.num_digits == len(
        CkksContext(params, "rows").key_primes
    )


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
def test_operations_are_those_of_a_run(
    parties: int, rows: Any, features: int, rounds: int, degree: int, update: str, width: int | None
) -> None:
    privacy = None if update == QUADRATIC else NOISE
    shape: dict[str, Any] = {"ring_dim": 1024, "features_per_ciphertext": width}
    with spies() as found:
        session = make_session(
            parties, rows, features, rounds, degree, update, privacy=privacy, **shape
        )
        session.run()
    plan = session.plan
    assert plan is not None
    total = Counter(inversion(plan))
    for iteration in iterations(plan):
        total.update(iteration.operations)
    # The released vector's sum is no part of an iteration.
    total.update({("add", REFRESH_LEVEL): plan.layout.num_parts - 1})
    check_operations(found[0].counts, total, 5)


# -- every kind of plan ----------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "gram": {"model": "linear", "rounds": 9, "epsilon": None},
    "gram-private": {"model": "linear", "rounds": 4, "epsilon": 5.0},
    "lffr": {"model": "lffr", "rounds": 3, "epsilon": None},
    "lffr-private": {"model": "lffr", "rounds": 3, "epsilon": 5.0},
    "model": {"protocol": "encrypted-model", "update": "nag", "rounds": 6, "epsilon": None},
    "model-barrier": {"protocol": "encrypted-model", "update": "barrier", "rounds": 3}
    | {"epsilon": None},
}


@pytest.fixture(scope="module")
def runs() -> dict[str, tuple[Any, Counter[Any]]]:
    """A run of each kind, and what its circuit asked of OpenFHE; rings are INSECURE."""
    from ciphercohort.job.config import SimulationConfig
    from sims.simulation import simulate

    found: dict[str, tuple[Any, Counter[Any]]] = {}
    for name, options in KINDS.items():
        with spies() as watched:
            result = simulate(SimulationConfig(seed=1, profile="fast-insecure", **options))
        found[name] = result, watched[0].counts if watched else Counter()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_operations_of_every_circuit_are_those_of_a_run(kind: str, runs: Any) -> None:
    result, counted = runs[kind]
    course = iterations(result.plan)
    assert len(course) == result.plan.rounds
    assert sum(each.refreshed for each in course) == sum(result.plan.refreshes)
    total = Counter[Any]()
    for iteration in course:
        total.update(iteration.operations)
    check_operations(counted, total, 2 if kind.startswith("model") else 10)
