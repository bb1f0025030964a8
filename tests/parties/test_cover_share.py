"""What a party deals, holds and refuses so that others can stand in. INSECURE toy ring."""

from __future__ import annotations

import uuid
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from parties.kernel.cover.covered_share import CoveredShare
from parties.kernel.cover.share import CoverShare
from parties.kernel.keys.key_share import KeyShare
from protocols.ckks import residues as rns
from protocols.ckks.evaluation import CkksContext
from protocols.errors import CohortError, ParameterError, PolicyError, ProtocolError
from protocols.exchange.messages import Body, new_signing_key, public_bytes
from protocols.plan.run_plan import Member
from protocols.steps import restore, sealed_shares, state_of
from protocols.steps.sealed_shares import StandIn, others
from tests.protocols.ckks.circuits.test_key_share import Tape, on_a_tape
from tests.support.exact import secret_rows
from tests.support.helpers import NOISE, make_plan, party_names, through_the_codec
from tests.support.joint import joint_keys
from tests.support.sessions import N

NAMES = tuple(party_names(4))
KEYS = {name: new_signing_key() for name in NAMES}
MEMBERS = tuple(
    Member(name=name, rows=4, verify_key=public_bytes(key), commitment="11" * 32)
    for name, key in KEYS.items()
)
PLAN = make_plan(rows=(4,) * 4, members=MEMBERS, ring_dim=512, degree=3, cover=2)
TERMS = PLAN.roster, PLAN.cover or 0
SEED = b"s" * 32


class House:
    """Key shares and cover of everyone; `sealed[dealer][receiver]` on its way."""

    def __init__(self, seed: bytes = SEED, threshold: int = 2) -> None:
        self.plan = replace(PLAN, cover=threshold)
        context = CkksContext(PLAN.ckks, uuid.uuid4().hex)
        self.secrets = {name: CoveredShare(context, seed, len(NAMES)) for name in NAMES}
        self.covers = {
            name: CoverShare(self.plan.roster, self.plan.cover or 0, name, seed, KEYS[name], secret)
            for name, secret in self.secrets.items()
        }
        self.keys = {name: each.key() for name, each in self.covers.items()}
        self.sealed = {
            name: dict(zip(others(self.plan.names, name), each.deal(self.keys), strict=True))
            for name, each in self.covers.items()
        }

    def delivery(self, name: str) -> list[bytes]:
        return [self.sealed[dealer][name] for dealer in others(self.plan.names, name)]

    def hold(self) -> House:
        for name, each in self.covers.items():
            each.hold(self.delivery(name))
        return self


def effective(share: KeyShare) -> Any:
    """Residues that the share computes with."""
    return share._present


def asked(missing: tuple[str, ...], stand_ins: tuple[str, ...]) -> Body:
    return StandIn(missing, stand_ins).to_body(())


def total(rows: Any, primes: Any) -> Any:
    found = np.zeros_like(next(iter(rows)))
    for each in rows:
        found = rns.add(found, each, primes)
    return found


@pytest.fixture(scope="module")
def house() -> House:
    return House().hold()


