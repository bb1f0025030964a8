"""The node that relays by itself, its connection, and waits, under the installed Flower."""

from __future__ import annotations

import inspect
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.supercore.inflatable import inflatable_object, inflatable_utils

import coordinator.flower_app as coordinator_app
import parties.flower_app as party_app
from ciphercohort.deploy.supervise import child
from coordinator import flower_waits
from coordinator.certificates import make_certificates
from parties import flower_link, flower_node
from parties.flower_link import Link, TurnedAwayError, UnknownFlowerError
from protocols.errors import DataError, ParameterError
from protocols.exchange.waits import LONGEST_SECONDS, SHORTEST_SECONDS, pause
from tests.flower.environment import quiet
from tests.flower.fleet import Fleet
from tests.flower.test_adapters import NODES, POINTS, Shard, served, train, twin
from tests.support.scripts import ROOT

GENERATIONS = pytest.mark.parametrize("sessions", [False, True], ids=["1.30", "1.41"])
DATA = bytes(range(256)) * 64
LARGE = DATA * 80  # more than one Flower object has


class Reverse:
    """A party that answers backwards."""

    def handle(self, data: bytes) -> bytes:
        return data[::-1]


@pytest.fixture(autouse=True)
def party(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(party_app.LOCAL, "p", Reverse())


def request(data: bytes = DATA, kind: str = MessageType.QUERY) -> Message:
    return Message(party_app.to_record(data), 7, kind, group_id="round/3")


def sent(fleet: Fleet, *messages: Message) -> list[str]:
    return fleet.push_messages(list(messages))


# -- the connection --------------------------------------------------------------------------------


@GENERATIONS
@pytest.mark.parametrize("data", [DATA, LARGE], ids=["small", "large"])
def test_a_request_comes_whole_and_its_reply_goes_back(sessions: bool, data: bytes) -> None:
    """Although its content comes later than its name."""
    fleet = Fleet(sessions=sessions, late=2)
    link = Link(fleet.parts())
    assert link.receive() is None
    (identifier,) = sent(fleet, request(data))
    received = link.receive()
    assert received is not None and party_app.from_record(received.content) == data
    assert received.metadata.message_id == identifier and fleet.confirmed == [identifier]
    link.reply(flower_node.answer(received, "local:p"), 0.25)
    (reply,) = fleet.pull_messages([identifier])
    assert party_app.from_record(reply.content) == data[::-1]
    assert coordinator_app._payload("p", reply) == data[::-1]
    assert reply.metadata.reply_to_message_id == identifier
    assert (reply.metadata.src_node_id, reply.metadata.group_id) == (7, "round/3")


@pytest.mark.parametrize("make", [party_app.to_record, coordinator_app._to_record])
def test_a_small_payload_is_one_object(make: Callable[[bytes], RecordDict]) -> None:
    """Beside the message's own two: each is a request there and back."""
    for data, objects in ((DATA, 2), (LARGE, 4)):
        assert len(inflatable_object.get_all_nested_objects(make(data))) == objects
        assert party_app.from_record(make(data)) == data


@GENERATIONS
def test_what_the_superlink_has_is_not_sent_again(sessions: bool) -> None:
    """`Fleet.push` refuses an object that is there."""
    fleet = Fleet(sessions=sessions)
    link = Link(fleet.parts())
    first, second = sent(fleet, request(b"aa"), request(b"aa"))
    for identifier in (first, second):
        received = link.receive()
        assert received is not None
        link.reply(flower_node.answer(received, "local:p"), 0.0)
        (reply,) = fleet.pull_messages([identifier])
        assert party_app.from_record(reply.content) == b"aa"


def test_a_request_whose_content_is_lost_is_answered_with_an_error() -> None:
    """Else the coordinator would wait for the step's end; it asks again. No words go out."""
    fleet = Fleet()
    (identifier,) = sent(fleet, request())
    fleet.broken = set(fleet.objects)
    assert Link(fleet.parts()).receive() is None
    fleet.broken.clear()
    (reply,) = fleet.pull_messages([identifier])
    assert (reply.error.code, reply.error.reason) == (flower_link.UNAVAILABLE, "not whole")


def test_a_run_that_is_over_is_left_alone() -> None:
    fleet = Fleet()
    link = Link(fleet.parts())
    sent(fleet, request())
    received = link.receive()
    assert received is not None
    fleet.over = True
    assert link.receive() is None
    link.reply(flower_node.answer(received, "local:p"), 0.0)
    fleet.over = False
    sent(fleet, request())
    fleet.pull = fleet.over_now  # type: ignore[method-assign]
    assert Link(fleet.parts()).receive() is None
    assert not fleet.outbox


def test_the_connection_is_authenticated_and_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, key = Fleet(), ec.generate_private_key(ec.SECP384R1())
    internal = "flwr.supernode.start_client_internal._init_connection"
    monkeypatch.setattr(internal, fleet.connection)
    with flower_link.connected("centre:1", b"roots", key, 15.0) as link:
        assert link.node_id == 7
    assert fleet.options["insecure"] is False and fleet.options["root_certificates"] == b"roots"
    assert fleet.options["authentication_keys"] == (key, key.public_key())
    assert fleet.options["max_wait_time"] == 15.0 and fleet.options["max_retries"] is None


@pytest.mark.parametrize("leave", [None, SystemExit(1)], ids=["1.30", "1.41"])
def test_a_node_that_is_not_let_in_says_so(leave: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.30 yields no connection, 1.41 ends the process; who is told to end ends."""
    key = ec.generate_private_key(ec.SECP384R1())

    @contextmanager
    def connection(**options: Any) -> Iterator[None]:
        if leave is not None:
            raise leave
        yield from ()

    real = inspect.signature(flower_link.check_flower())
    connection.__signature__ = real  # type: ignore[attr-defined]
    internal = "flwr.supernode.start_client_internal._init_connection"
    monkeypatch.setattr(internal, connection)
    with pytest.raises(TurnedAwayError), flower_link.connected("centre:1", b"roots", key):
        pytest.fail("it is connected")
    leave = SystemExit(0)
    with pytest.raises(SystemExit), flower_link.connected("centre:1", b"roots", key):
        pytest.fail("it is connected")


def test_the_installed_flower_is_known() -> None:
    flower_link.check_flower()


@pytest.mark.parametrize(
    ("where", "other"),
    [
        ("flwr.supernode.start_client_internal._init_connection", lambda address: None),
        ("flwr.supercore.inflatable.inflatable_object.get_object_tree", None),
    ],
)
def test_another_flower_runs_its_own_node(
    where: str, other: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the same options, and one sentence that says what it costs."""
    if other is None:
        monkeypatch.delattr(where)
    else:
        monkeypatch.setattr(where, other)
    started: list[Any] = []

    class ReplacedError(Exception):
        pass

    def execute(path: str, words: list[str]) -> None:
        started.append((path, words))
        raise ReplacedError

    monkeypatch.setattr(os, "execv", execute)
    with pytest.raises(UnknownFlowerError):
        flower_link.check_flower()
    words = [sys.executable, "--superlink", "centre:1"]
    with pytest.raises(ReplacedError), caplog.at_level(logging.WARNING):
        flower_node.main(words)
    assert started == [(sys.executable, words)]
    (record,) = caplog.records
    assert "its own SuperNode runs instead" in record.getMessage()


# -- the relay -------------------------------------------------------------------------------------


class StopError(Exception):
    """No more requests."""


def foreign() -> RecordDict:
    """Ours by its name, with a number in place of bytes."""
    return RecordDict({party_app.RECORD: ConfigRecord({party_app.PAYLOAD: 17})})


class Script:
    """Requests, one by one; None where there is none; then `StopError`."""

    def __init__(self, *requests: Message | None) -> None:
        self.requests, self.replies = list(requests), list[Message]()

    def receive(self) -> Message | None:
        if not self.requests:
            raise StopError
        return self.requests.pop(0)

    def reply(self, reply: Message, seconds: float) -> None:
        assert seconds >= 0
        self.replies.append(reply)


def test_it_waits_only_where_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twentieth of the silence, from the last reply on."""
    Fleet()
    clock, waits = [0.0], list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += 4.0

    monkeypatch.setattr(flower_node, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    script = Script(request(), request(), None, None, request(), None)
    with pytest.raises(StopError):
        flower_node.serve(script, "local:p", wait)
    assert len(script.replies) == 3
    assert waits == pytest.approx([SHORTEST_SECONDS, 4.0 / 20, SHORTEST_SECONDS])


def test_what_waits_for_a_person_keeps_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The word that the run is over comes behind it, and is what ends it; so with the most."""
    Fleet()
    monkeypatch.setattr(flower_node, "ALONE_SECONDS", 0.01)
    over, waits = threading.Event(), b"agree"

    class Person:
        def handle(self, data: bytes) -> bytes:
            if data == waits:
                assert over.wait(10)
            else:
                over.set()
            return data

    class Scripted(Script):
        def receive(self) -> Message | None:
            if not self.requests and len(self.replies) < most:
                return None
            return super().receive()

    monkeypatch.setitem(party_app.LOCAL, "person", Person())
    most = flower_node.CONNECTIONS
    script = Scripted(*(request(waits) for _ in range(most - 1)), request(b"abort"))
    with pytest.raises(StopError):
        flower_node.serve(script, "local:person")
    answers = [party_app.from_record(reply.content) for reply in script.replies]
    assert sorted(answers) == [b"abort", *[waits] * (most - 1)]


def test_waits_grow_with_silence_within_bounds() -> None:
    assert pause(0.0) == pause(0.9) == SHORTEST_SECONDS
    assert pause(4.0) == pytest.approx(0.2) and pause(1e6) == LONGEST_SECONDS == 0.5
    assert pause(0.0, 3.0) == 6.0 and pause(4.0, 0.1) == pytest.approx(0.2)


def test_of_an_error_neither_kind_nor_words_leave(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They may carry data. The next request is answered. So in Flower's own SuperNode."""
    Fleet()

    class Broken:
        def __init__(self, error: type[Exception]) -> None:
            self.error = error

        def handle(self, data: bytes) -> bytes:
            raise self.error("row 17 is 4.25")

    kinds = (ValueError, KeyError, MemoryError, RuntimeError, RecursionError, DataError)
    for kind in kinds:
        monkeypatch.setitem(party_app.LOCAL, kind.__name__, Broken(kind))
    for address, message in (
        *((f"local:{kind.__name__}", request()) for kind in kinds),
        ("local:nobody", request()),
        ("local:p", request(kind=MessageType.TRAIN)),
        ("local:p", Message(RecordDict(), 7, MessageType.QUERY)),
        ("local:p", Message(foreign(), 7, MessageType.QUERY)),
    ):
        replies = [flower_node.answer(message, address)]
        if message.metadata.message_type == MessageType.QUERY:
            context = SimpleNamespace(node_config={"party": address})
            replies.append(party_app.query(message, context))  # type: ignore[arg-type]
        for reply in replies:
            told = reply.error.code, reply.error.reason
            assert told == (coordinator_app._RELAY_RAISED, party_app.FAILED)
    assert "row 17 is 4.25" in caplog.text  # for the owner, in its own log
    assert flower_node.answer(request(), "local:p").has_content()


@GENERATIONS
def test_a_session_through_nodes_and_agents(sessions: bool, tmp_path: Path) -> None:
    """Three nodes, each with an agent behind a socket, and the coordinator's transport."""
    fleet = Fleet(sessions=sessions, late=1)
    with ExitStack() as stack:
        for name, point in POINTS.items():
            address = stack.enter_context(served(tmp_path / name, Shard(point)))
            stack.enter_context(serving(Link(fleet.parts(NODES[name])), address))
        transport = coordinator_app.GridTransport(fleet, NODES)  # type: ignore[arg-type]
        assert (train(transport) == twin()).all()


class serving:  # noqa: N801 - reads as a verb
    """A node in a thread, until the block ends."""

    def __init__(self, link: Link, address: str) -> None:
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(link, address))

    def run(self, link: Link, address: str) -> None:
        with pytest.raises(StopError):
            flower_node.serve(link, address, self.wait)

    def wait(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise StopError

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: Any) -> None:
        self.stopping.set()
        self.thread.join(10)
        assert not self.thread.is_alive()


# -- its process -----------------------------------------------------------------------------------


def private_pem(key: Any) -> bytes:
    form = serialization.PrivateFormat.OpenSSH
    found: bytes = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return found


@pytest.fixture
def command(tmp_path: Path) -> Iterator[list[str]]:
    """A node whose SuperLink is not there."""
    (tmp_path / "node.key").write_bytes(private_pem(ec.generate_private_key(ec.SECP384R1())))
    make_certificates(tmp_path, ["127.0.0.1"])
    yield [
        *(sys.executable, "-m", "parties.flower_node", "flower-supernode"),
        *("--root-certificates", str(tmp_path / "ca.crt"), "--superlink", "127.0.0.1:1"),
        *("--auth-supernode-private-key", str(tmp_path / "node.key")),
        *("--node-config", 'party="unix:/run/a.sock"'),
        *("--clientappio-api-address", "127.0.0.1:4"),
    ]


def test_it_ends_when_told(command: list[str]) -> None:
    """Although its SuperLink does not answer."""
    with child(command, cwd=ROOT, env=dict(quiet()), stderr=subprocess.DEVNULL) as process:
        time.sleep(4)
        assert process.poll() is None
        process.terminate()
        assert process.wait(15) is not None


def test_it_gives_up_after_the_time_that_it_has(command: list[str]) -> None:
    done = subprocess.run(
        [*command, "--max-wait-time", "1"], cwd=ROOT, env=dict(quiet()), capture_output=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == os.EX_TEMPFAIL, done.stderr


@pytest.mark.parametrize("text", ["partition-id=0", 'party="'])
def test_a_node_without_a_party_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="--node-config"):
        flower_node.party_of(text)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    for content in (b"none", private_pem(ed25519.Ed25519PrivateKey.generate())):
        path.write_bytes(content)
        with pytest.raises(ParameterError, match="key"):
            flower_node.node_key(path)


# -- the coordinator's waits -----------------------------------------------------------------------


class Grid:
    """Pushes succeed; replies come at given times of the clock, each look takes `look` seconds."""

    def __init__(self, due: dict[str, float], clock: list[float], look: float) -> None:
        self.due, self.clock, self.look = due, clock, look
        self.sent: list[Message] = []

    def push_messages(self, messages: list[Message]) -> list[str]:
        (message,) = messages
        self.sent.append(message)
        return [f"{len(self.sent)}"]

    def pull_messages(self, message_ids: list[str]) -> list[Message]:
        self.clock[0] += self.look
        (identifier,) = message_ids
        if self.clock[0] < self.due[identifier]:
            return []
        message = self.sent[int(identifier) - 1]
        message.metadata.__dict__["_message_id"] = identifier
        return [Message(party_app.to_record(b"reply"), reply_to=message)]


def watched(
    monkeypatch: pytest.MonkeyPatch, due: dict[str, float], look: float = 0.0, work: float = 0.0
) -> list[float]:
    """Seconds slept for two replies; work: what the coordinator does with each."""
    Fleet()
    clock, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(
        coordinator_app, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep)
    )
    grid: Any = Grid(due, clock, look)
    for _ in coordinator_app.GridTransport(grid, {"p": 7, "q": 8})("step", {"p": b"", "q": b""}):
        clock[0] += work
    return slept


def test_replies_are_looked_for_more_seldom_the_longer_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is slept in vain is a twentieth of what they took, or 0.05 s."""
    slept = watched(monkeypatch, {"1": 8.0, "2": 8.0})
    assert slept[0] == SHORTEST_SECONDS and slept == sorted(slept)
    assert max(slept) <= 0.4 and sum(slept) < 8.0 * 1.05 + SHORTEST_SECONDS


def test_at_most_a_third_of_the_time_goes_into_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the SuperLink is."""
    slept = watched(monkeypatch, {"1": 9.0, "2": 9.0}, look=0.5)
    assert set(slept) == {1.0}


def test_one_party_is_looked_for_at_a_time_each_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one may never answer. Once one has, the others are looked for at once."""
    looks: list[str] = []

    class Watched(Grid):
        def pull_messages(self, message_ids: list[str]) -> list[Message]:
            looks.extend(message_ids)
            return super().pull_messages(message_ids)

    monkeypatch.setattr(sys.modules[__name__], "Grid", Watched)
    watched(monkeypatch, {"1": 0.3, "2": 0.1})
    assert looks[:3] == ["1", "2", "1"] and looks.count("2") < 3
    looks.clear()
    assert len(watched(monkeypatch, {"1": 0.01, "2": 0.01})) == 1
    assert looks == ["1", "2", "1"]


def test_the_coordinators_own_work_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reply the next look comes at once, however long the reply's arithmetic took."""
    assert watched(monkeypatch, {"1": 0.0, "2": 1.0}, work=30.0) == []
    slept = watched(monkeypatch, {"1": 0.0, "2": 30.1}, work=30.0)
    assert slept[0] == SHORTEST_SECONDS


@pytest.fixture
def pull_objects() -> Iterator[Callable[..., Any]]:
    """Flower's, as it was afterwards."""
    pull: Any = inflatable_utils.pull_objects
    before = dict(pull.__kwdefaults__)
    yield pull
    pull.__kwdefaults__.clear()
    pull.__kwdefaults__.update(before)


def test_content_on_its_way_is_looked_for_at_once(
    pull_objects: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for as long as Flower's own limit lets it come."""
    assert flower_waits.shorten_waits()
    asked, waits = [0], list[float]()

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return False

    monkeypatch.setattr(
        inflatable_utils, "threading", SimpleNamespace(Event=Event, Lock=threading.Lock)
    )

    def pull(identifier: str) -> bytes:
        asked[0] += 1
        if asked[0] < 600:
            raise inflatable_utils.ObjectUnavailableError(identifier)
        return b"content"

    assert pull_objects(["id"], pull) == {"id": b"content"}
    assert waits[0] < 0.1 and max(waits) < 1.3


def test_a_deployed_session_shortens_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from coordinator import deployment, settings

    done: list[str] = []
    monkeypatch.setattr(coordinator_app, "shorten_waits", lambda: done.append("shorten"))
    monkeypatch.setattr(deployment, "serve_session", lambda *_: done.append("serve"))
    monkeypatch.setattr(deployment, "following", lambda *_: None)
    monkeypatch.setattr(settings.Settings, "load", lambda _: None)
    monkeypatch.setenv(settings.HOME_VARIABLE, str(tmp_path))
    Fleet()
    context = Context(
        run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={"session": "s"}
    )
    coordinator_app.app(Fleet(), context)  # type: ignore[arg-type]
    assert done == ["shorten", "serve"]
