"""NOT prevented (SECURITY.md): requests that show a key share to a coordinator that deviates.

INSECURE toy ring. Each is detected afterwards by re-execution. If one of these tests fails, the
request is checked now: say so in SECURITY.md. The third one, `decrypt`, is in `test_key_share.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coordinator.replay import replay
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.keygen import RELINEARISE
from protocols.messages import Body
from tests import exact
from tests.helpers import Session, half_of
from tests.sessions import VICTIM, N, altered, record, reply_of, small

LARGE = 1 << 40


def rounded(session: Session, context: CkksContext) -> list[int]:
    """Coefficients of the reply to the second round, divided by LARGE."""
    sent = next(r for s, n, _, r in session.recorded if (s, n) == (RELINEARISE, VICTIM))
    t = rns.unpack(reply_of(session, VICTIM, sent).body.blobs[0], context.key_primes, N)
    return [round(int(v) / LARGE) for v in exact.coefficients(t[0], context.key_primes[0])]


def test_constant_sums_show_a_key_share_before_any_data(tmp_path: Path) -> None:
    """H0 = 2^40, H1 = 0: the reply is t = 2^40 s_p + e, and s_p its coefficients, rounded.

    One party is asked so, before anybody's rows are encrypted.
    """
    session = small(update="nag", parties=3)

    def chosen(body: Body) -> Body:
        primes = half_of(session.parties[VICTIM]).context.key_primes
        rows = (np.full((len(primes), N), value, np.uint64) for value in (LARGE, 0))
        return Body(blobs=tuple(rns.pack(row, primes) for row in rows))

    record(tmp_path, session, altered(RELINEARISE, chosen, VICTIM))
    secret = half_of(session.parties[VICTIM]).secret
    assert rounded(session, secret.context) == list(exact.secret(secret))
    check = replay(tmp_path).checks[-1]
    assert (check.name, check.passed) == ("re-execution", False)
    assert f"step '{RELINEARISE}', party '{VICTIM}': blob 0" in check.detail


def test_the_true_sums_show_none() -> None:
    """The same rounding of an honest reply: uniform."""
    session = small(update="nag", parties=3)
    session.run()
    found = rounded(session, half_of(session.parties[VICTIM]).context)
    assert np.mean(np.abs(np.array(found)) > 1) > 0.99
