"""Dataclasses from JSON: every number and text has exactly the declared type, or is refused."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeVar

from protocols.errors import MessageError

D = TypeVar("D")
_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int)}


def check_fields(cls: type, data: Any) -> None:
    """Refuse fields of a type that the dataclass `cls` does not declare; True is no number.

    Fields that are neither str, int nor float are left to the caller.

    Raises:
        MessageError: not an object, or a field has another type, or is not finite.
    """
    if not isinstance(data, dict):
        raise MessageError(f"{cls.__name__} is not an object")
    for field in dataclasses.fields(cls):
        # Annotations are strings: all modules import them from __future__.
        types = _TYPES.get(str(field.type))
        if types is None or field.name not in data:
            continue
        value = data[field.name]
        if type(value) not in types or (float in types and not _is_finite(value)):
            raise MessageError(f"{cls.__name__}.{field.name} is not a finite {field.type}")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # JSON's integers know no bound
        return False


def from_fields(cls: type[D], data: Any) -> D:
    """The dataclass that a JSON object describes.

    Raises:
        MessageError: see `check_fields`; or a field is missing or unknown.
    """
    check_fields(cls, data)
    try:
        return cls(**data)
    except TypeError as error:
        raise MessageError(f"{cls.__name__} is malformed: {error}") from None