@pytest.mark.parametrize("threshold", [2, 3])
@pytest.mark.parametrize("lost", [1, 2])
def test_what_the_survivors_compute_with_adds_up_to_the_joint_secret(
    threshold: int, lost: int
) -> None:
    """Exactly, for every choice of missing parties and stand-ins; no one's secret is changed."""
    if threshold > 4 - lost:
        return
    house = House(threshold=threshold).hold()
    primes = house.secrets[NAMES[0]].context.primes
    own = {name: secret_rows(share) for name, share in house.secrets.items()}
    joint = total(own.values(), primes)
    for missing in combinations(NAMES, lost):
        survivors = [name for name in NAMES if name not in missing]
        for stand_ins in combinations(survivors, threshold):
            for name in survivors:
                house.covers[name]._covering = house.secrets[name]._standing_in = None
                house.covers[name].stand_in(asked(missing, stand_ins))
            used = {name: effective(house.secrets[name]) for name in survivors}
            assert (total(used.values(), primes) == joint).all()
            for name in survivors:
                plain = bool((used[name] == own[name]).all())
                assert plain == (name not in stand_ins)
                assert (secret_rows(house.secrets[name]) == own[name]).all()
            # Those of one less are no secret of anybody.
            assert (total(list(used.values())[1:], primes) != joint).mean() > 0.9


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_share_that_was_touched_on_the_way_is_refused() -> None:
    house, name, (first, *rest) = House(), NAMES[0], NAMES[1:]
    good, other = house.delivery(name), House(b"t" * 32)
    wrong = {
        "signature": changed(good[0], 3),
        "nonce": changed(good[0], 70),
        "ciphertext": changed(good[0], 500),
        "tag": changed(good[0], len(good[0]) - 1),
        "cut": good[0][:-8],
        "empty": b"",
        "for another party": house.sealed[first][rest[0]],
        "of another dealer": house.sealed[rest[0]][name],
        "of another session": other.sealed[first][name],
        "reflected": house.sealed[name][first],
    }
    for what, data in wrong.items():
        with pytest.raises(
            ProtocolError, match=f"'{first}' dealt was changed on the way"
        ) as caught:
            house.covers[name].hold([data, *good[1:]])
        assert caught.value.culprit is None, what
    house.covers[name].hold(good)  # nothing was kept of the others


@pytest.mark.parametrize("plain", [b"", b"\xff" * (8 * 512), None])
def test_what_is_no_share_names_its_dealer(plain: bytes | None) -> None:
    house, (name, dealer) = House(), NAMES[:2]
    where = sealed_shares.address(house.covers[name]._bound, dealer, name)
    sealed = bytes(60) if plain is None else house.covers[dealer]._seal(name, plain)[64:]
    data = sealed_shares.sign_share(KEYS[dealer], where, sealed)
    with pytest.raises(ProtocolError, match="sealed something that is no share") as caught:
        house.covers[name].hold([data, *house.delivery(name)[1:]])
    assert caught.value.culprit == dealer


def test_an_exchanged_key_is_named() -> None:
    house = House()
    fresh = CoverShare(*TERMS, NAMES[0], SEED, KEYS[NAMES[0]], house.secrets[NAMES[0]])
    keys = {**house.keys, NAMES[0]: fresh.key()}
    stranger = CoverShare(*TERMS, NAMES[1], SEED, new_signing_key(), house.secrets[NAMES[1]]).key()
    other = House(b"t" * 32).keys[NAMES[1]]
    for key in (stranger, other, replace(keys[NAMES[1]], value="00"), replace(other, value="zz")):
        with pytest.raises(ProtocolError, match="exchanged on the way") as caught:
            fresh.deal({**keys, NAMES[1]: key})
        assert caught.value.culprit == NAMES[1]
    with pytest.raises(ProtocolError, match="not exactly one"):
        fresh.deal({name: keys[name] for name in NAMES[:3]})
    with pytest.raises(ProtocolError, match="not the one that it sent"):
        fresh.deal(house.keys)


def test_shares_are_dealt_and_opened_once() -> None:
    house = House()
    each, fresh = house.covers[NAMES[0]], House().covers[NAMES[0]]
    with pytest.raises(PolicyError, match="already dealt"):
        each.deal(house.keys)
    with pytest.raises(CohortError, match="expected 3 once dealt"):
        each.hold(house.delivery(NAMES[0])[:2])
    with pytest.raises(PolicyError, match="no shares are held"):
        each.stand_in(asked(NAMES[2:3], NAMES[:2]))
    each.hold(house.delivery(NAMES[0]))
    with pytest.raises(PolicyError, match="forgotten"):
        each.hold(house.delivery(NAMES[0]))
    assert fresh is not each and repr(each) == "CoverShare(<secret>)"


