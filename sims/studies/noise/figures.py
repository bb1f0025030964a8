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
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sims.plots import STYLE
from sims.studies.noise import ticks
from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.measurement import Measurement

# Where dark dashes on the line would not show, black, comes last.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777", "#000000")
MARKERS = "osD^vPX*"
SIZE = (4.6, 3.6)  # inches
BAND = (0.05, 0.95)
# Steps of the abscissa between lines that would hide each other [octaves].
_STEP = 0.1
# Dashes of a formula, dots of a bound: on, off [points].
_DASHES = {"=": (0, (4, 2.5)), "<=": (0, (1.2, 1.6)), "": (0, (4, 2.5))}
_WORDS = {"=": "formula", "<=": "bound"}
Number = Callable[[Measurement], float]
Label = Callable[[Measurement], str]


@dataclass(frozen=True, kw_only=True)
class Line:
    """label; x with middle, low and high of the seeds; formula: (x, y) of the prediction.

    relation: of the formula, as in `Component`.
    """

    label: str
    x: list[float] = field(default_factory=list)
    middle: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    formula: list[tuple[float, float]] = field(default_factory=list)
    relation: str = ""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One figure: name of its files, caption, what is on the axes.

    part: heading that it stands under; apart: lines are moved sideways a little, so that none
    hides another.
    """

    name: str
    caption: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = True
    log_y: bool = True
    part: str = ""
    apart: bool = False

    @property
    def unit(self) -> str:
        """What the label of the ordinate has in brackets."""
        return " ".join(self.y_label.rpartition("[")[2].rstrip("]").split())


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
        line = Line(label=key, relation=COMPONENTS[component].relation)
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
    """Title and unit, which has a line of its own where they are long."""
    title, unit = COMPONENTS[component].title, f"[{_shown(component)[1]}]"
    if len(title) + len(unit) < 36:
        return f"{title} {unit}"
    return "\n".join([*textwrap.wrap(title, 36), unit])


def _shown(component: str) -> tuple[float, str]:
    """Factor and unit on an axis."""
    unit = COMPONENTS[component].unit
    return {"share": (100.0, "%"), "bytes": (1.0, "B")}.get(unit, (1.0, unit))


def draw(plot: Plot) -> Figure:
    """The figure."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        middle = (len(plot.lines) - 1) / 2
        for k, line in enumerate(plot.lines):
            _line(axes, line, k, 2 ** (_STEP * (k - middle)) if plot.apart else 1.0)
        axes.set_xlabel(plot.x_label)
        axes.set_ylabel(plot.y_label)
        values = [v for line in plot.lines for v in (*line.low, *line.high)]
        values += [v for line in plot.lines for _, v in line.formula]
        if plot.log_y and min(values) > 0:
            ticks.logarithmic(axes, values, plot.unit)
        else:
            ticks.linear(axes, plot.unit)
        if plot.log_x:
            axes.set_xscale("log")
            at = {x for line in plot.lines for x in (*line.x, *(f for f, _ in line.formula))}
            ticks.abscissas(axes, sorted(at))
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        _legend(figure, axes, plot)
    return figure


def _line(axes: mpl.axes.Axes, line: Line, k: int, move: float) -> None:
    """Measured: a line with markers and its band. Predicted: dark dashes on top of it."""
    color, marker = PALETTE[k % len(PALETTE)], MARKERS[k % len(MARKERS)]
    label, dashes = line.label, _DASHES[line.relation]
    if line.x:
        x = [move * at for at in line.x]
        axes.fill_between(x, line.low, line.high, color=color, alpha=0.16, lw=0)
        every = (k, 4) if len(x) > 12 else None  # long courses: a few markers
        axes.plot(
            x, line.middle, color=color, marker=marker, ms=5, lw=2.0, label=label, markevery=every
        )
    if line.formula:
        x, y = [move * at for at, _ in line.formula], [v for _, v in line.formula]
        if line.x:
            axes.plot(x, y, color=_dark(color), ls=dashes, lw=1.2, zorder=3)
        else:
            axes.plot(x, y, color=color, ls=dashes, lw=1.4, marker=marker, mfc="none", label=label)


def _dark(color: str) -> tuple[float, ...]:
    return tuple(0.45 * part for part in to_rgb(color))


def _legend(figure: Figure, axes: mpl.axes.Axes, plot: Plot) -> None:
    """Above the axes: no line is hidden, whatever its slope."""
    handles, labels = axes.get_legend_handles_labels()
    drawn = {line.relation for line in plot.lines if line.formula and line.x}
    for relation, words in _WORDS.items():
        if relation in drawn:
            handles.append(Line2D([], [], color="#333", ls=_DASHES[relation], lw=1.2))
            labels.append(words)
    figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=_columns(len(labels), max(map(len, labels), default=0)),
        fontsize=9,
        handlelength=2.0,
        columnspacing=1.2,
    )


def _columns(labels: int, longest: int) -> int:
    """Of a legend: as many as the width has room for."""
    if longest < 10 and labels == 4:
        return 4
    return 3 if longest < 12 else 2 if longest < 25 else 1


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
