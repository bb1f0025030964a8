"""All update rules by name: one line each, loaded when asked for, so that names cost no library."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from protocols.errors import ParameterError
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION

if TYPE_CHECKING:
    from protocols.updates.update import Update

ANYWHERE = {
    "barrier": "barrier.Barrier",
    "gd": "momentum.GradientDescent",
    "nag": "momentum.Nesterov",
    "quadratic-nag": "quadratic.QuadraticNesterov",
    "quadratic-gd": "quadratic_descent.QuadraticDescent",
}
"""Sums and products alone, hence also on ciphertexts."""
IN_THE_CLEAR = {
    "hb": "momentum.HeavyBall",
    "masg": "strongly_convex.MultiStage",
    "scd": "dual_ascent.DualAscent",
    "adagrad": "adaptive.Adagrad",
    "adam": "adaptive.Adam",
    "quadratic-adagrad": "adaptive.QuadraticAdagrad",
    "quadratic-adam": "adaptive.QuadraticAdam",
}
"""Offered with secure aggregation alone."""
USUAL = next(kind for kind in ("barrier", "gd") if kind in ANYWHERE)
"""Of a label in {0, 1}, where nothing is asked for."""
UNASKED = {
    # nag with a ridge, and nag-opt.
    "nag-sc": "strongly_convex.StronglyConvexNesterov",
    # quadratic-nag of an encrypted model.
    "rescaled-nag": "rescaled.RescaledNesterov",
}
"""What other choices make."""
VARIANTS = {
    "clipped-gd": "gd",
    "nag-opt": "nag-sc",
    "masg-opt": "masg",
}
"""Choices with secure aggregation that make a rule of another name."""
RULES = {**ANYWHERE, **IN_THE_CLEAR, **UNASKED}
"""Module and class of every kind in a plan."""
UPDATES = {
    ENCRYPTED_ROWS: tuple(ANYWHERE),
    ENCRYPTED_MODEL: tuple(ANYWHERE),
    SECURE_AGGREGATION: (*ANYWHERE, *VARIANTS, *IN_THE_CLEAR),
}
"""What each protocol offers."""


@cache
def rule_named(kind: str) -> type[Update]:
    """The rule of this kind: plain ones are in `momentum`.

    Raises:
        ParameterError: there is none.
    """
    if kind not in RULES:
        raise ParameterError(f"update kind {kind!r} is not one of {', '.join(RULES)}")
    found: type[Update] = pkgutil.resolve_name(f"protocols.updates.{RULES[kind]}")
    return found


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
    found = rule_named(kind)
    try:
        rule: Update = msgspec.convert(own, found, strict=True)
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
