"""The protocols, by kind of plan; the code of one is loaded when a plan names it."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping

from protocols.errors import ProtocolError
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.plan import RunPlan
from protocols.protocol import BEFORE, FINISH, Protocol, repeated

PROTOCOLS: Mapping[str, str] = {
    ENCRYPTED_ROWS: "protocols.encrypted_rows:PROTOCOL",
    SECURE_AGGREGATION: "protocols.secure_aggregation:PROTOCOL",
}


def protocol(name: str) -> Protocol:
    """The protocol of this name.

    Raises:
        ProtocolError: there is none.
    """
    if name not in PROTOCOLS:
        raise ProtocolError(f"protocol={name!r} is not one of {', '.join(PROTOCOLS)}")
    found: Protocol = pkgutil.resolve_name(PROTOCOLS[name])
    return found


def protocol_of(plan: RunPlan) -> Protocol:
    """The protocol of a plan."""
    return protocol(plan.protocol)


def sequence(plan: RunPlan) -> tuple[str, ...]:
    """Every step of a run, in the only order in which a party answers."""
    return protocol_of(plan).sequence(plan)


def phase_of(step: str) -> str:
    """Phase that a step of any protocol, such as "refresh/3", is charged to.

    Raises:
        KeyError: no protocol has it.
    """
    kind = step.partition("/")[0]
    phases = {**dict.fromkeys(BEFORE, "agree"), FINISH: "decrypt"}
    for name in PROTOCOLS:
        phases |= {each.name: each.phase for each in protocol(name).steps}
    return phases[kind if kind in phases else repeated(kind)]
