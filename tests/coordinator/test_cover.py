"""Runs in which parties vanish and others stand in for them. INSECURE toy rings, unless said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coordinator.flower_app as flower_app
import parties.flower_app as party_app
from coordinator.coordinator import Outcome
from coordinator.log import FOLDER, TRANSCRIPT, MessageLog, file_name, recorded
from coordinator.replay import replay
from protocols import decrypt
from protocols.ckks import shamir
from protocols.errors import LostError, ProtocolError
from protocols.messages import Body, Envelope, decode, encode, public_bytes
from protocols.statement import make_statement
from protocols.transcript import Transcript
from sims.local import LocalGrid
from sims.verify_messages import bytes_per_party, sequence_problems
from tests.helpers import NOISE, Session, log2_error, make_session
from tests.test_mutants import share_is_flooded

SMALL: dict[str, Any] = {"ring_dim": 512, "degree": 3, "update": "nag", "rows": 4, "rounds": 3}
A, B, C, D = "hospital-1", "hospital-2", "hospital-3", "hospital-4"
LOSSES = ((A,), (D,), (B, D), (A, C))
STEPS = ("confirm", "refresh/0", "refresh/1", "refresh/2", "decrypt")
# When parties vanish: at this step, and for good.
Fates = dict[str, tuple[str, ...]]


class World:
    """A session whose parties vanish; what was asked of whom is in `asked`."""

    def __init__(self, fates: Fates, **changes: Any) -> None:
        self.session: Session = make_session(**(SMALL | {"parties": 4, "cover": 2} | changes))
        self.fates, self.gone = fates, set[str]()
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def ask(self, step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        self.asked.append((step, tuple(outgoing)))
        self.gone |= set(self.fates.get(step, ()))
        for name, data in outgoing.items():
            if name not in self.gone:
                yield name, self.session.ask(step, {name: data})[name]
        lost = tuple(name for name in outgoing if name in self.gone)
        if lost:
            raise LostError(f"no reply to {step!r} from {', '.join(lost)}", lost)

    def run(self) -> Outcome:
        return self.session.run(self.ask)

    def off(self, outcome: Outcome) -> float:
        return log2_error(outcome.weights, self.session.twin())


@pytest.mark.parametrize("lost", LOSSES, ids=lambda names: "+".join(n[-1] for n in names))
@pytest.mark.parametrize("step", STEPS)
def test_the_model_is_the_twins(step: str, lost: tuple[str, ...]) -> None:
    """As if nobody had vanished; who vanished is asked nothing more."""
    world = World({step: lost}, privacy=NOISE)
    outcome = world.run()
    assert world.off(outcome) < -17
    assert outcome.missing == lost
    after = world.asked[[name for name, _ in world.asked].index(step) + 1 :]
    assert after[0][0] == f"cover-{step}" and after[-1][0] == "finish"
    assert all(set(names) == {A, B, C, D} - set(lost) for _, names in after)


@pytest.mark.parametrize("threshold", [2, 3])
def test_nobody_missing_costs_the_shares_and_nothing_else(threshold: int) -> None:
    world = World({}, cover=threshold)
    outcome = world.run()
    assert world.off(outcome) < -17 and outcome.missing == ()
    plain = World({}, cover=None)
    plain.run()
    steps, without = ([step for step, _ in each.asked] for each in (world, plain))
    assert [step for step in steps if step not in without] == [
        "cover-keys",
        "cover-deal",
        "cover-hold",
    ]


def test_another_loss_is_covered_by_the_same_parties() -> None:
    world = World({"refresh/0": (D,), "decrypt": (C,)})
    outcome = world.run()
    assert world.off(outcome) < -17 and outcome.missing == (C, D)


@pytest.mark.parametrize(
    ("fates", "words", "culprit"),
    [
        ({"refresh/0": (D,), "refresh/1": (A,)}, "'refresh/1' .* stands in for others", A),
        ({"refresh/0": (A, B, C)}, "1 parties are left, and 2 are needed", None),
        ({"refresh/0": (D,), "decrypt": (B, C)}, "1 parties are left, and 2 are needed", None),
        ({"refresh/1": (D,), "cover-refresh/1": (B,)}, "no reply to 'cover-refresh/1'", B),
        ({"relinearise": (B,)}, "no reply to 'relinearise'", B),
        ({"cover-deal": (B,)}, "no reply to 'cover-deal'", B),
        ({"commit-rows": (C,)}, "no reply to 'commit-rows'", C),
        ({"contribute": (C,)}, "no reply to 'contribute'", C),
    ],
)
def test_what_cannot_be_covered_is_a_named_abort(
    fates: Fates, words: str, culprit: str | None
) -> None:
    world = World(fates)
    with pytest.raises(ProtocolError, match=words) as caught:
        world.run()
    assert caught.value.culprit == culprit
    assert "finish" not in {step for step, _ in world.asked}


def test_without_cover_a_loss_is_an_abort() -> None:
    world = World({"refresh/0": (B,)}, cover=None)
    with pytest.raises(LostError, match="no reply to 'refresh/0' from hospital-2"):
        world.run()


def test_a_late_reply_is_ignored() -> None:
    """The covered party answers after all, with what it was asked: twice, at every later step."""
    world, late = World({}), list[bytes]()

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        for name, data in outgoing.items():
            reply = world.session.ask(step, {name: data})[name]
            if (step, name) == ("refresh/0", B):
                late.append(reply)
                continue
            if step != "refresh/0":
                yield from ((B, each) for each in late)
            yield name, reply
        if step == "refresh/0":
            raise LostError("too late", (B,))

    outcome = world.session.run(ask)
    assert late and outcome.missing == (B,)
    assert world.off(outcome) < -17


# -- who deviates ----------------------------------------------------------------------------------


def refusal(world: World, name: str, step: str, body: Body) -> str:
    """A party's words to a request that the coordinator signed."""
    session = world.session
    envelope = Envelope(session.coordinator.session, step, "coordinator", name, body)
    reply = session.parties[name].handle(encode(envelope, session.coordinator_key))
    meta = decode(reply, public_bytes(session.party_keys[name])).body.meta
    return str(meta.get("error", ""))


