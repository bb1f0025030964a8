"""Documents of other people, JSON or TOML, as typed objects: strictly, or refused with a cure."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from protocols.errors import CohortError, ParameterError

T = TypeVar("T")
Text = Annotated[str, msgspec.Meta(min_length=1, pattern=r"\A[^\ud800-\udfff]+\Z")]
"""Not empty, valid Unicode."""
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_PLACE = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


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


# --- plain values as typed objects ----------------------------------------------------------------


def read(
    item: Any, kind: Any, what: str, error: type[CohortError] = ParameterError, field: str = ""
) -> Any:
    """Plain JSON values as an object of this type, which checks itself; True is no number.

    what: the document, for the words of errors; field: the name that `item` has in it.

    Raises:
        CohortError: of the type `error`; names the place, its value and what is due there.
    """
    try:
        found = msgspec.convert(item, kind)
    except (UnicodeError, RecursionError):
        raise error(f"{what} holds text that is no Unicode, or is nested too deeply") from None
    except msgspec.ValidationError as refused:
        if isinstance(refused.__cause__, CohortError):  # of a __post_init__
            raise refused.__cause__ from None
        cause, place = _PLACE.fullmatch(str(refused)).groups("")  # type: ignore[union-attr]
        kinds = list(_members(kind))
        for key, index in _STEP.findall(place):
            kinds = [inner for outer in kinds for inner in _inside(outer, key)]
            try:
                item = item[int(index) if index.isdigit() else key]
            except (LookupError, TypeError):  # a field that is missing, a value of a mapping
                item = {}
        if unknown := re.search("unknown field `(.*)`", cause):
            cause += suggest(unknown[1], (name for kind in kinds for name in _hints(kind)))
        choices = [shown(v) for k in kinds if get_origin(k) is Literal for v in get_args(k)]
        cause += f", not one of {', '.join(choices)}" if choices else ""
        where = f"{field}{place}".lstrip(".")
        value = f"={shown(item)}" if where and not isinstance(item, Mapping) else ""
        of = f"{where}{value} of {what}" if where else what
        raise error(f"{of}: {cause.replace('`', chr(39))}") from None
    for key, names in _unknown(item, kind):
        raise error(f"{what} contains unknown field {shown(key)}{suggest(key, names)}")
    return found


def _unknown(item: Any, kind: Any) -> Iterator[tuple[str, Iterable[str]]]:
    """Keys that a dataclass does not have, and those that it has; structs refuse by themselves."""
    for one in _members(kind) if isinstance(item, Mapping) else ():
        for key, value in item.items():
            if is_dataclass(one) and key not in _hints(one):
                yield str(key), _hints(one)
            for inner in _inside(one, key):
                yield from _unknown(value, inner)


def _members(kind: Any) -> Iterator[Any]:
    """The types of a union, one by one, without annotations."""
    if get_origin(kind) not in (Annotated, Union, UnionType):
        yield kind
        return
    for inner in get_args(kind)[: 1 if get_origin(kind) is Annotated else None]:
        yield from _members(inner)


def _inside(kind: Any, key: str) -> Iterator[Any]:
    """Types of the field `key`, or of the items of a list or mapping."""
    config = getattr(kind, "__struct_config__", None)
    if config is not None and key and key == config.tag_field:
        yield Literal[config.tag]
    elif key in _hints(kind):
        yield from _members(_hints(kind)[key])
    elif get_origin(kind) in (list, tuple, dict):
        yield from _members([a for a in get_args(kind) if a is not ...][-1])


def _hints(kind: Any) -> dict[str, Any]:
    return _annotated(kind) if hasattr(kind, "__annotations__") else {}


@lru_cache(maxsize=256)
def _annotated(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


class Checked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A document whose fields are checked at birth, also where it is made by hand.

    Raises:
        CohortError: of the type REFUSAL; a field is not of its type or outside its bound.
    """

    REFUSAL: ClassVar[type[CohortError]] = ParameterError

    def __post_init__(self) -> None:
        """Check every field and store it as its type."""
        name = getattr(self, "name", None)
        what = type(self).__name__ + (f" {shown(name)}" if isinstance(name, str) and name else "")
        for field in msgspec.structs.fields(self):
            value = read(getattr(self, field.name), field.type, what, self.REFUSAL, field.name)
            # + 0.0 turns -0.0 into 0.0: one digest for one value
            value = value + 0.0 if isinstance(value, float) else value
            msgspec.structs.force_setattr(self, field.name, value)


def check_durations(document: Checked, *names: str) -> None:
    """Refuse fields that are no positive, finite number of seconds.

    Raises:
        ParameterError: names the field.
    """
    for name in names:
        if not 0 < getattr(document, name) < math.inf:
            raise ParameterError(
                f"{name}={getattr(document, name)} must be a positive number of seconds"
            )


# --- JSON and TOML --------------------------------------------------------------------------------


def canonical_digest(plain: Any) -> str:
    """SHA-256 of the canonical JSON of plain values, hexadecimal. Raises ValueError: a NaN."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def parse_json(text: str | bytes, what: str, error: type[CohortError] = ParameterError) -> Any:
    """Plain values; a repeated key, NaN and Infinity are refused.

    Raises:
        CohortError: of the type `error`; not JSON (UTF-8).
    """

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for key, count in Counter(key for key, _ in pairs).items():
            if count > 1:
                raise error(f"key {shown(key)} of {what} occurs {count} times: keep one")
        return dict(pairs)

    def no_constant(text: str) -> float:
        raise error(f"{what} holds {text}, which is no finite number: replace it")

    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        return json.loads(decoded, object_pairs_hook=distinct, parse_constant=no_constant)
    except (ValueError, RecursionError) as wrong:
        if isinstance(wrong, CohortError):
            raise
        raise error(f"{what} is not valid JSON ({wrong}): correct it") from None


def load_toml(path: Path, kind: Any = dict[str, Any], **more: object) -> Any:
    """A TOML file as an object of this type; more: fields that are not in the file.

    Raises:
        ParameterError: it is missing, malformed, or not of the type.
    """
    try:
        fields = msgspec.toml.decode(path.read_bytes())
    except FileNotFoundError:
        raise ParameterError(f"{path} does not exist") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} is malformed: {error}") from None
    for key in fields.keys() & more.keys():
        raise ParameterError(f"{path} contains unknown field {shown(key)}")
    return read({**fields, **more}, kind, str(path))


def to_toml(fields: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    """A flat table with one level of sub-tables; None is left out; a comment above its field."""
    lines: list[str] = []
    tables = {key: value for key, value in fields.items() if isinstance(value, Mapping)}
    for key, value in fields.items():
        if key not in tables and value is not None:
            lines += [f"# {comments[key]}"] if key in comments else []
            lines.append(f"{key} = {json.dumps(value)}")
    for key, table in tables.items():
        lines += ["", *([f"# {comments[key]}"] if key in comments else []), f"[{key}]"]
        lines += [to_toml(table, comments).rstrip("\n")]
    return "\n".join(lines) + "\n"
