"""The coordinator: phases, costs, transcript, and what it does when something goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from coordinator import coordinator
from coordinator.coordinator import Coordinator, Observer
from coordinator.costs import Costs
from coordinator.replay import replay
from protocols.errors import ParameterError, ProtocolError
from protocols.exchange.messages import Body, digest, public_bytes
from protocols.exchange.transcript import verify
from protocols.model import protocol as encrypted_model
from protocols.plan.protocol import PHASES
from protocols.steps.finish import weights_of
from protocols.steps.whole import Outcome
from tests.support.helpers import Session, header_of, log2_error, seal
from tests.support.sessions import VICTIM, asked, model_session, record, small


@pytest.fixture(scope="module")
def finished() -> tuple[Session, Outcome]:
    session = small(parties=3)
    return session, session.run()


def test_every_party_learns_the_model_and_the_transcript(finished: tuple[Session, Outcome]) -> None:
    """`finish` carries the released weights and the chain's head before it."""
    session, outcome = finished
    before = [line for line in session.transcript.lines if line["step"] != "finish"]
    told = {n: asked(session, sent) for at, n, sent, _ in session.recorded if at == "finish"}
    assert told.keys() == {*session.parties}
    for body in told.values():
        assert body.meta["transcript"] == verify(before)
        np.testing.assert_array_equal(weights_of(body), outcome.weights)


def test_the_transcript_has_every_message(finished: tuple[Session, Outcome]) -> None:
    """Sizes and hashes of what was sent and received, in one unbroken chain."""
    session, _ = finished
    lines = session.transcript.lines
    assert verify(lines) == session.transcript.head
    wanted = {
        (step, "coordinator", name, len(request), digest(request))
        for step, name, request, _ in session.recorded
    } | {
        (step, name, "coordinator", len(reply), digest(reply))
        for step, name, _, reply in session.recorded
    }
    fields = ("step", "sender", "recipient", "bytes", "message")
    assert {tuple(line[f] for f in fields) for line in lines} == wanted
    assert len(lines) == len(wanted)


@pytest.mark.parametrize(("own", "slowest"), [(0.0, 5.0), (2.0, 3.0), (7.0, 0.0)])
def test_work_beside_the_parties_hides_behind_the_slowest(own: float, slowest: float) -> None:
    """Or the slowest behind it."""
    clock, costs = [0.0], Costs()

    def work(seconds: float) -> None:
        clock[0] += seconds

    def ask() -> Iterator[tuple[str, bytes]]:
        for name, seconds in {"a": 3.0, "b": 5.0}.items():
            work(seconds)
            yield name, b""

    centre = Coordinator.__new__(Coordinator)
    centre.costs, centre._apart = costs, False
    with patch.object(coordinator, "time", SimpleNamespace(perf_counter=lambda: clock[0])):
        assert len(list(centre._waited(ask, lambda: work(own)))) == 2
    assert (costs.waiting_seconds, costs.slowest_seconds) == (8.0, slowest)


