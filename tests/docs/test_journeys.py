"""A journey is short, its files are there, and a name leads from each to the next."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.delete.delete import names
from tests.rooms.rooms import ROOT, imports
from tests.rooms.rooms import modules as modules_of

MOST_FILES = 12
PAGE = (ROOT / "docs/method/journeys.md").read_text(encoding="utf-8")
FILE = re.compile(r"^\| `(\S+)\.py` \|", re.MULTILINE)
JOURNEYS = {
    part.partition("\n")[0]: [name.replace("/", ".") for name in FILE.findall(part)]
    for part in PAGE.split("\n## ")[1:]
}


def strays(modules: Sequence[str]) -> list[str]:
    """Those that no name joins to one before."""
    named = {each: imports(each) | names(modules_of()[each].read_text()) for each in modules}
    return [
        each
        for k, each in enumerate(modules[1:], start=1)
        if not named[each] & {*modules[:k]} and not any(each in named[m] for m in modules[:k])
    ]


@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_journey_is_short_and_of_one_piece(journey: str) -> None:
    modules = JOURNEYS[journey]
    assert 2 < len({*modules}) == len(modules) <= MOST_FILES
    assert strays(modules) == []


def test_all_three_are_there_with_every_line() -> None:
    assert [*JOURNEYS] == ["A row", "A learning rate", "A share of a refresh"]
    assert sum(map(len, JOURNEYS.values())) == PAGE.count("\n| `")


def test_a_file_that_nothing_leads_to_is_seen() -> None:
    assert strays(["protocols.rows.training", "parties.reader.table"]) == ["parties.reader.table"]
