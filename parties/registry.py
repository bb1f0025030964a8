"""A party's half of each protocol, by the protocol's name; loaded when a plan names it."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping

from parties.party_protocol import PartyProtocol
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.plan import RunPlan

_HALVES: Mapping[str, str] = {
    ENCRYPTED_ROWS: "parties.encrypted_rows:EncryptedRowsParty",
    ENCRYPTED_MODEL: "parties.encrypted_model:EncryptedModelParty",
    SECURE_AGGREGATION: "parties.secure_aggregation:SecureAggregationParty",
}


def half_of(plan: RunPlan) -> type[PartyProtocol]:
    """A party's half of the plan's protocol: `open` makes the state of one party."""
    found: type[PartyProtocol] = pkgutil.resolve_name(_HALVES[plan.protocol])
    return found
