"""The in-process grid: the same run through Flower's ServerApp and ClientApp objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict

import coordinator.flower_app as coordinator_app
import parties.flower_app as party_app
from protocols.errors import MessageError, ParameterError, ProtocolError
from protocols.messages import digest
from sims.local import LocalGrid, run_session
from tests.helpers import Session, log2_error, make_session

SMALL: dict[str, Any] = {"ring_dim": 512, "degree": 3, "update": "gd", "rows": 4, "rounds": 2}
SECRET = "row 42: diabetes"


class Recording:
    """A handler that keeps what goes through it."""

    def __init__(self, party: Any) -> None:
        self.party, self.messages = party, []

    def handle(self, data: bytes) -> bytes:
        reply = self.party.handle(data)
        self.messages.append((data, reply))
        return reply


def through_flower(session: Session, handlers: Any = None) -> Any:
    results: list[Any] = []
    run_session(
        session.coordinator.session,
        lambda ask: results.append(session.run(ask)),
        handlers or session.parties,
    )
    return results[0]


def test_a_run_through_flower_is_the_twins() -> None:
    """Outcome, transcript and costs are those of a run without Flower."""
    session, plain = make_session(**SMALL), make_session(**SMALL)
    outcome, wanted = through_flower(session), plain.run()
    assert log2_error(outcome.weights, session.twin()) < -13
    assert (session.twin() == plain.twin()).all()
    fields = ("index", "step", "sender", "recipient")
    lines, others = session.transcript.lines, plain.transcript.lines
    assert [[line[f] for f in fields] for line in lines] == [
        [line[f] for f in fields] for line in others
    ]
    assert outcome.plan.layout == wanted.plan.layout
    bytes_through, bytes_plain = (s.coordinator.costs.bytes_per_party for s in (session, plain))
    # Weights in `finish` print with different lengths.
    assert all(abs(bytes_through[k] - bytes_plain[k]) < 100 for k in bytes_plain)


def test_bytes_arrive_as_they_were_sent() -> None:
    """Flower's records and protobuf change nothing, in either direction."""
    session = make_session(**SMALL)
    handlers = {name: Recording(party) for name, party in session.parties.items()}
    through_flower(session, handlers)
    sent = {line["message"] for line in session.transcript.lines}
    seen = [data for h in handlers.values() for pair in h.messages for data in pair]
    assert {digest(data) for data in seen} == sent
    assert len(seen) == len(session.transcript.lines)


@pytest.mark.parametrize(
    "failure",
    [RuntimeError(SECRET), ValueError(SECRET), MessageError(SECRET), KeyError(SECRET)],
    ids=lambda error: type(error).__name__,
)
def test_a_party_that_raises_is_named_without_its_words(failure: Exception) -> None:
    """An exception may carry data: the coordinator learns who and Flower's code."""
    session = make_session(**SMALL)

    class Broken:
        def handle(self, data: bytes) -> bytes:
            raise failure

    with pytest.raises(ProtocolError, match="'hospital-2' failed") as caught:
        through_flower(session, session.parties | {"hospital-2": Broken()})
    assert caught.value.culprit == "hospital-2"
    chain: BaseException | None = caught.value
    while chain:
        assert SECRET not in str(chain)
        chain = chain.__cause__ or chain.__context__


def test_ctrl_c_comes_through() -> None:
    """An interrupt is no failure of a party."""
    session = make_session(**SMALL)

    class Interrupted:
        def handle(self, data: bytes) -> bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        through_flower(session, session.parties | {"hospital-1": Interrupted()})


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_stays_registered(fails: bool) -> None:
    """Neither sessions nor parties, whatever happens."""
    session = make_session(**SMALL)
    before = dict(party_app.LOCAL), dict(coordinator_app.SESSIONS)

    def coordinate(ask: Any) -> None:
        assert len(party_app.LOCAL) == len(before[0]) + 2
        if fails:
            raise RuntimeError("stop")

    try:
        run_session(session.coordinator.session, coordinate, session.parties)
    except RuntimeError:
        assert fails
    assert (dict(party_app.LOCAL), dict(coordinator_app.SESSIONS)) == before


