"""What parties and coordinator refuse (toy rings, INSECURE)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from parties.policy import Policy
from protocols import agree
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.errors import MessageError, ParameterError, PolicyError, ProtocolError
from protocols.messages import Body, Envelope, decode, encode, new_signing_key, public_bytes
from protocols.registry import sequence
from tests.helpers import (
    NOISE,
    Session,
    header_of,
    joint_keys,
    log2_error,
    make_plan,
    seal,
)
from tests.protocols.security_session import (
    VICTIM,
    N,
    Replies,
    deliver,
    refusal,
    reply_of,
    request,
    run_until,
    small,
)

# -- replies in the wrong place --------------------------------------------------------------------


def test_a_wrong_round_share_is_named() -> None:
    """A party's share of refresh/0 as its answer to refresh/1."""
    session, kept = small(parties=3), {}

    def change(step: str, replies: Replies) -> Replies:
        kept[step] = replies[VICTIM]
        return replies | ({VICTIM: kept["refresh/0"]} if step == "refresh/1" else {})

    with pytest.raises(ProtocolError, match="answered another request") as caught:
        session.run(deliver(session, change))
    assert caught.value.culprit == VICTIM
    assert "refresh/1" in str(caught.value) and "refresh/0" in str(caught.value)


@pytest.mark.parametrize("step", ["keys", "relinearise", "contribute", "refresh/0", "decrypt"])
def test_a_duplicated_share_is_named(step: str) -> None:
    """One party's reply in another's name: the signature is the other's."""
    session = small(parties=3)

    def change(current: str, replies: Replies) -> Replies:
        return replies | ({VICTIM: replies["hospital-1"]} if current == step else {})

    with pytest.raises(ProtocolError, match="not the expected sender's") as caught:
        session.run(deliver(session, change))
    assert caught.value.culprit == VICTIM


@pytest.mark.parametrize("step", ["enrol", "keys", "refresh/1", "decrypt"])
def test_a_missing_share_is_named(step: str) -> None:
    """Nobody is summed over silently."""
    session = small(parties=3)

    def change(current: str, replies: Replies) -> Replies:
        return {k: v for k, v in replies.items() if (current, k) != (step, VICTIM)}

    with pytest.raises(ProtocolError, match=f"no reply from party '{VICTIM}'") as caught:
        session.run(deliver(session, change))
    assert caught.value.culprit == VICTIM


@pytest.mark.parametrize("field", ["session", "sender", "recipient", "step", "answers"])
def test_a_reply_for_another_address_is_named(field: str) -> None:
    """Truly signed by the party, but of another session, step, request or pair."""
    session = small()

    def change(step: str, replies: Replies) -> Replies:
        if step != "refresh/0":
            return replies
        envelope = reply_of(session, VICTIM, replies[VICTIM])
        fields = {k: getattr(envelope, k) for k in Envelope.__dataclass_fields__}
        moved = Envelope(**(fields | {field: "another"}))
        return replies | {VICTIM: encode(moved, session.party_keys[VICTIM])}

    with pytest.raises(ProtocolError, match="answered another request") as caught:
        session.run(deliver(session, change))
    assert caught.value.culprit == VICTIM


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "forged", "oversize"])
def test_a_damaged_reply_is_named(damage: str) -> None:
    """Tampered, truncated, empty, forged or too long."""
    session = small()
    damages: dict[str, Callable[[bytes], bytes]] = {
        "flip": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
        "cut": lambda data: data[:-1],
        "empty": lambda data: b"",
        "forged": lambda data: encode(reply_of(session, VICTIM, data), new_signing_key()),
        "oversize": lambda data: data + bytes(session.coordinator._size_cap),
    }
    session.coordinator._size_cap = 1 << 22

    def change(step: str, replies: Replies) -> Replies:
        return replies | ({VICTIM: damages[damage](replies[VICTIM])} if step == "keys" else {})

    with pytest.raises(ProtocolError) as caught:
        session.run(deliver(session, change))
    assert caught.value.culprit == VICTIM


