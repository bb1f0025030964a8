"""The page of the papers: lines of a table, the index by verdict, its length and what it links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import sims.lab.papers.page as papers_page
from sims.lab.papers.item import NOT_HERE, PAPERS, VERDICTS
from sims.lab.papers.registry import items

PAGE = Path(__file__).parents[3] / "docs" / "papers.md"
MOST_WORDS = 6_000


def row(quantity: str, ours: float, **more: Any) -> dict[str, Any]:
    return {"quantity": quantity, "ours": ours, "paper": None, "published": None} | {
        "std_error": None,
        **more,
    }


def test_rows_that_differ_in_one_part_stand_in_one_line() -> None:
    """The part is the one that leaves the fewest lines; what all lines share stands in the head."""
    rows = [
        row(f"{name}, {rule} on [-1, 1]: error", k + 1.0, paper=0.5, published=k + 2.0)
        for k, name in enumerate(("a", "b", "c"))
        for rule in ("MM", "LS")
    ]
    shown = list(papers_page.table(rows))
    assert shown[0] == "| a; b; c, error | paper | as published | ours |"
    assert shown[2:] == [
        f"| {rule} on [-1, 1] | 0.5 | 2; 3; 4 | 1; 2; 3 |" for rule in ("MM", "LS")
    ]


def test_a_row_alone_has_its_standard_error_and_a_gap_is_said() -> None:
    """A column without any figure is left out."""
    (*_, last) = papers_page.table([row("|z|", 2.0, std_error=0.25)])
    assert last == "|  | 2 ± 0.25 |"
    (head, _, both) = papers_page.table([row("c = 1", 1.0, paper=3.0), row("c = 2", 2.0)])
    assert head.startswith("|  |") or "c = 1; 2" in head
    assert both.endswith("| 3; none | 1; 2 |")


def test_words_of_the_line_above_are_left_out_at_both_ends() -> None:
    names = ["a, x, m", "a, y, m", "a, y, n", "a, b, y, n", "a, b, y, n", "b"]
    assert list(papers_page.ditto([name.split(", ") for name in names])) == [
        "a, x, m", "y", "n", "b, y", "n", "b",
    ]  # fmt: skip


def test_no_figure_is_lost() -> None:
    rows = [row(f"{a}, {b}: x", float(f"{k}{n}")) for k, a in enumerate("pqr", 1)
            for n, b in enumerate(("u", "v, w", "t"))]  # fmt: skip
    numbers = re.findall(r"\d+", " ".join(list(papers_page.table(rows))[2:]))
    assert sorted(map(float, numbers)) == sorted(r["ours"] for r in rows)


def test_the_page_is_short_and_has_each_item_and_each_gap_under_its_verdict() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(text.split()) <= MOST_WORDS
    index = {cells[1].strip(): cells[2:] for cells in
             (line.split("|") for line in text.splitlines() if line.startswith("| 0"))
             if len(cells) == len(VERDICTS) + 3}  # fmt: skip
    assert set(index) == set(PAPERS)
    for item in items():
        assert f"](#{item.stem})" in index[item.paper][VERDICTS.index(item.about.verdict)]
        assert f"\n### {item.paper} {item.name}\n" in text
    for each in NOT_HERE:
        assert each.what in index[each.paper][-2] and each.reason in text
    assert "Not run for this page." not in text
    for picture in re.findall(r"!\[[^]]*\]\(([^)]*)\)", text):
        assert (PAGE.parent / picture).is_file()
