"""Rooms of this project: how many lines each may have, and who imports whom.

python -m tests.rooms            lines and modules by room, beside the table
python -m tests.rooms --write    the table, from what is there
"""

from __future__ import annotations

import ast
import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("table.json")
PACKAGES = ("ciphercohort", "coordinator", "parties", "protocols", "sims")
MOST_ENTRIES = 25
# Laboratory and plug-in are counted apart.
APART = ("sims/lab", "ciphercohort/flower")


@dataclass(frozen=True)
class Budget:
    """Lines that part of the house was meant to have; over: why it has more, empty if it has not.

    rooms: names of the table, as globs; what is counted apart is meant by its own name alone.
    """

    lines: int
    rooms: tuple[str, ...]
    over: str = ""


BUDGETS: Mapping[str, Budget] = {
    "kernel": Budget(
        5_500,
        ("parties/kernel",),
        "five protocols and study sums; what one owner reads, by protocol: its README",
    ),
    "parties' rest": Budget(
        5_500,
        ("parties/reader", "parties/agent", "parties/verifier", "parties"),
        "formats, missing cells and databases are the reader's; consent and restarts the agent's",
    ),
    "protocols": Budget(
        16_000,
        ("protocols", "protocols/*"),
        "a certificate, a search and a twin's formula for each rule (privacy, updates); Gram sums "
        "and LFFR are kept; statistics came later",
    ),
    "coordinator": Budget(2_000, ("coordinator",), "replay, resumption and Dask's workers"),
    "application": Budget(
        11_500,
        ("ciphercohort", "ciphercohort/*"),
        "forecasts, evaluation, standard errors and clinical studies, each with words and reports",
    ),
    "simulation": Budget(
        1_500,
        ("sims",),
        "twins of all protocols, held-out rows, ledgers and sums that follow a training",
    ),
    "laboratory": Budget(10_000, ("sims/lab",), "four papers, table by table, and their studies"),
    "plug-in": Budget(3_800, ("ciphercohort/flower",)),
    "tests": Budget(
        38_000,
        ("tests", "tests/flower"),
        "hostile messages by kind, provenance and boundaries; those of the plug-in are a seventh",
    ),
}


@dataclass(frozen=True)
class Room:
    """A folder, with all below it that is no room of its own."""

    lines: int
    modules: int


def tracked() -> list[Path]:
    """Files of the checkout, relative to its root, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [Path(name) for name in sorted({*listed}) if (ROOT / name).is_file()]


def table() -> Mapping[str, int]:
    """Lines that each room may have."""
    found: Mapping[str, int] = json.loads(TABLE.read_text())
    return found


def rooms(names: Mapping[str, int]) -> dict[str, Room]:
    """By name; a file belongs to the longest name that its path begins with."""
    lines, modules = Counter[str](), Counter[str]()
    ordered = sorted(names, key=len, reverse=True)
    for path in tracked():
        if path.suffix != ".py":
            continue
        room = next((n for n in ordered if path.is_relative_to(n)), "elsewhere")
        lines[room] += len((ROOT / path).read_text().splitlines())
        modules[room] += 1
    return {name: Room(lines[name], modules[name]) for name in [*names, "elsewhere"]}


def spent(budget: Budget, found: Mapping[str, Room]) -> int:
    """Lines of its rooms."""
    return sum(
        room.lines
        for name, room in found.items()
        if name in budget.rooms
        or (name not in APART and any(fnmatch(name, pattern) for pattern in budget.rooms))
    )


def is_product(room: str) -> bool:
    """Whether its lines count as the product's."""
    return room.startswith(PACKAGES) and room not in APART


def crowded() -> dict[str, int]:
    """Folders with more entries than `MOST_ENTRIES`."""
    entries: dict[str, set[str]] = {}
    for path in tracked():
        for parent in path.parents:
            below = path.relative_to(parent).parts[0]
            entries.setdefault(str(parent), set()).add(below)
    return {name: len(own) for name, own in entries.items() if len(own) > MOST_ENTRIES}


@cache
def modules() -> dict[str, Path]:
    """Of the packages, by name."""
    found = {}
    for path in tracked():
        if path.suffix == ".py" and path.parts[0] in PACKAGES:
            parts = path.with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ROOT / path
    return found


def imports(module: str) -> set[str]:
    """Modules of ours that a module imports, also inside functions, but not for types alone."""
    known, found = modules(), set[str]()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                for alias in child.names:
                    member = f"{child.module}.{alias.name}"
                    found.add(member if member in known else child.module)
            visit(child)

    visit(ast.parse(known[module].read_text()))
    return {name for name in found if name in known and name != module}


def circles() -> Iterator[list[str]]:
    """Modules that reach one another (Tarjan, 1972)."""
    graph = {name: imports(name) for name in modules()}
    index, low, stack, found = dict[str, int](), dict[str, int](), list[str](), list[list[str]]()

    def walk(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                walk(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            circle = stack[stack.index(name) :]
            del stack[-len(circle) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in graph:
        if name not in index:
            walk(name)
    yield from found


def problems() -> Iterator[str]:
    """What is not as the table and the rules say."""
    names = table()
    found = rooms(names)
    for name, room in found.items():
        if name in names and room.lines > names[name]:
            yield f"{name} has {room.lines:,} lines, the table {names[name]:,}"
    for name, budget in BUDGETS.items():
        if (spent(budget, found) > budget.lines) != bool(budget.over):
            yield f"{name}: a reason is due where {budget.lines:,} lines are passed, and only there"
    for name, entries in crowded().items():
        yield f"{name} has {entries} entries, at most {MOST_ENTRIES} are read at a glance"
    for circle in circles():
        yield f"modules import one another: {', '.join(circle)}"