@pytest.mark.parametrize("apart", [False, True])
def test_a_rules_own_path_is_computed_beside_the_parties(apart: bool) -> None:
    """Once a round, before anything is added to it; elsewhere they are at work at the same time."""
    own, threads = encrypted_model._own_path, list[bool]()

    def seen(*args: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return own(*args)

    session = model_session(update="barrier", rounds=3)
    session.coordinator._apart = apart
    with patch.object(encrypted_model, "_own_path", seen):
        weights = session.run().weights
    assert threads == [not apart] * 3
    assert np.abs(weights - session.twin()).max() < 1e-4


def test_costs_are_counted(finished: tuple[Session, Outcome]) -> None:
    """Bytes by phase and party as sent, seconds by phase, one entry per iteration."""
    session, outcome = finished
    costs = session.coordinator.costs
    words = {
        "agree": "enrol agree reveal",
        "keys": "commit-keys keys public-shares rotations commit-relinearise relinearise",
        "encrypt": "commit-rows contribute confirm",
        "refresh": "commit-refresh refresh",
        "decrypt": "commit-decrypt decrypt finish",
    }
    phase_of = {step: phase for phase, steps in words.items() for step in steps.split()}
    traffic: dict[str, dict[str, int]] = {}
    for step, name, request, reply in session.recorded:
        by_party = traffic.setdefault(phase_of[step.partition("/")[0]], {})
        by_party[name] = by_party.get(name, 0) + len(request) + len(reply)
    assert costs.traffic == traffic
    assert costs.bytes_per_party == {
        phase: max(traffic.get(phase, {"": 0}).values()) for phase in PHASES
    }
    assert costs.bytes_per_party["train"] == 0 < costs.bytes_per_party["refresh"]
    assert len(costs.iteration_seconds) == outcome.plan.rounds
    assert all(seconds > 0 for seconds in costs.iteration_seconds)
    assert set(costs.seconds) == set(PHASES)
    assert all(seconds > 0 for seconds in costs.seconds.values())


def test_phases_and_progress() -> None:
    """Phases in order, each iteration reported."""
    session = small()
    phases: list[str] = []
    progress: list[tuple[str, int, int]] = []
    session.coordinator._observer = Observer(
        on_phase=phases.append, on_progress=lambda *args: progress.append(args)
    )
    session.run()
    assert phases == [phase for phase in PHASES if phase != "refresh"]
    assert progress == [("train", t, 3) for t in (1, 2, 3)]


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["enrol", "refresh/1"])
def test_a_transport_that_breaks(step: str) -> None:
    """Its exception comes through, and nothing is released."""
    session = small()

    def ask(current: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if current == step:
            raise ConnectionError("gone")
        return session.ask(current, outgoing)

    with pytest.raises(ConnectionError, match="gone"):
        session.run(ask)
    assert verify(session.transcript.lines) == session.transcript.head
    assert "finish" not in {line["step"] for line in session.transcript.lines}


@pytest.mark.parametrize("odd", ["policy", "columns"])
def test_a_party_that_does_not_fit_is_named(odd: str) -> None:
    """One that refuses, with the step and its own words; one of another schema, before a plan."""
    session = small()
    if odd == "policy":
        session.parties[VICTIM]._policy = type(session.parties[VICTIM]._policy)()
        words = "'hospital-2' refuses step 'agree': profile="
    else:
        stranger = session.parties[VICTIM] = small(features=4).parties[VICTIM]
        stranger._coordinator_key = public_bytes(session.coordinator_key)
        stranger.run.signing_key = session.party_keys[VICTIM]
        words = "another column schema"
    with pytest.raises(ProtocolError, match=words) as caught:
        session.run()
    assert caught.value.culprit == VICTIM
    assert (session.plan is None) == (odd == "columns")


@pytest.mark.parametrize("meta", [{}, {"rows": "x"}, {"rows": float("1e400")}, {"rows": None}])
def test_a_malformed_enrolment_is_named(meta: dict[str, Any]) -> None:
    """Missing or impossible fields, Infinity included."""
    session, name = small(), "hospital-1"

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = session.ask(step, outgoing)
        fields = json.loads(header_of(replies[name]))
        fields["meta"] = {**fields["meta"], **meta} if meta else {}
        forged = seal(json.dumps(fields).encode(), session.party_keys[name])
        return replies | {name: forged}

    with pytest.raises(ProtocolError, match="malformed (enrolment|header)") as caught:
        session.run(ask)
    assert caught.value.culprit == name


def test_an_impossible_plan_is_refused_before_any_key() -> None:
    """The coordinator's own parameters are checked when the members are known."""
    session = small(rounds=10**5)
    with pytest.raises(ParameterError, match="rounds=100000 is above"):
        session.run()
    assert {step for step, *_ in session.recorded} == {"enrol"}


FREED = """
import openfhe
from protocols.ckks import context
from tests.support.sessions import small

session, tags = small(rounds=2), set()

def ask(step, outgoing):
    tags.update(context.LOADED)
    return session.ask(step, outgoing)

session.run(ask)
for tag in tags:
    try:
        openfhe.GetAllContexts()[0].GetEvalMultKeyVector(tag)
        print("held")
    except RuntimeError:
        print("freed")
"""


def test_evaluation_keys_are_freed() -> None:
    """OpenFHE's static maps hold nothing of a session that is over (a process of its own)."""
    command = [sys.executable, "-c", FREED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert set(done.stdout.split()) == {"freed"}, done.stderr


# -- replies as they arrive ------------------------------------------------------------------------

FOLDED = ("keys", "rotations", "relinearise", "contribute", "refresh", "decrypt")


def test_a_reply_is_let_go_before_the_next_one_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the steps that are summed, the coordinator holds one body at a time."""
    session, alive = small(parties=4), list[tuple[str, weakref.ref[Body]]]()
    read = session.coordinator._read

    def noting(name: str, step: str, answers: str, data: bytes) -> Body:
        body = read(name, step, answers, data)
        alive.append((step, weakref.ref(body)))
        return body

    monkeypatch.setattr(session.coordinator, "_read", noting)
    held: dict[str, int] = {}

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        for name, data in outgoing.items():
            yield name, session.ask(step, {name: data})[name]
            count = sum(body() is not None for at, body in alive if at == step)
            held[step] = max(held.get(step, 0), count)

    session.run(ask)
    folded = {step: n for step, n in held.items() if step.partition("/")[0] in FOLDED}
    assert len(folded) >= 7 and set(folded.values()) == {0}
    assert held["agree"] == 4  # the count sees what is held


def test_the_order_of_arrival_changes_nothing(tmp_path: Path) -> None:
    """Transcript and kept messages are in the plan's order; second copies are ignored."""
    session = small(parties=3)

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        for name in reversed(list(outgoing)):
            reply = session.ask(step, {name: outgoing[name]})[name]
            yield from ((name, reply), (name, reply[:-1]), ("stranger", reply))

    record(tmp_path, session, ask=ask)
    told = weights_of(asked(session, session.recorded[-1][2]))
    assert log2_error(told, session.twin()) < -17
    senders = [line["sender"] for line in session.transcript.lines]
    assert senders == (["coordinator"] * 3 + list(session.parties)) * (len(senders) // 6)
    found = replay(tmp_path)
    assert found.passed, found.checks[-1]
