"""The update rules by name, and back from a run plan."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from protocols.errors import ParameterError
from protocols.updates.registry import RULES
from protocols.updates.update import Update

REGISTRY: dict[str, type[Update]] = {
    kind: pkgutil.resolve_name(f"protocols.updates.{home}") for kind, home in RULES.items()
}
KINDS = tuple(REGISTRY)
"""Kinds of rules in a plan."""


def rounds_of(fields: Mapping[str, Any]) -> int:
    """Iterations T, read before the rule is built.

    Raises:
        ParameterError: no integer.
    """
    rounds = fields.get("rounds")
    if type(rounds) is not int:
        raise ParameterError(f"update {fields.get('kind')!r}: rounds={rounds!r} is no integer")
    return rounds


def rule_from_dict(fields: Mapping[str, Any]) -> Update:
    """The rule that a plan describes.

    Raises:
        ParameterError: the kind is unknown; or a field is missing, unknown, of another type (True
            is no number), not finite or out of range.
    """
    kind, own = fields.get("kind"), {k: v for k, v in fields.items() if k != "kind"}
    if not isinstance(kind, str) or kind not in REGISTRY:
        raise ParameterError(f"update kind {kind!r} is not one of {', '.join(KINDS)}")
    try:
        rule: Update = msgspec.convert(own, REGISTRY[kind], strict=True)
    except (msgspec.ValidationError, OverflowError, UnicodeError, RecursionError) as error:
        raise ParameterError(f"update {kind!r} has wrong fields: {error}") from error
    unknown = ", ".join(_unknown(own, rule.to_dict()))
    if unknown:
        raise ParameterError(f"update {kind!r} has no field {unknown}")
    return rule


def _unknown(given: Mapping[str, Any], read: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Names in `given`, at any depth, that were not read."""
    for name, value in given.items():
        if name not in read:
            yield f"{at}{name}"
        elif isinstance(value, Mapping):
            yield from _unknown(value, read[name], f"{at}{name}.")
