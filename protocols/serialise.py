"""Typed objects to plain JSON types and back: what does not fit its declared type is refused."""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

import msgspec

from protocols.errors import CohortError, MessageError

T = TypeVar("T")
_LARGEST = 1 << 63


def to_plain(value: Any) -> Any:
    """Objects, lists, text and numbers, every bit of a float kept."""
    return json.loads(json.dumps(msgspec.to_builtins(value)))


def from_plain(kind: type[T], plain: Any) -> T:
    """Inverse of `to_plain`; kind: a dataclass or Struct.

    Raises:
        MessageError: a type differs, a field is missing or unknown, a number is not finite or has
            64 bits or more; names the field.
        CohortError: what the type itself refuses.
    """
    try:
        _check_numbers(plain, kind.__name__)
        found = msgspec.convert(plain, kind, strict=True)
        _check_names(plain, to_plain(found), kind.__name__)
    except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
        if isinstance(error.__cause__, CohortError):
            raise error.__cause__ from None
        raise MessageError(f"{kind.__name__} is malformed: {error}") from None
    return found


def _entries(plain: Any, path: str) -> list[tuple[Any, Any, str]]:
    """(key, value, path) of an object or a list."""
    if isinstance(plain, dict):
        return [(key, value, f"{path}.{key}") for key, value in plain.items()]
    return [(k, value, f"{path}[{k}]") for k, value in enumerate(plain)]


def _check_numbers(plain: Any, path: str) -> None:
    if isinstance(plain, (dict, list)):
        for _, value, place in _entries(plain, path):
            _check_numbers(value, place)
    elif isinstance(plain, float) and not math.isfinite(plain):
        raise MessageError(f"{path} is not finite")
    elif isinstance(plain, int) and abs(plain) >= _LARGEST:
        raise MessageError(f"{path} has 64 bits or more")


def _check_names(plain: Any, known: Any, path: str) -> None:
    """msgspec ignores an unknown field of a dataclass: it is one that does not come back."""
    if isinstance(plain, (dict, list)):
        for key, value, place in _entries(plain, path):
            if isinstance(plain, dict) and key not in known:
                raise MessageError(f"{place} is unknown")
            _check_names(value, known[key], place)
