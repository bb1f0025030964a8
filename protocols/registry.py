"""The protocols, by kind of plan."""

from __future__ import annotations

from collections.abc import Mapping

from protocols import encrypted_rows, secure_aggregation
from protocols.errors import ProtocolError
from protocols.plan import RunPlan
from protocols.protocol import AFTER, BEFORE, Protocol, repeated

PROTOCOLS: Mapping[str, Protocol] = {
    "rows": encrypted_rows.PROTOCOL,
    "gram": encrypted_rows.PROTOCOL,
    "lffr": encrypted_rows.PROTOCOL,
    "gradients": secure_aggregation.PROTOCOL,
}


_PHASES = {
    **dict.fromkeys(BEFORE, "agree"),
    **{step.name: step.phase for each in PROTOCOLS.values() for step in each.steps},
    AFTER: "decrypt",
}


def phase_of(step: str) -> str:
    """Phase that a step of any protocol, such as "refresh/3", is charged to.

    Raises:
        KeyError: no protocol has it.
    """
    kind = step.partition("/")[0]
    return _PHASES[kind if kind in _PHASES else repeated(kind)]


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
