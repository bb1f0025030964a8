"""Every kind of run plan, read back from JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from protocols.aggregate.parameters import AggregateParameters
from protocols.approximation import Polynomial
from protocols.ckks.parameters import CkksParameters
from protocols.curvature import Curvature
from protocols.errors import MessageError, ParameterError
from protocols.fields import check_fields, from_fields
from protocols.gradients import GradientPlan
from protocols.gram_plan import GramPlan
from protocols.lffr import LffrPlan
from protocols.plan import Member, PrivacyPlan, RunPlan
from protocols.rows import RowsPlan
from protocols.serialise import from_plain

_PLANS: tuple[type[RunPlan], ...] = (RowsPlan, GramPlan, LffrPlan, GradientPlan)
KINDS: dict[str, type[RunPlan]] = {kind.protocol: kind for kind in _PLANS}


def _floats(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or any(type(v) not in (int, float) for v in values):
        raise MessageError("weights and noise_scales must be lists of numbers")
    return tuple(float(v) for v in values)


_READERS: dict[str, Callable[[Any], Any]] = {
    "members": lambda members: tuple(from_fields(Member, m) for m in members),
    "privacy": lambda privacy: None if privacy is None else from_fields(PrivacyPlan, privacy),
    "link": partial(from_plain, Polynomial),
    "curvature": lambda fields: None if fields is None else Curvature.from_dict(fields),
    "ckks": partial(from_plain, CkksParameters),
    "cipher": partial(from_plain, AggregateParameters),
    "weights": _floats,
    "noise_scales": _floats,
}
_OBJECTS = ("schema", "update", "objective")


def plan_from_dict(fields: Mapping[str, Any]) -> RunPlan:
    """Inverse of a plan's `to_dict`.

    Raises:
        MessageError: a field is missing or has a wrong type.
        ParameterError: fields that do not go together.
    """
    protocol = fields.get("protocol")
    if not isinstance(protocol, str) or protocol not in KINDS:
        raise MessageError(f"protocol={protocol!r} is not one of {', '.join(KINDS)}")
    kind = KINDS[protocol]
    rest = {key: value for key, value in fields.items() if key != "protocol"}
    check_fields(kind, rest)
    try:
        for name in _OBJECTS:
            if not isinstance(rest.get(name, {}), dict):
                raise MessageError(f"{name} must be an object")
        read = {k: _READERS[k](v) if k in _READERS else v for k, v in rest.items()}
        plan = kind(**read)
        plan.digest()  # NaN has no canonical form
    except ParameterError:
        raise
    except (MemoryError, OverflowError):
        raise ParameterError("the plan is refused: one of its numbers is too large") from None
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise MessageError(f"the plan is malformed: {error}") from None
    return plan
