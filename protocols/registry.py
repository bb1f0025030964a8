"""The protocols, by kind of plan."""

from __future__ import annotations

from collections.abc import Mapping

from protocols import encrypted_rows, secure_aggregation
from protocols.errors import ProtocolError
from protocols.plan import RunPlan
from protocols.protocol import AFTER, BEFORE, COVERED, Protocol

PROTOCOLS: Mapping[str, Protocol] = {
    "rows": encrypted_rows.PROTOCOL,
    "gram": encrypted_rows.PROTOCOL,
    "lffr": encrypted_rows.PROTOCOL,
    "gradients": secure_aggregation.PROTOCOL,
}


COMMON_PHASES = {**dict.fromkeys(BEFORE, "agree"), AFTER: "decrypt"}


_ALL = tuple({protocol.name: protocol for protocol in PROTOCOLS.values()}.values())


def phase_of(step: str) -> str:
    """Phase that a step of any protocol, such as "refresh/3", is charged to."""
    kind = step.partition("/")[0]
    found = (p.by_name.get(kind.removeprefix(COVERED), p.by_name.get(kind)) for p in _ALL)
    return COMMON_PHASES.get(kind) or next(each.phase for each in found if each)


def protocol_of(plan: RunPlan) -> Protocol:
    """The protocol of a plan.

    Raises:
        ProtocolError: there is none of this name.
    """
    if plan.protocol not in PROTOCOLS:
        raise ProtocolError(f"protocol={plan.protocol!r} is not one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[plan.protocol]


def sequence(plan: RunPlan) -> tuple[str, ...]:
    """Every step of a run, in the only order in which a party answers."""
    return protocol_of(plan).sequence(plan)