@pytest.mark.parametrize("change", ["short", "none", "above", "more"])
@pytest.mark.parametrize("step", ["keys", "rotations/0", "relinearise", "refresh/0", "decrypt"])
def test_malformed_residues_are_named(step: str, change: str) -> None:
    """A party that signs blobs of the wrong length, too few, or not below their primes."""
    session = small()

    def alter(current: str, replies: Replies) -> Replies:
        if current != step:
            return replies
        envelope = reply_of(session, VICTIM, replies[VICTIM])
        blob, *rest = envelope.body.blobs
        blobs = {
            "short": (blob[:-1], *rest),
            "none": (),
            "above": (b"\xff" * len(blob), *rest),
            "more": (blob + blob[:8], *rest),
        }[change]
        fields = {k: getattr(envelope, k) for k in Envelope.__dataclass_fields__}
        moved = Envelope(**(fields | {"body": Body(envelope.body.meta, blobs)}))
        return replies | {VICTIM: encode(moved, session.party_keys[VICTIM])}

    with pytest.raises(ProtocolError) as caught:
        session.run(deliver(session, alter))
    assert caught.value.culprit == VICTIM


def test_a_seed_that_does_not_open_its_commitment_is_named() -> None:
    """Whoever waits for the others' seeds cannot change its own."""
    session = small(parties=3)

    def change(step: str, replies: Replies) -> Replies:
        if step != "reveal":
            return replies
        envelope = reply_of(session, VICTIM, replies[VICTIM])
        fields = {k: getattr(envelope, k) for k in Envelope.__dataclass_fields__}
        late = Envelope(**(fields | {"body": Body({"seed": "00" * 32})}))
        return replies | {VICTIM: encode(late, session.party_keys[VICTIM])}

    with pytest.raises(ProtocolError, match="does not open its commitment") as caught:
        session.run(deliver(session, change))
    assert caught.value.culprit == VICTIM


@pytest.mark.parametrize("seed", [None, 1, "", "xy", "00" * 31, "00" * 33, ["00"]], ids=str)
def test_parties_check_every_seed(seed: Any) -> None:
    """A coordinator that hands out another seed, or none, learns nothing: no key is made."""
    session = small()
    held = run_until(session, "commit-keys")
    name = "hospital-1"
    meta = dict(decode(held[name], public_bytes(session.coordinator_key)).body.meta)
    for seeds in ({**meta["seeds"], VICTIM: seed}, {name: meta["seeds"][name]}, {}, None, 1):
        text = refusal(session, name, request(session, name, "commit-keys", Body({"seeds": seeds})))
        assert "seed" in text or "object" in text
    assert session.parties[name]._half.secret is None


def test_the_joint_seed_needs_everyone() -> None:
    """It changes with each seed and with the plan."""
    seeds = {name: agree.new_seed() for name in ("hospital-1", "hospital-2")}
    plan = make_plan()
    members = tuple(
        type(m)(
            name=m.name,
            rows=m.rows,
            verify_key=m.verify_key,
            commitment=agree.commitment(seeds[m.name]),
        )
        for m in plan.members
    )
    plan = make_plan(members=members)
    opened = {name: seed.hex() for name, seed in seeds.items()}
    first = agree.joint_seed(plan, opened)
    assert len(first) == 32
    assert first == agree.joint_seed(plan, dict(reversed(opened.items())))
    assert first != agree.joint_seed(make_plan(members=members, session="other"), opened)


# -- one step, once, in order ----------------------------------------------------------------------


def test_a_resend_is_byte_identical() -> None:
    """The same request twice gives the same bytes, at every step: no share is made again."""
    session = small()

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Replies:
        first = session.ask(step, outgoing)
        assert session.ask(step, outgoing) == first, step
        return first

    outcome = session.run(ask)
    assert log2_error(outcome.weights, session.twin()) < -13


