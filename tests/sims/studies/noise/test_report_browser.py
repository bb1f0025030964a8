"""The report as a reader sees it: in a real headless browser at two widths, and on paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sims.studies.noise.grid import Grid, cells_of
from sims.studies.noise.report import write_all
from sims.studies.noise.store import Measurement
from tests.sims.browser import Page

pytestmark = pytest.mark.timeout(180)
GRID = Grid(
    parties=(1, 2, 5, 10, 20, 50, 100, 200),
    modes=("fixed", "growing"),
    noises=("honest", "all"),
    iterations=(None, 100),
    encrypted=(2, 5, 10, 20),
)
IMAGES = "[...document.images]"


def made_up() -> list[Measurement]:
    """Figures of a large study in no time; the page does not know."""
    found = []
    for cell in cells_of([GRID], 32_000):
        p, t = cell.parties, cell.colluders
        for seed in (0, 1, 2):
            off = 1 + 0.01 * (seed - 1)
            total = (p / (p - t)) ** 0.5
            values: Mapping[str, Any] = {
                "privacy_ratio": total * off,
                "privacy_noise": 1e-3 * total * off,
                "left_ratio": off,
                "sigma": 1e-3,
                "model_noise": 0.1 * total * off,
                "accuracy": 0.83 - 1e-3 * total * off,
                "largest_iterate": 5.0,
            }
            if cell.kind == "encrypted":
                values = {"secret": p**0.5 * off, "encryption": 600 * p**0.5 * off}
            predicted = {"privacy_ratio": total, "secret": p**0.5, "largest_iterate": 10.0}
            predicted = {name: v for name, v in predicted.items() if name in values}
            facts = {"T": 400 if p < 50 else 50, "rows": 32_000}
            found.append(
                Measurement(cell=cell, seed=seed, values=values, predicted=predicted, facts=facts)
            )
    return found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("study")
    write_all(folder, "Noise and clients", "cohort study noise " * 20, made_up(), [GRID])
    return (folder / "report.html").as_uri()


@pytest.mark.parametrize("width", [1280, 600])
def test_the_page_fits_its_window(page: Page, address: str, width: int) -> None:
    page.problems.clear()
    page.open(address, width)
    assert page.overflow() == 0, "the page scrolls sideways"
    assert page.cut_off("h1, h2, h3, p, img, figcaption, td, th, code") == []
    wide = "[...document.querySelectorAll('table')].filter(t => t.scrollWidth > t.clientWidth + 1)"
    assert page.evaluate(f"{wide}.length") == 0, "a table is wider than it says"
    inside = "t.parentElement.scrollWidth > t.parentElement.clientWidth"
    scrolled = f"[...document.querySelectorAll('table')].filter(t => {inside}).length"
    assert (page.evaluate(scrolled) > 0) == (width == 600), "tables scroll in their own box"
    assert page.evaluate(f"{IMAGES}.length") > 15
    assert page.evaluate(f"{IMAGES}.every(i => i.complete && i.naturalWidth > 0)") is True
    # Text of a figure is 9 to 10.5 points of 4.6 inches; at 300 pixels it is still 8 pixels.
    assert page.evaluate(f"Math.min(...{IMAGES}.map(i => i.clientWidth))") >= 300
    assert page.problems == []


def test_what_sticks_out_is_noticed(page: Page, address: str) -> None:
    """The measure itself: a line too wide is seen, in the page and not in a box that scrolls."""
    page.open(address, 600)
    add = "document.querySelector('{}').insertAdjacentHTML('beforeend', `{}`)"
    long = "<p style='width:900px;max-width:none' class=long>x</p>"
    page.evaluate(add.format(".scroll", long))
    assert (page.overflow(), page.cut_off(".long")) == (0, [])
    page.evaluate(add.format("main", long))
    assert page.overflow() > 0
    assert len(page.cut_off(".long")) == 1


def test_it_prints(page: Page, address: str) -> None:
    """On A4, whose tables cannot be scrolled: nothing reaches over the margin."""
    page.open(address, 1280)
    page.on_paper()
    try:
        assert page.overflow() == 0
        assert page.cut_off("h1, h2, h3, p, img, figcaption, td, th, code") == []
        assert page.print_to_pdf().startswith(b"%PDF-")
    finally:
        page.on_screen()
