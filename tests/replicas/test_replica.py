"""An owner with a replica answers nothing but what follows from everybody's replies. INSECURE.

By every way in which a coordinator is known to get rows or keys from owners that trust it
(`tests/coordinator/test_replay.py`, `tests/protocols/steps/test_key_oracles.py`): each honest owner
refuses before its share leaves, and names step and reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciphercohort import simulate
from coordinator.log import FOLDER, recorded
from coordinator.relay import RESTARTS, _bringing, in_parts, relaying
from parties.verifier.party import Party
from protocols.errors import MessageError, ProtocolError
from protocols.exchange.messages import Ask, Body, Envelope, encode, new_signing_key, public_bytes
from protocols.exchange.relayed import BEHIND, MARK, MORE, RELAY, beside, parted
from protocols.names import COORDINATOR
from tests.replicas.deviations import (
    believing,
    blob,
    one_bit,
    past_of,
    ran,
    refusals,
    with_replicas,
    zeros,
)
from tests.sims.tables import lopsided_frame
from tests.support.helpers import Session, log2_error, party_names
from tests.support.sessions import (
    NAG,
    VICTIM,
    Deviation,
    StopHere,
    Vanishing,
    altered,
    asked,
    driven,
    gram_session,
    lffr_model_session,
    model_session,
    moment_session,
    record,
    refusal,
    reply_of,
    request,
    resigned,
    small,
    sums_session,
    whitened_session,
)
from tests.support.sessions import with_meta as meta

ALL = party_names(3)
rows: Callable[..., Session] = partial(small, **NAG)
MAKE: dict[str, Callable[..., Session]] = {
    "rows": rows,
    "whitened": whitened_session,
    "gram": gram_session,
    "model": model_session,
    "lffr model": lffr_model_session,
    "sums": sums_session,
    "moment": moment_session,
}


@pytest.mark.parametrize("name", ["rows", "whitened", "gram", "model", "lffr model", "sums"])
def test_an_honest_run_ends_as_without(name: str) -> None:
    session = MAKE[name]()
    assert ran(session) == ""
    assert all(party._replica is not None for party in session.parties.values())
    again = MAKE[name]() if name == "whitened" else None  # its noise is another one each time
    if again is None:
        again = MAKE[name]()
        again.run()
        assert log2_error(session.outcome.weights, again.outcome.weights) < np.log2(1e-4)


def test_owners_that_are_covered_for_stop_nobody() -> None:
    session = small(update="nag", parties=4, cover=2)
    gone = Vanishing(session.ask, {"refresh/1": (party_names(4)[1],)})
    assert ran(session, ask=gone) == ""
    assert session.outcome.missing == (party_names(4)[1],)


def older(body: Body) -> Body:
    """The blobs of a request in another order: another iterate's in the place of this one's."""
    return Body(body.meta, body.blobs[::-1])


def plus_one(data: bytes) -> bytes:
    """Of every evaluation: a constant plaintext."""
    return (np.frombuffer(data, "<u8") + np.uint64(1)).tobytes()


def more(body: Body) -> Body:
    """A plan of more iterations."""
    plan = {**body.meta["plan"]}
    plan["update"] = {**plan["update"], "rounds": plan["update"]["rounds"] + 1}
    return Body({**body.meta, "plan": plan})


ATTACKS: dict[str, tuple[str, str, Any, tuple[str, ...]]] = {
    "another point": ("model", "commit-gradient/1", blob(0, one_bit), ALL),
    "another point for one owner": ("model", "commit-gradient/1", blob(0, one_bit), (VICTIM,)),
    "another point of public sums": ("sums", "round/1", blob(0, one_bit), ALL),
    "other evaluation keys": ("model", "evaluation-keys/1", blob(0, one_bit), ALL),
    "other rotation keys": ("rows", "rotations/0", meta(indices=[1]), ALL),
    "a forged sum H0": ("rows", "commit-relinearise", blob(0, zeros), ALL),
    "a forged sum H1": ("model", "commit-relinearise", blob(1, zeros), ALL),
    "another joint key": ("rows", "public-shares/0", blob(0, one_bit), ALL),
    "a chosen ciphertext, refreshed": ("rows", "commit-refresh/1", blob(0, zeros), ALL),
    "one of an encrypted model": ("model", "refresh/1", blob(0, zeros), ALL),
    "a chosen ciphertext, decrypted": ("rows", "commit-decrypt", blob(0, zeros), ALL),
    "one of an encrypted model, decrypted": ("model", "commit-decrypt", blob(0, zeros), ALL),
    "a plaintext added": ("rows", "commit-refresh/2", blob(0, plus_one), ALL),
    "another iterate": ("rows", "commit-refresh/1", older, ALL),
    "other than follows from contributions": ("rows", "commit-refresh/0", blob(0, one_bit), ALL),
    "other start weights": ("sums", "round/0", blob(0, one_bit), ALL),
    "other weights": ("rows", "finish", blob(0, one_bit), ALL),
    "other seeds": ("rows", "commit-keys", meta(seeds={}), (VICTIM,)),
    "other signatures": ("model", "gradient/1", meta(signed={}), (VICTIM,)),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_does_not_follow_is_refused(attack: str) -> None:
    kind, step, change, told = ATTACKS[attack]
    session = MAKE[kind]()
    if step == "finish":  # beyond the decoder's noise

        def change(body: Body) -> Body:
            return Body(body.meta, ((np.frombuffer(body.blobs[0]) + 1.0).tobytes(),))

    words = ran(session, altered(step, change, *told))
    assert session.recorded[-1][0] == step and "refuses" in words
    found = refusals(session)
    assert all(found[name] for name in told), found
    assert all("follow" in found[name] or "decrypted" in found[name] for name in told), found
    assert all(session.parties[name].answered == 0 for name in told)  # it is over, for good


def earlier(session: Session, step: str, change: Callable[[Body, Body], Body]) -> Deviation:
    """A coordinator that mixes what it asked in an earlier step into one of the same kind."""
    kind, _, number = step.partition("/")
    seen = dict[str, Body]()

    def meet(ask: Ask) -> Any:
        if ask.step == f"{kind}/{int(number) - 1}":
            seen.update(ask.bodies)
        if ask.step != step:
            return (yield ask)
        other = {name: change(body, seen[name]) for name, body in ask.bodies.items()}
        return (yield replace(ask, bodies=other))

    return lambda exchange: driven(exchange, meet)


def added(body: Body, old: Body) -> Body:
    """Both, blob by blob."""
    pairs = zip(body.blobs, old.blobs, strict=True)
    blobs = [(np.frombuffer(a, "<u8") + np.frombuffer(b, "<u8")).tobytes() for a, b in pairs]
    return Body(body.meta, tuple(blobs))


def older_one(body: Body, old: Body) -> Body:
    """What was asked before, once more."""
    return Body(body.meta, old.blobs)


AGAIN: dict[str, tuple[str, str, Any]] = {
    "an older iterate asked again": ("rows", "commit-refresh/2", older_one),
    "an older iterate of a model": ("model", "commit-gradient/2", older_one),
    "an old sum added again": ("model", "commit-gradient/2", added),
}


@pytest.mark.parametrize("attack", AGAIN)
def test_what_was_asked_before_is_not_asked_again(attack: str) -> None:
    kind, step, change = AGAIN[attack]
    session = MAKE[kind](rounds=3)
    assert ran(session, earlier(session, step, change))
    found = refusals(session)
    assert session.recorded[-1][0] == step and all("follow" in words for words in found.values())


@pytest.mark.parametrize("kind", ["rows", "model"])
def test_a_second_opening_is_refused(kind: str) -> None:
    """Of another ciphertext, once the model is decrypted: no step is asked that does not follow."""
    session, opened = MAKE[kind](), dict[str, Body]()

    def meet(ask: Ask) -> Any:
        if ask.step == "commit-decrypt":
            opened.update(ask.bodies)
        if ask.step == "finish":
            yield Ask("commit-decrypt", {n: blob(0, one_bit)(b) for n, b in opened.items()})
        return (yield ask)

    assert ran(session, lambda exchange: driven(exchange, meet))
    assert session.recorded[-1][0] == "commit-decrypt"
    assert all("next is 'finish'" in words for words in refusals(session).values())


def test_a_sum_of_other_replies_is_found() -> None:
    """One part counts twice and one not at all: the next point follows from another sum."""
    session, seen = sums_session(), dict[str, Body]()

    def twice(name: str, body: Body) -> Body:
        return seen.setdefault("first", body) if name in (ALL[0], VICTIM) else body

    assert "follows" in ran(session, believing("round/1", twice))
    assert session.recorded[-1][0] == "round/2" and all(refusals(session).values())


def test_another_plan_for_one_owner_is_found() -> None:
    """Each signs the one that it was shown, and no seed is shown."""
    session = rows()
    assert "agreed to a different plan" in ran(session, altered("agree", more, VICTIM))
    assert session.recorded[-1][0] == "agree"


class Meddling:
    """A transport on which one owner is relayed something else in one step."""

    def __init__(self, session: Session, step: str, change: Any) -> None:
        self._session, self._step, self._change = session, step, change
        self.first = b""  # that was ever relayed to it

    def __call__(self, step: str, outgoing: Any) -> Any:
        """Deliver a step."""
        sent = {}
        for name, data in outgoing.items():
            own, replies = parted(data)
            if name == VICTIM and replies:
                self.first = self.first or replies[0]
            if (step, name) == (self._step, VICTIM):
                replies = tuple(self._change(self, self._session, list(replies or ())))
            sent[name] = beside(own, replies or ())
        return self._session.ask(step, sent)


FAULTS: dict[str, Any] = {
    "forged": lambda by, session, replies: [
        replies[0][:-1] + bytes([replies[0][-1] ^ 1]),
        *replies[1:],
    ],
    "changed by its owner": lambda by, session, replies: [
        resigned(session, replies[0], body=meta(more=1)),
        *replies[1:],
    ],
    "to another request": lambda by, session, replies: [
        resigned(session, replies[0], answers="00" * 32),
        *replies[1:],
    ],
    "after another request": lambda by, session, replies: [
        resigned(session, replies[0], seen="00" * 32),
        *replies[1:],
    ],
    "of an earlier step": lambda by, session, replies: [by.first, *replies[1:]],
    "left out": lambda by, session, replies: replies[1:],
    "no message": lambda by, session, replies: [b"", *replies[1:]],
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["rows", "model", "sums"])
def test_a_reply_that_was_not_sent_is_found(kind: str, fault: str) -> None:
    step = "round/1" if kind == "sums" else "public-shares/0"
    session = MAKE[kind]()
    words = ran(session, ask=Meddling(session, step, FAULTS[fault]))
    found = refusals(session)
    if fault == "changed by its owner":  # in what nothing follows from: the transcript tells
        step = "finish"
    assert session.recorded[-1][0] == step, words
    assert found[VICTIM] and not any(found[n] for n in ALL if n != VICTIM), found


@pytest.mark.parametrize("kind", ["rows", "whitened", "model", "sums"])
def test_replies_may_come_ahead(kind: str) -> None:
    """While the coordinator computes: the same run, and its requests have nothing beside them."""
    session, early = with_replicas(MAKE[kind]()), list[tuple[str, int]]()
    computing = session.coordinator.protocol

    def slowly() -> Any:
        """The coordinator's exchange, a moment after every reply."""

        def meet(ask: Any) -> Any:
            replies = yield ask
            time.sleep(0.01)
            return replies

        return driven(computing(), meet)

    session.coordinator.protocol = slowly  # type: ignore[method-assign]

    def ask(step: str, outgoing: Any) -> Any:
        sent = {name: parted(data)[1] for name, data in outgoing.items()}
        early.append((step, sum(map(len, filter(None, sent.values())))))
        return (session.deliver if step == RELAY else session.ask)(step, outgoing)

    def ahead(name: str, more: bool) -> bytes:
        return request(session, name, RELAY, Body({MORE: True} if more else {}))

    session.run(relaying(ask, ahead=ahead, patience=0.0))
    assert session.outcome is not None
    steps = [count for step, count in early if step != RELAY]
    ahead_of = [count for step, count in early if step == RELAY and count]
    assert ahead_of and len(ahead_of) + len(list(filter(None, steps))) == len(steps) - 1


