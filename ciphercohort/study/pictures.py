"""Figures of a study as SVG, in the report's colours and line styles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from ciphercohort.report.plots import BLUE, GREEN, GREY, STYLE, VERMILLION, to_svg
from ciphercohort.results.result import Array
from protocols.words import printable

LOOK = STYLE | {"text.parse_math": False}
"""Names of columns and categories are drawn as they are, dollars too."""
COLORS = [BLUE, VERMILLION, GREEN, "#E69F00", "#56B4E9", "#CC79A7", GREY, "#000000"]
STYLES = ["-", "--", "-.", ":"]
ACROSS = 2
"""Panels beside each other: of more none is readable on a narrow screen."""
MARKS = 6
BAR: dict[str, Any] = {"linewidth": 5, "alpha": 0.5, "solid_capstyle": "butt"}
"""Of an interval, on which a thin mark stays seen."""
Draw = Callable[[Axes, list[str]], None]


def _svg(figure: Figure) -> str:
    """Signs of names that it would not show, and of which XML allows none, are question marks."""
    for axes in figure.axes:
        labels = [label.get_text() for label in axes.get_yticklabels()]
        if not "".join(labels).isprintable():
            axes.set_yticks(axes.get_yticks(), [*map(printable, labels)])
    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text()))
    return to_svg(figure)


def marks(low: float, high: float) -> list[float]:
    """Round times of a range, whole ones where there are enough; at most MARKS + 1."""
    whole = high - low >= MARKS
    ticks = MaxNLocator(MARKS, steps=(1, 2, 2.5, 5, 10), integer=whole).tick_values(low, high)
    return [float(tick) for tick in ticks if low <= tick <= high]


def panels(draw: Sequence[Draw], by: str | None, groups: Sequence[str]) -> str:
    """One small panel for each.

    by, groups: a column and its groups, in the order of their colours, None: rows are of one.
    """
    down, colors = -(-len(draw) // ACROSS), COLORS * 8
    with mpl.rc_context(LOOK):
        size = (3.2 * min(ACROSS, len(draw)), 2.0 * down + (0.0 if by is None else 0.6))
        figure = Figure(figsize=size, layout="constrained")
        for k, each in enumerate(draw):
            axes = figure.add_subplot(down, min(ACROSS, len(draw)), k + 1)
            each(axes, colors)
            axes.invert_yaxis()
        if by is not None:
            keys = [Patch(color=color) for color in colors[: len(groups)]]
            figure.legend(keys, groups, title=by, loc="outside lower center", ncols=3)
        return _svg(figure)


def survival_picture(
    curves: Mapping[str, tuple[Array, ...]],
    ends: tuple[float, float],
    counts: Mapping[str, Sequence[str]],
    time: str,
    by: str | None,
) -> str:
    """Step curves with bands, and below them numbers at risk.

    curves: times, survival and ends of the band by group; ends: of times [data units]; counts: at
    the `marks` of these, by group, none: without numbers; time: name of the axis; by: column of the
    groups, None: there is one.
    """
    with mpl.rc_context(LOOK):
        below = 0.22 * (len(counts) + 1) if counts else 0.0
        figure = Figure(figsize=(5.6, 3.6 + below), layout="constrained")
        grid = figure.add_gridspec(2, 1, height_ratios=[3.6, max(below, 0.01)])
        axes = figure.add_subplot(grid[0])
        lines = []
        for k, (times, survival, low, high) in enumerate(curves.values()):
            color, style = COLORS[k % len(COLORS)], STYLES[k % len(STYLES)]
            lines += axes.step(times, survival, where="post", color=color, linestyle=style)
            axes.fill_between(times, low, high, step="post", color=color, alpha=0.15, linewidth=0)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlim(*ends)
        axes.set_xticks(marks(*ends))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_xlabel(time)
        axes.set_ylabel("survival")
        if by is not None:
            axes.legend(lines, [*curves], loc="best", title=by, alignment="left")
        if counts:
            table = figure.add_subplot(grid[1], sharex=axes)
            table.axis("off")
            table.set_ylim(-len(counts), 0.6)
            beside: Any = {"transform": table.get_yaxis_transform(), "ha": "right", "fontsize": 9}
            table.text(-0.05, 0.1, "at risk", **beside)
            for k, (name, own) in enumerate(counts.items()):
                color = COLORS[k % len(COLORS)]
                table.text(-0.05, -k - 0.7, name, color=color, **beside)
                for mark, words in zip(marks(*ends), own, strict=True):
                    table.text(mark, -k - 0.7, words, color=color, ha="center", fontsize=9)
        return _svg(figure)


def _ratios(low: float, high: float) -> Locator:
    """Ticks of a logarithmic axis: 1, 2 and 5 times powers of ten, or even ones in a decade."""
    even = MaxNLocator(5, steps=(1, 2, 2.5, 5, 10))
    return LogLocator(subs=(1, 2, 5)) if high > 10 * low else even


def balance_picture(differences: Mapping[str, tuple[float, float]], alike: float) -> str:
    """Sizes of standardised differences before and after rows weigh, by name.

    alike: below it groups count as alike.
    """
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(5.6, 1.2 + 0.28 * len(differences)), layout="constrained")
        axes = figure.add_subplot()
        places = [-k for k in range(len(differences))]
        for which, (label, color, mark) in enumerate(
            (("before", VERMILLION, "o"), ("weighted", BLUE, "D"))
        ):
            sizes = [abs(each[which]) for each in differences.values()]
            face = color if which else "none"
            axes.plot(sizes, places, mark, color=color, markerfacecolor=face, label=label)
        axes.axvline(0.0, color=GREY, linewidth=1)
        axes.axvline(alike, color=GREY, linewidth=1, linestyle="--")
        axes.set_yticks(places, list(differences))
        axes.set_ylim(0.5 - len(differences), 0.5)
        axes.set_xlabel("standardised difference")
        axes.legend(loc="best")
        return _svg(figure)


def forest_picture(ratios: Mapping[str, tuple[float, ...]], what: str = "hazard ratio") -> str:
    """A ratio with its interval for each name, on a logarithmic axis; what: its name."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(5.6, 0.8 + 0.32 * len(ratios)), layout="constrained")
        axes = figure.add_subplot()
        for k, (ratio, low, high) in enumerate(ratios.values()):
            axes.plot([low, high], [-k, -k], color=BLUE, **BAR)
            axes.plot([ratio], [-k], "|", color=BLUE, markersize=13)
        axes.axvline(1.0, color=GREY, linewidth=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(_ratios(*axes.get_xlim()))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yticks([-k for k in range(len(ratios))], list(ratios))
        axes.set_ylim(0.5 - len(ratios), 0.5)
        axes.set_xlabel(what)
        return _svg(figure)
