"""The update rules by name, and back from a run plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from protocols.approximation import Polynomial
from protocols.errors import MessageError, ParameterError
from protocols.fields import from_fields
from protocols.serialise import from_plain
from protocols.updates.adaptive import RATES, adaptive_from_dict
from protocols.updates.barrier import Barrier
from protocols.updates.dual_ascent import DualAscent
from protocols.updates.gradient_descent import GradientDescent
from protocols.updates.heavy_ball import HeavyBall
from protocols.updates.multistage import MultiStage
from protocols.updates.nesterov import Nesterov
from protocols.updates.quadratic import QuadraticNesterov
from protocols.updates.rule import UpdateRule
from protocols.updates.strongly_convex import StronglyConvexNesterov

Fields = Mapping[str, Any]


def _barrier(fields: Fields) -> UpdateRule:
    reciprocal = from_plain(Polynomial, fields["reciprocal"])
    return from_fields(Barrier, {**fields, "reciprocal": reciprocal})


def _adaptive(kind: str) -> Callable[[Fields], UpdateRule]:
    return lambda fields: cast("UpdateRule", adaptive_from_dict({"kind": kind, **fields}))


_READERS: dict[str, Callable[[Fields], UpdateRule]] = {
    "barrier": _barrier,
    "gd": lambda fields: from_fields(GradientDescent, fields),
    "nag": lambda fields: from_fields(Nesterov, fields),
    "quadratic-nag": QuadraticNesterov.from_dict,
    "hb": lambda fields: from_fields(HeavyBall, fields),
    "nag-sc": lambda fields: from_fields(StronglyConvexNesterov, fields),
    "masg": lambda fields: from_fields(MultiStage, fields),
    "scd": lambda fields: from_fields(DualAscent, fields),
    **{kind: _adaptive(kind) for kind in RATES},
}
KINDS = tuple(_READERS)
"""Kinds of rules in a plan."""


def rounds_of(fields: Fields) -> int:
    """Iterations T, read before the rule is built.

    Raises:
        ParameterError: no integer.
    """
    rounds = fields.get("rounds")
    if type(rounds) is not int:
        raise ParameterError(f"update {fields.get('kind')!r}: rounds={rounds!r} is no integer")
    return rounds


def rule_from_dict(fields: Fields) -> UpdateRule:
    """The rule that a plan describes.

    Raises:
        ParameterError: the kind is unknown or a field is wrong.
    """
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in _READERS:
        raise ParameterError(f"update kind {kind!r} is not one of {', '.join(KINDS)}")
    try:
        return _READERS[kind]({k: v for k, v in fields.items() if k != "kind"})
    except (TypeError, KeyError, MessageError) as error:
        raise ParameterError(f"update {kind!r} has wrong fields: {error}") from error
