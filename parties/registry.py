"""A party's half of each protocol, by the protocol's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.data.shard import Shard
from parties.encrypted_rows import EncryptedRowsParty
from parties.objectives import OpenContributor
from parties.party_protocol import PartyProtocol
from parties.secure_aggregation import SecureAggregationParty
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.plan import RunPlan
from protocols.privacy.randomness import RandomSource
from protocols.registry import protocol_of

# (plan, name, rows or what is computed from them, randomness, signing key)
_HALVES: Mapping[str, Callable[..., PartyProtocol]] = {
    ENCRYPTED_ROWS: EncryptedRowsParty,
    SECURE_AGGREGATION: SecureAggregationParty,
}


def open_half(
    plan: RunPlan,
    name: str,
    shard: Shard,
    randomness: RandomSource,
    signing_key: Ed25519PrivateKey,
    open_contributor: OpenContributor,
) -> PartyProtocol:
    """The state of the party `name` in a run of this plan."""
    protocol = protocol_of(plan).name
    part: Any = shard
    if protocol == SECURE_AGGREGATION:
        part = open_contributor(plan, name, shard, randomness)  # type: ignore[arg-type]
    return _HALVES[protocol](plan, name, part, randomness, signing_key)
