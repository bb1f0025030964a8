"""Runs in which parties vanish and others stand in for them. INSECURE toy rings, unless said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ciphercohort.verify.messages import bytes_per_party, sequence_problems
from coordinator.errors import LostError
from coordinator.log import FOLDER, MessageLog, file_name
from coordinator.replay import replay
from parties.kernel.cover import shamir
from protocols.errors import ParameterError, ProtocolError
from protocols.exchange.messages import Body
from protocols.plan.protocol import protocol_of
from protocols.plan.statement import make_statement
from protocols.rows.training import train_plain
from protocols.steps import decrypt
from protocols.steps.whole import Outcome
from tests.support import sessions
from tests.support.helpers import NOISE, Session, half_of, log2_error, party_names
from tests.support.sessions import (
    Vanishing,
    asked,
    model_session,
    question,
    reply_of,
    request,
    resigned,
    run_until,
    small,
)
from tests.test_mutants import share_is_flooded

A, B, C, D = party_names(4)
Fates = dict[str, tuple[str, ...]]
# Each step that can be repeated; one party and two, in each place of the plan's order; then twice.
LOSSES: tuple[Fates, ...] = (
    *({"confirm": (B, D)}, {"decrypt": (D,)}, {"refresh/1": (A, C)}),
    *({"commit-decrypt": (B, D)}, {"commit-refresh/1": (A,)}),
    {"refresh/0": (D,), "decrypt": (C,)},
    {"confirm": (B,), "commit-refresh/0": (D,)},
)
# Of an encrypted model.
MODEL_LOSSES: tuple[Fates, ...] = (
    *({"gradient/0": (D,)}, {"gradient/1": (B, D)}, {"decrypt": (B, D)}, {"refresh/1": (A,)}),
    *({"commit-gradient/1": (D,)}, {"commit-decrypt": (A,)}),
    {"refresh/0": (D,), "gradient/1": (C,)},
)
Make = Callable[..., Session]


class World:
    """A session whose parties vanish; what was asked of whom is in `asked`."""

    def __init__(self, fates: Fates, make: Make = small, **changes: Any) -> None:
        fields = {"update": "nag", "parties": 4, "cover": 2}
        self.session: Session = make(**(fields | changes))
        self.ask = Vanishing(lambda *sent: self.session.ask(*sent), fates)
        self.asked = self.ask.asked

    def run(self) -> Outcome:
        return self.session.run(self.ask)

    def off(self, outcome: Outcome) -> float:
        return log2_error(outcome.weights, self.session.twin())


def finished(world: World, folder: Path) -> Outcome:
    """A recorded run: who vanished is asked nothing more, and the log is executed again."""
    session, lost = world.session, set[str]()
    sessions.record(folder, session, ask=world.ask)
    for step, names in world.ask.fates.items():
        after = world.asked[[name for name, _ in world.asked].index(step) + 1 :]
        again = protocol_of(session.plan).repetition(session.plan, step)
        assert tuple(name for name, _ in after[: len(again)]) == again
        assert all(set(names).isdisjoint(asked) for _, asked in after)
        lost |= set(names)
    assert world.asked[-1] == ("finish", tuple(n for n in session.parties if n not in lost))
    assert session.outcome.missing == tuple(sorted(lost))
    told = [
        make_statement(session.coordinator.session, n, session.parties[n].seen, key)
        for n, key in session.party_keys.items()
        if n in lost
    ]
    found = replay(folder, statements=told)
    assert found.passed, found.checks[-1]
    log, lines = MessageLog(folder), session.transcript.lines
    assert {step.name: step.lost for step in log.steps if step.lost} == world.ask.fates
    assert list(sequence_problems(lines, session.plan)) == []
    assert bytes_per_party(lines) == session.coordinator.costs.bytes_per_party
    # A file for every line, but for those of replies that never came.
    for entry in log.entries:
        assert (folder / FOLDER / file_name(entry.index)).exists() != entry.is_lost
    return session.outcome


@pytest.mark.parametrize("fates", LOSSES, ids=str)
def test_the_model_is_the_twins(fates: Fates, tmp_path: Path) -> None:
    """As if nobody had vanished."""
    world = World(fates, privacy=NOISE)
    assert world.off(finished(world, tmp_path)) < -17


@pytest.mark.parametrize("fates", MODEL_LOSSES, ids=str)
def test_a_model_goes_on_with_the_rows_that_are_left(fates: Fates, tmp_path: Path) -> None:
    """The twin whose gradients lack those of the missing from then on; pads cancel all the same."""
    world, since = World(fates, model_session, rounds=3), dict[str, int]()
    for step, lost in fates.items():
        kind, _, t = step.partition("/")
        # A loss at a refresh is after the round's gradient.
        since |= dict.fromkeys(lost, int(t) + (kind == "refresh") if t else 3)
    outcome = finished(world, tmp_path)
    assert log2_error(outcome.weights, without(world, since)) < -17
    if min(since.values()) < 3:
        assert world.off(outcome) > -10


def without(world: World, since: Mapping[str, int]) -> Any:
    """Weights of the twin; since: the first round whose gradient lacks a party's rows."""
    plan, shards, rounds = world.session.plan, world.session.shards, count()

    def gradient(point: Any, step: float) -> Any:
        t = next(rounds)
        left = [shards[plan.party_index(n)] for n in plan.names if since.get(n, t + 1) > t]
        x, y = (np.concatenate(part) for part in zip(*left, strict=True))
        return step * x.T @ (plan.link(x @ point) - y) / plan.num_rows

    gradient.weight_unit = 1.0  # type: ignore[attr-defined]
    return train_plain(plan.rule, gradient, plan.num_features)


