"""The protocols, by kind of plan; the code of one is loaded when a plan names it."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache

from protocols.errors import ProtocolError
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.plan import RunPlan
from protocols.protocol import BEFORE, FINISH, Protocol, Step, repeated

PROTOCOLS: Mapping[str, str] = {
    ENCRYPTED_ROWS: "protocols.encrypted_rows:PROTOCOL",
    ENCRYPTED_MODEL: "protocols.encrypted_model:PROTOCOL",
    SECURE_AGGREGATION: "protocols.secure_aggregation:PROTOCOL",
}
_COMMON = {**dict.fromkeys(BEFORE, "agree"), FINISH: "decrypt"}
"""Phases of the steps that every protocol has."""


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
    if kind in _COMMON:
        return _COMMON[kind]
    steps = _steps()
    return steps[kind if kind in steps else repeated(kind)].phase


def may_repeat(step: str) -> bool:
    """Whether others may repeat a step of any protocol without parties that have vanished."""
    found = _steps().get(step.partition("/")[0])
    return found is not None and found.repeats


@cache
def _steps() -> Mapping[str, Step]:
    """Of all protocols by name."""
    return {step.name: step for name in PROTOCOLS for step in protocol(name).steps}
