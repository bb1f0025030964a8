"""The table of samples in docs/method/samples.md is what runs publish."""

from __future__ import annotations

from protocols.steps.samples import LEMMAS
from tests.provenance.table import BEGIN, END, README, written


def test_the_table_is_generated() -> None:
    """`python -m tests.provenance.table` writes it again."""
    text = README.read_text(encoding="utf-8")
    assert written(text) == text


def test_every_lemma_has_its_sample() -> None:
    """And every exception its lemma."""
    section = README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    used = {line.split("|")[-2].strip() for line in section.splitlines() if line.startswith("| `")}
    assert used - {""} == set(LEMMAS)
