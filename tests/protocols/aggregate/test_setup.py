"""The opening key: masks cancel, nobody in the middle, no secret without its mask."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

from protocols.aggregate import setup
from protocols.aggregate.parameters import choose
from protocols.errors import MessageError, PolicyError, ProtocolError
from protocols.messages import Body, new_signing_key
from protocols.signed_values import SignedValue
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


def old_signature(cohort: Cohort, keys: dict[str, dict[str, str]]) -> dict[str, str]:
    return {**keys["party-1"], "value": OWN_KEY}


def own_signature(cohort: Cohort, keys: dict[str, dict[str, str]]) -> dict[str, str]:
    text = setup.signed_text(cohort.digest, "party-1", OWN_KEY)
    return {"value": OWN_KEY, "signature": new_signing_key().sign(text).hex()}


def colluders_signature(cohort: Cohort, keys: dict[str, dict[str, str]]) -> dict[str, str]:
    return keys["party-2"]


@pytest.mark.parametrize("swap", [old_signature, own_signature, colluders_signature])
def test_a_coordinator_in_the_middle_is_detected(swap) -> None:
    cohort = cohort_of(3)
    sent = []

    def relay(step: str, name: str, body: Body) -> Body:
        if step == setup.MASK_KEYS or name != "party-0":
            return body
        keys = dict(body.meta["signed"])
        return Body({"signed": {**keys, "party-1": swap(cohort, keys)}})

    def record(step: str, name: str, body: Body) -> Body:
        sent.append((step, name))
        return body

    with pytest.raises(ProtocolError, match="party-1.*not signed"):
        cohort.opening_key(relay, record)
    # The deceived party gave no masked secret away.
    assert (setup.OPENING_KEY, "party-0") not in sent
    assert cohort.shares["party-0"]._unmasked is not None


def test_a_key_of_another_session_is_refused() -> None:
    cohort, other = cohort_of(2), cohort_of(2)
    old = {name: share.mask_key() for name, share in cohort.shares.items()}
    setup.check_keys(cohort.digest, cohort.roster, old)
    with pytest.raises(ProtocolError, match="not signed"):
        setup.check_keys(bytes(32), cohort.roster, old)
    with pytest.raises(ProtocolError, match="not signed"):
        setup.check_keys(cohort.digest, other.roster, old)


def test_a_key_counts_for_one_name_only() -> None:
    """Also where one owner has two names under one identity key."""
    cohort = cohort_of(2)
    key = cohort.shares["party-0"].mask_key()
    roster = {"party-0": cohort.roster["party-0"], "party-x": cohort.roster["party-0"]}
    with pytest.raises(ProtocolError, match="party-x.*not signed"):
        setup.check_keys(cohort.digest, roster, {"party-0": key, "party-x": key})


def test_the_own_key_must_come_back() -> None:
    """Signed by this party, but in another share of it: its masks would not cancel."""
    cohort = cohort_of(2)
    share = cohort.shares["party-0"]
    key = X25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    text = setup.signed_text(cohort.digest, "party-0", key)
    forged = SignedValue(key, cohort.signing_keys["party-0"].sign(text).hex())
    keys = {"party-0": forged, "party-1": cohort.shares["party-1"].mask_key()}
    with pytest.raises(ProtocolError, match="not the one"):
        share.masked_secret(keys)


@pytest.mark.parametrize("change", ["missing", "left over"])
def test_keys_are_those_of_the_roster(change: str) -> None:
    cohort = cohort_of(3)
    keys = {name: share.mask_key() for name, share in cohort.shares.items()}
    if change == "missing":
        keys.pop("party-2")
    else:
        keys["party-3"] = keys["party-2"]
    with pytest.raises(ProtocolError, match="exactly one"):
        cohort.shares["party-0"].masked_secret(keys)


def test_a_key_of_low_order_names_its_owner() -> None:
    cohort = cohort_of(2)
    text = setup.signed_text(cohort.digest, "party-1", "00" * 32)
    low = SignedValue("00" * 32, cohort.signing_keys["party-1"].sign(text).hex())
    keys = {"party-0": cohort.shares["party-0"].mask_key(), "party-1": low}
    with pytest.raises(ProtocolError, match="unusable") as caught:
        cohort.shares["party-0"].masked_secret(keys)
    assert caught.value.culprit == "party-1"


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


def test_malformed_replies_name_their_party() -> None:
    def broken(step: str, body: Body):
        return lambda s, name, old: body if (s, name) == (step, "party-1") else old

    for step, body in (
        (setup.MASK_KEYS, Body()),
        (setup.MASK_KEYS, Body({"value": "zz", "signature": ""})),
        (setup.MASK_KEYS, Body({"value": "00", "signature": "00" * 64})),
        (setup.MASK_KEYS, Body({"value": 1, "signature": ""})),
        (setup.OPENING_KEY, Body()),
        (setup.OPENING_KEY, Body(blobs=(b"\0",))),
    ):
        with pytest.raises(ProtocolError) as caught:
            cohort_of(2).opening_key(on_reply=broken(step, body))
        assert caught.value.culprit == "party-1"


def test_masks_that_do_not_cancel_are_seen() -> None:
    def broken(step: str, name: str, body: Body) -> Body:
        if (step, name) != (setup.OPENING_KEY, "party-1"):
            return body
        return Body(blobs=(bytes(len(body.blobs[0])),))

    with pytest.raises(ProtocolError, match="do not cancel"):
        cohort_of(2).opening_key(on_reply=broken)


@pytest.mark.parametrize(
    "meta", [{}, {"signed": 3}, {"signed": {"party-0": 3}}, {"signed": {"party-0": {}}}]
)
def test_a_malformed_request_is_refused(meta: dict[str, object]) -> None:
    share = cohort_of(2).shares["party-0"]
    with pytest.raises(MessageError):
        setup.answer_opening_key(share, Body(meta))