def test_a_model_may_lose_two_parties_one_after_the_other() -> None:
    """Each restarts in between: who is missing is part of its state."""
    world = World({"gradient/0": (D,), "gradient/1": (C,)}, model_session, rounds=3)
    ask = world.ask

    def restarting(step: str, outgoing: Mapping[str, bytes]) -> Any:
        if step in (
            "refresh/0",
            "gradient/1",
            "cover-commit-gradient/1",
            "cover-gradient/1",
            "gradient/2",
        ):
            for name in (A, B):
                world.session.restart(name)
        return ask(step, outgoing)

    outcome = world.session.run(restarting)
    assert outcome.missing == (C, D)
    assert log2_error(outcome.weights, without(world, {D: 0, C: 1})) < -17


def test_a_round_is_repeated_at_its_point() -> None:
    """The difference of gradients at two points has no noise; one at the same point is the same."""
    world = World({}, model_session)
    sent = stop_after(world, "gradient/1")
    covering = {"missing": [D], "stand_ins": [A, B]}
    other = bytes([sent.blobs[0][0] ^ 1]) + sent.blobs[0][1:]
    words = refusal(world, A, "cover-commit-gradient/1", Body(covering, (other, *sent.blobs[1:])))
    assert "not for the point that 'gradient/1' was asked at" in words
    world.session.restart(C)
    words = refusal(world, C, "cover-commit-gradient/1", Body(covering, (other, *sent.blobs[1:])))
    assert "not for the point" in words
    assert refusal(world, B, "cover-commit-gradient/1", Body(covering, sent.blobs)) == ""


def test_no_cover_with_a_promise() -> None:
    """A party's noise is in its replies: who vanishes takes it along."""
    with pytest.raises(ParameterError, match="cover=2 with epsilon=1: .* encrypted-rows"):
        World({}, model_session, privacy=NOISE).run()


@pytest.mark.parametrize("threshold", [2, 3])
def test_nobody_missing_costs_the_shares_and_nothing_else(threshold: int) -> None:
    world, plain = World({}, cover=threshold), World({}, cover=None)
    outcome = world.run()
    assert world.off(outcome) < -17 and outcome.missing == ()
    plain.run()
    steps, without = ([step for step, _ in each.asked] for each in (world, plain))
    extra = [step for step in steps if step not in without]
    assert extra == ["cover-keys", "cover-deal", "cover-hold"]


