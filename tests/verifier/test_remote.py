"""A kernel behind a channel gives what one in this process gives, and its driver has no secret."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest

from parties.account import Account
from parties.agent import store
from parties.agent.store import SessionStore
from parties.agent.vault import Vault
from parties.coins import Coins
from parties.kernel.keys.key_share import KeyShare
from parties.kernel.run import Run
from parties.kernel.sums.aggregate_share import AggregateShare
from parties.reader.shard import Shard
from parties.verifier.remote import RemoteRows, RemoteSession
from protocols.errors import (
    CohortError,
    DataError,
    PolicyError,
    ProtocolError,
)
from tests.parties.agents import PASSPHRASE
from tests.support.helpers import Believing, Session, half_of
from tests.support.sessions import (
    deliver,
    gram_session,
    holding,
    lffr_model_session,
    lffr_session,
    model_session,
    quadratic_session,
    small,
    sums_session,
)
from tests.verifier.remote import OPENED, Owned, remote


def lenient(session: Session) -> Session:
    """Owners who let a few rows be apart; which ones, each tosses anew."""
    for party in session.parties.values():
        party._policy = replace(party._policy, min_rows_apart=0)
    return session


CASES: dict[str, Callable[..., Session]] = {
    "encrypted rows": small,
    "encrypted rows, a curvature": quadratic_session,
    "encrypted model": model_session,
    "encrypted model, lffr": lffr_model_session,
    "gram": gram_session,
    "lffr": lffr_session,
    "sums": sums_session,
}


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.mark.parametrize("make", [small, sums_session])
def test_rows_are_held_back_there(make: Callable[..., Session]) -> None:
    session = behind_a_channel(lambda: lenient(holding(make())))
    session.run()


@pytest.mark.parametrize("case", CASES)
def test_the_model_is_the_same(case: str) -> None:
    """Noise and rows are the same; encryption differs, and what a refresh rounds."""
    found, twin = behind_a_channel(CASES[case]), CASES[case]()
    np.testing.assert_allclose(run(found), run(twin), rtol=0, atol=2e-4)


SECRET = "/home/owner/7.25-of-another-study"
RECORDS: list[tuple[Any, str]] = [
    *((Coins, name) for name in ("chosen", "toss", "_keep")),
    *((Account, "commit"), (Run, "used"), (store, "write_private")),
]


@pytest.mark.parametrize(("where", "name"), RECORDS)
@pytest.mark.parametrize("make_there", [False, True])
def test_no_word_of_what_an_owner_keeps_leaves(
    where: Any, name: str, make_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whatever type, in the kernel of this process or of another one; coins, budget, counts."""
    folder = SessionStore(tmp_path / "state", Vault(PASSPHRASE) if where is store else None)
    monkeypatch.setattr(Owned, "count", lambda self, run, calls: folder.count(run, calls))
    for kind in (PolicyError, ProtocolError, DataError, OSError):
        make = lambda: lenient(holding(sums_session()))  # noqa: E731
        session = behind_a_channel(make) if make_there else make()
        replies, fail = list[bytes](), Mock(side_effect=kind(SECRET))
        with monkeypatch.context() as patched:
            patched.setattr(where, name, fail)
            with suppress(CohortError, OSError):
                session.run(deliver(session, partial(_collect, replies)))
        assert fail.called is (make_there or where is not store)  # counted for another process
        assert replies and not any(SECRET.encode() in reply for reply in replies), kind


def _collect(heard: list[bytes], step: str, replies: dict[str, bytes]) -> dict[str, bytes]:
    heard.extend(replies.values())
    return replies


def behind_a_channel(make: Callable[..., Session]) -> Session:
    """The same session, whose parties drive kernels elsewhere."""
    with patch.object(Believing, "of", staticmethod(remote)):
        return make()


def run(session: Session) -> Any:
    outcome = session.run()
    return np.asarray(outcome.weights if hasattr(outcome, "weights") else outcome)


@pytest.mark.parametrize("case", ["encrypted rows", "encrypted model", "sums"])
def test_a_driver_reaches_stand_ins_alone(case: str) -> None:
    """Whatever a party's object refers to, from attribute to attribute."""
    session = behind_a_channel(CASES[case])
    session.run()
    party = session.parties["hospital-1"]
    half = half_of(party)
    assert isinstance(party.run.rows, RemoteRows)
    assert {type(v) for k, v in vars(half).items() if k in ("secret", "session")} == {RemoteSession}
    kinds = {type(each) for each in reached(party)}
    assert not kinds & {Shard, KeyShare, AggregateShare}
    assert "parties.kernel.serving" in sys.modules  # which has them, in a thread of its own


def reached(root: Any) -> list[Any]:
    """Objects below one, but for modules, classes, functions and what is global."""
    found, due = dict[int, Any](), [root]
    skip = (type(sys), type, type(reached))
    while due:
        each = due.pop()
        if id(each) in found or isinstance(each, skip):
            continue
        found[id(each)] = each
        held = vars(each).values() if hasattr(each, "__dict__") else gc.get_referents(each)
        due += list(held)
    return list(found.values())


def test_a_driver_cannot_have_a_key_of_the_kernel_signed() -> None:
    """With one it would know pads and masks of this party."""
    key = remote_key()
    assert len(key.sign(b"ciphercohort/whatever/1\0")) == 64
    for kind in ("mask-key", "pad-key", "cover-key", "sheets"):
        with pytest.raises(PolicyError, match="signs its own keys and sheets"):
            key.sign(f"ciphercohort/{kind}/1\0".encode() + bytes(32))
    assert not hasattr(key, "private_bytes")


def remote_key() -> Any:
    session = behind_a_channel(small)
    return session.parties["hospital-1"].run.signing_key
