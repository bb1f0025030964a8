"""What parties and coordinator refuse beside what no step takes (`test_steps_contract.py`).

INSECURE toy rings.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from parties.agent.agent import Limits
from parties.agent.settings import ConsentMode
from parties.policy import Policy
from parties.verifier import encrypted_rows
from protocols.ckks import REFRESH_TOWERS
from protocols.ckks.flooding import Flooding
from protocols.errors import MessageError, ParameterError, PolicyError, ProtocolError
from protocols.exchange.messages import Body, new_signing_key
from protocols.exchange.signed_values import commitment, new_seed
from protocols.steps import agree
from tests.support.helpers import NOISE, half_of, header_of, make_plan, seal
from tests.support.joint import joint_keys
from tests.support.masked import refresh_shares
from tests.support.sessions import (
    FIRST,
    VICTIM,
    N,
    Replies,
    asked,
    deliver,
    refusal,
    request,
    resigned,
    run_until,
    small,
)

# -- seeds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["oversize", "late seed"])
def test_a_reply_that_its_step_refuses_names_its_party(damage: str) -> None:
    """A blob bomb; or a seed changed by whoever waited for the others'."""
    session = small(parties=3)
    session.coordinator._size_cap = 1 << 22

    def change(step: str, replies: Replies) -> Replies:
        if step != {"oversize": "keys", "late seed": "reveal"}[damage]:
            return replies
        data = replies[VICTIM]
        late = resigned(session, data, body=Body({"seed": "00" * 32}))
        return replies | {VICTIM: late if damage == "late seed" else data + bytes(1 << 22)}

    words = {"oversize": "exceeds the cap", "late seed": "does not open its commitment"}[damage]
    with pytest.raises(ProtocolError, match=words) as caught:
        session.run(deliver(session, change))
    assert caught.value.culprit == VICTIM


@pytest.mark.parametrize("seed", [None, 1, "", "xy", "00" * 31, "00" * 33, ["00"]], ids=str)
def test_parties_check_every_seed(seed: Any) -> None:
    """A coordinator that hands out another seed, or none, learns nothing: no key is made."""
    session = small()
    true = asked(session, run_until(session, "commit-keys")[FIRST]).meta["seeds"]
    for seeds in ({**true, VICTIM: seed}, {FIRST: true[FIRST]}, {}):
        body = Body({"seeds": seeds})
        assert "seed" in refusal(session, FIRST, request(session, FIRST, "commit-keys", body))
    assert not half_of(session.parties[FIRST]).secret.begun


def test_the_joint_seed_needs_everyone() -> None:
    """It changes with each seed and with the plan."""
    seeds = {name: new_seed() for name in (FIRST, VICTIM)}
    members = tuple(replace(m, commitment=commitment(seeds[m.name])) for m in make_plan().members)
    plan, opened = make_plan(members=members), {name: seed.hex() for name, seed in seeds.items()}
    sheets = ["00" * 32]
    first = agree.agreement(plan, sheets).joint_seed(opened)
    assert len(first) == 32
    assert first == agree.agreement(plan, sheets).joint_seed(dict(reversed(opened.items())))
    other = make_plan(members=members, session="other")
    assert first != agree.agreement(other, sheets).joint_seed(opened)
    assert first != agree.agreement(plan, ["01" * 32]).joint_seed(opened)


@pytest.mark.parametrize("change", ["another's", "left out", "of another run", "no text", "none"])
def test_no_party_shows_its_seed_before_all_have_signed(change: str) -> None:
    """A coordinator that hands out something else gets no seed, and so no key."""
    session, other = small(), small()
    true = asked(session, run_until(session, "reveal")[FIRST]).meta["signatures"]
    strange = asked(other, run_until(other, "reveal")[FIRST]).meta["signatures"]
    signatures = {
        "another's": {**true, VICTIM: true[FIRST]},
        "left out": {FIRST: true[FIRST]},
        "of another run": {**true, VICTIM: strange[VICTIM]},
        "no text": {**true, VICTIM: 1},
        "none": None,
    }[change]
    body = Body({"signatures": signatures})
    words = refusal(session, FIRST, request(session, FIRST, "reveal", body))
    assert "sign" in words or "not exactly one for each" in words
    assert not half_of(session.parties[FIRST]).secret.begun
    session.parties[FIRST].handle(request(session, FIRST, "reveal", Body({"signatures": true})))
    assert session.parties[FIRST].answered == 3


