"""The agent's socket: who may use it, what it reads, and that nothing on it ends the agent."""

from __future__ import annotations

import random
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parties.agent import doors, frames
from parties.agent.agent import Limits
from parties.agent.doors import Doors
from parties.agent.frames import AgentClient
from parties.agent.server import CONNECTIONS, FAILED, AgentServer
from parties.agent.vault import Vault
from parties.flower_app import connect
from protocols.errors import DataError, MessageError, ParameterError, ProtocolError
from protocols.plan.statement import read_statement
from tests.parties.agents import PASSPHRASE, Agents
from tests.support.helpers import log2_error

NAME = "hospital-1"
FUZZ = 3000


class Running:
    """Every agent of a session behind its socket."""

    def __init__(self, agents: Agents) -> None:
        self.agents = agents
        self.servers: dict[str, AgentServer] = {}
        self.threads: dict[str, threading.Thread] = {}
        for name in agents.agents:
            self.start(name)

    def path(self, name: str) -> Path:
        return self.agents.folder / f"{name}.sock"

    def start(self, name: str) -> None:
        self.servers[name] = AgentServer(self.agents.restart(name), Doors(self.path(name)))
        self.threads[name] = threading.Thread(target=self.servers[name].serve, daemon=True)
        self.threads[name].start()

    def stop(self, name: str) -> None:
        self.servers[name].stop()
        self.threads[name].join(10)

    def ask(self, step: str, outgoing: dict[str, bytes]) -> dict[str, bytes]:
        return {n: connect(f"unix:{self.path(n)}").handle(d) for n, d in outgoing.items()}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    made = list[Running]()

    def make(limits: Limits | None = None, **terms: Any) -> Running:
        made.append(Running(Agents(tmp_path, Vault(PASSPHRASE), limits, **terms)))
        return made[-1]

    yield make
    for running in made:
        for name in running.servers:
            running.stop(name)


@pytest.fixture
def running(serve: Callable[..., Running]) -> Running:
    return serve()


def send_raw(path: Path, data: bytes) -> bytes:
    """Bytes as they are; what comes back."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))
        except OSError:
            return b""


def framed(kind: bytes, payload: bytes) -> bytes:
    """A whole frame."""
    return frames.MAGIC + kind + len(payload).to_bytes(8, "big") + payload


ERRORS = (ValueError, KeyError, OSError, MemoryError, RuntimeError, RecursionError, DataError)


@pytest.mark.parametrize("error", ERRORS)
def test_of_an_agents_error_the_relay_hears_one_text(
    error: type[Exception], running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, too: a connection that is cut would be tried again for minutes."""

    def fail(data: bytes) -> bytes:
        raise error("row 3 is 8675309")

    agent = running.agents.agents[NAME]
    monkeypatch.setattr(running.servers[NAME], "_agent", SimpleNamespace(handle=fail))
    reply = send_raw(running.path(NAME), framed(frames.MESSAGE, b"x"))
    assert reply == framed(frames.REFUSAL, FAILED)
    monkeypatch.setattr(running.servers[NAME], "_agent", agent)


def test_a_session_through_the_relay_with_agents_that_restart(running: Running) -> None:
    session = running.agents.session

    def ask(step: str, outgoing: dict[str, bytes]) -> dict[str, bytes]:
        if step not in ("rotations/0", "refresh/0"):
            return running.ask(step, outgoing)
        running.stop(NAME)
        late = threading.Timer(0.7, running.start, (NAME,))
        late.start()
        try:
            return running.ask(step, outgoing)  # offered again until the agent is back
        finally:
            late.join()

    assert log2_error(session.run(ask).weights, session.twin()) < -17


