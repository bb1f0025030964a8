"""A refusal tells nothing of rows: one text, counted as spent, and the session is over."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parties.account import Account
from parties.agent.agent import Agent
from parties.agent.consent import Consent
from parties.agent.store import SessionStore
from parties.coins import Coins
from parties.kernel.integers.exact import Exact
from parties.kernel.run import Run
from parties.kernel.sums.row_function import Contributor
from parties.policy import REFUSED, Policy
from parties.reader.schema import Label, NumericColumn, Schema
from parties.reader.shard import ClampCounts, Shard
from parties.verifier.objectives import open_contributor
from parties.verifier.party import Party
from parties.verifier.secure_aggregation import SecureAggregationParty
from protocols.aggregate.choice import choose
from protocols.aggregate.cipher import encode
from protocols.aggregate.coordinator_cipher import decode
from protocols.errors import CohortError, DataError, ParameterError, PolicyError, ProtocolError
from protocols.exchange.messages import Body, Envelope, new_signing_key, public_bytes
from protocols.exchange.messages import decode as read
from protocols.exchange.messages import encode as write
from protocols.exchange.serialise import to_plain
from protocols.plan.kinds import plan_from_dict
from protocols.plan.run_plan import Member, PrivacyPlan
from protocols.privacy.laws import SystemRandomness
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.loss.ledger import Ledger
from protocols.rows.curvature import Curvature
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan
from protocols.sums.protocol import PROTOCOL
from tests.protocols import lffr_session as lffr_cases
from tests.protocols.gram import test_gram_plan
from tests.protocols.sums import test_gradients
from tests.support.helpers import Floats, Session, make_plan, make_session
from tests.support.plans import dual_objective, dual_rule
from tests.support.sessions import (
    gram_session,
    lffr_session,
    refusal,
    reply_of,
    request,
    run_until,
    sums_session,
)

VICTIM = "hospital-1"
NARROW = Curvature(offset=0.02, high=0.025)
QUADRATIC: Any = {"kind": "quadratic-nag", "rounds": 2, "schedule": "geometric", "decay": 0.9,
             "learning_rate": 1.0, "first_alpha": 1.0, "curvature": to_plain(NARROW)}  # fmt: skip


class Failing(Contributor):
    """Rows on which nothing works."""

    def exact(self, query: str, t: int, point: Floats) -> Exact:
        raise DataError("row 3 is 8675309")


def refuse_rows(*args: Any) -> Any:
    raise DataError("row 3 is 8675309")


def sums_with(contributor: Callable[..., Any]) -> Session:
    session = sums_session()
    session.parties[VICTIM]._open_contributor = contributor
    return session


def too_long(session: Session) -> Session:
    """Rows beyond what their schema says, as only an error of a reader's makes them."""
    x = session.parties[VICTIM].run.rows._value.x
    x.setflags(write=True)
    x *= 9
    return session


NARROW_SHEETS: dict[str, Callable[[], Session]] = {
    "curvature of rows": lambda: make_session(update=QUADRATIC, degree=3, rows=4),
    "curvature of targets' rows": lambda: lffr_session(curvature=replace(NARROW, constant=0.155)),
    "most of sums": lambda: gram_session(curvature_bound=1e-3),
}


@pytest.mark.parametrize("case", NARROW_SHEETS)
def test_a_range_that_rows_could_leave_is_refused_before_any_is_read(case: str) -> None:
    """Afterwards the refusal would tell of one."""
    with pytest.raises(ProtocolError, match=f"'agree': .*{case.split()[0]}: less than rows add"):
        NARROW_SHEETS[case]().run()