@pytest.mark.parametrize("kind", ["rows", "whitened", "model", "sums"])
def test_replies_may_come_one_by_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are many: requests have nothing beside them, and a replica folds each reply."""
    monkeypatch.setattr("coordinator.relay.PART_BYTES", 1)
    session, parts = with_replicas(MAKE[kind]()), list[tuple[int, bool]]()

    def ask(step: str, outgoing: Any) -> Any:
        if step != RELAY:
            return session.ask(step, outgoing)
        for own, replies in map(parted, [outgoing[name] for name in outgoing if name == VICTIM]):
            parts.append((len(replies or ()), asked(session, own).meta == {MORE: True}))
        return session.deliver(step, outgoing)

    def ahead(name: str, more: bool) -> bytes:
        return request(session, name, RELAY, Body({MORE: True} if more else {}))

    session.run(relaying(ask, ahead=ahead, patience=60.0))
    assert session.outcome is not None
    assert parts and parts == [(1, True), (1, False)] * (len(parts) // 2)
    assert {step for step, _, data, _ in session.recorded if parted(data)[1]} == {"agree"}


def test_work_that_needs_no_reply_is_done_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a replica whose owner's rows are in another process."""
    done = list[Any]()
    monkeypatch.setattr(Party, "_is_here", False)
    monkeypatch.setattr("protocols.steps.replica._quietly", lambda work: done.append(work()))
    session = MAKE["model"]()
    assert ran(session) == "" and len(done) == 3 * session.outcome.plan.rounds