@pytest.mark.parametrize(
    "step",
    [
        *("commit-keys", "keys", "public-shares/0", "relinearise", "commit-rows"),
        *("contribute", "confirm", "refresh/0", "decrypt"),
    ],
)
def test_the_same_step_with_other_bytes_is_refused(step: str) -> None:
    """A second share for a step would leak: only the very same request is answered again."""
    session = small()
    held = run_until(session, step)
    name = "hospital-1"
    envelope = decode(held[name], public_bytes(session.coordinator_key))
    first = session.parties[name].handle(held[name])
    assert "error" not in reply_of(session, name, first).body.meta
    other = Body({**envelope.body.meta, "again": 1}, envelope.body.blobs)
    assert "out of order" in refusal(session, name, request(session, name, step, other))
    assert session.parties[name].handle(held[name]) == first


def test_a_second_decryption_is_refused() -> None:
    """Whatever it is called, and after the end as well."""
    session = small()
    session.run()
    name = "hospital-1"
    c1 = next(d for s, n, d, _ in session.recorded if (s, n) == ("decrypt", name))
    blobs = decode(c1, public_bytes(session.coordinator_key)).body.blobs
    for step in ("decrypt", "decrypt/1", "refresh/0", "finish", "enrol", "nonsense", ""):
        text = refusal(session, name, request(session, name, step, Body({}, blobs)))
        assert "over" in text


def test_steps_out_of_order_are_refused() -> None:
    """Before each step, every other step of the run."""
    session = small(rounds=2)
    steps: list[str] = []

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Replies:
        name = "hospital-1"
        for other in {*expected, "decrypt/1", "refresh/7", "rotations/99", "x"} - {step}:
            text = refusal(session, name, request(session, name, other, Body({"other": 1})))
            assert "out of order" in text, (step, other)
        steps.append(step)
        return session.ask(step, outgoing)

    expected = sequence(make_plan(rounds=2, rows=(4, 4), ring_dim=N, degree=3, update="gd"))
    session.run(ask)
    assert steps == list(expected)
    assert steps.count("decrypt") == 1
    assert sum(step.startswith("refresh/") for step in steps) == 2


@pytest.mark.parametrize("change", [{"session": "other"}, {"recipient": "x"}, {"sender": "x"}])
def test_a_request_for_somebody_else_is_refused(change: dict[str, str]) -> None:
    """Truly signed, but of another session or for another party."""
    session = small()
    held = run_until(session, "refresh/0")
    name = "hospital-1"
    body = decode(held[name], public_bytes(session.coordinator_key)).body
    refusal(session, name, request(session, name, "refresh/0", body, **change))
    # The true request is still answered.
    reply = reply_of(session, name, session.parties[name].handle(held[name]))
    assert "error" not in reply.body.meta


def test_a_key_share_answers_a_label_once() -> None:
    """A second refresh or decryption share for a label raises, whatever the ciphertext."""
    keys = joint_keys(2, 6, N)
    keys.forget()
    share = keys.shares["hospital-1"]
    c1 = keys.context.uniform_polynomial(keys.seed, "any")
    share.refresh_share(c1[:REFRESH_TOWERS], "refresh/0/0")
    share.decryption_share(c1[:2], "decrypt", 2.0**20)
    for other in (c1, (c1 + np.uint64(1)) % np.uint64(2**50)):
        with pytest.raises(PolicyError, match="already given"):
            share.refresh_share(other[:REFRESH_TOWERS], "refresh/0/0")
        with pytest.raises(PolicyError, match="already given"):
            share.decryption_share(other[:2], "decrypt", 2.0**20)


def test_more_ciphertexts_than_the_rule_has_are_refused() -> None:
    """A refresh decrypts under a mask: each one more is one more share."""
    session = small(update="nag")
    held = run_until(session, "refresh/0")
    name = "hospital-1"
    assert session.plan is not None and max(session.plan.refreshes) == 2
    blob = decode(held[name], public_bytes(session.coordinator_key)).body.blobs[0]
    text = refusal(session, name, request(session, name, "refresh/0", Body({}, (blob,) * 3)))
    assert "more ciphertexts" in text