CASES: dict[str, tuple[Callable[[], Session], str]] = {
    "long rows": (lambda: too_long(make_session(rows=4)), "agree"),
    "a contributor at agree": (lambda: sums_with(refuse_rows), "agree"),
    "a contributor in a round": (lambda: sums_with(lambda *a: Failing()), "round/0"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_text_and_the_end(case: str, caplog: pytest.LogCaptureFixture) -> None:
    """The detail is in the owner's log; whatever is asked afterwards, the session is over."""
    make, step = CASES[case]
    session = make()
    held = run_until(session, step)[VICTIM]
    party = session.parties[VICTIM]
    reply = party.handle(held)
    assert reply_of(session, VICTIM, reply).body.meta == {"error": REFUSED}
    assert caplog.messages[-1].startswith(f"{VICTIM} refuses {step}: ")
    assert REFUSED not in caplog.messages[-1]
    assert party.handle(held) == reply
    # Another point of the same round, another plan of the same session: no second answer.
    asked = read(held, public_bytes(session.coordinator_key)).body
    other = Body({**asked.meta, "again": 1}, tuple(blob[::-1] for blob in asked.blobs))
    assert "run is over" in refusal(session, VICTIM, request(session, VICTIM, step, other))


# -- an owner with a ledger ----------------------------------------------------------------------

ROWS, FEATURES = 12, 4


class Owner:
    """One honest owner behind an agent, and a coordinator that may ask anything."""

    def __init__(self, folder: Path, x: Floats, contributor: Any = open_contributor) -> None:
        columns = tuple(NumericColumn(name=f"x{k}", low=-1, high=1) for k in range(FEATURES - 1))
        label = Label(name="y", positive="1", negative="0")
        self.schema = Schema(columns=columns, label=label, scaling="range")
        self.coordinator, self.me, peer = (new_signing_key() for _ in range(3))
        self.keys = {VICTIM: public_bytes(self.me), "hospital-2": public_bytes(peer)}
        self.ledger = Ledger(path=folder / "ledger.jsonl", epsilon=1.0, delta=1e-5)
        policy = Policy(max_epsilon=1.0)
        shard = Shard(x=x, y=np.zeros(len(x)), counts=ClampCounts(rows=len(x)), schema=self.schema)
        store = SessionStore(folder / "state", None)
        self.agent = Agent(
            name=VICTIM,
            make_party=lambda: Party.of(
                name=VICTIM,
                shard=shard,
                signing_key=self.me,
                coordinator_key=public_bytes(self.coordinator),
                policy=policy,
                randomness=SeededRandomness(1),
                ledger=self.ledger,
                dataset="table",
                open_contributor=contributor,
            ),
            signing_key=self.me,
            coordinator_key=public_bytes(self.coordinator),
            store=store,
            consent=Consent(
                VICTIM,
                store,
                ask=False,
                own_key=self.keys[VICTIM],
                norm_bound=2.0,
                peers=lambda: self.keys,
            ),
        )

    def send(self, session: str, step: str, meta: dict[str, Any]) -> dict[str, Any]:
        envelope = Envelope(session, step, "coordinator", VICTIM, Body(meta))
        data = write(envelope, self.coordinator)
        reply = self.agent.handle(data)
        assert self.agent.handle(data) == reply
        return dict(read(reply, self.keys[VICTIM]).body.meta)

    def agree(self, session: str, scale: float) -> dict[str, Any]:
        """The reply to a plan of dual ascent; the session is aborted afterwards."""
        got = self.send(session, "enrol", {})
        commitments = (got["commitment"], "00" * 32)
        plan = GradientPlan(
            session=session,
            num_features=FEATURES,
            schema={"digest": got["schema"]},
            length=FEATURES,
            members=tuple(
                Member(name=name, rows=ROWS, verify_key=key, commitment=commitment)
                for (name, key), commitment in zip(self.keys.items(), commitments, strict=True)
            ),
            privacy=PrivacyPlan(
                epsilon=0.01,
                delta=1e-6,
                colluders=0,
                sigma=1e4,
                share_std=1e4 / 2**0.5,
                sensitivity=2.0,
            ),
            cipher=choose(parties=2, largest_sum=1e7, precision=2.0**-10),
            objective=dual_objective(row_scale=scale),
            update=dual_rule(rounds=1),
            noise_scales=(1e4,),
        )
        reply = self.send(session, "agree", {"plan": plan.to_dict()})
        self.send(session, "abort", {"reason": "try again"})
        return reply


def rows_of_norm(norm: float) -> Floats:
    x = np.zeros((ROWS, FEATURES))
    x[:, -1] = 1.0
    x[0, :3] = ((norm**2 - 1) / 3) ** 0.5
    return x


def test_the_scale_of_rows_tells_of_no_norm(tmp_path: Path) -> None:
    """Whatever scale a plan states, owners of short and of long rows answer the same."""
    replies = []
    for norm in (1.1, 1.9):
        folder = tmp_path / str(norm)
        owner = Owner(folder, rows_of_norm(norm))
        scales = (0.5, 1.0, 1.5, 1.99, 2.0 * (1 - 1e-6), 2.0, 3.0)
        replies.append([owner.agree(f"s{k}", scale) for k, scale in enumerate(scales)])
        for reply in replies[-1]:
            for name in ("plan", "sheets", "signature"):  # of fresh identities
                reply.pop(name, None)
    assert replies[0] == replies[1]
    assert ["error" in reply for reply in replies[0]] == [True] * 5 + [False] * 2
    assert "norm bound of the party's schema" in replies[0][0]["error"]


def test_a_private_refusal_is_spent(tmp_path: Path) -> None:
    """An abort, or a plan refused for what everybody knows, is taken back: this is not."""
    owner = Owner(tmp_path, rows_of_norm(1.5))
    assert "error" in owner.agree("public", 1.0)
    assert "error" not in owner.agree("aborted", 2.0)
    assert owner.ledger.spent("table").runs == 0
    owner = Owner(tmp_path / "private", rows_of_norm(1.5), refuse_rows)
    for runs_so_far in (1, 2):
        assert owner.agree(f"s{runs_so_far}", 2.0) == {"error": REFUSED}
        assert owner.ledger.spent("table").runs == runs_so_far


@pytest.mark.parametrize("error", [DataError, PolicyError, ValueError, RuntimeError, SystemExit])
def test_an_ended_session_stays_ended_after_a_restart(
    error: type[BaseException], tmp_path: Path
) -> None:
    """The agent of the same folder has the same bytes for the same request, and no other answer."""

    def fail(plan: Any, name: str, shard: Shard, randomness: Any) -> Any:
        assert shard.x.any()
        raise error("row 3 is 8675309")

    owner, sent = Owner(tmp_path, rows_of_norm(1.5), fail), dict[str, bytes]()
    true_send = owner.agent.handle

    def handle(data: bytes) -> bytes:
        step = read(data, public_bytes(owner.coordinator)).step
        if step != "abort":
            sent[step] = data
        return true_send(data)

    owner.agent.handle = handle  # type: ignore[method-assign]
    assert owner.agree("s", 2.0) == {"error": REFUSED}
    before = true_send(sent["agree"])
    old = owner.agent
    owner.agent = Agent(
        name=VICTIM,
        make_party=old._make_party,
        signing_key=owner.me,
        coordinator_key=public_bytes(owner.coordinator),
        store=SessionStore(tmp_path / "state", None),
        consent=old.consent,
    )
    assert owner.agent.handle(sent["agree"]) == before
    assert owner.send("s", "agree", {"again": 1}) == {
        "error": "session 's' is over: this party refused"
    }
    assert owner.ledger.spent("table").runs == 1


# -- the range of encrypted sums -----------------------------------------------------------------


class Clear:
    """Encodes and does not encrypt."""

    def __init__(self, plan: GradientPlan) -> None:
        self.plan, self.seen = plan, np.zeros(0)

    def encrypt(self, t: int, values: Floats) -> Any:
        residues = encode(self.plan.cipher, values)
        self.seen = decode(self.plan.cipher, residues)
        return residues


class Constant(Contributor):
    """The same contribution in every round."""

    def __init__(self, value: float) -> None:
        self.value = value

    def exact(self, query: str, t: int, point: Floats) -> Exact:
        return Exact.of(np.full(len(point), self.value))


PRIVATE: dict[str, Any] = {"privacy": test_gradients.PRIVACY, "noise_scales": (0.5, 0.4)}


@pytest.mark.parametrize(("changes", "tails"), [({}, 0.0), (PRIVATE, 40 * 0.5)])
def test_a_range_without_room_is_no_plan(changes: dict[str, Any], tails: float) -> None:
    """The heaviest party's rows, 30 of 60, clipped, and 40 scales of noise."""
    room = choose(parties=3, largest_sum=100.0, precision=2.0**-20).max_value - tails
    for share, fits in ((0.999, True), (1.001, False)):
        clip = 2 * room * share
        objective = RowObjective(kind="logistic", clip=clip).to_dict()
        if fits:
            test_gradients.make_plan(objective=objective, **changes)
            continue
        with pytest.raises(ParameterError, match="the range of an owner's values"):
            test_gradients.make_plan(objective=objective, **changes)


def clear_half(contributor: Contributor) -> tuple[SecureAggregationParty, Clear]:
    """A party of a private plan that sends its sums in the clear."""
    key = new_signing_key()
    plan = test_gradients.make_plan(**PRIVATE)
    keys = (public_bytes(key), "01" * 32, "02" * 32)
    members = (replace(m, verify_key=k) for m, k in zip(plan.members, keys, strict=True))
    plan = replace(plan, members=tuple(members))
    rows: Any = SimpleNamespace(num_features=plan.num_features)
    run = Run(
        name="p0",
        rows=rows,
        signing_key=key,
        randomness=SeededRandomness(1),
        account=Account(None, ""),
        coins=Coins(SystemRandomness()),
    )
    half = SecureAggregationParty.open(plan, rows, run, lambda *_: contributor)
    secret: Any = Clear(plan)
    half.session._share = secret
    return half, secret


@pytest.mark.parametrize("value", [0.0, 1e6, -1e6, 1e60])
def test_no_value_is_refused_for_its_size(value: float) -> None:
    """Neighbours are refused equally often: never. Beyond the range stands the range."""
    half, secret = clear_half(Constant(value))
    half.session.round(0, np.zeros(half.plan.length))
    largest, noise = half.plan.cipher.max_value, half.plan.draw_noise(0, SeededRandomness(1))
    expected = np.clip(value + noise, -largest, largest)
    assert secret.seen == pytest.approx(expected, abs=2.0**-20)


def test_noise_is_drawn_once_a_round() -> None:
    """A round is over once rows are asked, whatever comes of it; each has noise of its own."""
    half, secret = clear_half(Constant(0.0))
    twin = SeededRandomness(1)
    request = Body(blobs=(np.zeros(half.plan.length).tobytes(),))
    for t in (0, 1):
        PROTOCOL.answer(half, f"round/{t}", request)
        np.testing.assert_allclose(secret.seen, half.plan.draw_noise(t, twin), atol=2.0**-20)
        with pytest.raises(PolicyError, match="is over or none"):
            PROTOCOL.answer(half, f"round/{t}", request)
    failing, _ = clear_half(Failing())
    for error in (DataError, PolicyError):
        with pytest.raises(error):
            PROTOCOL.answer(failing, "round/0", request)


# -- the number of iterations --------------------------------------------------------------------

PLANS: dict[str, tuple[Callable[[], Any], Callable[[dict[str, Any], int], None]]] = {
    "gradients": (
        lambda: test_gradients.make_plan(**PRIVATE),
        lambda fields, rounds: fields["update"].update(rounds=rounds)),
    "rows": (
        lambda: make_plan(update=QUADRATIC),
        lambda fields, rounds: fields["update"].update(rounds=rounds)),
    "gram": (test_gram_plan.make_plan, lambda fields, rounds: fields.update(rounds=rounds)),
    "lffr": (lffr_cases.make_plan, lambda fields, rounds: fields.update(rounds=rounds)),
}  # fmt: skip


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("rounds", [10**6 + 1, 4 * 10**7, 10**13, 10**400])
def test_too_many_rounds_are_refused_before_anything_is_built(kind: str, rounds: int) -> None:
    """Peak memory: less than a byte for every thousand iterations."""
    make, change = PLANS[kind]
    fields = make().to_dict()
    plan_from_dict(fields)  # loads what such a plan needs
    change(fields, rounds)
    tracemalloc.start()
    try:
        with pytest.raises(CohortError, match=r"rounds=.* is above|rounds has 64 bits or more"):
            plan_from_dict(fields)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("error", [MemoryError, OverflowError])
def test_a_plan_too_large_to_be_read_is_refused(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = make_plan().to_dict()

    def fail(kind: Any, plain: Any) -> None:
        raise error

    monkeypatch.setattr("protocols.plan.kinds.from_plain", fail)
    with pytest.raises(ParameterError, match="too large"):
        plan_from_dict(fields)
