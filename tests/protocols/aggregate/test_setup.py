"""The opening key: masks cancel, nobody in the middle, no secret without its mask."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

from protocols.aggregate import setup
from protocols.aggregate.choice import choose
from protocols.aggregate.cipher import mask_key_text
from protocols.errors import MessageError, PolicyError, ProtocolError
from protocols.exchange import OPENING_KEY
from protocols.exchange.messages import Body, new_signing_key
from protocols.exchange.signed_values import SignedValue
from tests.protocols.aggregate.cohort import Cohort, make_cohort


def cohort_of(parties: int) -> Cohort:
    return make_cohort(choose(parties=parties, largest_sum=10.0, precision=2.0**-20))


@pytest.mark.parametrize("parties", [1, 2, 5])
def test_masks_cancel_and_the_key_is_the_sum_of_the_secrets(parties: int) -> None:
    cohort = cohort_of(parties)
    secrets = [share._unmasked.copy() for share in cohort.shares.values()]
    assert (cohort.opening_key() == sum(secrets)).all()


def test_a_masked_secret_looks_uniform() -> None:
    """Also to everybody but one other party: chi2 of 2048 values over 16 cells of 2^16.

    The masks are fresh in every run, hence thresholds that chance passes once in 10^6 runs.
    """
    cohort = cohort_of(3)
    keys = {name: share.mask_key() for name, share in cohort.shares.items()}
    secrets = {name: share._unmasked.copy() for name, share in cohort.shares.items()}
    masked = {name: share.masked_secret(keys) for name, share in cohort.shares.items()}
    pair = (
        masked["party-0"] + masked["party-1"]
    )  # coordinator and party-2: still masked by pair 0-1
    for values in (*masked.values(), pair):
        cells = np.histogram(values, bins=16, range=(0, 1 << 16))[0]
        assert stats.chisquare(cells).pvalue > 1e-7
    for name, values in masked.items():
        correlation = np.corrcoef(values.astype(np.int16), secrets[name])[0, 1]
        assert abs(correlation) < 6 / np.sqrt(2048)


OWN_KEY = X25519PrivateKey.generate().public_key().public_bytes_raw().hex()
Keys = dict[str, SignedValue]


def own_signature(cohort: Cohort, keys: dict[str, dict[str, str]]) -> dict[str, str]:
    text = mask_key_text(cohort.digest, "party-1", OWN_KEY)
    return {"value": OWN_KEY, "signature": new_signing_key().sign(text).hex()}


SWAPS: dict[str, Callable[..., dict[str, str]]] = {
    "old signature": lambda cohort, keys: {**keys["party-1"], "value": OWN_KEY},
    "own signature": own_signature,
    "colluder's": lambda cohort, keys: keys["party-2"],
}


@pytest.mark.parametrize("swap", SWAPS)
def test_a_coordinator_in_the_middle_is_detected(swap: str) -> None:
    cohort = cohort_of(3)
    sent = []

    def relay(step: str, name: str, body: Body) -> Body:
        if step == setup.MASK_KEYS or name != "party-0":
            return body
        keys = dict(body.meta["signed"])
        return Body({"signed": {**keys, "party-1": SWAPS[swap](cohort, keys)}})

    def record(step: str, name: str, body: Body) -> Body:
        sent.append((step, name))
        return body

    with pytest.raises(ProtocolError, match="party-1.*not signed"):
        cohort.opening_key(relay, record)
    # The deceived party gave no masked secret away.
    assert (OPENING_KEY, "party-0") not in sent
    assert cohort.shares["party-0"]._unmasked is not None


def signed(cohort: Cohort, name: str, key: str) -> SignedValue:
    text = mask_key_text(cohort.digest, name, key)
    return SignedValue(key, cohort.signing_keys[name].sign(text).hex())


def test_a_key_counts_for_its_session_and_one_name_only() -> None:
    """Also where one owner has two names under one identity key."""
    cohort, other = cohort_of(2), cohort_of(2)
    old = {name: share.mask_key() for name, share in cohort.shares.items()}
    setup.check_keys(cohort.digest, cohort.roster, old)
    twice = dict.fromkeys(("party-0", "party-x"), cohort.roster["party-0"])
    for digest, roster, keys in (
        (bytes(32), cohort.roster, old),
        (cohort.digest, other.roster, old),
        (cohort.digest, twice, dict.fromkeys(twice, old["party-0"])),
    ):
        with pytest.raises(ProtocolError, match="party-x.*not signed" if keys != old else "not si"):
            setup.check_keys(digest, roster, keys)


KEYS: dict[str, tuple[str, Callable[[Cohort, Keys], Keys]]] = {
    # Signed by this party, but in another share of it: its masks would not cancel.
    "not its own": (
        "not the one", lambda c, keys: keys | {"party-0": signed(c, "party-0", OWN_KEY)},
    ),
    "missing": ("exactly one", lambda c, keys: {"party-0": keys["party-0"]}),
    "left over": ("exactly one", lambda c, keys: keys | {"party-3": keys["party-1"]}),
    "of low order": (
        "unusable", lambda c, keys: keys | {"party-1": signed(c, "party-1", "00" * 32)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", KEYS)
def test_keys_are_those_of_the_roster_and_usable(case: str) -> None:
    """A key of low order names its owner."""
    cohort, (match, change) = cohort_of(2), KEYS[case]
    keys = {name: share.mask_key() for name, share in cohort.shares.items()}
    with pytest.raises(ProtocolError, match=match) as caught:
        cohort.shares["party-0"].masked_secret(change(cohort, keys))
    assert case != "of low order" or caught.value.culprit == "party-1"


def test_the_masked_secret_is_given_once() -> None:
    cohort = cohort_of(2)
    keys = {name: share.mask_key() for name, share in cohort.shares.items()}
    share = cohort.shares["party-0"]
    secret = share._unmasked
    share.masked_secret(keys)
    assert not secret.any()
    with pytest.raises(PolicyError, match="resend"):
        share.masked_secret(keys)
    share.encrypt(0, np.zeros(3))


REPLIES = [
    (setup.MASK_KEYS, Body(), ""),
    (setup.MASK_KEYS, Body({"value": "zz", "signature": ""}), ""),
    (setup.MASK_KEYS, Body({"value": "00", "signature": "00" * 64}), ""),
    (setup.MASK_KEYS, Body({"value": 1, "signature": ""}), ""),
    (OPENING_KEY, Body(), ""),
    (OPENING_KEY, Body(blobs=(b"\0",)), ""),
    (OPENING_KEY, Body(blobs=(bytes(4096),)), "do not cancel"),
]


@pytest.mark.parametrize(("step", "body", "match"), REPLIES)
def test_malformed_replies_name_their_party(step: str, body: Body, match: str) -> None:
    """Masks that do not cancel are seen as well, but nobody knows whose fault it is."""

    def broken(asked: str, name: str, reply: Body) -> Body:
        return body if (asked, name) == (step, "party-1") else reply

    with pytest.raises(ProtocolError, match=match or "party-1") as caught:
        cohort_of(2).opening_key(on_reply=broken)
    assert caught.value.culprit == (None if match else "party-1")


@pytest.mark.parametrize(
    "meta", [{}, {"signed": 3}, {"signed": {"party-0": 3}}, {"signed": {"party-0": {}}}]
)
def test_a_malformed_request_is_refused(meta: dict[str, object]) -> None:
    share = cohort_of(2).shares["party-0"]
    with pytest.raises(MessageError):
        setup.answer_opening_key(share, Body(meta))
