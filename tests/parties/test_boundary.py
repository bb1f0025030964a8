"""Faults wherever rows are open: one reply, one charge, the end; nothing of the error leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import CO_GENERATOR
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties.account import Account
from parties.kernel.private import Kept, Private, opened
from parties.kernel.sums.session import kept_like
from parties.policy import REFUSED
from parties.verifier import party as party_module
from parties.verifier.party import Party
from protocols.errors import (
    CohortError,
    DataError,
    MessageError,
    ParameterError,
    PolicyError,
    ProtocolError,
)
from protocols.exchange.messages import Body
from protocols.privacy.loss.accounting import GaussianEvent
from tests.fuzz.targets import Snapshot
from tests.support.helpers import Session
from tests.support.sessions import (
    gram_session,
    holding,
    lffr_model_session,
    lffr_session,
    model_session,
    moment_session,
    quadratic_session,
    refusal,
    reply_of,
    request,
    small,
    sums_session,
    whitened_session,
)

VICTIM, CELL = "hospital-1", "8675309.25"
SESSIONS: dict[str, Callable[[], Session]] = {
    "encrypted rows": small,
    "quadratic": quadratic_session,
    "whitened": whitened_session,
    "held out": lambda: holding(small(rows=40)),
    "gram": gram_session,
    "lffr": lffr_session,
    "encrypted model": model_session,
    "lffr at home": lffr_model_session,
    "sums": sums_session,
    "second moment": moment_session,
}
FIRST_READ = {
    "encrypted rows": "commit-rows", "quadratic": "commit-rows", "whitened": "second-moment",
    "held out": "agree", "gram": "commit-rows", "lffr": "commit-rows",
    "encrypted model": "commit-gradient/0", "lffr at home": "commit-gradient/0",
    "sums": "mask-keys", "second moment": "mask-keys",
}  # fmt: skip
"""The first step that looks at a row."""


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError(CELL)


ERRORS: tuple[type[BaseException], ...] = (
    ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError, AssertionError,
    FloatingPointError, MemoryError, OSError, RuntimeError, RecursionError, StopIteration,
    UnicodeDecodeError, SystemExit, GeneratorExit, UserWarning, UnprintableError,
    DataError, MessageError, ParameterError, PolicyError, ProtocolError,
)  # fmt: skip


def made(kind: type[BaseException]) -> BaseException:
    if kind is UnicodeDecodeError:
        return UnicodeDecodeError("utf-8", CELL.encode(), 0, 1, CELL)
    return kind(f"cell 3 is {CELL}")


class Ledger:
    """What was booked."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        def note(*_: Any, **__: Any) -> Any:
            self.kinds.append("reserve" if kind == "reserved" else kind)
            return ("run", "entry") if kind == "reserved" else kind in ("has", "is_open") or "entry"

        return note


@contextmanager
def failing(party: Party, at: int, kind: type[BaseException]) -> Iterator[list[int]]:
    """The call of number `at` of all that are made while rows are open raises."""
    calls = [0]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        held = party.run.private
        if event != "call" or not (held._inside and held._touched):
            return None
        own = str(frame.f_globals.get("__name__")).startswith(("parties.", "protocols."))
        # A generator is entered once more when it is given up, where nothing can be raised.
        own &= not frame.f_code.co_flags & CO_GENERATOR
        if not own or frame.f_code.co_name in ("__exit__", "__del__", "touch", "__getattr__"):
            return None
        calls[0] += 1
        if calls[0] == at:
            raise made(kind)
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield calls
    finally:
        sys.settrace(before)


def prepared(session: Session, patch: pytest.MonkeyPatch) -> Ledger:
    """A ledger whose budget every plan fits, at one party."""
    ledger, party = Ledger(), session.parties[VICTIM]
    booked = GaussianEvent(noise_multiplier=1e-3)
    cost = SimpleNamespace(events=(booked,), additive_delta=0.0)
    patch.setattr(party_module, "recompute", lambda *_: cost)
    party.run.account = Account(ledger, "table")  # type: ignore[arg-type]
    party.run.private = Private(party.run.account)
    return ledger