@pytest.mark.parametrize("step", ["public-shares/0", "refresh/0", "decrypt", "relinearise"])
@pytest.mark.parametrize("change", ["none", "short", "above"])
def test_parties_check_residues(step: str, change: str) -> None:
    """What reaches OpenFHE has the right number of residues, each below its prime."""
    session = small()
    held = run_until(session, step)
    name = "hospital-1"
    body = decode(held[name], public_bytes(session.coordinator_key)).body
    blob, *rest = body.blobs
    blobs = {
        "none": (),
        "short": (blob[:-1], *rest),
        "above": (b"\xff" * len(blob), *rest),
    }[change]
    refusal(session, name, request(session, name, step, Body(body.meta, blobs)))


# -- what a party consents to ----------------------------------------------------------------------


def agreed_plan(session: Session, name: str) -> dict[str, Any]:
    held = run_until(session, "agree")
    meta = decode(held[name], public_bytes(session.coordinator_key)).body.meta
    plan: dict[str, Any] = copy.deepcopy(meta["plan"])
    return plan


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p["members"][0].update(rows=5), "another shape"),
        (lambda p: p.update(num_features=4), "another shape"),
        (lambda p: p["members"][0].update(commitment="00" * 32), "commitment"),
        (lambda p: p["schema"].update(digest="00" * 32), "schema"),
        (lambda p: p["members"][0].update(name="x"), "not in this plan"),
        (lambda p: p.update(members=p["members"][:1]), "parties=1"),
        (lambda p: p["ckks"].update(depth=5), "depth=5"),
        (lambda p: p.update(profile="secure"), "128-bit"),
        (lambda p: p.clear(), "protocol=None"),
    ],
)
def test_plans_that_a_party_refuses(change: Callable[[dict[str, Any]], Any], words: str) -> None:
    """A plan about other data, or an impossible one."""
    session, name = small(), "hospital-1"
    plan = agreed_plan(session, name)
    change(plan)
    text = refusal(session, name, request(session, name, "agree", Body({"plan": plan})))
    assert words in text


def test_a_plan_is_needed() -> None:
    """No plan, or something else."""
    session, name = small(), "hospital-1"
    run_until(session, "agree")
    for meta in ({}, {"plan": None}, {"plan": [1]}, {"plan": "x"}):
        assert "object" in refusal(session, name, request(session, name, "agree", Body(meta)))


@pytest.mark.parametrize(
    ("policy", "privacy", "words"),
    [
        (Policy(), None, "only secure"),
        (Policy(allow_insecure=True, max_epsilon=1.0), None, "no privacy noise"),
        (Policy(allow_insecure=True, max_epsilon=0.9), NOISE, "exceeds"),
        (Policy(allow_insecure=True, max_epsilon=1.0, max_delta=1e-6), NOISE, "exceeds"),
        (Policy(allow_insecure=True, max_epsilon=1.0, min_colluders=2), NOISE, "colluders=1"),
    ],
)
def test_policies(policy: Policy, privacy: Any, words: str) -> None:
    """Each of a data owner's terms, and the same plan within them."""
    plan = make_plan(privacy=privacy)
    with pytest.raises(PolicyError, match=words):
        policy.check(plan)
    Policy(allow_insecure=True).check(plan)
    Policy(allow_insecure=True, max_epsilon=1.0, min_colluders=1).check(make_plan(privacy=NOISE))


def test_a_request_signed_by_nobody_is_not_answered() -> None:
    """Not even with a refusal: MessageError stays with the party."""
    session = small()
    data = request(session, VICTIM, "enrol", Body())
    for broken in (b"", data[:-1], data[:40], seal(header_of(data), new_signing_key())):
        with pytest.raises(MessageError):
            session.parties[VICTIM].handle(broken)


@pytest.mark.parametrize(
    "field",
    [
        *({"max_epsilon": value} for value in (0.0, -1.0, float("nan"), float("inf"))),
        *({"max_delta": value} for value in (0.0, 1.0, 2.0, float("nan"))),
        *({"min_colluders": value} for value in (-1, 0.5, float("nan"))),
    ],
)
def test_a_limit_that_limits_nothing_is_refused(field: dict[str, Any]) -> None:
    """A comparison with nan is never true, so that nothing would be refused."""
    with pytest.raises(ParameterError, match=f"{next(iter(field))}="):
        Policy(**field)
