"""Attacks on a share s_p, and where the secret must not go (toy rings, INSECURE).

Attacks that a deviating coordinator could run are kept as tests: those that are prevented, and
those that SECURITY.md says are not.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import pickle
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from parties.kernel.keys.key_share import KeyShare
from parties.kernel.rows.session import encrypt
from protocols.ckks import REFRESH_TOWERS, CkksParameters, objects
from protocols.ckks import residues as rns
from protocols.ckks.circuits.evaluator import Evaluator
from protocols.ckks.column_map import ColumnMap
from protocols.ckks.evaluation import CkksContext
from protocols.ckks.flooding import FRESH_ERROR_STD, Flooding
from protocols.ckks.sampling import mask_bits
from protocols.ckks.subring import TraceMap
from protocols.errors import PolicyError, ProtocolError
from protocols.exchange.messages import Body
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.steps import decrypt
from protocols.steps.samples import SampleLedger
from tests.support import exact
from tests.support.helpers import half_of, header_of, make_plan
from tests.support.joint import Uncommitted, joint_keys
from tests.support.masked import refresh_shares, trace_shares
from tests.support.sessions import (
    VICTIM,
    N,
    Replies,
    asked,
    refusal,
    reply_of,
    request,
    run_until,
    small,
)

# -- attacks on a key share ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def share() -> KeyShare:
    keys = joint_keys(2, 6, N)
    keys.forget()
    return keys.shares["hospital-2"]


def constant(value: int, primes: tuple[int, ...]) -> rns.Residues:
    """Residues of a constant polynomial (its evaluations are all equal)."""
    return np.array([[value % prime] * N for prime in primes], dtype=np.uint64)


def recovered(total: Any, factor: int, prime: int) -> exact.Integers:
    """round(coefficients / factor)."""
    values = exact.coefficients(total, prime)
    return np.array([round(int(value) / factor) for value in values], dtype=object)


def test_a_chosen_random_element_gives_the_key_away(share: KeyShare) -> None:
    """Why the element comes from the joint seed: with a' = c1 + delta,
    h0 + h1 = (c1 - a') s_p + e = -delta s_p + e."""
    context, delta = share.context, 1 << 30
    low = context.primes[:REFRESH_TOWERS]
    c1 = context.uniform_polynomial(b"c" * 32, "attack")
    crp = rns.add(c1, constant(delta, context.primes), context.primes)
    share._ledger = SampleLedger()
    with patch.object(CkksContext, "uniform_polynomial", lambda self, seed, label: crp):
        ((h0, h1),) = refresh_shares(share, [(c1[:REFRESH_TOWERS], "refresh/5/0", None)])
    total = rns.add(h0, h1[:REFRESH_TOWERS], low)
    assert (recovered(total[0], -delta, low[0]) == exact.secret(share)).all()


def test_a_ciphertext_chosen_for_the_element_gives_nothing(share: KeyShare) -> None:
    """The same attack from the other side: c1 = a' - delta. a' depends on c1, so it misses."""
    context, delta = share.context, 1 << 30
    low = context.primes[:REFRESH_TOWERS]
    minus = constant(-delta, low)
    for guess in (
        context.uniform_polynomial(share.seed, "refresh/5/0")[:REFRESH_TOWERS],
        context.uniform_polynomial(share.seed, context.refresh_label("refresh/5/0", minus))[
            :REFRESH_TOWERS
        ],
    ):
        share._ledger = SampleLedger()
        c1 = rns.add(guess, minus, low)
        ((h0, h1),) = refresh_shares(share, [(c1, "refresh/5/0", None)])
        total = rns.add(h0, h1[:REFRESH_TOWERS], low)
        found = recovered(total[0], -delta, low[0])
        # Uniform modulo a 60-bit prime, divided by 2^30.
        assert np.mean(np.abs(found.astype(float)) > 1) > 0.99


def test_shares_of_a_step_have_masks_and_errors_of_their_own(share: KeyShare) -> None:
    """c1 s - h0 is a mask, and h1 + a' s - T(M) an error of std 3.19; with maps and without."""
    context, s = share.context, exact.secret_rows(share)
    primes, low = context.primes, context.primes[:REFRESH_TOWERS]
    through = [None, ColumnMap(16, 3, -0.3), ColumnMap(N // 2, 0, 0.5, column=2, head=1), None]
    asked = [
        (context.uniform_polynomial(b"c" * 32, str(k))[:REFRESH_TOWERS], f"refresh/7/{k}", each)
        for k, each in enumerate(through)
    ]
    masks, errors = [], []
    for (c1, label, column_map), (h0, h1) in zip(asked, refresh_shares(share, asked), strict=True):
        masks.append(
            exact.whole(rns.subtract(exact.product(c1, s[:REFRESH_TOWERS], low), h0, low), low)
        )
        lifted = np.array([exact.evaluations(masks[-1], q) for q in primes], np.uint64)
        moved = column_map.apply(lifted, primes, primes[-1]) if column_map else lifted
        hidden = exact.product(
            context.uniform_polynomial(share.seed, context.refresh_label(label, c1)), s, primes
        )
        error = rns.subtract(rns.add(h1, hidden, primes), moved, primes)
        errors.append(exact.whole(error, primes).astype(float))
    largest, end = np.abs(np.concatenate(masks)).max(), 1 << mask_bits(low, 2) - 1
    assert 0.99 * end < largest <= end
    # Of 2048 draws: six standard errors of a std.
    assert np.std(errors) == pytest.approx(FRESH_ERROR_STD, rel=6 / math.sqrt(2 * 4 * N))
    for rows, bound in ((masks, float(end) / 3**0.5), (errors, FRESH_ERROR_STD)):
        correlations = np.corrcoef(np.array(rows, float) / bound) - np.eye(4)
        assert np.abs(correlations).max() < 6 / math.sqrt(N)


def test_a_step_that_names_a_ciphertext_twice_gets_no_share(share: KeyShare) -> None:
    c1 = share.context.uniform_polynomial(b"c" * 32, "twice")[:REFRESH_TOWERS]
    with pytest.raises(PolicyError, match="already given"):
        refresh_shares(share, [(c1, "refresh/8/0", None), (c1, "refresh/8/0", None)])


def test_no_request_can_bring_the_element() -> None:
    """A party uses the element of (joint seed, label, c1), as residuals of whole runs show
    (`tests/provenance/residuals.py`); a blob more is a ciphertext more."""
    session, name = small(), "hospital-1"
    held = run_until(session, "refresh/0")
    party = session.parties[name]
    context = half_of(party).context
    body = asked(session, held[name])
    element = rns.pack(context.uniform_polynomial(b"x" * 32, "crp"), context.primes)
    for blobs in ((*body.blobs, element), (element, *body.blobs)):
        forged = request(session, name, "refresh/0", Body({"crp": element.hex()}, blobs))
        refusal(session, name, forged)
    assert len(reply_of(session, name, party.handle(held[name])).body.blobs) == 2


def test_a_deviating_coordinator_reads_a_share_from_a_chosen_ciphertext(share: KeyShare) -> None:
    """NOT prevented in 0.1 (SECURITY.md: detected by re-execution): c1 = K gives K s_p + e.

    If this test fails, the coordinator's ciphertexts are checked now: say so in SECURITY.md.
    """
    context, s = share.context, exact.secret(share)
    prime, large = context.primes[0], 1 << 45
    share._ledger = SampleLedger()
    d = share.decryption_share(
        constant(large, context.primes[:2]), "decrypt", Flooding.even(N, 2.0**30)
    )
    assert (recovered(d[0], large, prime) == s).all()


def test_an_unscaled_ciphertext_is_not_decrypted() -> None:
    """The coordinator half refuses noise degree 2 before anybody is asked."""
    plan = make_plan(rows=[4, 4], ring_dim=N, degree=3, update="gd", rounds=1)
    keys = joint_keys(2, plan.ckks.depth, N)
    evaluator = Evaluator(keys.context, plan.layout)
    vector = evaluator.wrap(objects.encrypt(keys.context, keys.public_key, np.zeros(N // 2)))
    ask = next(decrypt.release(evaluator, plan, vector, Uncommitted(plan)))
    assert (ask.step, set(ask.bodies)) == ("decrypt", set(plan.names))

    class Forgetful(Evaluator):
        def drop_to(self, vector: Any, level: int) -> Any:
            return self.wrap(self.cc.EvalMult(vector.ct, vector.ct))

    with pytest.raises(ProtocolError, match="only rescaled"):
        next(decrypt.release(Forgetful(keys.context, plan.layout), plan, vector, Uncommitted(plan)))


# -- the secret stays where it is ------------------------------------------------------------------


def test_a_key_share_is_never_serialised(share: KeyShare) -> None:
    """Not by pickle, copy or JSON, and its representation shows nothing."""
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PolicyError, match="never serialised"):
            attempt(share)
    with pytest.raises(TypeError):
        json.dumps(share)
    assert repr(share) == str(share) == f"{share}" == "KeyShare(<secret>)"


def test_an_erased_share_refuses() -> None:
    """Every operation with the secret, and at the end of a run."""
    context = CkksContext(CkksParameters(ring_dim=N, depth=3, security_bits=0), "erase")
    share = KeyShare(context, b"e" * 32, 2)
    c1 = context.uniform_polynomial(b"e" * 32, "c1")
    key, sums = (c1, c1), np.zeros((len(context.key_primes), N), np.uint64)
    share.erase()
    for operation in (
        share.relinearisation_first,
        lambda: share.relinearisation_second(sums, sums),
        lambda: encrypt(share, key, np.zeros(4), "x"),
        lambda: share.rotation_share(1),
        lambda: refresh_shares(share, [(c1[:REFRESH_TOWERS], "r", None)]),
        lambda: share.decryption_share(c1[:2], "d", Flooding.even(N, 2.0**20)),
    ):
        with pytest.raises(PolicyError, match="erased"):
            operation()
    session = small()
    session.run()
    assert all(half_of(party).secret._secret is None for party in session.parties.values())
    other = small()
    run_until(other, "refresh/0")
    for party in other.parties.values():
        party.close()
        assert half_of(party).secret._secret is None


def test_no_message_holds_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    """Neither residues nor coefficients of any s_p occur in what was sent or logged."""
    caplog.set_level(logging.DEBUG)
    session, secrets = small(update="nag"), {}

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Replies:
        if step == "finish":
            for name, party in session.parties.items():
                secrets[name] = (exact.secret_rows(half_of(party).secret), half_of(party).context)
        return session.ask(step, outgoing)

    session.run(ask)
    assert len(session.recorded) > 20
    wire = b"".join(request + reply for *_, request, reply in session.recorded)
    logged = caplog.text + json.dumps(session.transcript.lines)
    for name, (rows, context) in secrets.items():
        ternary = exact.coefficients(rows[0], context.primes[0])
        needles = [
            np.ascontiguousarray(row[at : at + 4]).tobytes() for row in rows for at in (0, 7, 200)
        ]
        needles += [
            np.array(ternary[:64], dtype=kind).tobytes() for kind in (np.int8, np.int64, np.int32)
        ]
        assert not any(needle in wire for needle in needles)
        assert not any(str(int(row[0])) in logged for row in rows)
        # The search finds what is there: the party's share of the public key.
        b = half_of(session.parties[name]).secret.public_share()
        assert b[0, :4].tobytes() in wire
        assert rns.pack(b, context.primes) in wire


def test_secrets_and_noise_differ_between_runs() -> None:
    """The same data and seeds, twice: nothing that hides it is repeated."""
    runs = [small(rng_seed=7) for _ in range(2)]
    for run in runs:
        run.run()
    first, second = (
        {step: reply for step, name, _, reply in run.recorded if name == VICTIM} for run in runs
    )
    assert first.keys() == second.keys()
    for step in ("reveal", "keys", "contribute", "refresh/0", "decrypt"):
        assert header_of(first[step]) != header_of(second[step])


def test_refusals_do_not_quote_data() -> None:
    """Texts of refusals name fields and steps, never a row."""
    session, name = small(), "hospital-1"
    run_until(session, "contribute")
    text = refusal(session, name, request(session, name, "contribute", Body()))
    cells = {f"{value:.6f}"[:6] for value in session.shards[0][0].ravel()} - {"1.0000"}
    assert cells and not any(cell in text for cell in cells)


class Tape:
    """INSECURE: words of a fixed seed, another stream for every source that is opened."""

    opened = 0

    def __init__(self) -> None:
        Tape.opened += 1
        self._source = SeededRandomness(7, f"{Tape.opened}")

    def words(self, count: int) -> Any:
        return self._source.words(count)


def published(context: CkksContext, key: Any) -> dict[str, bytes]:
    """Everything that a key share can publish."""
    Tape.opened = 0
    share, seed = KeyShare(context, b"t" * 32, 2), b"t" * 32
    h0, h1 = share.relinearisation_first()
    c1 = context.uniform_polynomial(seed, "c1")[:REFRESH_TOWERS]
    trace = TraceMap(N // 2, 1, 0.5)
    found: dict[str, Any] = {
        "public": share.public_share(),
        "first": np.concatenate([h0, h1]),
        "second": share.relinearisation_second(h0, h1),
        "rotation": share.rotation_share(1),
        "encryption": encrypt(share, key, np.linspace(-1, 1, N // 2), "x"),
        "onto": np.concatenate(share.encrypt_onto(key, [[c1, c1]], ["y/0"], ("m", "m"))[0]),
        "refresh": np.concatenate(refresh_shares(share, [(c1, "refresh/0/0", None)])[0]),
        "trace": np.concatenate(trace_shares(share, [(c1, "refresh/1/0", trace)])[0]),
        "decrypt": share.decryption_share(c1[:2], "decrypt", Flooding.even(N, 2.0**30)),
    }
    return {name: rows.tobytes() for name, rows in found.items()}


@contextmanager
def on_a_tape(*more: str) -> Iterator[None]:
    """What rooms of the kernel draw, and `more` modules of it, is the same each time."""
    with ExitStack() as stack:
        for module in ("protocols.ckks.sampling", "parties.kernel.model.pads"):
            stack.enter_context(patch(f"{module}.ExpandedRandomness", Tape))
        for module in ("keys.key_share", "model.pads", "rows.masks", *more):
            stack.enter_context(patch(f"parties.kernel.{module}.SystemRandomness", Tape))
        yield


def test_all_that_is_random_comes_from_the_operating_system() -> None:
    """On a fixed tape every share is the same bit for bit: OpenFHE draws nothing of it."""
    context = joint_keys(2, 6, N).context
    key = joint_keys(2, 6, N).public
    with on_a_tape():
        first, again = published(context, key), published(context, key)
        assert first == again
    other = published(context, key)
    assert all(first[name] != other[name] for name in first)