def test_one_owner_with_another_sheet_is_found() -> None:
    """By the coordinator, by name; and by every other party where the coordinator says nothing."""
    session = small()
    victim = session.parties[VICTIM]
    rows = encrypted_rows.rows_sheet

    def other(plan: Any, bound: float) -> Any:
        return rows(plan, bound * (1 + victim.run.private._inside))

    with (
        patch.object(encrypted_rows, "rows_sheet", other),
        pytest.raises(ProtocolError, match="derived other sheets from the plan") as caught,
    ):
        session.run()
    assert caught.value.culprit == VICTIM
    lying = small()
    victim = lying.parties[VICTIM]

    def silent(plan: Any, replies: Any) -> Any:
        signatures = {name: body.meta["signature"] for name, body in replies.items()}
        return agree.agreement(plan, replies[FIRST].meta["sheets"]), signatures

    with (
        patch.object(encrypted_rows, "rows_sheet", other),
        patch.object(agree, "agreed", silent),
        pytest.raises(ProtocolError, match=f"{VICTIM!r} has not signed this plan, these sheets"),
    ):
        lying.run()


# -- shares ----------------------------------------------------------------------------------------


def test_a_second_decryption_is_refused() -> None:
    """Whatever it is called, after the end as well."""
    session = small()
    session.run()
    sent = next(d for s, n, d, _ in session.recorded if (s, n) == ("decrypt", FIRST))
    body = Body({}, asked(session, sent).blobs)
    for step in ("decrypt", "decrypt/1", "refresh/0", "finish", "enrol", "nonsense", ""):
        assert "over" in refusal(session, FIRST, request(session, FIRST, step, body))


def test_a_key_share_answers_a_label_once() -> None:
    """A second refresh or decryption share for a label raises, whatever the ciphertext."""
    keys = joint_keys(2, 6, N)
    keys.forget()
    share = keys.shares[FIRST]
    c1 = keys.context.uniform_polynomial(keys.seed, "any")
    refresh_shares(share, [(c1[:REFRESH_TOWERS], "refresh/0/0", None)])
    share.decryption_share(c1[:2], "decrypt", Flooding.even(N, 2.0**20))
    for other in (c1, (c1 + np.uint64(1)) % np.uint64(2**50)):
        with pytest.raises(PolicyError, match="already given"):
            refresh_shares(share, [(other[:REFRESH_TOWERS], "refresh/0/0", None)])
        with pytest.raises(PolicyError, match="already given"):
            share.decryption_share(other[:2], "decrypt", Flooding.even(N, 2.0**20))


# -- what a party consents to ----------------------------------------------------------------------


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
        (lambda p: p.clear(), "plan version None is not 8"),
    ],
)
def test_plans_that_a_party_refuses(change: Callable[[dict[str, Any]], Any], words: str) -> None:
    """A plan about other data, or an impossible one."""
    session = small()
    plan = copy.deepcopy(asked(session, run_until(session, "agree")[FIRST]).meta["plan"])
    change(plan)
    assert words in refusal(session, FIRST, request(session, FIRST, "agree", Body({"plan": plan})))


@pytest.mark.parametrize(
    ("policy", "privacy", "words"),
    [
        (Policy(), None, "only secure"),
        (Policy(allow_insecure=True, max_epsilon=1.0), None, "no privacy noise"),
        (Policy(allow_insecure=True), None, "no privacy noise"),
        (Policy(allow_insecure=True, max_epsilon=0.9), NOISE, "exceeds"),
        (Policy(allow_insecure=True, max_delta=1e-6), NOISE, "exceeds"),
        (Policy(allow_insecure=True, min_colluders=2), NOISE, "colluders=1"),
        (Policy(allow_insecure=True, max_epsilon=1.0, max_delta=1e-6), NOISE, "exceeds"),
        (Policy(allow_insecure=True, max_epsilon=1.0, min_colluders=2), NOISE, "colluders=1"),
    ],
)
def test_policies(policy: Policy, privacy: Any, words: str) -> None:
    """Each of a data owner's terms, and the same plan within them."""
    plan = make_plan(privacy=privacy)
    with pytest.raises(PolicyError, match=words):
        policy.check(plan)
    Policy(allow_insecure=True, exact_sums=True).check(make_plan(privacy=None))
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
        *({"min_security_bits": value} for value in (-1, 0.5, float("nan"))),
    ],
)
def test_a_limit_that_limits_nothing_is_refused(field: dict[str, Any]) -> None:
    """A comparison with nan is never true, so that nothing would be refused."""
    with pytest.raises(ParameterError, match=f"{next(iter(field))}="):
        Policy(**field)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("kind", "name"),
    [(Limits, "idle_seconds"), (Limits, "session_seconds"), (ConsentMode, "wait_seconds")],
)
def test_a_wait_that_never_ends_is_refused(kind: Any, name: str, seconds: float) -> None:
    """A comparison with nan is never true: nothing would ever be given up."""
    with pytest.raises(ParameterError, match=f"{name}="):
        kind(**{name: seconds})
