"""Courses of training, drawn side by side, and rows as the quadratic-gradient paper scales them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter
from numpy.typing import NDArray

from ciphercohort.report.plots import BLUE, GREEN, GREY, VERMILLION

Array = NDArray[np.float64]
COLOURS = (BLUE, VERMILLION, GREEN, GREY, "#CC79A7", "#E69F00")
STYLES = ("-", "--", "-.", ":")
LOOKS = [
    {"color": COLOURS[k % len(COLOURS)], "linestyle": STYLES[k % len(STYLES)]} for k in range(12)
]
WIDTH, ABREAST = 6.4, 2
"""Inches, and panels in a line: text is 9 pixels high where a screen shows the picture in 400."""
SHARED = 12
"""Labels that one legend below all panels has room for."""


@dataclass(frozen=True, slots=True)
class Curve:
    """panel: title above it; label: in its legend; values: after step 1, 2, …, or at `at`.

    spread: half of each bar.
    """

    panel: str
    label: str
    values: Sequence[float]
    at: Sequence[float] = ()
    spread: Sequence[float] = ()


def unit_rows(frame: pd.DataFrame, label: str) -> tuple[Array, Array]:
    """Columns scaled to [0, 1] by their extremes, a column of ones first; signs of the label."""
    x = frame.drop(columns=label).to_numpy(dtype=np.float64)
    low, high = x.min(axis=0), x.max(axis=0)
    x = (x - low) / np.where(high > low, high - low, 1.0)
    signs = np.where(frame[label].to_numpy(dtype=np.float64) > 0.5, 1.0, -1.0)
    return np.column_stack([np.ones(len(x)), x]), signs


def curves_figure(
    curves: Sequence[Curve],
    best: float | None = None,
    axis: str = "mean log-likelihood [nats]",
    log: bool = False,
    along: str = "iteration",
) -> Figure:
    """A panel for each title; a label looks the same in all of them; best: a line across."""
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    labels = list(dict.fromkeys(curve.label for curve in curves))
    columns = min(ABREAST, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH, 3.3 + 2.6 * (lines - 1)), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for k, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
        mine = [curve for curve in curves if curve.panel == panel]
        for curve in mine:
            look = LOOKS[labels.index(curve.label) % len(LOOKS)]
            steps = curve.at or range(1, len(curve.values) + 1)
            axes.errorbar(steps, curve.values, curve.spread or None, label=curve.label, **look)
        if best is not None:
            axes.axhline(best, color="#444", linewidth=1.0)
        if log:
            axes.set_yscale("log")
            least, most = axes.get_ylim()
            if most < 10 * least:  # powers of ten would leave no tick, their multiples no room
                axes.yaxis.set_major_locator(MaxNLocator(4))
                axes.yaxis.set_major_formatter("{x:g}")
                axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_title(panel, fontsize=11)
        if k + columns >= len(panels):
            axes.set_xlabel(along)
        if k % columns == 0:
            axes.set_ylabel(axis)
        if len(labels) > SHARED:
            axes.legend()
    if 0 < len(labels) <= SHARED:
        shown = {
            label: handle
            for axes in grid
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(shown.values(), shown, loc="outside lower center", ncols=2)
    return figure