@pytest.mark.parametrize(
    ("fates", "words", "culprit"),
    [
        ({"refresh/0": (D,), "refresh/1": (A,)}, "'refresh/1' .* stands in for others", A),
        ({"refresh/0": (A, B, C)}, "1 parties are left, and 2 are needed", None),
        ({"refresh/1": (D,), "cover-refresh/1": (B,)}, "no reply to 'cover-refresh/1'", B),
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
    with pytest.raises(LostError, match="no reply to 'refresh/0' from hospital-2"):
        World({"refresh/0": (B,)}, cover=None).run()


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
    """A party's words to a request that the coordinator signed; empty if it answers."""
    data = world.session.parties[name].handle(request(world.session, name, step, body))
    return str(reply_of(world.session, name, data).body.meta.get("error", ""))


def stop_after(world: World, step: str) -> Body:
    """Run until everybody has answered a step; what A's reply is about."""
    outgoing = run_until(world.session, step)
    world.session.ask(step, outgoing)
    return question(world.session, step, A)


def test_a_step_is_repeated_once_for_the_same_ciphertext() -> None:
    world = World({})
    sent = stop_after(world, "refresh/1")
    covering = {"missing": [D], "stand_ins": [A, B]}
    other = bytes([sent.blobs[0][0] ^ 1]) + sent.blobs[0][1:]
    again = Body(covering, sent.blobs)
    assert "out of order" in refusal(world, A, "cover-commit-refresh/0", again)
    assert "out of order" in refusal(world, A, "cover-commit-decrypt", again)
    words = refusal(world, A, "cover-commit-refresh/1", Body(covering, (other, *sent.blobs[1:])))
    assert "is not for the ciphertext that 'refresh/1/0' was given for" in words
    more = Body(covering, (*sent.blobs, sent.blobs[0]))
    assert "more ciphertexts" in refusal(world, B, "cover-commit-refresh/1", more)
    assert refusal(world, C, "cover-commit-refresh/1", again) == ""
    assert "out of order" in refusal(
        world, C, "cover-commit-refresh/1", Body(covering, sent.blobs[:1])
    )
    assert "it cannot be covered for" in refusal(world, D, "cover-commit-refresh/1", again)


def test_a_repetition_that_is_refused_changes_no_secret() -> None:
    """Or shares of later steps would be under the secret of a stand-in, that none asked for."""
    world = World({})
    sent = stop_after(world, "refresh/1")
    half = half_of(world.session.parties[A])
    own = half.secret._present.copy()
    other = Body(blobs=(bytes([sent.blobs[0][0] ^ 1]) + sent.blobs[0][1:], *sent.blobs[1:]))
    for missing in ([D], [C, D]):
        covering = {"missing": missing, "stand_ins": [A, B]}
        words = refusal(world, A, "cover-commit-refresh/1", Body(covering, other.blobs))
        assert "is not for the ciphertext that" in words
        assert half.secret._cover.missing == () and (half.secret._present == own).all()
    again = Body({"missing": [D], "stand_ins": [A, B]}, sent.blobs)
    assert refusal(world, A, "cover-commit-refresh/1", again) == ""
    assert half.secret._cover.missing == (D,) and (half.secret._present != own).any()


@pytest.mark.parametrize(("cover", "step"), [(None, "refresh/1"), (2, "contribute")])
def test_only_steps_that_can_be_covered_are_repeated(cover: int | None, step: str) -> None:
    world = World({}, cover=cover)
    sent = stop_after(world, step)
    body = Body({**sent.meta, "missing": [D], "stand_ins": [A, B]}, sent.blobs)
    assert "out of order" in refusal(world, A, f"cover-{step}", body)


@pytest.mark.parametrize("where", ["deal", "hold"])
def test_a_changed_share_ends_the_run_before_any_data(where: str) -> None:
    """By its dealer: the dealer is named. By the coordinator: the receiver refuses."""
    world = World({})
    session = world.session

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if (where, step) == ("hold", "cover-hold"):
            old = asked(session, outgoing[A]).blobs
            swapped = Body(blobs=(old[1], old[0], *old[2:]))
            outgoing = {A: resigned(session, outgoing[A], body=swapped)}
        replies = session.ask(step, outgoing)
        if (where, step) == ("deal", "cover-deal"):
            turned = resigned(session, replies[B], body=lambda body: Body(blobs=body.blobs[::-1]))
            return replies | {B: turned}
        return replies

    words = {"deal": "'hospital-2' sealed its shares for others", "hold": "another request"}
    with pytest.raises(ProtocolError, match=words[where]) as caught:
        session.run(ask)
    assert caught.value.culprit == {"deal": B, "hold": A}[where]
    assert "contribute" not in {step for step, *_ in session.recorded}
    if where == "hold":
        meta = reply_of(session, A, session.recorded[-1][3]).body.meta
        assert "'hospital-2' dealt was changed on the way" in meta["error"]


# -- mutants: nobody gets a wrong model ------------------------------------------------------------

true_weights, true_deal = shamir.weights, shamir.deal


def of_another_set(x: int, points: Any, primes: Any) -> list[int]:
    return true_weights(x, [*(y for y in points if y == x), 4, 5], primes)


def of_one_more(x: int, points: Any, primes: Any) -> list[int]:
    return true_weights(x, [*points, 5], primes)


def not_weighted(x: int, points: Any, primes: Any) -> list[int]:
    return [1] * len(primes)


@pytest.mark.parametrize(
    ("mutant", "step"),
    [(of_another_set, "decrypt"), (of_one_more, "refresh/0"), (not_weighted, "refresh/0")],
)
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
    twice, once = decrypt.flooding_of(plan), decrypt.flooding_of(replace(plan, cover=None))
    assert twice.std == pytest.approx(np.sqrt(2) * once.std)
    assert twice.rest == pytest.approx(np.sqrt(2) * once.rest)
    assert share_is_flooded()  # without cover: once


# -- what is recorded ------------------------------------------------------------------------------


def test_a_log_that_hides_an_answer_is_refused(tmp_path: Path) -> None:
    """A reply is struck out, and nobody stood in for it; or one who was covered is asked."""
    world = World({"refresh/1": (B,)})
    sessions.record(tmp_path, world.session, ask=world.ask)
    plan, lines = world.session.plan, world.session.transcript.lines
    for step, words in (
        ("refresh/0", "'cover-commit-refresh/0'"),
        ("relinearise", "step relinearise: no message from hospital-3"),
    ):
        struck = [dict(line) for line in lines]
        at = next(k for k, x in enumerate(lines) if (x["step"], x["sender"]) == (step, C))
        struck[at] |= {"bytes": 0, "message": ""}
        assert words in " ".join(sequence_problems(struck, plan))
    finish = [line for line in lines if line["step"] == "finish"]
    extra = [*lines[: -len(finish)], {**finish[0], "recipient": B}, *finish]
    words = "one message too many from 'coordinator' to 'hospital-2'"
    assert words in " ".join(sequence_problems(extra, plan))


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
