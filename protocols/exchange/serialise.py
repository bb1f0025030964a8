"""JSON from other machines, and typed objects to plain JSON types and back.

What is too long, too deep or ambiguous is refused, and what does not fit its declared type.
"""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

from protocols.errors import CohortError, MessageError

T = TypeVar("T")
_LARGEST = 1 << 63
# Of objects and lists in what another machine wrote: a plan has five.
MAX_DEPTH = 32
_DIGITS = 20


def parse(data: str | bytes, what: str, *, most: int) -> Any:
    """JSON that another machine wrote, of `most` characters or bytes at most.

    Raises:
        MessageError: it is longer, no JSON in UTF-8, nested deeper than MAX_DEPTH, repeats a key,
            or holds a number that is not finite, or an integer of more than 20 digits.
    """
    if len(data) > most:
        raise MessageError(f"{what} of {len(data)} characters exceeds the cap of {most}")
    try:
        text = data if isinstance(data, str) else data.decode()
        found = json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_constant=_finite,
            parse_float=_finite,
            parse_int=_whole,
        )
        # Text that is none: a lone surrogate.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise MessageError(f"malformed {what} ({type(error).__name__})") from None
    if _depth(found) > MAX_DEPTH:
        raise MessageError(f"malformed {what} (nested deeper than {MAX_DEPTH})")
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(found := float(text)):
        raise ValueError("a number that is not finite")
    return found


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError("too many digits")
    return int(text)


def _depth(value: Any) -> int:
    """Nesting of objects and lists, up to just above MAX_DEPTH."""
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        depth += 1
        held = (each for each in level if isinstance(each, (dict, list)))
        level = [v for each in held for v in (each.values() if isinstance(each, dict) else each)]
    return depth


def to_plain(value: Any) -> Any:
    """Objects, lists, text and numbers, every bit of a float kept."""
    import msgspec  # `parse` alone does without

    return json.loads(json.dumps(msgspec.to_builtins(value)))


def from_plain(kind: type[T], plain: Any) -> T:
    """Inverse of `to_plain`; kind: a dataclass or Struct.

    Raises:
        MessageError: a type differs, a field is missing or unknown, a number is not finite or has
            64 bits or more; names the field.
        CohortError: what the type itself refuses.
    """
    import msgspec

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