def stop_after(world: World, step: str) -> dict[str, Body]:
    """Run until everybody has answered a step; what they were asked."""
    held: dict[str, Body] = {}
    key = public_bytes(world.session.coordinator_key)

    def ask(current: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        yield from world.ask(current, outgoing)
        if current == step:
            held.update({name: decode(data, key).body for name, data in outgoing.items()})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.session.run(ask)
    return held


def test_a_step_is_repeated_once_for_the_same_ciphertext() -> None:
    world = World({})
    sent = stop_after(world, "refresh/1")[A]
    standing = {"missing": [D], "stand_ins": [A, B]}
    other = bytes([sent.blobs[0][0] ^ 1]) + sent.blobs[0][1:]
    again = Body(standing, sent.blobs)
    assert "out of order" in refusal(world, A, "cover-refresh/0", again)
    assert "out of order" in refusal(world, A, "cover-decrypt", again)
    words = refusal(world, A, "cover-refresh/1", Body(standing, (other, *sent.blobs[1:])))
    assert "is not for the ciphertext that 'refresh/1/0' was given for" in words
    more = Body(standing, (*sent.blobs, sent.blobs[0]))
    assert "more ciphertexts" in refusal(world, B, "cover-refresh/1", more)
    assert refusal(world, C, "cover-refresh/1", again) == ""
    assert "out of order" in refusal(world, C, "cover-refresh/1", Body(standing, sent.blobs[:1]))
    assert "it cannot be covered for" in refusal(world, D, "cover-refresh/1", again)


def test_a_plan_without_cover_has_no_repeated_step() -> None:
    world = World({}, cover=None)
    sent = stop_after(world, "refresh/1")[A]
    body = Body({"missing": [D], "stand_ins": [A, B]}, sent.blobs)
    assert "out of order" in refusal(world, A, "cover-refresh/1", body)


def test_only_steps_that_can_be_covered_are_repeated() -> None:
    world = World({})
    sent = stop_after(world, "contribute")[A]
    assert "out of order" in refusal(world, A, "cover-contribute", sent)


@pytest.mark.parametrize("where", ["deal", "hold"])
def test_a_changed_share_ends_the_run_before_any_data(where: str) -> None:
    """By its dealer: the dealer is named. By the coordinator: the receiver refuses."""
    world = World({})

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        key = world.session.coordinator_key
        if (where, step) == ("hold", "cover-hold"):
            old = decode(outgoing[A], public_bytes(key))
            blobs = (old.body.blobs[1], old.body.blobs[0], *old.body.blobs[2:])
            sent = encode(Envelope(old.session, step, old.sender, A, Body(blobs=blobs)), key)
            outgoing = {A: sent}
        for name, reply in world.ask(step, outgoing):
            if (where, step, name) == ("deal", "cover-deal", B):
                signer = world.session.party_keys[B]
                old = decode(reply, public_bytes(signer))
                body = Body(blobs=old.body.blobs[::-1])
                fields = (old.session, step, B, "coordinator", body, old.answers)
                yield name, encode(Envelope(*fields), signer)
            else:
                yield name, reply

    words = {"deal": "'hospital-2' sealed its shares for others", "hold": "another request"}
    with pytest.raises(ProtocolError, match=words[where]) as caught:
        world.session.run(ask)
    assert caught.value.culprit == {"deal": B, "hold": A}[where]
    assert "contribute" not in {step for step, _ in world.asked}
    if where == "hold":
        old = world.session.recorded[-1][3]
        meta = decode(old, public_bytes(world.session.party_keys[A])).body.meta
        assert "'hospital-2' dealt was changed on the way" in meta["error"]


# -- mutants: nobody gets a wrong model ------------------------------------------------------------

true_weights, true_deal = shamir.weights, shamir.deal


def of_another_set(x: int, points: Any, primes: Any) -> list[int]:
    return true_weights(x, [*(y for y in points if y == x), 4, 5], primes)


def of_one_more(x: int, points: Any, primes: Any) -> list[int]:
    return true_weights(x, [*points, 5], primes)


def not_weighted(x: int, points: Any, primes: Any) -> list[int]:
    return [1] * len(primes)


@pytest.mark.parametrize("step", ["refresh/0", "decrypt"])
@pytest.mark.parametrize("mutant", [of_another_set, of_one_more, not_weighted])
def test_wrong_weights_release_nothing(
    mutant: Callable[..., Any], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is fused is no message: the coordinator refuses it."""
    monkeypatch.setattr(shamir, "weights", mutant)
    with pytest.raises(ProtocolError, match="the decryption shares do not fit together"):
        World({step: (C,)}).run()


def test_a_dealer_of_another_secret_spoils_only_its_own_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def deal(secret: Any, *rest: Any) -> Any:
        return true_deal(np.zeros_like(secret), *rest)

    monkeypatch.setattr(shamir, "deal", deal)
    with pytest.raises(ProtocolError, match="do not fit together"):
        World({"refresh/1": (C,)}).run()


def test_flooding_is_charged_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({})
    stop_after(world, "agree")
    plan = world.session.plan
    assert plan is not None
    single = decrypt.flooding_std(plan.model_error_std())
    assert decrypt.flooding_of(plan) == pytest.approx(np.sqrt(2) * single)
    assert share_is_flooded()  # without cover: once


# -- what is recorded ------------------------------------------------------------------------------


def record(folder: Path, fates: Fates) -> World:
    world = World(fates)
    folder.mkdir(exist_ok=True)
    session = world.session
    session.transcript = session.coordinator._transcript = Transcript(folder / TRANSCRIPT)
    key = public_bytes(session.coordinator_key)
    try:
        session.run(recorded(world.ask, folder / FOLDER, key, session.coordinator._party_keys))
    finally:
        session.transcript.close()
    return world


@pytest.mark.parametrize(
    "fates",
    [
        {"refresh/0": (A,)},
        {"refresh/1": (B, C)},
        {"decrypt": (D,)},
        {"refresh/0": (D,), "decrypt": (C,)},
    ],
)
def test_the_log_of_a_covered_run_is_executed_again(tmp_path: Path, fates: Fates) -> None:
    world = record(tmp_path, fates)
    session = world.session
    told = [
        make_statement(session.coordinator.session, name, party.seen, session.party_keys[name])
        for name, party in session.parties.items()
        if name in world.gone
    ]
    found = replay(tmp_path, statements=told)
    assert found.passed, found.checks[-1]
    log, plan = MessageLog(tmp_path), world.session.plan
    lost = {step.name: step.lost for step in log.steps if step.lost}
    assert lost == fates
    assert plan is not None
    lines = world.session.transcript.lines
    assert list(sequence_problems(lines, plan)) == []
    assert bytes_per_party(lines) == world.session.coordinator.costs.bytes_per_party
    # A file for every line, but for those of replies that never came.
    for entry in log.entries:
        assert (tmp_path / FOLDER / file_name(entry.index)).exists() != entry.is_lost


def test_a_log_that_hides_an_answer_is_refused(tmp_path: Path) -> None:
    """A reply is struck out, and nobody stood in for it; or one who was covered is asked."""
    world = record(tmp_path, {"refresh/1": (B,)})
    plan, lines = world.session.plan, [dict(line) for line in world.session.transcript.lines]
    assert plan is not None
    first = next(k for k, x in enumerate(lines) if (x["step"], x["sender"]) == ("refresh/0", C))
    struck = [dict(x) for x in lines]
    struck[first] |= {"bytes": 0, "message": ""}
    assert any("'cover-refresh/0'" in words for words in sequence_problems(struck, plan))
    struck = [dict(x) for x in lines]
    first = next(k for k, x in enumerate(lines) if (x["step"], x["sender"]) == ("relinearise", C))
    struck[first] |= {"bytes": 0, "message": ""}
    assert "step relinearise: no message from hospital-3" in " ".join(
        sequence_problems(struck, plan)
    )
    extra = [x for x in lines if x["step"] != "finish"]
    extra += [{**x, "recipient": B} for x in lines if x["step"] == "finish"][:1] + [
        x for x in lines if x["step"] == "finish"
    ]
    assert "one message too many from 'coordinator' to 'hospital-2'" in " ".join(
        sequence_problems(extra, plan)
    )


# -- over Flower's objects -------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["raises", "silent"])
@pytest.mark.parametrize("step", ["refresh/1", "decrypt"])
def test_a_party_that_dies_behind_its_relay(
    fault: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its relay fails, or nothing comes until the time is over; the others are waited for."""
    monkeypatch.setattr(flower_app, "POLL_SECONDS", 0.001)
    world, dead = World({}), set[str]()
    names = tuple(world.session.parties)
    nodes = {name: 2 + k for k, name in enumerate(names)}

    class Handler:
        def __init__(self, name: str) -> None:
            self.name = name

        def handle(self, data: bytes) -> bytes:
            key = public_bytes(world.session.coordinator_key)
            if decode(data, key).step == step and self.name == A:
                dead.add(A)
            if fault == "raises" and self.name in dead:
                raise ConnectionError("killed")
            return world.session.parties[self.name].handle(data)

    class Grid(LocalGrid):
        def pull_messages(self, message_ids: Any) -> Any:
            for reply in super().pull_messages([i for i in message_ids if i in self._sent]):
                if not (fault == "silent" and A in dead and reply.metadata.src_node_id == 2):
                    yield reply

    monkeypatch.setattr(party_app, "LOCAL", {name: Handler(name) for name in names})
    grid = Grid({node: f"local:{name}" for name, node in nodes.items()})
    outcome = world.session.run(flower_app.GridTransport(grid, nodes, timeout=0.5))
    assert dead == {A} and outcome.missing == (A,)
    assert world.off(outcome) < -17


@pytest.mark.timeout(170)
def test_at_128_bits() -> None:
    """The secure ring: a party vanishes at a refresh, another at the decryption."""
    world = World(
        {"refresh/0": (C,), "decrypt": (D,)},
        security=128,
        ring_dim=None,
        rows=20,
        update="gd",
        rounds=2,
        privacy=NOISE,
    )
    outcome = world.run()
    assert outcome.plan.security_bits == 128 and outcome.missing == (C, D)
    assert world.off(outcome) < np.log2(1e-4)
