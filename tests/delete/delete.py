"""The delete test: a room is taken out of a copy of the checkout, and the rest goes on.

python -m tests.delete                   which rooms there are, and which can be removed
python -m tests.delete ROOM …            each by itself: its edges, the demo, the tests of the rest
python -m tests.delete ROOM … --tests T  of the tests those in T, such as tests/house
python -m tests.delete ROOM … --collect  the tests are loaded, and not run
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.delete.table import LABORATORY, Room
from tests.rooms.rooms import tracked
from tests.support.scripts import ROOT

HERE = "tests/delete"
DEMO = ("simulate", "--profile", "fast-insecure", "--iterations", "2", "--out", "runs/demo")
BOTH = """
import sys, pytest
from ciphercohort.cli.app import app
end = sys.argv.index("--")
refused = app(sys.argv[1:end], standalone_mode=False)
raise SystemExit(refused or pytest.main(sys.argv[end + 1:]))
"""
"""The demo, then tests, in one process, which loads libraries once."""
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
PAGES = (
    "tests/docs/test_pages.py::test_tables_of_steps_are_the_protocols",
    "tests/docs/test_pages.py::test_files_that_a_page_of_protocols_names_are_there",
    "tests/docs/test_pages.py::test_files_that_any_page_names_by_their_path_are_there",
    "tests/house/test_trusted.py::test_secrets_load_arithmetic_alone",
)
"""Tests that hold pages to the whole house, which they go on describing."""
NAMED = re.compile(r"[a-z_0-9]+(\.[a-z_0-9]+)+")
"""How a registry names a module, before a colon or a member."""


class RoomError(Exception):
    """The table does not fit the checkout, or the rest does not do without the room."""


def files_of(patterns: Sequence[str]) -> set[Path]:
    """Files of the checkout that globs stand for, and those below folders among them.

    Raises:
        RoomError: a pattern stands for nothing.
    """
    found = set[Path]()
    for pattern in patterns:
        heads = {p.relative_to(ROOT) for p in ROOT.glob(pattern.partition("::")[0])}
        own = {p for p in files() if heads & {p, *p.parents}}
        if not own:
            raise RoomError(f"{pattern} is not there any more")
        if "::" not in pattern:
            found |= own
    return found


@cache
def files() -> tuple[Path, ...]:
    """Of the checkout."""
    return tuple(tracked())


def without_lines(path: Path, texts: Sequence[str]) -> str:
    """A file without the lines that hold these texts.

    Raises:
        RoomError: a text is in no line, or in several.
    """
    lines = (ROOT / path).read_text().splitlines(keepends=True)
    for text in texts:
        hit = [line for line in lines if text in line]
        if len(hit) != 1:
            raise RoomError(f"{path}: {text!r} is in {len(hit)} lines, not in one")
        lines.remove(hit[0])
    return "".join(lines)


def module_of(path: Path) -> str:
    """Its dotted name."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names(source: str) -> set[str]:
    """What a module imports anywhere, or names as a registry does."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            found |= {name} if NAMED.fullmatch(name) else set()
    return found


@cache
def _named_in(path: Path) -> frozenset[str]:
    return frozenset(names((ROOT / path).read_text()))


def whole(room: Room) -> Room:
    """A room with what goes along."""
    if not room.studied:
        return room
    return replace(
        room,
        has=(*room.has, *LABORATORY.has),
        lines={**room.lines, **LABORATORY.lines},
        tests=(*room.tests, *LABORATORY.tests),
    )


def edges(room: Room) -> set[str]:
    """Files of the rest that still import something of a room.

    `tests/house` names modules to keep others away from them, and is let off.
    """
    room = whole(room)
    gone = files_of((*room.has, *room.tests))
    modules = {module_of(path) for path in gone if path.suffix == ".py"}

    def is_gone(name: str) -> bool:
        parts = name.split(".")
        return any(".".join(parts[:k]) in modules for k in range(1, len(parts) + 1))

    found = set()
    for path in files():
        if path.suffix != ".py" or path in gone or path.is_relative_to("tests/house"):
            continue
        texts = room.lines.get(str(path))
        own = names(without_lines(path, texts)) if texts else _named_in(path)
        if any(map(is_gone, own)):
            found.add(str(path))
    return found


def _compiled(path: Path) -> list[Path]:
    """What Python has made of a module, which holds for a copy of the same time and size."""
    found = Path(cache_from_source(str(path))) if path.suffix == ".py" else path
    return [found] if found != path and (ROOT / found).is_file() else []


@contextmanager
def removed(room: Room) -> Iterator[Path]:
    """A copy of the checkout without a room, while it is open."""
    room = whole(room)
    gone = files_of((*room.has, *room.tests))
    with TemporaryDirectory(prefix="without-") as folder:
        copy = Path(folder)
        for path in files():
            if path not in gone:
                for each in (path, *_compiled(path)):
                    (copy / each).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / each, copy / each)
        for name, texts in room.lines.items():
            (copy / name).write_text(without_lines(Path(name), texts))
        subprocess.run(["git", "init", "-q"], cwd=copy, check=True)
        yield copy


def run(copy: Path, *arguments: str) -> None:
    """Python in a copy.

    Raises:
        RoomError: it fails; with the end of what it says.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env={**os.environ, **QUIET, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise RoomError(f"python {' '.join(arguments)}:\n{said}")


def rest_works(room: Room, tests: Sequence[str] = ("tests",), *more: str) -> None:
    """Without a room nothing imports it, the demo runs, and so do tests of the rest.

    tests: paths, of which those that are still there are run, and that of this command is not;
    more: options of pytest.

    Raises:
        RoomError: says what does not.
    """
    found = edges(room)
    if found:
        raise RoomError(f"imported by {', '.join(sorted(found))}")
    with removed(room) as copy:
        kept = [path for path in tests if (copy / path).exists()]
        single = (f"--deselect={name}" for name in (*PAGES, *whole(room).tests) if "::" in name)
        if room.called:
            more = (*more, "-k", f"not {room.called}")
        options = ("-q", "-p", "no:cacheprovider", f"--ignore={HERE}", *single, *more)
        run(copy, "-c", BOTH, *DEMO, "--", *options, *kept)