def test_whom_it_stands_in_for(house: House) -> None:
    """One set of stand-ins for good; missing parties stay missing, and are never itself."""
    a, b, c, d = NAMES
    each = house.covers[a]
    refused = {
        "it cannot be covered for": asked((a,), (b, c)),
        "nobody stands in for itself": asked((b,), (a, b)),
        "3 parties stand in": asked((d,), (a, b, c)),
        "1 parties stand in": asked((d,), (a,)),
        "in the plan's order": asked((d, c), (a, b)),
        "no list of members": Body({"missing": [d, "x"], "stand_ins": [a, b]}),
        "missing=None": Body({"stand_ins": [a, b]}),
        "missing=3": Body({"missing": 3, "stand_ins": [a, b]}),
        "for 0": asked((), (a, b)),
    }
    for words, request in refused.items():
        with pytest.raises(CohortError, match=words):
            each.stand_in(request)
    assert house.secrets[a]._standing_in is None
    each.stand_in(asked((d,), (a, b)))
    first = effective(house.secrets[a])
    for words, request in {
        f"the stand-ins are {a}, {b} for the rest": asked((d,), (a, c)),
        "no way back": asked((c,), (a, b)),
        f"{d} were covered": asked((d,), (a, b)),
    }.items():
        with pytest.raises(PolicyError, match=words):
            each.stand_in(request)
    assert (effective(house.secrets[a]) == first).all()
    each.stand_in(asked((c, d), (a, b)))
    assert (effective(house.secrets[a]) != first).any()


def test_it_goes_on_in_another_process() -> None:
    """The same secret, the same rules."""
    fresh = House(threshold=3)
    for stage in ("dealt", "held", "standing"):
        if stage == "held":
            fresh.hold()
        if stage == "standing":
            fresh.covers[NAMES[0]].stand_in(asked(NAMES[3:], NAMES[:3]))
        kept = fresh.secrets[NAMES[0]]
        whole = [state_of(kept), fresh.covers[NAMES[0]].state()]
        own, state = through_the_codec(whole)
        secret = CoveredShare(kept.context, b"", len(NAMES))
        restore(secret, own)
        terms = fresh.plan.roster, fresh.plan.cover or 0
        back = CoverShare(*terms, NAMES[0], SEED, KEYS[NAMES[0]], secret)
        back.restore(state)
        with pytest.raises(PolicyError, match="already dealt"):
            back.deal(fresh.keys)
        if stage == "dealt":
            back.hold(fresh.delivery(NAMES[0]))
            continue
        assert (effective(secret) == effective(fresh.secrets[NAMES[0]])).all()
    with pytest.raises(PolicyError, match="for the rest of this run"):
        back.stand_in(asked(NAMES[2:3], (NAMES[0], NAMES[1], NAMES[3])))
    back.erase()
    assert not back._held and back._ephemeral._private is None


def test_what_is_dealt_comes_from_the_operating_system() -> None:
    """On a fixed tape it is the same bit for bit."""
    context = joint_keys(2, 6, N).context

    def dealt() -> bytes:
        Tape.opened = 0
        share = CoveredShare(context, b"t" * 32, 2)
        return b"".join(rows.tobytes() for rows in share.split(2, [1, 2]).values())

    with on_a_tape("cover.covered_share"):
        first, again = dealt(), dealt()
    assert first == again != dealt()


@pytest.mark.parametrize("value", [1, 4, 5, -2, 2.0, True, "2"])
def test_a_threshold_out_of_range_is_refused(value: Any) -> None:
    with pytest.raises(ParameterError, match="is outside 2 … 3"):
        replace(PLAN, cover=value)


def test_the_promise_needs_keys_that_withstand_its_colluders() -> None:
    promise = replace(NOISE, colluders=2)
    with pytest.raises(ParameterError, match="take cover=3 or more"):
        replace(PLAN, privacy=promise)
    kept = replace(PLAN, privacy=promise, cover=3)
    assert (kept.key_colluders, replace(kept, cover=None).key_colluders) == (2, 3)
    assert (kept.decryptions, replace(kept, cover=None).decryptions) == (2, 1)
