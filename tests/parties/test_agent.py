"""The party agent: restarts, refusals, consent, and an end that leaves no key. INSECURE rings."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties.agent import manifest
from parties.agent.agent import Agent, Limits
from parties.agent.store import STATE, SessionStore, capture, restore
from parties.agent.vault import MIN_PASSPHRASE, Vault
from parties.kernel.keys.session import KeySession
from parties.kernel.private import closed
from parties.verifier.party import Party
from protocols.errors import MessageError, ParameterError, PolicyError, ProtocolError
from protocols.exchange.messages import (
    UNHEARD,
    decode,
    digest,
    heard,
    new_signing_key,
    public_bytes,
)
from protocols.models.registry import ELSEWHERE, MODELS
from protocols.names import spoken
from protocols.plan.kinds import plan_from_dict
from tests.parties.agents import PASSPHRASE, Agents
from tests.support.helpers import NOISE, log2_error, make_plan
from tests.support.sessions import holding, model_session, sums_session

NAME, OTHER = "hospital-1", "hospital-2"


@pytest.fixture(scope="module")
def vault() -> Vault:
    return Vault(PASSPHRASE)


@pytest.fixture
def agents(tmp_path: Path, vault: Vault) -> Agents:
    return Agents(tmp_path, vault)


def refusal(agents: Agents, data: bytes, name: str = NAME) -> str:
    """The words of a signed refusal."""
    key = public_bytes(agents.session.party_keys[name])
    return str(decode(agents.agents[name].handle(data), key).body.meta["error"])


def run_until(agents: Agents, last: str) -> None:
    """Stop the coordinator after a step was answered."""

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = agents.ask(step, outgoing)
        if step == last:
            raise KeyboardInterrupt
        return replies

    with pytest.raises(KeyboardInterrupt):
        agents.session.run(ask)


def secret_of(agent: Agent) -> KeySession:
    half: Any = agent._party._half if agent._party else None
    found: KeySession = half.secret
    return found


def test_agents_of_one_process_compute_one_after_the_other(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook with several parties: OpenFHE's maps of keys are global."""
    inside, most, handle = [], list[int](), Party.handle

    def slow(self: Party, data: bytes) -> bytes:
        inside.append(self)
        time.sleep(0.1)
        most.append(len(inside))
        inside.remove(self)
        return handle(self, data)

    monkeypatch.setattr(Party, "handle", slow)
    threads = [
        threading.Thread(target=agents.agents[n].handle, args=(agents.request("enrol", n),))
        for n in (NAME, OTHER)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert most == [1, 1]


def test_restarted_before_every_message_it_gives_the_same_model(agents: Agents) -> None:

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        for name in outgoing:
            agents.restart(name)
        replies = agents.ask(step, outgoing)
        for name, data in outgoing.items():
            agents.restart(name)
            assert agents.agents[name].handle(data) == replies[name], step
        return replies

    outcome = agents.session.run(ask)
    assert log2_error(outcome.weights, agents.session.twin()) < -17
    for name in outcome.plan.names:
        assert not (agents.folder / name / STATE).exists()
        assert agents.agents[name].status()["session"] is None


def test_an_encrypted_model_goes_on_in_other_processes(tmp_path: Path, vault: Vault) -> None:
    """Pads, evaluation keys, noise of rounds to come and the point's elements are in the state.

    And coins: the model is that of the rows which are not held back.
    """
    privacy = replace(NOISE, epsilon=2.0)
    session = holding(model_session(update="nag", privacy=privacy))
    agents, twin = Agents(tmp_path, vault, session=session), session.twin

    def of_rows_left() -> Any:
        coins: Any = {name: agents.coins(name) for name in session.parties}
        held_out = session.plan.held_out
        rows = [
            p.run.rows._value.only(
                coins[n].chosen(held_out, p.run.rows._value, "", session.plan.digest())
            )
            for n, p in session.parties.items()
        ]
        assert {shard.rows for shard in rows} == {3}
        session.shards = [(shard.x, shard.y) for shard in rows]
        return twin()

    session.twin = of_rows_left  # type: ignore[method-assign]
    test_restarted_before_every_message_it_gives_the_same_model(agents)


def test_evaluation_keys_are_written_once(
    tmp_path: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the state of every step; whoever goes on has them, or knows that one is missing."""
    monkeypatch.setattr("parties.agent.store.LARGE", 1 << 15)
    agents = Agents(tmp_path, vault, session=model_session(update="nag"))
    folder, written = tmp_path / NAME, dict[str, list[tuple[str, int]]]()

    def blobs() -> list[Path]:
        return sorted(folder.glob("*.blob"))

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = agents.ask(step, outgoing)
        written[step] = [(path.name, path.stat().st_mtime_ns) for path in blobs()]
        if step == "gradient/1":
            half: Any = agents.agents[NAME]._party._half  # type: ignore[union-attr]
            keys = sum(each.nbytes for chunk in half.session._chunks for each in chunk)
            assert sum(path.stat().st_size for path in blobs()) > keys > 1 << 18
            first, good = blobs()[0], blobs()[0].read_bytes()
            store = SessionStore(folder, vault)
            first.write_bytes(blobs()[1].read_bytes())
            with pytest.raises(PolicyError, match="is another one"):
                store._blob(first.stem)
            first.unlink()
            with pytest.raises(PolicyError, match="is missing"):
                store._blob(first.stem)
            first.write_bytes(good)
            agents.restart(NAME)
        return replies

    outcome = agents.session.run(ask)
    assert log2_error(outcome.weights, agents.session.twin()) < -17
    assert not written["agree"] and not blobs()
    assert set(written["gradient/0"]) & set(written["gradient/1"]) == set(written["gradient/1"])


def test_pads_are_sealed_with_the_key_share(tmp_path: Path, vault: Vault) -> None:
    agents = Agents(tmp_path, vault, session=model_session())
    run_until(agents, "gradient/1")
    half: Any = agents.agents[NAME]._party._half  # type: ignore[union-attr]
    state = b"".join(p.read_bytes() for p in (agents.folder / NAME).iterdir())
    own = half.session
    assert own._noise is not None and len(own._pads._secrets) == 2
    for secret in (*own._pads._secrets.values(), own._noise.tobytes()):
        assert secret not in state
    half.erase()
    assert own._pads._secrets == {} and own._noise is None and own._clear is None


def test_a_second_share_is_refused_after_a_restart_too(agents: Agents) -> None:
    run_until(agents, "decrypt")
    request, _ = agents.sent("decrypt", NAME)
    blobs = decode(request, public_bytes(agents.session.coordinator_key)).body.blobs
    agents.restart(NAME)
    words = refusal(agents, agents.request("decrypt", NAME, again=len(blobs)))
    assert "out of order; next is 'finish'" in words
    share = secret_of(agents.agents[NAME])
    with pytest.raises(PolicyError, match="already given"):
        share.decryption_share(np.zeros((2, 512), np.uint64), "decrypt")
    with pytest.raises(PolicyError, match="already given"):
        share.public_share()


def test_the_file_holds_no_secret_in_the_clear(agents: Agents, vault: Vault) -> None:
    run_until(agents, "keys")
    plain = secret_of(agents.agents[NAME])._key.tobytes()
    secret = plain[len(plain) // 2 :][:64]
    sealed = (agents.folder / NAME / STATE).read_bytes()
    assert (agents.folder / NAME / STATE).stat().st_mode & 0o777 == 0o600
    assert secret not in sealed and agents.session.coordinator.session.encode() not in sealed
    assert vault.open(sealed, "session state")  # the right passphrase opens it
    with pytest.raises(PolicyError, match="does not open"):
        Vault.for_file("another passphrase", sealed).open(sealed, "session state")
    for position in (0, 40, len(sealed) - 1):
        broken = sealed[:position] + bytes([sealed[position] ^ 1]) + sealed[position + 1 :]
        with pytest.raises(PolicyError):
            vault.open(broken, "session state")


def test_a_state_of_other_rows_is_refused(agents: Agents, vault: Vault) -> None:
    run_until(agents, "keys")
    sealed = capture(agents.agents[NAME]._party, vault)  # type: ignore[arg-type]
    party = agents.make_party(NAME)
    party.run.rows = closed(replace(party.run.rows._value, y=1 - party.run.rows._value.y))
    with pytest.raises(PolicyError, match="rows or their schema have changed"):
        restore(party, sealed, vault)


@pytest.mark.parametrize("lost", ["no vault", "wrong passphrase", "no file"])
def test_a_lost_key_share_is_a_named_abort(tmp_path: Path, vault: Vault, lost: str) -> None:
    agents = Agents(tmp_path, None if lost == "no vault" else vault)

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if step == "contribute":
            if lost == "wrong passphrase":
                agents.vault = Vault("another passphrase")
            if lost == "no file":
                (tmp_path / NAME / STATE).unlink()
            agents.restart(NAME)
        return agents.ask(step, outgoing)

    with pytest.raises(ProtocolError, match="is over: ") as caught:
        agents.session.run(ask)
    assert caught.value.culprit == NAME
    assert not (tmp_path / NAME / STATE).exists()
    # Nor does it begin anew under the same name.
    assert "is over" in refusal(agents, agents.request("enrol", NAME))


@pytest.mark.parametrize("limit", ["idle_seconds", "session_seconds"])
def test_a_silent_session_ends_without_a_key(tmp_path: Path, vault: Vault, limit: str) -> None:
    agents = Agents(tmp_path, vault, Limits(**{limit: 0.05}))
    run_until(agents, "keys")
    agent = agents.agents[NAME]
    share = secret_of(agent)
    time.sleep(0.1)
    agent.tick()
    assert share._secret is None and not (tmp_path / NAME / STATE).exists()
    told = refusal(agents, agents.request("rotations/0", NAME))
    assert "is over: no" in told and "0.05 s" not in told
    assert "0.05 s" in agent.status()["last"]["reason"]


def test_what_is_refused(agents: Agents) -> None:
    run_until(agents, "reveal")
    agree, _ = agents.sent("agree", NAME)
    plan = decode(agree, public_bytes(agents.session.coordinator_key)).body.meta["plan"]
    changed = {**plan, "update": {**plan["update"], "rounds": 3}}
    assert "out of order" in refusal(agents, agents.request("agree", NAME, plan=changed))
    assert "out of order" in refusal(agents, agree)  # replayed
    assert "out of order" in refusal(agents, agents.request("decrypt", NAME))
    assert "busy with another session" in refusal(agents, agents.request("enrol", NAME, "other"))
    assert "not for this party" in refusal(agents, agents.request("keys", OTHER))
    for forged in (b"", agree[:-1], agree + b"x", b"CPHC\x01" + bytes(200)):
        with pytest.raises(MessageError):
            agents.agents[NAME].handle(forged)
    agents.session.coordinator_key = new_signing_key()
    with pytest.raises(MessageError, match="signature"):
        agents.agents[NAME].handle(agents.request("abort", NAME))
    assert agents.agents[NAME].status()["session"] == agents.session.coordinator.session


def test_a_refused_request_outlives_a_restart(agents: Agents) -> None:
    """Its trace is on disk before the refusal leaves, and in the statement at the end."""
    run_until(agents, "relinearise")
    key, head = public_bytes(agents.session.party_keys[NAME]), UNHEARD
    for _, name, request, reply in agents.session.recorded:
        if name == NAME:
            head = heard(head, digest(request))
            assert decode(reply, key).seen == head
    wrong = agents.request("decrypt", NAME)
    head = heard(head, digest(wrong))
    for _ in range(2):  # a copy changes nothing
        assert decode(agents.agents[NAME].handle(wrong), key).seen == head
        agents.restart(NAME)
    assert decode(agents.agents[NAME].handle(agents.request("decrypt", OTHER)), key).seen == ""
    agents.agents[NAME].handle(agents.request("abort", NAME))
    told = decode(agents.restart(NAME).statement(), key)
    assert told.seen == head
    assert told.session == agents.session.coordinator.session


def test_a_state_that_is_set_back_is_refused(tmp_path: Path, vault: Vault) -> None:
    """An encrypted model's owner would answer a round at two points, with the same noise."""
    agents = Agents(tmp_path, vault, session=model_session())
    state, old = tmp_path / NAME, tmp_path / "old"

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = agents.ask(step, outgoing)
        if step == "gradient/0":
            copytree(state, old)
        if step == "gradient/1":
            raise KeyboardInterrupt
        return replies

    with pytest.raises(KeyboardInterrupt):
        agents.session.run(ask)
    asked, answered = agents.sent("gradient/1", NAME)
    assert agents.restart(NAME).handle(asked) == answered
    rmtree(state)
    copytree(old, state)
    agents.restart(NAME)
    told, last = refusal(agents, asked), agents.agents[NAME].status()["last"]
    assert told.endswith("is over: see its own log") and "it was set back" in last["reason"]
    assert not (state / STATE).exists()


def test_a_plan_that_the_owner_refuses_leaves_a_trace(tmp_path: Path, vault: Vault) -> None:
    agents = Agents(tmp_path, vault, peers=dict)
    with pytest.raises(ProtocolError, match="does not know"):
        agents.session.run(agents.ask)
    head = UNHEARD
    for step in ("enrol", "agree"):
        request, reply = agents.sent(step, NAME)
        head = heard(head, digest(request))
        assert decode(reply, public_bytes(agents.session.party_keys[NAME])).seen == head


def test_what_cannot_be_kept_is_said_once_a_session(
    tmp_path: Path, vault: Vault, caplog: pytest.LogCaptureFixture
) -> None:
    class Unkept:
        def state(self) -> Any:
            raise PolicyError("the secret is held in memory only")

    party: Any = Unkept()
    store = SessionStore(tmp_path, vault)
    for session in ("s1", "s2"):
        store.begin(session)
        for _ in range(3):
            store.save(party)
        store.end(session, "finished", "")
    assert [record.args[0].args[0] for record in caplog.records] == [  # type: ignore[index,union-attr]
        "the secret is held in memory only"
    ] * 2


def test_a_lost_state_states_nothing(tmp_path: Path) -> None:
    agents = Agents(tmp_path, None)
    with pytest.raises(PolicyError, match="is unknown here"):
        agents.agents[NAME].statement()
    run_until(agents, "relinearise")
    with pytest.raises(PolicyError, match="was lost with its state"):
        agents.restart(NAME).statement()


def test_an_ended_session_cannot_be_replayed(agents: Agents) -> None:
    agents.session.run(agents.ask)
    agents.restart(NAME)
    finish, reply = agents.sent("finish", NAME)
    assert agents.agents[NAME].handle(finish) == reply
    for step in ("enrol", "decrypt"):
        assert "is over: finished" in refusal(agents, agents.sent(step, NAME)[0])


def test_the_coordinator_aborts_and_no_key_is_left(agents: Agents) -> None:
    run_until(agents, "relinearise")
    share, data = secret_of(agents.agents[NAME]), agents.request("abort", NAME, reason="lost")
    reply = agents.agents[NAME].handle(data)
    assert agents.agents[NAME].handle(data) == reply
    assert share._secret is None and not (agents.folder / NAME / STATE).exists()
    assert "is over: aborted by the coordinator" in refusal(agents, agents.request("x", NAME))


def test_an_abort_that_overtakes_the_first_request(agents: Agents) -> None:
    abort = agents.request("abort", NAME, "early", reason="late")
    reply = agents.agents[NAME].handle(abort)
    agents.restart(NAME)
    assert agents.agents[NAME].handle(abort) == reply
    assert "over: aborted by the coordinator" in refusal(
        agents, agents.request("enrol", NAME, "early")
    )
    run_until(agents, "keys")
    agents.agents[NAME].handle(agents.request("abort", NAME, "another"))
    assert (agents.folder / NAME / STATE).exists()  # the open session is not touched
    assert agents.agents[NAME].status()["session"] == agents.session.coordinator.session


def decide(agent: Agent, accept: bool, seen: list[str]) -> None:
    while not agent.consent.pending():
        time.sleep(0.01)
    ((code, words),) = agent.consent.pending().items()
    seen.append(words)
    digest = words.split()[1]
    for other in (code[:7], digest, digest[:8]):
        with pytest.raises(ParameterError, match="no plan waits"):
            agent.consent.decide(other, accept)
    agent.consent.decide(code, accept)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_plan_that_could_not_be_shown_is_not_agreed_to(
    tmp_path: Path, vault: Vault, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever keeps the agent from looking at a request before the party does."""
    agents = Agents(tmp_path, vault, ask=True)

    def unseen(*args: Any) -> Any:
        raise RuntimeError

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if step == "agree" and restarted:
            agents.restart(NAME)
        return agents.ask(step, outgoing)

    monkeypatch.setattr(Party, "examine", unseen)
    with pytest.raises(ProtocolError, match="has not consented to this plan"):
        agents.session.run(ask)


@pytest.mark.parametrize("accept", [True, False])
def test_a_person_is_asked(
    tmp_path: Path, vault: Vault, accept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    agents, seen = Agents(tmp_path, vault, ask=True), list[str]()
    helpers = [
        threading.Thread(target=decide, args=(agent, accept or name == NAME, seen))
        for name, agent in agents.agents.items()
    ]
    for helper in helpers:
        helper.start()
    if accept:
        assert log2_error(agents.session.run(agents.ask).weights, agents.session.twin()) < -17
        assert agents.restart(NAME).consent._decided
    else:
        with pytest.raises(ProtocolError, match="the owner refuses plan") as caught:
            agents.session.run(agents.ask)
        assert caught.value.culprit == OTHER
        assert "hospital-2 refuses agree: the owner refuses" in caplog.text
    for helper in helpers:
        helper.join()
    for words in ("hospital-2: 4 rows", "NO NOISE", "Joint decryptions: 1; iterations: 2"):
        assert words in seen[0]
    assert "1 x your rows, encrypted under the joint key, without noise (contribute)" in seen[0]


def broken() -> dict[str, str]:
    raise ParameterError("party.toml is malformed")


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"ask": True, "wait_seconds": 0.05}, r"did not answer to plan .* in time"),
        ({"peers": dict}, r"'hospital-2' \(key KEY\) of the plan.* cohort party peers add FOLDER"),
        (
            {"peers": lambda: {OTHER: "ab" * 32, NAME: "cd" * 32}},
            "knows it by another.* peers add --replace",
        ),
        ({"peers": broken}, r"\[peers\] cannot be read: see its own log"),
    ],
)
def test_a_plan_is_refused_for_its_members_or_for_want_of_an_answer(
    tmp_path: Path, vault: Vault, terms: dict[str, Any], words: str
) -> None:
    agents = Agents(tmp_path, vault, **terms)
    words = words.replace("KEY", spoken(public_bytes(agents.session.party_keys[OTHER])))
    with pytest.raises(ProtocolError, match=words):
        agents.session.run(agents.ask)
    assert agents.agents[NAME].status()["session"] is not None  # it may be accepted next time


def test_invented_members_are_refused(agents: Agents) -> None:
    """99 members that add no noise would leave sigma / 10 of what the plan promises."""
    run_until(agents, "keys")
    plan: Any = agents.agents[NAME]._party._plan  # type: ignore[union-attr]
    own, friend = plan.members
    guests = [replace(friend, name=f"guest-{k}", verify_key=f"{k:064x}") for k in range(99)]
    known, consent = {OTHER: friend.verify_key}, agents.agents[NAME].consent
    consent._peers = lambda: known
    consent.check_members(plan)
    with pytest.raises(PolicyError, match="'guest-0' .*'guest-1' .*'guest-2' .* and 96 more"):
        consent.check_members(SimpleNamespace(members=(own, friend, *guests)))  # type: ignore[arg-type]
    twice = (own, friend, replace(own, name="guest"))
    known["guest"] = own.verify_key
    with pytest.raises(PolicyError, match="'hospital-1' and 'guest' of the plan have the same key"):
        consent.check_members(SimpleNamespace(members=twice))  # type: ignore[arg-type]


def test_a_text_of_the_plan_cannot_pose_as_a_line(agents: Agents) -> None:
    run_until(agents, "keys")
    plan: Any = agents.agents[NAME]._party._plan  # type: ignore[union-attr]
    hostile = replace(plan, session="x\nPrivacy: epsilon=0\r\x1b[8m")
    seen = manifest.describe_plan(hostile, NAME, 2.0)
    assert seen.count("\n") == manifest.describe_plan(plan, NAME, 2.0).count("\n")
    assert "Session x?Privacy: epsilon=0??[8m; model" in seen


@pytest.mark.parametrize("name", ["logistic\x1b[2K", "a\nBudget: 0", "Logistic", "", "a" * 9999])
@pytest.mark.parametrize("kind", ["rows", "sums"])
def test_a_plan_s_model_is_one_that_there_is(kind: str, name: str) -> None:
    """It is shown where its owner consents, and where sessions and ledgers are listed."""
    if kind == "sums":
        (session := sums_session(rounds=1)).run()
        plan: Any = session.plan
    else:
        plan = make_plan()
    for known in (*MODELS, *ELSEWHERE):
        with suppress(ParameterError):  # that of another kind of plan
            assert plan_from_dict({**plan.to_dict(), "model": known}).purpose.isprintable()
    with pytest.raises(ParameterError, match="is not one of|is not 'lffr'") as refused:
        plan_from_dict({**plan.to_dict(), "model": name})
    assert len(str(refused.value)) < 300 and str(refused.value).isprintable()


def test_a_short_passphrase_is_refused() -> None:
    with pytest.raises(ParameterError, match=f"at least {MIN_PASSPHRASE}"):
        Vault("short")


def test_a_process_whose_beginner_has_gone_ends_without_a_traceback(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "parties.agent", str(tmp_path / "none")]
    done = subprocess.run(command, input="{}\n", stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1, "")
