"""Plots: a line per series with the band of its seeds, dashed where a formula predicts.

Colours are Okabe and Ito's; every line has a marker of its own as well.
"""

from __future__ import annotations

import io
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from sims.plots import STYLE
from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.measurement import Measurement

PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#8C6D00",
    "#777777",
)
MARKERS = "osD^vPX*h"
SIZE = (4.6, 3.6)  # inches
BAND = (0.05, 0.95)
Number = Callable[[Measurement], float]
Label = Callable[[Measurement], str]


@dataclass(frozen=True, kw_only=True)
class Line:
    """label; x with middle, low and high of the seeds; formula: (x, y) of the prediction."""

    label: str
    x: list[float] = field(default_factory=list)
    middle: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    formula: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One figure: name of its files, caption, what is on the axes."""

    name: str
    caption: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = True
    log_y: bool = True


def parties_of(m: Measurement) -> float:
    """P."""
    return m.cell.parties


def lines_of(
    measurements: Iterable[Measurement],
    component: str,
    label: Label,
    x: Number = parties_of,
    name: str | None = None,
) -> list[Line]:
    """Mean and band of a component over seeds, by label and abscissa.

    name: label of all lines, where one line per component is drawn.
    """
    values: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    formulas: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    factor = _shown(component)[0]
    for m in measurements:
        if component in m.values:
            values[name or label(m)][x(m)].append(factor * m.values[component])
        if component in m.predicted:
            formulas[name or label(m)][x(m)].append(factor * m.predicted[component])
    found = []
    for key in dict.fromkeys([*values, *formulas]):
        line = Line(label=key)
        for at, group in sorted(values[key].items()):
            low, high = np.quantile(group, BAND)
            line.x.append(at)
            line.middle.append(float(np.mean(group)))
            line.low.append(float(low))
            line.high.append(float(high))
        line.formula.extend((at, float(np.mean(g))) for at, g in sorted(formulas[key].items()))
        found.append(line)
    return found


def axis_label(component: str) -> str:
    """Title and unit, on two lines where it is long."""
    words = f"{COMPONENTS[component].title} [{_shown(component)[1]}]"
    return "\n".join(textwrap.wrap(words, 38))


def _shown(component: str) -> tuple[float, str]:
    """Factor and unit on an axis."""
    unit = COMPONENTS[component].unit
    return {"share": (100.0, "%"), "bytes": (1.0, "B")}.get(unit, (1.0, unit))


def draw(plot: Plot) -> Figure:
    """The figure."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        for k, line in enumerate(plot.lines):
            color, marker = PALETTE[k % len(PALETTE)], MARKERS[k % len(MARKERS)]
            if line.x:
                axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.18, lw=0)
                axes.plot(
                    line.x, line.middle, color=color, marker=marker, ms=5, lw=1.6, label=line.label
                )
            if line.formula:
                name = "_" if line.x else f"{line.label} (predicted)"
                x, y = zip(*line.formula, strict=True)
                axes.plot(x, y, color=color, ls="--", lw=1.1, label=name)
        axes.set_xlabel(plot.x_label)
        axes.set_ylabel(plot.y_label)
        if plot.log_y and all(v > 0 for line in plot.lines for v in line.low):
            _logarithmic(axes, plot)
        if "[B]" in plot.y_label:
            axes.yaxis.set_major_formatter(FuncFormatter(_bytes))
        if plot.log_x:
            axes.set_xscale("log")
            _ticks(axes, plot)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        # Above the axes: no line is hidden, whatever its slope.
        longest = max((len(line.label) for line in plot.lines), default=0)
        figure.legend(
            loc="outside upper center",
            ncols=2 if longest < 24 else 1,
            fontsize=9,
            handlelength=1.6,
            columnspacing=1.2,
        )
    return figure


def _logarithmic(axes: mpl.axes.Axes, plot: Plot) -> None:
    """Powers of two on the ordinate, and steps between them where there are few."""
    values = [v for line in plot.lines for v in (*line.low, *line.high)]
    values += [v for line in plot.lines for _, v in line.formula]
    span = max(values) / min(values)
    axes.set_yscale("log", base=2)
    steps = (1.0, 1.25, 1.5, 1.75) if span < 4 else (1.0, 1.5) if span < 12 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(base=2, subs=steps, numticks=9))
    axes.yaxis.set_minor_locator(NullLocator())
    plain = min(values) > 1e-3 and max(values) < 1e5
    axes.yaxis.set_major_formatter(FuncFormatter(_plain if plain or span < 12 else _power))


def _plain(value: float, _: int | None = None) -> str:
    return f"{value:.3g}" if value < 1e3 else f"{value:,.0f}"


def _bytes(value: float, _: int | None = None) -> str:
    step = min(int(np.log10(max(value, 1.0)) // 3), 4)
    return f"{value / 1000**step:.4g} {('B', 'kB', 'MB', 'GB', 'TB')[step]}"


def _power(value: float, _: int | None = None) -> str:
    return f"$2^{{{np.log2(value):.0f}}}$"


def _ticks(axes: mpl.axes.Axes, plot: Plot) -> None:
    """A tick at every abscissa, as long as they keep apart."""
    at = sorted({x for line in plot.lines for x in (*line.x, *(f for f, _ in line.formula))})
    if not 1 <= len(at) <= 9:
        return
    axes.xaxis.set_major_locator(FixedLocator(at))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))


def svg_of(figure: Figure) -> str:
    """As text, without a date: the same plot gives the same file."""
    text = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": "ciphercohort"}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return text.getvalue()


def save(plots: Iterable[Plot], folder: Path) -> dict[str, str]:
    """name.svg and name.png of every plot; the SVG texts by name."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for plot in plots:
        figure = draw(plot)
        found[plot.name] = svg_of(figure)
        (folder / f"{plot.name}.svg").write_text(found[plot.name], encoding="utf-8")
        figure.savefig(folder / f"{plot.name}.png", dpi=150, facecolor="white")
    return found
