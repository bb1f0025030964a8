"""Every picture of a study says what its colours are, and has round numbers on its axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ciphercohort.study import pictures
from sims.study import cox, describe, glm, survival

ARM = "arm $x"
"""A name that is no formula."""
GROUPS = ["$new$", "_old"]
LAST = 59
TIMES: dict[str, Any] = {"time": "months", "event": "died"}


def table(rows: int = 400) -> pd.DataFrame:
    """Times from 0 to 59 months; age's hazard ratio is near 1, and well known."""
    rng = np.random.default_rng(5)
    age, arm = rng.uniform(40, 85, rows), rng.choice(GROUPS, rows)
    death = rng.exponential(30 * np.exp(-0.03 * (age - 60)))
    months = np.ceil(np.minimum(death, rng.uniform(12, 2 * LAST, rows)))
    died = (death <= months) & (months < LAST)
    return pd.DataFrame(
        {
            **{"months": np.minimum(months, LAST), "died": died.astype(int), "age": age},
            **{ARM: arm, "site": rng.choice(["p", "q", "r"], rows)},
        }
    )


DRAWN: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("compared", describe, {"by": ARM}),
    ("alone", describe, {}),
    ("compared", survival, {**TIMES, "by": ARM}),
    ("compared", survival, {**TIMES, "by": ARM, "epsilon": 20.0}),
    ("alone", survival, TIMES),
    ("ratios", cox, TIMES),
    ("ratios compared", cox, {**TIMES, "curves": ARM}),
    ("ratios", cox, {**TIMES, "epsilon": 20.0}),
    ("ratios", glm, {"target": "died", "exclude": ("months",)}),
]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """All that are drawn."""
    kept: list[Figure] = []
    draw = pictures.to_svg
    monkeypatch.setattr(pictures, "to_svg", lambda figure: kept.append(figure) or draw(figure))
    return kept


def legends(figure: Figure) -> list[Any]:
    return [*figure.legends, *(each.legend_ for each in figure.axes if each.legend_)]


def labels(axes: Axes) -> list[str]:
    """Of the ticks that are seen."""
    low, high = axes.get_xlim()
    ticks = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    return [label.get_text() for place, label in ticks if low <= place <= high]


@pytest.mark.parametrize(("kind", "study", "asked"), DRAWN)
def test_colours_are_named_and_numbers_round(
    kind: str, study: Callable[..., Any], asked: dict[str, Any], figures: list[Figure]
) -> None:
    found = study(table(), split="by:site", **asked)
    names = [name for name, _ in found.documents() if name.endswith(".svg")]
    assert len(figures) == len(names) == len(kind.split())
    for kept, figure in zip(kind.split(), figures, strict=True):
        if kept == "compared":
            (legend,) = legends(figure)
            assert legend.get_title().get_text() == ARM
            assert [each.get_text() for each in legend.get_texts()] == GROUPS
        else:
            assert not legends(figure)
        for axes in figure.axes:
            if axes.get_xlabel() == "months":
                assert axes.get_xlim() == (0, LAST)
                assert labels(axes) == ["0", "10", "20", "30", "40", "50"]
            if kept == "ratios":
                rows = axes.get_yticks()
                low, high = axes.get_ylim()
                assert min(rows) - low >= 0.5 and high - max(rows) >= 0.5


PAGES = [
    *(each[1:] for each in DRAWN),
    (glm, {"target": "died", "propensity": f"{ARM}={GROUPS[1]}", "include": (ARM,)}),
    (cox, {**TIMES, "imputations": 2}),
]


@pytest.mark.parametrize(("study", "asked"), PAGES)
def test_a_notebook_shows_the_page(study: Callable[..., Any], asked: dict[str, Any]) -> None:
    rows = table()
    if "imputations" in asked:
        rows["age"] = rows["age"].where(rows.index % 5 > 0)
    if study is glm:
        rows = rows.drop(columns="months")
        asked = {name: value for name, value in asked.items() if name != "exclude"}
    found = study(rows, split="by:site", **asked)
    shown, files = found._repr_html_(), dict(found.documents())
    page = files["report.html"].replace("\n", "")
    assert shown.replace("\n", "") in page and f"<h1>{found.title}</h1>" in page
    assert ("EXACT SUMS" in shown) == ("epsilon" not in asked)
    assert ("<b>epsilon=20, delta=1e-05, for all" in shown) == ("epsilon" in asked)
    assert ("epsilon 20" in found.tables()[0].text()) == ("epsilon" in asked)
    assert shown.count("<figure") == sum(name.endswith(".svg") for name in files) > 0
    assert shown.count("<table") >= sum(name.endswith(".csv") for name in files)


def test_a_short_interval_is_wider_than_its_mark(figures: list[Figure]) -> None:
    """Of 2 % beside one of a factor of 3."""
    pictures.forest_picture({"age": (1.03, 1.02, 1.04), "arm": (1.7, 1.0, 3.0)})
    (axes,) = figures[0].axes
    bar, mark = axes.lines[:2]
    ends = axes.transData.transform(bar.get_xydata())[:, 0]
    assert mark.get_marker() == "|"
    assert np.ptp(ends) > mark.get_markeredgewidth() * figures[0].dpi / 72


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (0, 59, [0, 10, 20, 30, 40, 50]),
        (0, 1000, [0, 200, 400, 600, 800, 1000]),
        (3, 11.8, [4, 6, 8, 10]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 15, [0, 5, 10, 15]),
    ],
)
def test_marks_are_round_times_of_the_range(low: float, high: float, told: list[float]) -> None:
    assert pictures.marks(low, high) == pytest.approx(told)
