"""The update rules by name, and back from a run plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocols.approximation import Polynomial
from protocols.errors import MessageError, ParameterError
from protocols.fields import from_fields
from protocols.updates.barrier import Barrier
from protocols.updates.gradient_descent import GradientDescent
from protocols.updates.nesterov import Nesterov
from protocols.updates.rule import UpdateRule

KINDS = ("barrier", "gd", "nag")


def rule_from_dict(fields: Mapping[str, Any]) -> UpdateRule:
    """The rule that a plan describes.

    Raises:
        ParameterError: the kind is unknown or a field is wrong.
    """
    rest = {k: v for k, v in fields.items() if k != "kind"}
    kind = fields.get("kind")
    rules = {"barrier": Barrier, "gd": GradientDescent, "nag": Nesterov}
    try:
        if kind == "barrier":
            rest["reciprocal"] = Polynomial.from_dict(rest["reciprocal"])
        if kind in rules:
            return from_fields(rules[kind], rest)
    except (TypeError, KeyError, MessageError) as error:
        raise ParameterError(f"update {kind!r} has wrong fields: {error}") from error
    raise ParameterError(f"update kind {kind!r} is not one of {', '.join(KINDS)}")
