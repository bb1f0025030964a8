"""Plots: a line per series with the band of its seeds, dashed where a formula predicts.

Colours are Okabe and Ito's; every line has a marker of its own as well. Round numbers stand at the
ticks, and no axis zooms into mere scatter.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ciphercohort.report.plots import STYLE, to_svg
from sims.lab.studies.noise.components import COMPONENTS
from sims.lab.studies.noise.tables import figures_of

# Where dark dashes on the line would not show, black, comes last.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777", "#000000")
MARKERS = "osD^vPX*"
SIZE = (4.6, 3.6)  # inches
# Steps of the abscissa between lines that would hide each other [octaves].
_STEP = 0.1
# Dashes of a formula, dots of a bound: on, off [points].
_DASHES = {"=": (0, (4, 2.5)), "<=": (0, (1.2, 1.6)), "": (0, (4, 2.5))}
_WORDS = {"=": "formula", "<=": "bound"}
LEVELS = {"optimum": "optimum without privacy", "majority": "base rate"}
_LEVEL_DASHES = {"optimum without privacy": (0, (6, 2)), "base rate": (0, (1, 1))}
# Smallest ratio of a logarithmic axis' ends, and smallest span of a linear one in %.
_RATIO, _PERCENT = 1.25, 1.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """label; points: columns middle, low, high of the seeds and formula, by x, nan where missing.

    relation: of the formula, as in `Component`.
    """

    label: str
    points: pd.DataFrame
    relation: str = ""

    @classmethod
    def plain(cls, label: str, x: Sequence[float], y: Sequence[float]) -> Line:
        """Without a band or a formula."""
        columns = {"middle": y, "low": y, "high": y, "formula": np.nan}
        return cls(label=label, points=pd.DataFrame(columns, index=pd.Index(x, dtype=float)))

    @property
    def measured(self) -> pd.DataFrame:
        """Where something was."""
        return self.points.dropna(subset="middle")

    @property
    def formula(self) -> pd.Series[float]:
        """Where something is predicted."""
        return self.points.formula.dropna()


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One figure: name of its files, caption, what is on the axes.

    part: heading that it stands under; apart: lines are moved sideways a little, so that none
    hides another; levels: what the lines are judged beside, by label: horizontal.
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
    levels: Mapping[str, float] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """What the label of the ordinate has in brackets."""
        return " ".join(self.y_label.rpartition("[")[2].rstrip("]").split())


def lines_of(
    frame: pd.DataFrame, component: str, label: pd.Series[str] | str, x: str = "parties"
) -> list[Line]:
    """Mean and 5 % to 95 % band of a component over seeds, by label and abscissa.

    label: of every row, or of all.
    """
    factor, relation = _shown(component)[0], COMPONENTS[component].relation
    rows = figures_of(frame.assign(label=label), component)
    rows = rows.assign(x=rows[x].astype(float), value=factor * rows.value)
    found = []
    for words, group in rows.groupby("label", sort=False):
        by_x = group.groupby("x")
        low, high = (by_x.value.quantile(q) for q in (0.05, 0.95))
        columns = {"middle": by_x.value.mean(), "low": low, "high": high}
        points = pd.DataFrame({**columns, "formula": factor * by_x.predicted.mean()})
        found.append(Line(label=str(words), points=points, relation=relation))
    return found


def levels_of(frame: pd.DataFrame, component: str) -> dict[str, float]:
    """The optimum's and the majority's figure of a component, those that were measured."""
    factor = _shown(component)[0]
    means = {
        words: factor * figures_of(frame, f"{component}_{name}").value.mean()
        for name, words in LEVELS.items()
    }
    return {words: mean for words, mean in means.items() if not math.isnan(mean)}


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
        for k, line in enumerate(plot.lines):
            shift = 2 ** (_STEP * (k - (len(plot.lines) - 1) / 2)) if plot.apart else 1.0
            _line(axes, line, k, shift)
        for words, level in plot.levels.items():
            axes.axhline(level, color="#444", linewidth=1.2, linestyle=_LEVEL_DASHES[words])
        axes.set_xlabel(plot.x_label)
        axes.set_ylabel(plot.y_label)
        drawn = pd.concat([line.points for line in plot.lines])
        values = drawn[["low", "high", "formula"]].stack()
        if plot.log_y and values.min() > 0:
            _logarithmic(axes, values.min(), values.max(), plot.unit)
        else:
            _linear(axes, plot.unit)
        if plot.log_x:
            axes.set_xscale("log")
            at = sorted(set(drawn.index))
            if len(at) <= 9:  # further ones would not keep apart
                axes.xaxis.set_major_locator(ticker.FixedLocator(at))
                axes.xaxis.set_minor_locator(ticker.NullLocator())
                axes.xaxis.set_major_formatter(_number)
        else:
            axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, min_n_ticks=1))
        _legend(figure, axes, plot)
    return figure


def _line(axes: Axes, line: Line, k: int, move: float) -> None:
    """Measured: a line with markers and its band. Predicted: dark dashes on top of it."""
    color, marker = PALETTE[k % len(PALETTE)], MARKERS[k % len(MARKERS)]
    measured, formula, dashes = line.measured, line.formula, _DASHES[line.relation]
    look: dict[str, Any] = {"color": color, "marker": marker, "label": line.label}
    if len(measured):
        x = move * measured.index
        axes.fill_between(x, measured.low, measured.high, color=color, alpha=0.16, lw=0)
        every = (k, 4) if len(x) > 12 else None  # long courses: a few markers
        axes.plot(x, measured.middle, ms=5, lw=2.0, markevery=every, **look)
        look = {"color": [0.45 * part for part in to_rgb(color)], "zorder": 3}
    if len(formula):
        alone: dict[str, Any] = {"lw": 1.2} if len(measured) else {"lw": 1.4, "mfc": "none"}
        axes.plot(move * formula.index, formula, ls=dashes, **look, **alone)


def _legend(figure: Figure, axes: Axes, plot: Plot) -> None:
    """Above the axes: no line is hidden, whatever its slope."""
    handles, labels = axes.get_legend_handles_labels()
    drawn = {line.relation for line in plot.lines if len(line.formula) and len(line.measured)}
    for words in plot.levels:
        handles.append(Line2D([], [], color="#444", ls=_LEVEL_DASHES[words], lw=1.2))
        labels.append(words)
    for relation, words in _WORDS.items():
        if relation in drawn:
            handles.append(Line2D([], [], color="#333", ls=_DASHES[relation], lw=1.2))
            labels.append(words)
    # As many columns as the width has room for.
    longest = max(map(len, labels), default=0)
    room = 4 if longest < 10 and len(labels) == 4 else 3
    columns = room if longest < 12 else 2 if longest < 25 else 1
    where: dict[str, Any] = {"loc": "outside upper center", "ncols": columns, "fontsize": 9}
    figure.legend(handles, labels, **where, handlelength=2.0, columnspacing=1.2)


# -- axes -----------------------------------------------------------------------------------------


def _number(value: float, _: float | None = None) -> str:
    """Three digits."""
    return f"{value:.3g}" if abs(value) < 1e3 else f"{value:,.0f}"


def _power(value: float, _: float | None = None) -> str:
    """Of two."""
    return f"$2^{{{np.log2(value):.0f}}}$"


def _logarithmic(axes: Axes, low: float, high: float, unit: str) -> None:
    """Powers of two for integer units and for very small or large values, else 1, 2, 5."""
    powers = high / low >= 4 and ("integer units" in unit or low < 1e-4)
    axes.set_yscale("log", base=2 if powers else 10)
    if high / low < _RATIO:
        middle = (low * high) ** 0.5
        axes.set_ylim(middle / _RATIO**0.5, middle * _RATIO**0.5)
    locator: ticker.LogLocator | ticker.MaxNLocator = ticker.MaxNLocator(
        nbins=6, steps=[1, 2, 2.5, 5, 10]
    )
    if powers:
        locator = ticker.LogLocator(base=2, numticks=9)
    elif high / low >= 4:
        steps = (1.0, 2.0, 3.0, 5.0) if high / low < 20 else (1.0, 2.0, 5.0)
        few = steps[: len(steps) if high / low < 1e4 else 1]
        locator = ticker.LogLocator(base=10, subs=few, numticks=12)
    axes.yaxis.set_major_locator(locator)
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    plain = ticker.FuncFormatter(_power if powers else _number)
    axes.yaxis.set_major_formatter(
        ticker.EngFormatter(unit) if unit == "B" and not powers else plain
    )


def _linear(axes: Axes, unit: str) -> None:
    """Shares span at least a percentage point."""
    low, high = axes.get_ylim()
    if unit == "%" and high - low < _PERCENT:
        middle = (low + high) / 2
        axes.set_ylim(middle - _PERCENT / 2, middle + _PERCENT / 2)
    if unit == "B":
        axes.set_ylim(bottom=0.0)
        axes.yaxis.set_major_formatter(ticker.EngFormatter(unit))


def save(plots: Iterable[Plot], folder: Path) -> dict[str, str]:
    """name.svg, name.png and name.pdf of every plot; the SVG texts by name."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    # Without a date and with one salt: the same plot gives the same file.
    with mpl.rc_context({**STYLE, "svg.hashsalt": "ciphercohort", "pdf.fonttype": 42}):
        for plot in plots:
            figure = draw(plot)
            found[plot.name] = to_svg(figure)
            (folder / f"{plot.name}.svg").write_text(found[plot.name], encoding="utf-8")
            figure.savefig(folder / f"{plot.name}.png", dpi=150, facecolor="white")
            figure.savefig(folder / f"{plot.name}.pdf", metadata={"CreationDate": None})
    return found
