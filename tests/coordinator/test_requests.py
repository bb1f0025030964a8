"""A step's requests: made one at a time, as they are sent."""

from __future__ import annotations

from coordinator.coordinator import Requests
from protocols.exchange.messages import (
    Body,
    Envelope,
    digest,
    encode,
    new_signing_key,
    signed_head,
    whole,
)
from protocols.names import COORDINATOR


def test_requests_are_made_one_at_a_time() -> None:
    """What everybody is sent alike is held once; each message is what `encode` makes."""
    key, body = new_signing_key(), Body({"k": 1}, (b"many" * 100, b""))
    envelopes = [Envelope("s", "refresh/1", COORDINATOR, name, body) for name in "pq"]
    heads = {each.recipient: signed_head(each, key) for each in envelopes}
    requests = Requests(heads, lambda name: whole(heads[name], body))
    assert dict(requests) == {each.recipient: encode(each, key) for each in envelopes}
    assert len(requests) == 2 and list(requests) == ["p", "q"]
    assert "p" in requests and "r" not in requests and requests.get("r") is None
    assert requests["p"] is not requests["p"]
    assert {name: digest(head) for name, head in heads.items()} == {
        name: digest(data) for name, data in requests.items()
    }
