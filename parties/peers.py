"""[peers] of party.toml: the other parties that an owner knows, by name and verification key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from protocols.cards import check_key, spoken
from protocols.errors import ParameterError
from protocols.names import check_name
from protocols.private_files import write_private
from protocols.toml import load_toml, parse_toml

TABLE = "peers"
_HEAD = re.compile(rf"\s*\[\s*{TABLE}\s*\]\s*(#.*)?")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def check_peers(peers: Mapping[str, str]) -> None:
    """Refuse what is no table of names and verification keys.

    Raises:
        ParameterError: a name or a key is none, or one key has two names.
    """
    for name, key in peers.items():
        check_key(f"{TABLE}.{check_name(name)}", key)
        twins = [other for other in peers if peers[other] == key]
        if len(twins) > 1:
            raise ParameterError(
                f"[{TABLE}] gives {' and '.join(map(repr, twins))} the same key: one owner would "
                "count as two; remove one of them"
            )


def add_peer(path: Path, name: str, key: str, *, replace: bool = False) -> None:
    """Know a party from now on; path: of party.toml, whose other lines stay as they are.

    replace: also where another key is known by this name.

    Raises:
        ParameterError: the name has another key, the key has another name, or `_write` refuses.
    """
    peers = dict(load_toml(path).get(TABLE, {}))
    if peers.get(name, key) != key and not replace:
        raise ParameterError(
            f"party {name!r} is known with another key, {spoken(peers[name])}: ask its owner by "
            "telephone which one is right, and give --replace if it is the new one"
        )
    _write(path, {**peers, name: key})


def remove_peer(path: Path, name: str) -> None:
    """Know a party no longer.

    Raises:
        ParameterError: it is not known, or `_write` refuses.
    """
    peers = dict(load_toml(path).get(TABLE, {}))
    if peers.pop(name, None) is None:
        raise ParameterError(f"party {name!r} is not among {', '.join(peers) or 'no peers'}")
    _write(path, peers)


def _write(path: Path, peers: Mapping[str, str]) -> None:
    check_peers(peers)
    before, lines = load_toml(path), path.read_text(encoding="utf-8").splitlines()
    if not any(_HEAD.fullmatch(line) for line in lines):
        lines += ["", f"[{TABLE}]"]
    first = next(k for k, line in enumerate(lines) if _HEAD.fullmatch(line)) + 1
    rest = (k for k in range(first, len(lines)) if lines[k].lstrip().startswith("["))
    last = next(rest, len(lines))
    comments = [line for line in lines[first:last] if not line.strip() or line.lstrip()[0] == "#"]
    entries = [
        f"{name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)} = "
        f"{json.dumps(key)}"
        for name, key in peers.items()
    ]
    lines[first:last] = [*entries, *comments]
    text = "\n".join(lines) + "\n"
    try:
        is_right = parse_toml(text) == {**before, TABLE: dict(peers)}
    except ValueError:
        is_right = False
    if not is_right:
        raise ParameterError(
            f"{path} is written in a way that this command does not understand: put these lines "
            f"under [{TABLE}] by hand: {'; '.join(entries)}"
        )
    write_private(path, text.encode())
