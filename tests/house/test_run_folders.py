"""One place spells the names of a run's files."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from ciphercohort.job import layout
from tests.rooms.rooms import ROOT

HOME = "ciphercohort/job/layout.py"
NAMES = {name for half in layout.HALVES.values() for name in half} | {layout.STATUS}
NAMES -= {layout.REPORT}  # of templates and studies, too
HELP = {"ciphercohort/cli", "ciphercohort/flower"}
"""What a command's help says of a file; Flower's plug-in is a distribution of its own."""


def spelt(source: str) -> Iterator[str]:
    """Names of such files in a module's strings, but for what is said in docstrings."""
    tree = ast.parse(source)
    said = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield from (name for name in NAMES if node.value.startswith(name))


def test_names_of_files_stand_in_one_table() -> None:
    assert len(NAMES) == 12
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for package in ("ciphercohort", "sims")
        for path in (ROOT / package).rglob("*.py")
        if "lab" not in path.parts
        if not any(path.is_relative_to(ROOT / room) for room in HELP)
        for name in spelt(path.read_text(encoding="utf-8"))
    }
    assert {line for line in found if not line.startswith(HOME)} == set()


@pytest.mark.parametrize("source", ["a = 'model.json'", "f'plan.json, field {y}'"])
def test_such_a_name_is_seen(source: str) -> None:
    assert list(spelt(source))
    assert not list(spelt('"""Of model.json."""'))
