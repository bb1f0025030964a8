"""The in-process grid: the same run through Flower's ServerApp and ClientApp objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from flwr.app import RecordDict

import coordinator.flower_app as coordinator_app
import parties.flower_app as party_app
from coordinator.errors import LostError
from protocols.errors import MessageError, ProtocolError
from sims.local import LocalGrid, run_session
from tests.support.helpers import Session, log2_error, make_session

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


def test_one_request_is_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    session, push, waiting = make_session(**SMALL), LocalGrid.push_messages, list[int]()

    def counting(grid: LocalGrid, messages: Any) -> Any:
        pushed = push(grid, messages)
        waiting.append(len(grid._sent))
        return pushed

    monkeypatch.setattr(LocalGrid, "push_messages", counting)
    through_flower(session)
    assert len(waiting) == len(session.transcript.lines) / 2
    assert set(waiting) == {1}


def test_the_others_are_asked_where_one_is_lost() -> None:
    """In a step that survivors may repeat; elsewhere a loss ends the run at once."""

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        (name,) = outgoing
        if name != "q":
            raise LostError(f"{name} is gone", (name,))
        yield name, outgoing[name]

    requests, came = {name: name.encode() for name in "pqr"}, list[tuple[str, bytes]]()
    asking = coordinator_app.one_by_one(ask)
    with pytest.raises(LostError, match="p is gone; r is gone") as caught:
        for reply in asking("refresh/1", requests):
            came.append(reply)
    assert caught.value.parties == ("p", "r") and came == [("q", b"q")]
    with pytest.raises(LostError, match="p is gone$"):
        list(asking("keys", requests))


@pytest.mark.parametrize("failure", [RuntimeError(SECRET), MessageError(SECRET)])
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


@pytest.fixture(autouse=True)
def clean() -> Any:
    yield
    party_app.LOCAL.pop("test", None)


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
