"""Slopes beside their predictions: a row per component and setting, a column per coalition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from sims.report_html import Html, fragment, table, tag
from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.findings import interval, number
from sims.studies.noise.slopes import SAME, Slope

# Fits that say something although nothing predicts them.
_OF_INTEREST = ("sigma", "model_noise", "iterate", "seconds_party", "seconds_coordinator")


Parts = tuple[object, ...]


def slope_tables(slopes: Sequence[Slope]) -> Iterator[Html]:
    """Formulas, bounds, and what has neither."""
    equal = [s for s in slopes if _relation(s) == "=" and s.component not in SAME]
    bounds = [s for s in slopes if _relation(s) == "<="]
    free = [s for s in slopes if s.component in _OF_INTEREST]
    for words, head, mine, cell in (
        ("Formulas: the interval should contain the predicted slope", _EQUAL, equal, _equal),
        ("Bounds: the largest measured / bound should stay below 0 bits", _BOUND, bounds, _bound),
        ("Without a prediction", _FREE, free, _free),
    ):
        shown = [s for s in mine if s.predicted is not None or cell is _free]
        if shown:
            yield heading(words)
            yield _matrix(shown, head, cell)


def heading(words: str) -> Html:
    """Of a part of a section."""
    return tag("h3", words, style="font-size:1rem;margin:1.2rem 0 .5rem;break-after:avoid")


def _relation(slope: Slope) -> str:
    return COMPONENTS[slope.component].relation


def _matrix(slopes: Sequence[Slope], head: Parts, cell: Callable[[Slope], Parts]) -> Html:
    """Of one coalition: head over the parts of a cell; of several: the parts below each other."""
    coalitions = sorted({s.coalition for s in slopes}, key=_order)
    names, alone = list(COMPONENTS), len(coalitions) == 1
    rows: dict[tuple[str, str], dict[str, Slope]] = {}
    for s in sorted(slopes, key=lambda s: names.index(s.component)):
        rows.setdefault((s.component, s.setting), {})[s.coalition] = s
    body = []
    for (component, setting), found in rows.items():
        parts = [cell(found[c]) if c in found else ("",) for c in coalitions]
        cells = parts[0] if alone else tuple(_stacked(head, each) for each in parts)
        body.append((fragment(COMPONENTS[component].title, tag("small", setting)), *cells))
    return table(("Component and setting", *(head if alone else coalitions)), body, cls="numbers")


def _stacked(head: Parts, parts: Parts) -> Html:
    """Slope, then its comparison with the words of its head, then the verdict."""
    below = [tag("small", str(head[1]).lower(), " ", parts[1])] if len(parts) > 1 else []
    return fragment(parts[0], *below, *(tag("small", part) for part in parts[2:]))


def _order(coalition: str) -> tuple[bool, float, str]:
    """Numbers first, then P / 2 and P - 1."""
    t = coalition.removeprefix("t = ")
    return (False, float(t), "") if t.isdecimal() else (True, 0.0, {"P / 2": "1"}.get(t, t))


_EQUAL = ("Slope, 95 %", "Predicted", "Interval")
_BOUND = ("Slope, 95 %", "Largest", "Bound")
_FREE = ("Slope, 95 %",)


def _equal(s: Slope) -> Parts:
    half = 0.0 if math.isnan(s.half) else s.half
    return interval(s), number(s.predicted, half), _verdict(s)


def _verdict(s: Slope) -> Html | str:
    if math.isnan(s.half):
        return "two points"
    if s.agrees is None:
        return "the total again"
    if s.exact:
        return tag("span", "exact", cls="yes")
    return tag("span", "inside", cls="yes") if s.agrees else tag("span", "outside", cls="no")


def _bound(s: Slope) -> Parts:
    held = tag("span", "held", cls="yes") if s.agrees else tag("span", "passed", cls="no")
    return interval(s), f"{s.margin:.2f} bits", held


def _free(s: Slope) -> Parts:
    return (interval(s),)