def test_the_socket_belongs_to_its_owner(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (running.path(NAME), doors.owner_path(running.path(NAME))):
        assert path.stat().st_mode & 0o777 == 0o600
    client = AgentClient(running.path(NAME), patience=0.1)
    assert client.control(frames.STATUS, {})["party"] == NAME
    monkeypatch.setattr(frames, "peer_uid", lambda connection: 4711)
    with pytest.raises(MessageError, match="user 4711 may not use this socket"):
        client.handle(b"")
    with pytest.raises(MessageError, match="user 4711"):
        client.control(frames.STATUS, {})


def test_the_owner_gives_a_session_up(running: Running) -> None:
    client = AgentClient(running.path(NAME), patience=1)
    session = running.agents.session.coordinator.session

    def ask(step: str, outgoing: dict[str, bytes]) -> dict[str, bytes]:
        if step == "relinearise":
            with pytest.raises(MessageError, match="goes on, so that a statement would not be"):
                client.control(frames.STATEMENT, {})
            assert client.control(frames.GIVE_UP, {})["ended"] == session
        return running.ask(step, outgoing)

    with pytest.raises(ProtocolError, match="its owner gave it up"):
        running.agents.session.run(ask)
    assert client.control(frames.GIVE_UP, {})["ended"] is None
    told = bytes.fromhex(client.control(frames.STATEMENT, {"session": session})["statement"])
    keys = running.agents.session.coordinator.party_keys
    assert read_statement(told, session, keys)[0] == NAME
    with pytest.raises(MessageError, match="'another' is unknown here"):
        client.control(frames.STATEMENT, {"session": "another"})
    assert not list((running.agents.folder / NAME).glob("*.sealed"))


def test_a_relay_of_another_user_may_only_relay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = Agents(tmp_path, Vault(PASSPHRASE))
    path = tmp_path / "relay.sock"
    server = AgentServer(agents.agents[NAME], Doors(path, relay_uid=4711))
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        assert path.stat().st_mode & 0o777 == 0o660
        assert doors.owner_path(path).stat().st_mode & 0o777 == 0o600
        monkeypatch.setattr(frames, "peer_uid", lambda connection: 4711)
        assert AgentClient(path).handle(agents.request("enrol", NAME))
        for kind in (frames.STATUS, frames.CONSENT, frames.GIVE_UP, frames.STATEMENT):
            assert b"is the owner's" in send_raw(path, framed(kind, b"{}"))
            with pytest.raises(MessageError, match="user 4711 may not"):
                AgentClient(path, patience=5).control(kind, {})
    finally:
        server.stop()
        thread.join(10)


def test_a_session_ends_in_time_while_requests_wait(serve: Callable[..., Running]) -> None:
    """The clock goes on, and the owner is heard, where peers that send nothing take every slot."""
    running = serve(Limits(idle_seconds=0.05))
    with ExitStack() as stack:
        running.agents.agents[NAME].handle(running.agents.request("enrol", NAME))
        for _ in range(CONNECTIONS):
            peer = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            peer.connect(str(running.path(NAME)))
        client, deadline = AgentClient(running.path(NAME), patience=60), time.monotonic() + 60
        while client.control(frames.STATUS, {})["session"] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert client.control(frames.STATUS, {})["session"] is None
        with pytest.raises(MessageError, match="no plan waits"):
            client.control(frames.CONSENT, {"code": "0" * 8, "accept": True})


def test_what_is_no_socket_stays(running: Running, tmp_path: Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "link"
    precious.write_text("kept")
    link.symlink_to(precious)
    for path in (precious, link):
        with pytest.raises(ParameterError, match="is there and is no socket"):
            Doors(path)
    assert precious.read_text() == "kept" and link.is_symlink()


def test_no_second_agent_on_one_socket(running: Running) -> None:
    with pytest.raises(ParameterError, match="an agent is running there"):
        Doors(running.path(NAME))


def test_without_an_agent_the_relay_says_so(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="cohort party start"):
        AgentClient(tmp_path / "none.sock", patience=0.1).handle(b"")
    with pytest.raises(ParameterError, match="name of at most 64 bytes"):
        connect(f"unix:/{'x' * 65}")


def test_a_folder_may_be_deep(running: Running, tmp_path: Path) -> None:
    """A socket's address holds 107 bytes."""
    agent, folder = running.agents.agents[NAME], tmp_path.joinpath(*["deep" * 20] * 10)
    path = folder / ("a" * (doors.MAX_NAME_BYTES - len(doors.OWNER_ENDING)))
    server = AgentServer(agent, Doors(path))
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        assert AgentClient(path, patience=0.1).control(frames.STATUS, {})["session"] is None
        with pytest.raises(ParameterError, match="an agent is running there"):
            Doors(path)
    finally:
        server.stop()
        thread.join(10)
    assert not list(path.parent.iterdir())


def test_oversize_frames_cost_no_memory(running: Running) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for size in (1 << 29, (1 << 29) + 1, 1 << 62, (1 << 64) - 1):
        head = frames.MAGIC + frames.MESSAGE + size.to_bytes(8, "big")
        answer = send_raw(running.path(NAME), head)
        assert b"exceeds the cap" in answer or b"cut short" in answer
    control = frames.MAGIC + frames.STATUS + (frames.CONTROL_CAP + 1).to_bytes(8, "big")
    for path in (running.path(NAME), doors.owner_path(running.path(NAME))):
        assert b"exceeds the cap" in send_raw(path, control)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000  # kB


def test_hostile_bytes_do_not_end_the_agent(running: Running) -> None:
    rng = random.Random(7)
    good = running.agents.request("enrol", NAME)
    head = frames.MAGIC + frames.MESSAGE
    whole = head + len(good).to_bytes(8, "big") + good
    client = AgentClient(running.path(NAME), patience=1)
    for k in range(FUZZ):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        kind = rng.choice((frames.MESSAGE, frames.STATUS, frames.CONSENT, b"?"))
        noise = rng.randbytes(rng.randint(0, 300))
        cut = bytes(data[: rng.randrange(len(data))])
        chosen = (bytes(data), noise, framed(kind, noise), cut, b"[]" + noise)[k % 5]
        both = (running.path(NAME), doors.owner_path(running.path(NAME)))
        if chosen != whole:
            send_raw(both[k // 5 % 2], chosen)
    assert client.control(frames.STATUS, {})["session"] is None
    session = running.agents.session
    assert log2_error(session.run(running.ask).weights, session.twin()) < -17


@pytest.mark.parametrize("payload", [b"1e99", b"[]", b"null", b'"', b"[" * 60_000, b"\xff"])
def test_odd_consent_is_answered(running: Running, payload: bytes) -> None:
    answer = send_raw(doors.owner_path(running.path(NAME)), framed(frames.CONSENT, payload))
    assert answer[4:5] == frames.REFUSAL


def test_a_slow_peer_is_cut_off(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parties.agent.server.FRAME_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(running.path(NAME)))
        connection.sendall(frames.MAGIC)
        began = time.monotonic()
        connection.settimeout(90)
        answer = b"".join(iter(lambda: connection.recv(1 << 12), b""))
        assert b"did not arrive in time" in answer
        # Not the 120 seconds of others.
        assert time.monotonic() - began < 90


def test_a_signal_ends_the_server_wherever_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stop` at each line that serving runs, as the handler of a signal calls it."""
    agent = SimpleNamespace(size_cap=1 << 16, tick=lambda: None, close=lambda: None)
    monkeypatch.setattr("parties.agent.server._TICK_SECONDS", 0.01)
    for line in range(240, 340):
        served = AgentServer(agent, Doors(tmp_path / "agent.sock"))  # type: ignore[arg-type]
        thread = threading.Thread(target=_serve_and_stop, args=(served, line), daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), f"line {line}"


def _serve_and_stop(served: AgentServer, line: int) -> None:
    left = [line]

    def tracer(*_: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            served.stop()
        return tracer

    sys.settrace(tracer)
    served.serve()
