"""Figures of a study as SVG, in the report's colours and line styles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ciphercohort.report.plots import BLUE, GREEN, GREY, STYLE, VERMILLION, to_svg

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