def driven(session: Session, before: Callable[[str, bytes], None]) -> None:
    """A run in which something is done before the victim answers a step."""

    def ask(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        if VICTIM in outgoing:
            before(step, outgoing[VICTIM])
        return session.ask(step, outgoing)

    session.run(ask)


@pytest.mark.parametrize("name", SESSIONS)
def test_a_fault_where_rows_are_open_has_one_reply(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of every step that looks at a row, at calls from the first to the last, by every error."""
    session = SESSIONS[name]()
    ledger, party = prepared(session, monkeypatch), session.parties[VICTIM]
    rng, steps = np.random.default_rng(1), dict[str, int]()

    def inject(step: str, data: bytes) -> None:
        if step == "finish":
            return
        if party._half is not None:
            # Erased secrets could not be brought back.
            monkeypatch.setattr(party._half, "erase", lambda: None)
        state, booked = Snapshot(party), list(ledger.kinds)

        def restore() -> None:
            state.restore()
            ledger.kinds[:] = booked

        with failing(party, 0, ValueError) as calls:
            honest = party.handle(data)
        total = calls[0]
        restore()
        if not total:
            return
        steps[step] = total
        replies = set()
        for k, kind in enumerate(ERRORS):
            at = (1, total)[k] if k < 2 else int(rng.integers(1, total + 1))
            caplog.clear()
            with failing(party, at, kind):
                reply = party.handle(data)
            body = reply_of(session, VICTIM, reply).body
            if body.meta != {"error": REFUSED}:
                # Code that expects this error took it for its own, and answered.
                assert reply == honest or "error" not in body.meta, body.meta
                restore()
                continue
            replies.add(reply)
            assert CELL.encode() not in reply and not body.blobs
            assert party.run.account._spent and party.answered == 0
            assert ledger.kinds.count("reserve") == 1
            assert not {"rollback", "abandon"} & set(ledger.kinds)
            assert party.handle(data) == reply
            other = request(session, VICTIM, step, Body({"again": 1}))
            assert "run is over" in refusal(session, VICTIM, other)
            restore()
        assert len(replies) == 1, "an error has a reply of its own"

    driven(session, inject)
    assert steps and next(iter(steps)) == FIRST_READ[name]


@pytest.mark.parametrize("kind", ERRORS)
def test_before_rows_are_open_a_stated_reason_is_told_and_no_other(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check of the plan that refuses says why, and costs nothing; a crash there is no reason."""
    session = sums_session()
    ledger, party = prepared(session, monkeypatch), session.parties[VICTIM]

    def fail(*_: Any) -> None:
        raise made(kind)

    def inject(step: str, data: bytes) -> None:
        if step != "agree":
            return
        state = Snapshot(party)
        with monkeypatch.context() as patch:
            patch.setattr(party._policy.__class__, "check_slots", fail)
            meta = reply_of(session, VICTIM, party.handle(data)).body.meta
        public = issubclass(kind, CohortError) and kind is not DataError
        assert (CELL in str(meta)) is public
        assert public or meta == {"error": REFUSED}
        assert "reserve" not in ledger.kinds and party.run.account._spent is not public
        state.restore()

    driven(session, inject)


def test_a_plan_that_is_refused_after_the_reservation_gives_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A contributor that does not know the plan's objective says so before it looks at rows."""
    session = sums_session()
    ledger, party = prepared(session, monkeypatch), session.parties[VICTIM]

    def unknown(*_: Any) -> Any:
        raise PolicyError("objective='x' is not one of this party's")

    def inject(step: str, data: bytes) -> None:
        if step == "agree":
            state = Snapshot(party)
            party._open_contributor = unknown
            meta = reply_of(session, VICTIM, party.handle(data)).body.meta
            assert "is not one of this party's" in meta["error"]
            assert ledger.kinds[-2:] == ["reserve", "rollback"]
            state.restore()

    driven(session, inject)


def test_the_owner_may_stop_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A KeyboardInterrupt goes on; the run is spent and over."""
    session = small()
    ledger, party = prepared(session, monkeypatch), session.parties[VICTIM]

    class StopError(Exception):
        pass

    def inject(step: str, data: bytes) -> None:
        if step == "commit-rows":
            with failing(party, 5, KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
                party.handle(data)
            assert party.run.account._spent and party.answered == 0
            assert "rollback" not in ledger.kinds
            raise StopError

    with pytest.raises(StopError):
        driven(session, inject)


@pytest.mark.parametrize("name", ["encrypted rows", "encrypted model", "held out"])
def test_rows_that_fail_at_a_restart_end_the_session(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By a refusal that `SessionStore.resume` expects, without the error's words."""
    session = SESSIONS[name]()

    class StopError(Exception):
        pass

    def inject(step: str, data: bytes) -> None:
        if step == "finish":
            fresh = session.anew(VICTIM)
            state = session.parties[VICTIM].state()

            def fail(*_: Any) -> Any:
                raise RuntimeError(CELL)

            fresh._open_half = fail  # type: ignore[method-assign,assignment]
            with pytest.raises(PolicyError) as refused:
                fresh.restore(state)
            assert str(refused.value) == REFUSED and refused.value.__cause__ is None
            assert CELL in caplog.text
            raise StopError

    with pytest.raises(StopError):
        driven(session, inject)


@pytest.mark.parametrize("error", [ZeroDivisionError, OverflowError, FloatingPointError])
@pytest.mark.parametrize("name", ["encrypted rows", "encrypted model"])
def test_numbers_of_a_plan_that_nothing_can_be_made_of_are_refused_in_words(
    name: str, error: type[ArithmeticError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a secret is made: such as a link's radius that is the least above 0."""

    def fail(plan: Any) -> Any:
        raise error("such a number")

    monkeypatch.setattr("parties.verifier.encrypted_rows.keys_sheet", fail)
    with pytest.raises(ProtocolError, match="the plan's numbers are out of range"):
        driven(SESSIONS[name](), lambda step, data: None)


def test_rows_open_inside_alone() -> None:
    private = Private(Account(None, ""))
    rows = private.keep(SimpleNamespace(rows=3, num_features=2, schema="public", x=[[CELL]]))
    assert (rows.rows, rows.num_features, rows.schema) == (3, 2, "public")
    derived = kept_like(rows, SimpleNamespace(norms=[1.0]))
    for look in (lambda: rows.x, lambda: derived.norms, lambda: opened(rows)):
        with pytest.raises(PolicyError, match="at no other time"):
            look()  # type: ignore[no-untyped-call]
    assert CELL not in repr(rows) and isinstance(rows, Kept)
    with pytest.raises(PolicyError):
        rows.__reduce__()
    with private:
        assert rows.x == [[CELL]] and derived.norms == [1.0]
    assert kept_like("plain", "made") == "made" and opened("plain") == "plain"
