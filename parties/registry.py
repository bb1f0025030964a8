"""A party's half of each protocol, by the protocol's name; loaded when a plan names it."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.data.shard import Shard
from parties.party_protocol import PartyProtocol
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.plan import RunPlan
from protocols.privacy.randomness import RandomSource

if TYPE_CHECKING:
    from parties.objectives import OpenContributor

# Of (plan, name, rows or what is computed from them, randomness, signing key).
_HALVES: Mapping[str, str] = {
    ENCRYPTED_ROWS: "parties.encrypted_rows:EncryptedRowsParty",
    SECURE_AGGREGATION: "parties.secure_aggregation:SecureAggregationParty",
}


def open_half(
    plan: RunPlan,
    name: str,
    shard: Shard,
    randomness: RandomSource,
    signing_key: Ed25519PrivateKey,
    open_contributor: OpenContributor | None = None,
) -> PartyProtocol:
    """The state of the party `name` in a run of this plan.

    open_contributor: what it adds to sums; by default, gradients of the plan's objective.
    """
    part: Any = shard
    if plan.protocol == SECURE_AGGREGATION:
        opened = open_contributor or pkgutil.resolve_name("parties.objectives:open_contributor")
        part = opened(plan, name, shard, randomness)  # type: ignore[arg-type]
    half: PartyProtocol = pkgutil.resolve_name(_HALVES[plan.protocol])(
        plan, name, part, randomness, signing_key
    )
    return half
