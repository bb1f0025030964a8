"""NOT prevented (SECURITY.md): requests that show a key share to a coordinator that deviates.

INSECURE toy ring. Each is detected afterwards by re-execution. If one of these tests fails, the
request is checked now: say so in SECURITY.md. The third one, `decrypt`, is in `test_key_share.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from coordinator.replay import replay
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.exchange import commit_of
from protocols.exchange.messages import Body
from protocols.exchange.signed_messages import replied, to_request
from protocols.steps import keygen
from protocols.steps.commitments import Gathering
from protocols.steps.keygen import RELINEARISE
from tests.support import exact
from tests.support.helpers import Session, half_of
from tests.support.sessions import VICTIM, Change, N, altered, record, reply_of, small

LARGE = 1 << 40


def rounded(session: Session, context: CkksContext) -> list[int]:
    """Coefficients of the reply to the second round, divided by LARGE."""
    sent = next(r for s, n, _, r in session.recorded if (s, n) == (RELINEARISE, VICTIM))
    t = rns.unpack(reply_of(session, VICTIM, sent).body.blobs[0], context.key_primes, N)
    return [round(int(v) / LARGE) for v in exact.coefficients(t[0], context.key_primes[0])]


def chosen(session: Session) -> Change:
    """H0 = 2^40, H1 = 0: the reply would be t = 2^40 s_p + e, and s_p its coefficients, rounded."""

    def change(body: Body) -> Body:
        primes = half_of(session.parties[VICTIM]).context.key_primes
        rows = (np.full((len(primes), N), value, np.uint64) for value in (LARGE, 0))
        return Body(body.meta, tuple(rns.pack(row, primes) for row in rows))

    return change


def test_sums_that_one_party_alone_is_asked_for_show_nothing(tmp_path: Path) -> None:
    """The others have signed for the true ones: its kernel keeps what it made of these."""
    session = small(update="nag", parties=3)
    step = commit_of(RELINEARISE)

    def looks_away(self: Gathering, found: Any) -> Body:
        self._commitments = replied(found)
        return to_request(self._commitments)

    with patch.object(Gathering, "committed", looks_away):
        record(tmp_path, session, altered(step, chosen(session), VICTIM))
    replies = {n: r for s, n, _, r in session.recorded if s == RELINEARISE}
    assert set(replies) == set(session.parties)
    for name, reply in replies.items():
        body = reply_of(session, name, reply).body
        assert not body.blobs and "is not signed by its identity key" in body.meta["error"]


def test_sums_that_everybody_is_asked_for_show_every_key_share(tmp_path: Path) -> None:
    """OPEN: whether they are the sums is the coordinator's word; the audit names it."""
    session = small(update="nag", parties=3)
    honest, names = keygen.to_everyone, tuple(session.parties)

    def to_everyone(step: str, names: Any, body: Body, fold: Any = None) -> Any:
        asked = chosen(session)(body) if step == commit_of(RELINEARISE) else body
        return honest(step, names, asked, fold)

    with patch.object(keygen, "to_everyone", to_everyone):
        record(tmp_path, session, lambda exchange: exchange)
    secret = half_of(session.parties[VICTIM]).secret
    assert rounded(session, secret.context) == list(exact.secret(secret))
    check = replay(tmp_path).checks[-1]
    assert (check.name, check.passed) == ("re-execution", False)
    assert f"step '{commit_of(RELINEARISE)}', party '{names[0]}': blob 0" in check.detail


def test_the_true_sums_show_none() -> None:
    """The same rounding of an honest reply: uniform."""
    session = small(update="nag", parties=3)
    session.run()
    found = rounded(session, half_of(session.parties[VICTIM]).context)
    assert np.mean(np.abs(np.array(found)) > 1) > 0.99
