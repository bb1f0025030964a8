"""A plan is data: nothing but the table of its kind asks of which class one is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.rooms.rooms import PACKAGES, ROOT


def asked(source: str) -> Iterator[str]:
    """Checks for a class of plans, and calls of one's functions past its own."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "isinstance":
            named = [each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)]
            yield from (f"isinstance {name}" for name in named if name.endswith("Plan"))
        elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            first = node.args[0] if node.args else None
            if called.value.id.endswith("Plan") and isinstance(first, ast.Name):
                yield from [f"{called.value.id}.{called.attr}"] * (first.id == "self")


def test_no_code_asks_for_the_class_of_a_plan() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {what}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for what in asked(path.read_text(encoding="utf-8"))
    }
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(plan, RowsPlan)",
        "if x:\n    y = not isinstance(p.plan, a | GramPlan)",
        "isinstance(plan, (int, SumsPlan))",
        "def f(self):\n    return RowsPlan.decode(self, w)",
    ],
)
def test_such_code_is_seen(source: str) -> None:
    assert list(asked(source))
