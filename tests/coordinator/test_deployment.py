"""A run across machines goes on after a coordinator died, or ends with a reason. INSECURE rings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

import coordinator.deployment as deployment
import coordinator.flower_app as flower_app
import parties.flower_app as party_app
from ciphercohort.cli.app import app
from ciphercohort.deploy import drive
from coordinator.deployment import create_session, serve_session
from coordinator.errors import LostError
from coordinator.log import FOLDER, TRANSCRIPT, MessageLog, recorded_finish
from coordinator.settings import CARDS, HOME_VARIABLE, IDENTITY, NODES, Settings
from coordinator.setup import init_coordinator
from coordinator.status import Status, read_status, sessions
from parties.agent.vault import Vault
from protocols.errors import ParameterError, ProtocolError
from protocols.exchange.cards import CARD_KIND
from protocols.exchange.messages import Body, decode, encode, public_bytes
from protocols.exchange.private_files import locked
from protocols.exchange.relayed import RELAY
from protocols.plan.run_plan import Member
from protocols.rows.plan import RowsPlan
from sims.local import LocalGrid
from tests.coordinator.test_workers import Workers
from tests.parties.agents import PASSPHRASE, Agents
from tests.support.damage import DAMAGED
from tests.support.helpers import log2_error, make_plan

NAMES = ("hospital-1", "hospital-2")
ADDRESSES = dict.fromkeys(("fleet", "control", "serverappio", "public"), "127.0.0.1:9092")


@pytest.fixture(scope="module")
def vault() -> Vault:
    return Vault(PASSPHRASE)


def dies_before(step: str, ask: Any) -> Any:
    """A coordinator that is killed as it is about to ask for a step."""

    def dying(current: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if current == step:
            raise KeyboardInterrupt
        return ask(current, outgoing)  # type: ignore[no-any-return]

    return dying


class Centre:
    """A coordinator's folder, and the agents of its parties."""

    def __init__(self, folder: Path, vault: Vault) -> None:
        self.agents = Agents(folder / "agents", vault)
        session = self.agents.session
        schema = next(iter(session.parties.values())).run.rows._value.schema
        init_coordinator(folder / "centre", schema.to_dict(), ADDRESSES, {})
        self.settings = Settings.load(folder / "centre")
        raw = session.coordinator_key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        (self.settings.folder / IDENTITY).write_text(raw.hex())
        self.keys = {name: public_bytes(key) for name, key in session.party_keys.items()}
        for name, key in self.keys.items():
            card = {"kind": CARD_KIND, "name": name, "identity": key, "node_key": "", "rows": 4}
            card |= {"num_features": 3, "schema": schema.digest()}
            (self.settings.folder / CARDS / f"{name}.json").write_text(json.dumps(card))
        nodes = {name: k for k, name in enumerate(NAMES)}
        (self.settings.folder / NODES).write_text(json.dumps(nodes))
        self.template = self.plan(schema.digest())
        self.asked: list[tuple[str, str]] = []

    def plan(self, digest: str) -> RowsPlan:
        members = tuple(
            Member(name=name, rows=4, verify_key=key, commitment="00" * 32)
            for name, key in self.keys.items()
        )
        return make_plan(
            rows=(4, 4),
            rounds=2,
            degree=3,
            update="gd",
            ring_dim=512,
            members=members,
            schema={"digest": digest},
        )

    def ask(self, step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        self.asked += [(step, name) for name in outgoing]
        return self.agents.ask(step, outgoing)

    def begin(self) -> tuple[str, Path]:
        """A new session and its folder."""
        session = create_session(self.settings, self.template)
        return session, self.settings.session_folder(session)

    def serve(self, session: str, ask: Any = None) -> None:
        serve_session(self.settings, session, lambda nodes, seconds: ask or self.ask)

    def forgotten(self) -> bool:
        """Whether no agent holds anything of a session."""
        folder, agents = self.agents.folder, self.agents.agents
        left = [path for name in agents for path in (folder / name).glob("*.sealed")]
        return not left and not any(agent.status()["session"] for agent in agents.values())

    def weights(self, session: str) -> Any:
        folder = self.settings.session_folder(session)
        return np.array(json.loads((folder / "outcome.json").read_text())["weights"])

    def twin(self) -> Any:
        self.agents.session.plan = self.template
        return self.agents.session.twin()


@pytest.fixture
def centre(tmp_path: Path, vault: Vault) -> Centre:
    return Centre(tmp_path, vault)


def with_replicas(centre: Centre) -> None:
    """Owners that compute what the centre does, which relays by default."""
    for name, party in centre.agents.session.parties.items():
        party._policy = replace(party._policy, replica="own")
        centre.agents.restart(name)


@pytest.mark.parametrize("replicas", [False, True])
def test_killed_after_every_message_it_goes_on_to_the_same_model(
    centre: Centre, replicas: bool
) -> None:
    if replicas:
        with_replicas(centre)
    (session, folder), steps = centre.begin(), list[str]()

    def dying(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if step == RELAY:  # in another thread, ahead of a request
            return centre.ask(step, outgoing)
        steps.append(step)
        if len(steps) % 2:
            first = next(iter(outgoing))
            centre.ask(step, {first: outgoing[first]})
            (folder / FOLDER / f".000001.msg.{len(steps):016x}.tmp").write_bytes(b"cut short")
            raise KeyboardInterrupt  # one party has answered, and its reply is lost
        return centre.ask(step, outgoing)

    for _ in range(100):
        try:
            centre.serve(session, dying)
            break
        except KeyboardInterrupt:
            status = read_status(folder)
            assert status is not None and status["state"] == "running"
    assert log2_error(centre.weights(session), centre.twin()) < -17
    log = MessageLog(folder)
    log.check(session, centre.keys)
    log.check_strays()  # nor what interrupted writes left
    for path in [folder, *folder.rglob("*")]:
        assert path.name == TRANSCRIPT or not path.stat().st_mode & 0o077, path
    status = read_status(folder)
    assert status is not None and status["state"] == "finished" and status["attempts"] > 5


def test_an_owner_with_a_replica_needs_a_centre_that_relays(centre: Centre) -> None:
    with_replicas(centre)
    (path := centre.settings.folder / "coordinator.toml").write_text(
        "relay = false\n" + path.read_text()
    )
    centre.settings = Settings.load(centre.settings.folder)
    session, folder = centre.begin()
    with pytest.raises(ProtocolError, match="relay = true"):
        centre.serve(session)
    status = read_status(folder)
    assert status is not None and status["state"] == "aborted" and centre.forgotten()


@pytest.mark.parametrize("part", [1, 1 << 25])
def test_agents_with_replicas_are_restarted_at_every_step(
    centre: Centre, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before they hear of it, or once their reply is lost; what the centre keeps brings them back.

    It dies as well, and relays from its files, in parts or whole.
    """
    monkeypatch.setattr("coordinator.relay.PART_BYTES", part)
    with_replicas(centre)
    (session, _), died = centre.begin(), list[str]()

    def dying(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if step in died or step == RELAY:
            return centre.ask(step, outgoing)
        died.append(step)
        name = NAMES[len(died) % 2]
        if len(died) % 3 and name in outgoing:
            centre.ask(step, {name: outgoing[name]})
        centre.agents.restart(name)
        if len(died) % 5 == 0:
            raise KeyboardInterrupt
        return centre.ask(step, outgoing)

    for _ in range(9):
        with suppress(KeyboardInterrupt):
            centre.serve(session, dying)
            break
    assert len(died) > 15 and centre.forgotten()
    assert log2_error(centre.weights(session), centre.twin()) < -17


def test_it_goes_on_with_workers(centre: Centre, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that began without them: every request is the recorded one."""
    (session, _), engine, asked = centre.begin(), Workers(2), list[Any]()
    with pytest.raises(KeyboardInterrupt):
        centre.serve(session, dies_before("refresh/1", centre.ask))

    def workers_of(*words: Any) -> Any:
        asked.append(words)
        return nullcontext(engine)

    monkeypatch.setattr("coordinator.deployment.workers_of", workers_of)
    path = centre.settings.folder / "coordinator.toml"
    path.write_text('workers = "tls://a:1"\n' + path.read_text())
    centre.settings = Settings.load(centre.settings.folder)
    centre.serve(session)
    assert asked == [("tls://a:1", centre.settings.folder)]
    assert sum(method == "total" for _, method, _ in engine.calls) == 2
    assert log2_error(centre.weights(session), centre.twin()) < -17


def test_the_weights_are_those_of_the_first_decryption(centre: Centre) -> None:
    session, folder = centre.begin()

    def dying(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if step != "finish":
            return centre.ask(step, outgoing)
        centre.ask(step, {NAMES[0]: outgoing[NAMES[0]]})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        centre.serve(session, dying)
    key = public_bytes(centre.agents.session.coordinator_key)
    done = recorded_finish(folder / FOLDER, NAMES, key)
    assert done is not None and not done.replies
    centre.asked.clear()
    centre.serve(session)
    assert centre.asked == [("finish", name) for name in NAMES]
    assert centre.weights(session).tolist() == done.weights
    MessageLog(folder).check(session, centre.keys)
    assert centre.forgotten()
    centre.serve(session)  # a finished session is left alone
    assert len(centre.asked) == 2


def test_released_weights_are_kept_when_a_party_does_not_take_note(centre: Centre) -> None:
    session, folder = centre.begin()

    def refusing(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if step == "finish":
            raise ProtocolError(f"no reply from {NAMES[0]}")
        return centre.ask(step, outgoing)

    centre.serve(session, refusing)
    status = read_status(folder)
    assert status is not None
    assert (status["state"], status["reason"]) == ("finished", f"no reply from {NAMES[0]}")
    assert log2_error(centre.weights(session), centre.twin()) < -17


def test_a_relay_that_fails_is_asked_again(centre: Centre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_app, "RETRY_SECONDS", 0.0)
    agents, failures = centre.agents, dict.fromkeys(NAMES, 0)

    class Flaky:
        def __init__(self, name: str) -> None:
            self.name = name

        def handle(self, data: bytes) -> bytes:
            reply = agents.agents[self.name].handle(data)
            failures[self.name] += 1
            if failures[self.name] % 3:
                raise OSError("the reply is lost")
            return reply

    monkeypatch.setattr(party_app, "LOCAL", {name: Flaky(name) for name in NAMES})
    grid = LocalGrid({k: f"local:{name}" for k, name in enumerate(NAMES)})

    def transport(attempts: int) -> Any:
        return lambda nodes, seconds: flower_app.GridTransport(grid, nodes, seconds, attempts)

    session, _ = centre.begin()
    serve_session(centre.settings, session, transport(3))
    assert log2_error(centre.weights(session), centre.twin()) < -17
    session, _ = centre.begin()
    with pytest.raises(ProtocolError, match="the relay of party 'hospital-1' failed"):
        serve_session(centre.settings, session, transport(2))


def test_an_abort_names_the_culprit_and_tells_the_parties(centre: Centre) -> None:
    session, folder = centre.begin()

    def lying(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = centre.ask(step, outgoing)
        if step == "relinearise":
            replies[NAMES[1]] = replies[NAMES[0]]
        return replies

    with pytest.raises(ProtocolError):
        centre.serve(session, lying)
    status = read_status(folder)
    assert status is not None
    assert (status["state"], status["culprit"]) == ("aborted", NAMES[1])
    assert centre.asked[-2:] == [("abort", name) for name in NAMES]
    assert centre.forgotten()
    centre.serve(session)  # an aborted session never goes on
    assert read_status(folder) == status


@pytest.mark.parametrize("step", ["enrol", "agree", "refresh/1", "finish"])
def test_whoever_missed_the_end_is_told_before_the_next_session(centre: Centre, step: str) -> None:
    """It was away; one that finished gets its outcome. Nobody else is told again."""
    session, folder = centre.begin()
    away = NAMES[1]

    def leaving(current: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if current == step:
            gone.append(away)
        if away in gone and away in outgoing:
            centre.ask(current, {n: data for n, data in outgoing.items() if n != away})
            raise LostError("no reply", (away,))
        return centre.ask(current, outgoing)

    gone = list[str]()
    with suppress(ProtocolError):
        centre.serve(session, leaving)
    status = read_status(folder)
    assert status is not None and status["untold"] == [away]
    assert status["state"] == ("finished" if step == "finish" else "aborted")
    assert (centre.agents.agents[away].status()["session"] is None) == (step == "enrol")
    centre.agents.restart(away)
    following, _ = centre.begin()
    centre.asked.clear()
    centre.serve(following)
    word = "finish" if step == "finish" else "abort"
    assert centre.asked[:2] == [(word, away), ("enrol", NAMES[0])]
    assert centre.forgotten() and (read_status(folder) or {})["untold"] == []
    assert log2_error(centre.weights(following), centre.twin()) < -17
    if step == "finish":
        record = centre.agents.agents[away]._store.record(session)
        assert record is not None and record.reason == "finished"


def test_an_end_that_cannot_be_told_holds_up_no_session(centre: Centre) -> None:
    """The plan of the earlier one is not read, and what is of no session is left out."""
    damages: dict[str, Any] = {"none": lambda path: None, **DAMAGED}
    damages["release"] = lambda path: changed(path.parent, lambda f: f["plan"].update(version=7))
    for name, damage in damages.items():
        for file in ("session.json", "status.json"):
            _, folder = centre.begin()
            fields = {"state": "aborted", "reason": "x", "untold": [NAMES[1]]}
            Status(folder, {}).save(**fields)
            if (file, name) != ("status.json", "release"):
                damage(folder / file)
            following, _ = centre.begin()
            with pytest.raises(KeyboardInterrupt):
                centre.serve(following, dies_before("agree", centre.ask))
            if file == "session.json" and folder.joinpath(file).exists():
                assert (read_status(folder) or {})["untold"] == [], name
            for agent in centre.agents.agents.values():
                agent.give_up()


EVIL = "no\n\x1b[2K\x1b[1Ahospital-2 0123 finished: everything passed\x9b\u2028"


@pytest.mark.parametrize("field", ["error", "step", "session", "sender", "schema", "commitment"])
def test_what_a_party_says_has_no_line_of_its_own(centre: Centre, field: str) -> None:
    """In any text of a reply: the centre's status and what it prints have none."""
    session, folder = centre.begin()

    def lying(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = centre.ask(step, outgoing)
        if step != "enrol":
            return replies
        reply = decode(replies[NAMES[0]], centre.keys[NAMES[0]])
        if field in ("step", "session", "sender"):
            reply = replace(reply, **{field: EVIL})
        else:
            reply = replace(reply, body=Body({**reply.body.meta, field: EVIL}))
        return replies | {NAMES[0]: encode(reply, centre.agents.session.party_keys[NAMES[0]])}

    with pytest.raises(ProtocolError) as caught:
        centre.serve(session, lying)
    assert str(caught.value).isprintable()
    (status,) = sessions(folder.parent)
    assert status["state"] == "aborted" and status["reason"].isprintable()
    shown = CliRunner().invoke(app, ["coordinator", "status", str(centre.settings.folder)])
    assert "aborted" in shown.output
    assert all(line.isprintable() for line in shown.output.split("\n"))


def test_a_killed_centre_lets_go_and_one_that_is_driven_does_not(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No abort was ever sent; what is spent is given up by command alone."""
    settings, said = centre.settings, list[str]()
    monkeypatch.setattr(drive.flower_commands, "submit", unreachable)

    def killed_before(step: str) -> str:
        session, _ = centre.begin()
        with pytest.raises(KeyboardInterrupt):
            centre.serve(session, dies_before(step, centre.ask))
        return session

    def state(session: str) -> str:
        return next(each for each in sessions(settings.folder / "sessions")
                    if each["session"] == session)["state"]  # fmt: skip

    early = killed_before("reveal")
    for name in ("lock", "watched"):
        with locked(settings.session_folder(early) / name):
            assert state(early) == "running"
            with pytest.raises(ParameterError, match=f"goes on .*--session {early}, or end it"):
                drive.let_go(settings, said.append)
    assert not said and state(early) == "interrupted"
    with pytest.raises(ProtocolError, match="busy with another session"):
        centre.serve(centre.begin()[0])
    drive.let_go(settings, said.append)
    assert len(said) == 1 and early in said[0] and state(early) == "aborted"
    late = killed_before("refresh/1")
    with pytest.raises(ParameterError, match=f"--session {late}, or end it: cohort coord"):
        drive.let_go(settings, said.append)
    with (
        locked(settings.session_folder(late) / "lock"),
        monkeypatch.context() as patch,
        pytest.raises(ProtocolError, match="another process drives"),
    ):
        patch.setattr(drive, "END_SECONDS", 0.05)
        drive.abort(settings, late, said.append)
    drive.abort(settings, late, said.append)
    assert state(late) == "aborted" and "told before the next session" in said[-1]
    with pytest.raises(ParameterError, match="it is aborted"):
        drive.abort(settings, late, said.append)
    session, _ = centre.begin()
    centre.serve(session)
    assert log2_error(centre.weights(session), centre.twin()) < -17 and centre.forgotten()


def test_a_session_that_nobody_connected_to_is_given_up(centre: Centre) -> None:
    """Not while whoever made it may be about to drive it; nobody has to be told."""
    (session, folder), said = centre.begin(), list[str]()
    drive.let_go(centre.settings, said.append)
    assert not said
    fields = {**(read_status(folder) or {}), "updated": "2026-01-01T00:00:00.000+00:00"}
    (folder / "status.json").write_text(json.dumps(fields))
    drive.let_go(centre.settings, said.append)
    status = read_status(folder)
    assert status is not None and (status["state"], status["untold"]) == ("aborted", [])
    assert len(said) == 1 and session in said[0] and not centre.asked


def unreachable(*_: Any) -> int:
    raise ProtocolError("no SuperLink")


def test_a_session_that_is_given_up_ends_while_it_waits(centre: Centre) -> None:
    """Its parties are told by whoever drives it."""
    session, folder = centre.begin()

    class Silent:
        def push_messages(self, messages: Any) -> list[str]:
            return ["m"] * len(messages)

        def pull_messages(self, identifiers: Any) -> list[Any]:
            (folder / deployment.GIVEN_UP).touch()
            return []

    check = partial(deployment.check_given_up, folder)
    silent = flower_app.GridTransport(Silent(), dict.fromkeys(NAMES, 7), 60.0, 3, check)  # type: ignore[arg-type]

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Any:
        return silent(step, outgoing) if step == "agree" else centre.ask(step, outgoing)

    with pytest.raises(ProtocolError, match="the centre gave the session up"):
        centre.serve(session, ask)
    assert (read_status(folder) or {})["untold"] == [] and centre.forgotten()


def changed(folder: Path, change: Any) -> None:
    """Another program of the session."""
    path = folder / "session.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def test_a_changed_program_is_refused(centre: Centre) -> None:
    session, folder = centre.begin()
    with pytest.raises(KeyboardInterrupt):
        centre.serve(session, dies_before("keys", centre.ask))
    changed(folder, lambda f: f["plan"]["update"].update(learning_rate=0.1))
    with pytest.raises(ProtocolError, match="differs from the recorded one"):
        centre.serve(session)


def test_too_late_is_an_abort(centre: Centre) -> None:
    session, folder = centre.begin()
    changed(folder, lambda fields: fields.update(created=0.0))
    with pytest.raises(ProtocolError, match="not finished within 86400 s"):
        centre.serve(session)
    assert sessions(centre.settings.folder / "sessions")[0]["state"] == "aborted"


def test_other_rows_than_the_card_are_refused(centre: Centre) -> None:
    session, folder = centre.begin()
    changed(folder, lambda fields: fields["plan"]["members"][1].update(rows=5))
    words = "enrols 4 rows, the plan counts 5: its table has changed since.*card.json anew"
    with pytest.raises(ProtocolError, match=words) as caught:
        centre.serve(session)
    assert caught.value.culprit == NAMES[1]
    (centre.settings.folder / CARDS / f"{NAMES[0]}.json").unlink()
    with pytest.raises(ParameterError, match="not as its card says"):
        create_session(centre.settings, centre.template)


@pytest.mark.parametrize(
    ("of_training", "held_out", "judges", "is_of_its_rows"),
    [
        ("", None, False, False),
        ("", None, True, False),
        ("5e", None, True, False),
        ("5e", object(), True, True),
        ("5e", None, False, True),
        ("5e", object(), False, True),
    ],
)
def test_a_new_card_is_asked_for_where_it_leads_somewhere(
    of_training: str, held_out: Any, judges: bool, is_of_its_rows: bool
) -> None:
    """Sums of a training are of its rows; a model may be judged on all rows that there are now."""
    plan = SimpleNamespace(of_training=of_training, held_out=held_out, judges=judges)
    words = deployment._cure(plan)
    assert ("those of the training" in words) == is_of_its_rows
    assert ("card.json" in words) != is_of_its_rows


def test_one_flower_run_serves_a_series(centre: Centre, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else; a session that no run has taken up is told from one that is."""
    monkeypatch.setattr(deployment, "FOLLOWS_SECONDS", 0.05)
    monkeypatch.setenv(HOME_VARIABLE, str(centre.settings.folder))
    served, settings = list[str](), centre.settings

    def begin(first: str | None, number: int) -> str:
        return create_session(settings, centre.template, {"series": first, "number": number})

    first, other = begin(None, 0), begin(None, 0)
    begin(other, 1)
    alone = centre.begin()[0]

    def serve(settings: Settings, session: str, transport: Any) -> None:
        served.append(session)
        with locked(settings.session_folder(session) / "lock"):
            assert deployment.is_driven(settings, session)
            assert deployment.taken_up(settings, session) == (session not in (first, alone))
        if len(served) < 3:
            begin(first, len(served))

    monkeypatch.setattr(deployment, "serve_session", serve)
    for name in (first, alone):
        flower_app.main(None, SimpleNamespace(run_config={"session": name}))  # type: ignore[arg-type]
    wanted = [deployment._wanted(settings, name).get("number") for name in served]
    assert wanted == [0, 1, 2, None] and served[0] == first and served[3] == alone
    left = begin(first, 3)
    assert not deployment.taken_up(settings, left)
    Status(settings.session_folder(left), {}).save(state="finished")
    assert deployment.taken_up(settings, left)
