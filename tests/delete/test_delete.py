"""Rooms can be taken out: nothing else imports them, and of four of them the rest is run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.delete import delete
from tests.delete.table import ROOMS, Room

RUN = {
    "dask": "tests/ciphercohort/job/test_config.py",
    "torch": "tests/house/test_imports.py",
    "plug-in": "tests/house/test_imports.py",
    "laboratory": "tests/ciphercohort/test_ciphercohort.py",
}
"""Rooms that are removed here, each with tests of the rest; `python -m tests.delete` runs all."""


@pytest.mark.parametrize("name", ROOMS)
def test_what_is_in_the_way_is_known(name: str) -> None:
    """Of a room that can be removed nothing; what is said to keep another one still does."""
    room = ROOMS[name]
    found = delete.edges(room)
    assert {*room.edges} <= found if room.edges else found == set()
    assert bool(room.edges) == bool(room.reason)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_the_rest_works(name: str) -> None:
    delete.rest_works(ROOMS[name], [RUN[name]])


def test_an_edge_is_seen() -> None:
    room = Room(has=("protocols/sums/kind.py",))
    assert delete.edges(room) == {"protocols/plan/kinds.py"}
    lines = {"protocols/plan/kinds.py": ('"gradients": "protocols.sums.kind:',)}
    assert delete.edges(replace(room, lines=lines)) == set()


@pytest.mark.slow
def test_a_rest_that_fails_is_seen() -> None:
    """Whatever no import says: the demo's own schema."""
    with pytest.raises(delete.RoomError, match="breast_cancer"):
        delete.rest_works(Room(has=("sims/schemas",)), [RUN["torch"]])


def test_a_room_that_is_not_there_is_seen() -> None:
    with pytest.raises(delete.RoomError, match="not there any more"):
        delete.edges(Room(has=("protocols/no_such_room",)))


@pytest.mark.parametrize("text", ["no such line", "import"])
def test_a_line_is_one_line(text: str) -> None:
    with pytest.raises(delete.RoomError, match="lines, not in one"):
        delete.without_lines(Path("protocols/plan/kinds.py"), (text,))
