"""Every kind of run plan, read back from JSON; its code is loaded when a plan names it."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Mapping
from typing import Any

from protocols.errors import MessageError, ParameterError
from protocols.plan import RunPlan, check_version
from protocols.serialise import from_plain

KINDS: Mapping[str, str] = {
    "rows": "protocols.rows:RowsPlan",
    "gram": "protocols.gram_plan:GramPlan",
    "lffr": "protocols.lffr:LffrPlan",
    "gradients": "protocols.gradients:GradientPlan",
}


def plan_from_dict(fields: Mapping[str, Any]) -> RunPlan:
    """Inverse of a plan's `to_dict`.

    Raises:
        MessageError: a field is missing, unknown or of a wrong type.
        ParameterError: another version, or fields that do not go together.
    """
    protocol = fields.get("protocol")
    if not isinstance(protocol, str) or protocol not in KINDS:
        raise MessageError(f"protocol={protocol!r} is not one of {', '.join(KINDS)}")
    check_version(fields.get("version"))
    kind: type[RunPlan] = pkgutil.resolve_name(KINDS[protocol])
    rest = {key: value for key, value in fields.items() if key != "protocol"}
    try:
        json.dumps(rest, allow_nan=False)
        return from_plain(kind, rest)
    except (MemoryError, OverflowError):
        raise ParameterError("the plan is refused: one of its numbers is too large") from None
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, (ParameterError, MessageError)):
            raise
        raise MessageError(f"the plan is malformed: {error}") from None
