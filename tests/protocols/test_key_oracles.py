"""NOT prevented (SECURITY.md): requests that show a key share to a coordinator that deviates.

INSECURE toy ring. Each is detected afterwards by re-execution. If one of these tests fails, the
request is checked now: say so in SECURITY.md. The third one, `decrypt`, is in `test_key_share.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coordinator.replay import replay
from protocols.ckks import residues as rns
from protocols.keygen import RELINEARISE
from protocols.messages import Body
from tests import exact
from tests.coordinator.recorded import altered, record
from tests.helpers import Session, make_session
from tests.protocols.security_session import SMALL, VICTIM, N, reply_of


def constants(session: Session, h0: int, h1: int) -> Body:
    """H0 and H1 as constant polynomials, the same for every digit and prime."""
    primes = session.parties[VICTIM]._half.context.key_primes
    rows = (np.full((len(primes), N), value, np.uint64) for value in (h0, h1))
    return Body(blobs=tuple(rns.pack(row, primes) for row in rows))


def test_constant_sums_show_a_key_share_before_any_data(tmp_path: Path) -> None:
    """H0 = 2^40, H1 = 0: the reply is t = 2^40 s_p + e, and s_p its coefficients, rounded.

    One party is asked so, before anybody's rows are encrypted.
    """
    sessions: dict[str, Session] = {}
    large = 1 << 40
    chosen = altered(RELINEARISE, lambda body: constants(sessions["it"], large, 0), VICTIM)
    session = record(tmp_path, chosen, watch=sessions)
    sent = next(r for s, n, _, r in session.recorded if (s, n) == (RELINEARISE, VICTIM))
    secret = session.parties[VICTIM]._half.secret
    context = secret.context
    t = rns.unpack(reply_of(session, VICTIM, sent).body.blobs[0], context.key_primes, N)
    found = [round(int(v) / large) for v in exact.coefficients(t[0], context.key_primes[0])]
    assert found == list(exact.secret(secret))
    check = replay(tmp_path).checks[-1]
    assert (check.name, check.passed) == ("re-execution", False)
    assert f"step '{RELINEARISE}', party '{VICTIM}': blob 0" in check.detail


def test_the_true_sums_show_none() -> None:
    """The same rounding of an honest reply: uniform."""
    session = make_session(**(SMALL | {"parties": 3}))
    session.run()
    sent = next(r for s, n, _, r in session.recorded if (s, n) == (RELINEARISE, VICTIM))
    context = session.parties[VICTIM]._half.context
    t = rns.unpack(reply_of(session, VICTIM, sent).body.blobs[0], context.key_primes, N)
    found = [round(int(v) / 2**40) for v in exact.coefficients(t[0], context.key_primes[0])]
    assert np.mean(np.abs(np.array(found)) > 1) > 0.99
