"""Figures of a study as SVG, in the report's colours and line styles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from ciphercohort.report.plots import BLUE, GREEN, GREY, STYLE, VERMILLION, to_svg
from ciphercohort.results.result import Array

COLORS = [BLUE, VERMILLION, GREEN, "#E69F00", "#56B4E9", "#CC79A7", GREY, "#000000"]
STYLES = ["-", "--", "-.", ":"]
Draw = Callable[[Axes, list[str]], None]


def panels(draw: Sequence[Draw], across: int = 3) -> str:
    """One small panel for each."""
    down = -(-len(draw) // across)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.2 * min(across, len(draw)), 2.0 * down), layout="constrained")
        for k, each in enumerate(draw):
            axes = figure.add_subplot(down, min(across, len(draw)), k + 1)
            each(axes, COLORS * 8)
        return to_svg(figure)


def survival_picture(
    curves: Mapping[str, tuple[Array, ...]],
    marks: Sequence[float],
    counts: Mapping[str, Sequence[str]],
    time: str,
) -> str:
    """Step curves with bands, and below them numbers at risk.

    curves: times, survival and ends of the band by group; counts: at the marks, by group, none:
    without numbers; time: name of the axis.
    """
    with mpl.rc_context(STYLE):
        below = 0.22 * (len(counts) + 1) if counts else 0.0
        figure = Figure(figsize=(5.6, 3.6 + below), layout="constrained")
        grid = figure.add_gridspec(2, 1, height_ratios=[3.6, max(below, 0.01)])
        axes = figure.add_subplot(grid[0])
        for k, (name, (times, survival, low, high)) in enumerate(curves.items()):
            color, style = COLORS[k % len(COLORS)], STYLES[k % len(STYLES)]
            axes.step(times, survival, where="post", color=color, linestyle=style, label=name)
            axes.fill_between(times, low, high, step="post", color=color, alpha=0.15, linewidth=0)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlim(marks[0], marks[-1])
        axes.set_xticks(list(marks))
        axes.set_xlabel(time)
        axes.set_ylabel("survival")
        axes.legend(loc="best")
        if counts:
            table = figure.add_subplot(grid[1], sharex=axes)
            table.axis("off")
            table.set_ylim(-len(counts), 0.6)
            beside: Any = {"transform": table.get_yaxis_transform(), "ha": "right", "fontsize": 9}
            table.text(-0.05, 0.1, "at risk", **beside)
            for k, (name, own) in enumerate(counts.items()):
                color = COLORS[k % len(COLORS)]
                table.text(-0.05, -k - 0.7, name, color=color, **beside)
                for mark, words in zip(marks, own, strict=True):
                    table.text(mark, -k - 0.7, words, color=color, ha="center", fontsize=9)
        return to_svg(figure)


def _ratios(low: float, high: float) -> Locator:
    """Ticks of a logarithmic axis: 1, 2 and 5 times powers of ten, or even ones in a decade."""
    even = MaxNLocator(5, steps=(1, 2, 2.5, 5, 10))
    return LogLocator(subs=(1, 2, 5)) if high > 10 * low else even


def forest_picture(ratios: Mapping[str, tuple[float, ...]], what: str = "hazard ratio") -> str:
    """A ratio with its interval for each name, on a logarithmic axis; what: its name."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 0.8 + 0.32 * len(ratios)), layout="constrained")
        axes = figure.add_subplot()
        for k, (ratio, low, high) in enumerate(ratios.values()):
            axes.plot([low, high], [-k, -k], color=BLUE)
            axes.plot([ratio], [-k], "s", color=BLUE)
        axes.axvline(1.0, color=GREY, linewidth=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(_ratios(*axes.get_xlim()))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yticks([-k for k in range(len(ratios))], list(ratios))
        axes.set_xlabel(what)
        return to_svg(figure)