def test_a_replica_keeps_no_blob_that_is_summed() -> None:
    """What it holds of a step's replies is what the coordinator does: the sum."""
    session = with_replicas(rows())
    stopped_before(session, "public-shares/0")
    replies = {n: r for step, n, _, r in session.recorded if step == "keys"}
    replica = session.parties[VICTIM]._replica
    assert replica is not None
    replica.take([replies[ALL[0]]], b"", more=True)
    assert [body.blobs for body, *_ in replica._heard.values()] == [()]


@pytest.mark.parametrize(
    ("sizes", "due"), [([], [0]), ([9], [1]), ([4, 4, 4], [2, 1]), ([9, 1, 9], [1, 1, 1])]
)
def test_replies_in_parts(
    sizes: list[int], due: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In order, as bytes or as files."""
    monkeypatch.setattr("coordinator.relay.PART_BYTES", 8)
    for k, size in enumerate(sizes):
        (tmp_path / str(k)).write_bytes(bytes(size))
    files = [tmp_path / str(k) for k in range(len(sizes))]
    parts = in_parts(files)
    assert [len(part) for part in parts] == due and [*chain(*parts)] == files
    assert [[len(reply) for reply in part] for part in in_parts([bytes(n) for n in sizes])] == [
        [path.stat().st_size for path in part] for part in parts
    ]


def stopped_before(session: Session, due: str) -> None:
    """All steps up to this one."""

    def ask(step: str, outgoing: Any) -> Any:
        if step == due:
            raise StopHere
        return session.ask(step, outgoing)

    with pytest.raises(StopHere):
        session.run(relaying(ask))


def test_what_comes_ahead_ends_a_session_as_well() -> None:
    session = with_replicas(rows())

    stopped_before(session, "commit-keys")
    data = beside(request(session, VICTIM, RELAY, Body()), [b"no message"])
    assert "no readable header" in refusal(session, VICTIM, data)
    assert session.parties[VICTIM].answered == 0


def test_a_refusal_is_no_reply() -> None:
    """What an owner signs where it answers nothing: others went on from it."""
    session = with_replicas(rows())

    def ask(step: str, outgoing: Any) -> Any:
        if step == "public-shares/0":  # without what is relayed it refuses, and goes on
            own = parted(outgoing[VICTIM])[0]
            return session.ask(step, {**outgoing, VICTIM: own})
        return session.ask(step, outgoing)

    with pytest.raises(ProtocolError, match="relay = true"):
        session.run(relaying(ask))
    replies = {n: r for step, n, _, r in session.recorded if step == "public-shares/0"}
    replica = session.parties[ALL[0]]._replica
    assert replica is not None
    with pytest.raises(ProtocolError, match="has refused"):
        replica.hear([replies[n] for n in ALL[1:]], replies[ALL[0]])


def test_the_same_fields_in_other_bytes_are_refused() -> None:
    """1.0 for 1, of which Python makes the same."""
    session = rows()

    def other(body: Body) -> Body:
        return Body({**body.meta, "indices": [float(k) for k in body.meta["indices"]]})

    assert "to the bit" in ran(session, altered("rotations/0", other, VICTIM))
    assert session.recorded[-1][0] == "rotations/0"


def test_nothing_is_answered_where_nothing_is_relayed() -> None:
    session = with_replicas(rows())
    with pytest.raises(ProtocolError, match="relay = true"):
        session.run()
    assert session.recorded[-1][0] == "agree"


def test_a_coordinator_that_died_goes_on(tmp_path: Path) -> None:
    """What it recorded is relayed again."""
    session = with_replicas(rows())
    folder, key = tmp_path / FOLDER, public_bytes(session.coordinator_key)

    def keep(ask: Any) -> Any:
        return recorded(ask, folder, key, session.verify_keys)

    def dying(step: str, outgoing: Any) -> Any:
        if step == "commit-refresh/1":
            raise StopHere
        return session.ask(step, outgoing)

    with pytest.raises(StopHere):
        session.run(relaying(dying, keep))
    found = session.successor().run(relaying(session.ask, keep))
    assert found.weights.shape == (3,)


class Dying:
    """A transport on which one owner is restarted, once in each of some steps, or of all.

    What it answers where it refuses is no reply that is kept.
    """

    def __init__(self, session: Session, *steps: str, who: str = VICTIM) -> None:
        self.session, self.steps, self.who, self.died = session, steps, who, set[str]()

    def __call__(self, step: str, outgoing: Any) -> Any:
        """Deliver a step."""
        if step not in self.died and (not self.steps or step in self.steps):
            self.died.add(step)
            self.session.restart(self.who)
        for name, reply in self.session.deliver(step, outgoing).items():
            if "error" not in reply_of(self.session, name, reply).body.meta:
                self.session.recorded.append((step, name, outgoing[name], reply))
            yield name, reply


@pytest.mark.parametrize("name", ["rows", "whitened", "model"])
def test_an_owner_that_was_restarted_in_every_step_goes_on(name: str) -> None:
    """Its new replica follows the session once more, and comes to the same model.

    Of sums an owner keeps its secret in memory alone, with a replica and without.
    """
    session = MAKE[name]()
    steps = (name == "whitened" and ("precondition", "refresh/1", "finish")) or ()
    assert ran(session, ask=Dying(session, *steps), past=partial(past_of, session)) == ""
    party = session.parties[VICTIM]
    assert party._replica is not None and not party._behind
    again = MAKE[name]()
    if name != "whitened":  # its noise is another one each time
        again.run()
        assert log2_error(session.outcome.weights, again.outcome.weights) < np.log2(1e-4)


def test_a_restarted_owner_refuses_what_does_not_follow() -> None:
    """As before: a chosen ciphertext in the step in which it died."""
    session = rows()
    change = altered("commit-refresh/1", blob(0, zeros), VICTIM)
    ask, past = Dying(session, "commit-refresh/1"), partial(past_of, session)
    assert "follow" in ran(session, change, ask=ask, past=past)
    assert session.parties[VICTIM].answered == 0


PAST: dict[str, Any] = {
    "nothing": lambda session, found: [],
    "all but the last step": lambda session, found: found[:-1],
    "one step less": lambda session, found: found[:2] + found[3:],
    "a reply less": lambda session, found: [(q, r[1:]) for q, r in found],
    "another reply, from which nothing follows": lambda session, found: [
        (q, [resigned(session, r[0], body=meta(more=1)), *r[1:]] if k == 4 else r)
        for k, (q, r) in enumerate(found)
    ],
    "another request": lambda session, found: [
        (resigned(session, q, body=meta(more=1)), r) for q, r in found
    ],
}


@pytest.mark.parametrize("fault", PAST)
def test_a_restarted_owner_answers_after_its_own_session_alone(fault: str) -> None:
    session = rows()

    def past(name: str) -> Any:
        return PAST[fault](session, [*past_of(session, name)][:-1])

    assert ran(session, ask=Dying(session, "refresh/1"), past=past)
    answered = [name for step, name, *_ in session.recorded if step == "refresh/1"]
    assert VICTIM not in answered
    if fault not in ("nothing", "all but the last step"):
        assert session.parties[VICTIM].answered == 0


def test_what_comes_ahead_of_a_restarted_owner_is_too_early() -> None:
    """It says that it is behind, and waits."""
    session = rows()
    with_replicas(session)

    stopped_before(session, "commit-keys")
    session.restart(VICTIM)
    replies = [
        reply for step, name, _, reply in session.recorded if (step, name) == ("reveal", ALL[0])
    ]
    for early in ([], replies):
        data = beside(request(session, VICTIM, RELAY, Body()), early)
        said = reply_of(session, VICTIM, session.parties[VICTIM].handle(data))
        assert said.step == RELAY and said.body.meta == {"behind": True}
    assert session.parties[VICTIM].answered == 3


# -- the message ---------------------------------------------------------------------------------


@given(st.binary(max_size=40), st.lists(st.binary(max_size=20), max_size=4))
def test_replies_beside_a_request(own: bytes, replies: list[bytes]) -> None:
    assert parted(beside(own, replies)) == (own, tuple(replies))


@given(st.binary(max_size=60))
def test_what_is_beside_no_request_is_refused_or_none(data: bytes) -> None:
    for whole in (data, data + MARK):
        try:
            own, replies = parted(whole)
        except MessageError:
            continue
        assert (own, replies) == (whole, None) or beside(own, replies or ()) == whole


# -- other machines ------------------------------------------------------------------------------

AUDIT = """
import sys
from pathlib import Path
from coordinator.replay import replay
for folder in sys.argv[1:]:
    found = replay(Path(folder))
    assert found.passed, (folder, found.checks)
"""
OTHER = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F,-FMA4,-AVX",
    "OPENBLAS_CORETYPE": "Prescott",
    "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F",
    "OMP_NUM_THREADS": "2",
}


def test_another_processor_asks_the_same(tmp_path: Path) -> None:
    """Other paths of the C library, BLAS and NumPy, and two threads: every request, to the bit."""
    folders = []
    for name in ("rows", "whitened", "gram", "model", "lffr model", "sums"):
        folders.append(str(tmp_path / name))
        record(tmp_path / name, MAKE[name]())
    command = [sys.executable, "-c", AUDIT, *folders]
    done = subprocess.run(
        command, env={**os.environ, **OTHER}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(("who", "checking"), [("none", 0), ("one", 1), ("all", 3)])
def test_a_simulation_says_who_checks(who: str, checking: int) -> None:
    """Alike in plan and summary; the model is the same."""
    frame, fast = lopsided_frame(60), {"protocol": "secure-aggregation", "as_trained": True}
    result = simulate(
        data=frame, label="y", no_privacy=True, iterations=1, seed=1, replicas=who, **fast
    )
    names = [member.name for member in result.plan.members]
    follows = [member.follows for member in result.plan.members]
    assert follows == [*((name,) for name in names[:checking]), *[()] * (3 - checking)]
    words = f"{', '.join(names[:checking])}: own replica"
    assert (words in result.summary()["replicas"]) == bool(checking)
    np.testing.assert_allclose(result.weights, result.twin_weights, atol=1e-6)


def test_whoever_has_no_replica_is_not_brought_back() -> None:
    """Others' replies would be told to any owner that says it is behind."""
    key, asked = new_signing_key(), list[str]()
    behind = Body({"error": "words", BEHIND: True})

    def ask(step: str, outgoing: Any) -> Any:
        asked.append(step)
        for name in outgoing:
            yield name, encode(Envelope("s", step, name, COORDINATOR, behind), key)

    past = {"a": [(b"request", [b"reply of b"])]}.__getitem__
    again = ["x", *[RELAY, "x"] * RESTARTS]
    for follows, due in (({}, ["x"]), ({"a": ("b",)}, ["x"]), ({"a": ("a",)}, again)):
        asked.clear()
        told = [*_bringing(ask, lambda name, more: b"ahead", past, follows)("x", {"a": b"1"})]
        assert asked == due and len(told) == 1