def test_two_sessions_in_one_process() -> None:
    """Their parties and keys do not mix."""
    sessions = [make_session(**SMALL, rng_seed=seed) for seed in (1, 2)]
    inner: list[Any] = []

    def outer(step: str, outgoing: Any, ask: Any) -> Any:
        if step == "refresh/0":
            inner.append(through_flower(sessions[1]))
        return ask(step, outgoing)

    results: list[Any] = []
    run_session(
        sessions[0].coordinator.session,
        lambda ask: results.append(
            sessions[0].run(lambda step, outgoing: outer(step, outgoing, ask))
        ),
        sessions[0].parties,
    )
    for session, outcome in zip(sessions, [*results, *inner], strict=True):
        assert log2_error(outcome.weights, session.twin()) < -13


# -- the grid and the apps, one by one -------------------------------------------------------------


def grid_for(handle: Callable[[bytes], bytes]) -> LocalGrid:
    class Handler:
        def handle(self, data: bytes) -> bytes:
            return handle(data)

    party_app.LOCAL["test"] = Handler()
    return LocalGrid({7: "local:test", 8: "local:nobody", 9: "tcp:far"})


@pytest.fixture(autouse=True)
def clean() -> Any:
    yield
    party_app.LOCAL.pop("test", None)


def query(data: bytes, node: int = 7) -> Message:
    array = Array(dtype="uint8", shape=(len(data),), stype="raw", data=data)
    record = RecordDict({party_app.RECORD: ArrayRecord({party_app.PAYLOAD: array})})
    return Message(record, node, MessageType.QUERY)


@pytest.mark.parametrize("data", [b"", b"\0", bytes(range(256)) * 999])
def test_a_query_is_relayed(data: bytes) -> None:
    """Any bytes, there and back."""
    grid = grid_for(lambda received: received[::-1])
    (reply,) = grid.send_and_receive([query(data)])
    assert not reply.has_error()
    assert party_app.from_record(reply.content) == data[::-1]
    assert list(grid.get_node_ids()) == [7, 8, 9]
    assert grid.run is None


@pytest.mark.parametrize("node", [8, 9])
def test_an_address_without_a_party(node: int) -> None:
    """Unknown name or scheme: an error reply."""
    grid = grid_for(bytes)
    (reply,) = grid.send_and_receive([query(b"x", node)])
    assert reply.has_error()


def test_connect_names_the_address() -> None:
    """And the form that it should have."""
    for address in ("local:nobody", "tcp:far", "", "local"):
        with pytest.raises(ParameterError, match="is not the address of a running party"):
            party_app.connect(address)


def test_a_foreign_record() -> None:
    """No record or no array of ours, on either side."""
    for content in (RecordDict(), RecordDict({party_app.RECORD: ArrayRecord({})})):
        with pytest.raises(MessageError):
            party_app.from_record(content)
        grid = grid_for(bytes)
        message = Message(content, 7, MessageType.QUERY)
        (reply,) = grid.send_and_receive([message])
        assert reply.has_error()


def test_a_foreign_reply_is_named() -> None:
    """A node that answers with something else."""

    class Foreign(LocalGrid):
        def pull_messages(self, message_ids: Any) -> Any:
            replies = list(super().pull_messages(message_ids))
            for reply in replies:
                reply.content = RecordDict()
            return replies

    party_app.LOCAL["test"] = Recording(type("Echo", (), {"handle": lambda self, data: data})())
    transport = coordinator_app.GridTransport(Foreign({7: "local:test"}), {"p": 7})
    with pytest.raises(ProtocolError, match="'p' sent a foreign message") as caught:
        list(transport("enrol", {"p": b"x"}))
    assert caught.value.culprit == "p"
