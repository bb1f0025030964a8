"""Every kind of run plan, read back from JSON; its code is loaded when a plan names it."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Mapping
from typing import Any

from protocols.errors import MessageError, ParameterError
from protocols.exchange.serialise import from_plain
from protocols.plan.run_plan import RunPlan, check_version

KINDS: Mapping[str, str] = {
    "rows": "protocols.rows.plan:RowsPlan",
    "model": "protocols.model.plan:ModelPlan",
    "model-lffr": "protocols.lffr.home_plan:LffrModelPlan",
    "gram": "protocols.gram.plan:GramPlan",
    "lffr": "protocols.lffr.plan:LffrPlan",
    "gradients": "protocols.sums.plan:GradientPlan",
}


def plan_from_dict(fields: Mapping[str, Any]) -> RunPlan:
    """Inverse of a plan's `to_dict`.

    Raises:
        MessageError: a field is missing, unknown or of a wrong type.
        ParameterError: another version, or fields that do not go together.
    """
    check_version(fields.get("version"))
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise MessageError(f"kind={kind!r} is not one of {', '.join(KINDS)}")
    found: type[RunPlan] = pkgutil.resolve_name(KINDS[kind])
    if fields.get("protocol") != found.protocol:
        raise MessageError(f"protocol={fields.get('protocol')!r} of kind {kind!r} is unknown")
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
