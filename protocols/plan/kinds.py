"""Every kind of run plan: its class, and what is known of such plans beside their values.

A kind is a room with one table, loaded when a plan names it: words, bounds on slots, errors and
circuit are functions of the plan, in modules beside it.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from protocols.errors import MessageError, ParameterError
from protocols.exchange.serialise import from_plain
from protocols.plan.run_plan import RunPlan, check_version
from protocols.words import Fact, count

if TYPE_CHECKING:
    from protocols.numerics.slot_bounds import SlotBounds
    from protocols.plan.circuit_plan import CircuitPlan

Plan = TypeVar("Plan", bound="CircuitPlan")
Only = TypeVar("Only", bound=RunPlan)

KINDS: Mapping[str, str] = {
    "rows": "protocols.rows.kind:KIND",
    "model": "protocols.model.kind:KIND",
    "model-lffr": "protocols.lffr.kind:AT_HOME",
    "gram": "protocols.gram.kind:KIND",
    "lffr": "protocols.lffr.kind:KIND",
    "gradients": "protocols.sums.kind:KIND",
}


def _nothing(plan: Any) -> Iterator[str]:
    return iter(())


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Of a plan of one kind: its class, and functions of it, said what they are below.

    circuit: computes what the coordinator does (`rows.protocol.Circuit`); None: no ciphertexts.
    counts: module that counts its operations, see `protocols.costs.counts`.
    """

    plan: type[RunPlan]
    released: Callable[[Any], str]
    figures: Callable[[Any], dict[str, Any]]
    facts: Callable[[Any], Iterator[Fact]]
    remarks: Callable[[Any], Iterator[str]] = _nothing
    slot_bounds: Callable[[Any, float], SlotBounds | None] = lambda plan, norm_bound: None
    circuit: Callable[[Any], Any] | None = None
    counts: str = ""


def _of_circuits(name: str) -> Callable[[Any], Any]:
    """Words of `circuit_words`, which plans of opened sums do not load."""
    return lambda plan: pkgutil.resolve_name(f"protocols.plan.circuit_words:{name}")(plan)


_RELEASED, _REMARKS = map(_of_circuits, ("released", "remarks"))


@dataclass(frozen=True, kw_only=True, slots=True)
class CircuitKind(Kind):
    """The same under threshold CKKS: bounds on every refresh and on the release are proven."""

    released: Callable[[Any], str] = _RELEASED
    remarks: Callable[[Any], Iterator[str]] = _REMARKS
    slot_bounds: Callable[[Any, float], SlotBounds]
    circuit: Callable[[Any], Any]
    counts: str
    model_error_std: Callable[[Any], float]
    iterate_error_std: Callable[[Any], float]
    shown_error_std: Callable[[Any], float]


def _kind(name: object) -> Kind:
    if not isinstance(name, str) or name not in KINDS:
        raise MessageError(f"kind={name!r} is not one of {', '.join(KINDS)}")
    found: Kind = pkgutil.resolve_name(KINDS[name])
    return found


def kind_of(plan: RunPlan) -> Kind:
    """The table of a plan's kind."""
    return _kind(plan.kind)


def circuit_kind_of(plan: CircuitPlan) -> CircuitKind:
    """The same under threshold CKKS."""
    found = _kind(plan.kind)
    assert isinstance(found, CircuitKind)  # noqa: S101 (its plans are of that class)
    return found


def released(plan: RunPlan) -> str:
    """What everyone learns, in words."""
    return kind_of(plan).released(plan)


def figures(plan: RunPlan) -> dict[str, Any]:
    """Of training and encryption, for summaries; all have update and ring_dim."""
    return kind_of(plan).figures(plan)


def facts(plan: RunPlan) -> Iterator[Fact]:
    """Encryption and iteration for a reader, one sentence each; who checks the coordinator."""
    yield from kind_of(plan).facts(plan)
    checking = sum(bool(member.follows) for member in plan.members)
    yield "Replicas", f"{checking} of {count(len(plan.members), 'owner')}", replicas(plan)


def replicas(plan: RunPlan) -> str:
    """By what each owner holds requests to the plan's computation, in words."""
    how = dict[str, list[str]]()
    for member in plan.members:
        words = "the coordinator's word"
        if member.follows == (member.name,):
            words = "own replica"
        elif member.follows:
            words = f"what {' and '.join(member.follows)} confirm{'s' * (len(member.follows) == 1)}"
        how.setdefault(words, []).append(member.name)
    return "; ".join(f"{', '.join(names)}: {words}" for words, names in how.items())


def remarks(plan: RunPlan) -> Iterator[str]:
    """What an owner who consents should know of other runs on the same rows."""
    return kind_of(plan).remarks(plan)


def slot_bounds(plan: RunPlan, norm_bound: float) -> SlotBounds | None:
    """Of what masks hide, for rows of norm at most `norm_bound`; None: nothing is masked."""
    return kind_of(plan).slot_bounds(plan, norm_bound)


def only(kind: type[Only], plan: RunPlan) -> Only:
    """The plan, which is to be of one class.

    Raises:
        ParameterError: it is of another kind.
    """
    if not isinstance(plan, kind):
        raise ParameterError(f"kind={plan.kind!r} of the plan is not {kind.kind!r}")
    return plan


def with_slot_bound(plan: Plan, norm_bound: float) -> Plan:
    """The plan that states what is proven of its slots, for rows of norm at most `norm_bound`."""
    return replace(plan, slot_bound=circuit_kind_of(plan).slot_bounds(plan, norm_bound).largest)


def model_error_std(plan: CircuitPlan) -> float:
    """Bound on the noise of the encrypted model before its decryption, per coefficient."""
    return circuit_kind_of(plan).model_error_std(plan)


def iterate_error_std(plan: CircuitPlan) -> float:
    """The same of any iterate; larger where the release keeps a part of it."""
    return circuit_kind_of(plan).iterate_error_std(plan)


def shown_error_std(plan: CircuitPlan) -> float:
    """Bound on the noise of what `CircuitPlan.shown` names, orthonormal [integer units]."""
    return circuit_kind_of(plan).shown_error_std(plan)


def plan_from_dict(fields: Mapping[str, Any]) -> RunPlan:
    """Inverse of a plan's `to_dict`.

    Raises:
        MessageError: a field is missing, unknown or of a wrong type.
        ParameterError: another version, or fields that do not go together.
    """
    check_version(fields.get("version"))
    found = _kind(fields.get("kind")).plan
    if fields.get("protocol") != found.protocol:
        raise MessageError(f"protocol={fields.get('protocol')!r} of kind {found.kind!r} is unknown")
    rest = {key: value for key, value in fields.items() if key not in ("protocol", "kind")}
    try:
        json.dumps(rest, allow_nan=False)
        return from_plain(found, rest)
    except (MemoryError, OverflowError):
        raise ParameterError("the plan is refused: one of its numbers is too large") from None
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        if isinstance(error, (ParameterError, MessageError)):
            raise
        raise MessageError(f"the plan is malformed: {error}") from None
