"""The house is as its table says: no room grows unseen, no folder is crowded, no import circles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rooms import rooms


def test_the_house_is_as_its_table_says() -> None:
    assert [*rooms.problems()] == []


def test_a_room_that_grows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {**rooms.table(), "parties/kernel": 10}
    monkeypatch.setattr(rooms, "table", lambda: small)
    assert any("parties/kernel has" in each for each in rooms.problems())


@pytest.mark.parametrize("over", ["", "for a reason"])
def test_a_budget_that_is_missed_has_its_reason_and_only_that(
    monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    lines = 10**9 if over else 1
    budget = rooms.Budget(lines, ("protocols", "protocols/*"), over)
    monkeypatch.setattr(rooms, "BUDGETS", {"protocols": budget})
    assert any(each.startswith("protocols: a reason is due") for each in rooms.problems())


def test_a_circle_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    monkeypatch.setattr(rooms, "modules", lambda: dict.fromkeys(graph, Path()))
    monkeypatch.setattr(rooms, "imports", lambda name: graph[name])
    assert [*rooms.circles()] == [["a", "b", "c"]]
