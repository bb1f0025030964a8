"""Configuration files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocols.errors import ParameterError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain types.

    Raises:
        ParameterError: it is missing or malformed.
    """
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ParameterError(f"{path} does not exist: cohort … init makes it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} is malformed: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Text as plain types.

    Raises:
        ValueError: it is malformed.
    """
    return dict(tomllib.loads(text))


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
