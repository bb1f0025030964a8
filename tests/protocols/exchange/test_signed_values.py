"""Values that parties sign: one spelling of each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.errors import ProtocolError
from protocols.exchange.messages import public_bytes
from protocols.exchange.signed_values import SignedValue, check

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
ROSTER = {"a": public_bytes(KEY)}


def text(name: str, value: str) -> bytes:
    return f"{name} {value}".encode()


GOOD = SignedValue.by(KEY, text, "a", "ab" * 32)


@pytest.mark.parametrize("field", ["value", "signature"])
@pytest.mark.parametrize(
    "spelling",
    [
        str.upper,
        lambda told: f" {told}",
        lambda told: f"{told[:2]} {told[2:]}",
        lambda told: told[:-2],
        lambda told: f"{told}00",
        lambda told: "",
        lambda told: "no hexadecimal",
    ],
)
def test_another_spelling_is_refused(field: str, spelling: object) -> None:
    check("value", text, ROSTER, {"a": GOOD})
    told = spelling(getattr(GOOD, field))  # type: ignore[operator]
    with pytest.raises(ProtocolError, match="not signed by its identity key"):
        check("value", text, ROSTER, {"a": replace(GOOD, **{field: told})})
