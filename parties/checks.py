"""Checks of public texts, numbers and JSON: the message names field, value, bound and cure."""

from __future__ import annotations

import difflib
import json
import numbers
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from protocols.errors import SchemaError

MAX_MAGNITUDE = 1e150
"""Bound on every number of a schema, so that squares and quotients of them stay finite."""
MIN_WIDTH = 1 / MAX_MAGNITUDE
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


def looks_numeric(text: str) -> bool:
    """Say whether a text is a plain decimal number, as "39" or "-1.5e3" are."""
    return _NUMBER.fullmatch(text) is not None


def shown(value: object) -> str:
    """Write a public value for an error message, cut to 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x' or 'y'?", or "" where no known name is close.

    Names that look like numbers are left out: they may be the cells of a table without a header.
    """
    candidates = [text for text in known if not looks_numeric(text)]
    close = difflib.get_close_matches(name, candidates, n=3, cutoff=0.6)
    folded = [text for text in candidates if text.casefold() == name.casefold()]
    best = list(dict.fromkeys(folded + close))[:3]
    return f"; did you mean {' or '.join(shown(text) for text in best)}?" if best else ""


def check_text(field: str, value: object, owner: str) -> str:
    """Return ``value``, a non-empty str; raise SchemaError otherwise."""
    if not isinstance(value, str):
        raise SchemaError(
            f"{field}={shown(value)} of {owner} is a {type(value).__name__}, not a text: "
            "write it in quotes"
        )
    if not value:
        raise SchemaError(f"{field}='' of {owner} is empty: give at least one character")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise SchemaError(f"{field}={shown(value)} of {owner} is not valid Unicode: retype it")
    return str(value)


def check_number(field: str, value: object, owner: str) -> float:
    """Return ``value`` as a finite float, |value| <= 1e150; raise SchemaError otherwise."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise SchemaError(
            f"{field}={shown(value)} of {owner} is a {type(value).__name__}, not a number: "
            "write a number without quotes"
        )
    # The comparison is exact for integers of any size, and false for NaN.
    number: Any = value
    if not -MAX_MAGNITUDE <= number <= MAX_MAGNITUDE:
        raise SchemaError(
            f"{field}={shown(value)} of {owner} is not within +-{MAX_MAGNITUDE:g}: "
            "give a finite number"
        )
    return float(number) + 0.0  # + 0.0 turns -0.0 into 0.0: one digest for one value


def check_keys(
    item: object, required: tuple[str, ...], optional: tuple[str, ...], owner: str
) -> Mapping[str, Any]:
    """Return ``item``, a mapping with exactly these keys; raise SchemaError otherwise."""
    if not isinstance(item, Mapping):
        raise SchemaError(f"{owner} is a {type(item).__name__}, not an object: write {{...}}")
    allowed = required + optional
    for key in item:
        if key not in allowed:
            raise SchemaError(
                f"key {shown(key)} of {owner} is unknown{suggest(str(key), allowed)} "
                f"(allowed: {', '.join(allowed)}): remove or rename it"
            )
    for key in required:
        if key not in item:
            raise SchemaError(f"key {key!r} of {owner} is missing: add it")
    return item


def parse_json(text: str | bytes) -> Any:
    """Parse JSON (UTF-8 where bytes); refuse repeated keys, NaN and Infinity by SchemaError."""
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        return json.loads(decoded, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except SchemaError:
        raise
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not valid JSON ({error}): correct it") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            raise SchemaError(f"key {shown(key)} of the schema occurs {count} times: keep one")
    return dict(pairs)


def _no_constant(text: str) -> float:
    raise SchemaError(f"the schema holds {text}, which is no finite number: replace it")
