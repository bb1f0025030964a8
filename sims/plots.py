"""The report's figures as SVG: drawn small, so that text stays readable on a narrow screen.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; line styles and markers
differ as well. No text from outside (column or party names) enters a figure.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sims.result import Array, IterationMetrics, Scores

BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#007A5A"
SIZE = (3.9, 3.1)  # inches
STYLE = {
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.edgecolor": "#667",
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 2.0,
}


def loss_figure(iterations: Sequence[IterationMetrics]) -> str:
    """Mean logistic loss of the twin on the training rows, from ln 2 at weights 0 [nats]."""
    with mpl.rc_context(STYLE):
        figure, axes = axes_for("iteration", "mean loss on training rows [nats]")
        steps = [0, *(m.iteration for m in iterations)]
        losses = [math.log(2), *(m.loss for m in iterations)]
        axes.plot(steps, losses, color=BLUE, marker="o", markersize=4, label="plaintext twin")
        whole_steps(axes)
        axes.legend(loc="upper right")
        return to_svg(figure)


def accuracy_figure(
    iterations: Sequence[IterationMetrics], decrypted: Scores, optimum: Scores
) -> str:
    """Accuracy on the test rows [%]: the twin's course, the decrypted model as a point."""
    with mpl.rc_context(STYLE):
        figure, axes = axes_for("iteration", "accuracy on test rows [%]")
        steps = [m.iteration for m in iterations]
        shares = [100 * m.accuracy for m in iterations]
        best = 100 * optimum.accuracy
        axes.axhline(best, color=GREEN, linestyle="--", label="non-private optimum")
        axes.plot(steps, shares, color=BLUE, marker="o", markersize=4, label="plaintext twin")
        axes.plot(
            steps[-1:],
            [100 * decrypted.accuracy],
            color=VERMILLION,
            marker="D",
            markersize=9,
            linestyle="none",
            label="decrypted model",
        )
        whole_steps(axes)
        low, high = axes.get_ylim()
        # Room for the legend; a span of a few points at least, so that noise looks like noise.
        axes.set_ylim(max(0.0, low - max(0.45 * (high - low), 3.0)), min(101.0, high + 1.0))
        axes.legend(loc="lower right")
        return to_svg(figure)


def roc_figure(logits: dict[str, Array], labels: Array) -> str | None:
    """Hit rate against false alarm rate on the test rows [%]; None with one class only.

    logits: of the models "decrypted", "twin" and "optimum", shape (rows,); labels: in {0, 1}.
    """
    if not 0 < labels.sum() < len(labels):
        return None
    looks = {
        "optimum": (GREEN, "--", "non-private optimum"),
        "twin": (BLUE, "-", "plaintext twin"),
        "decrypted": (VERMILLION, ":", "decrypted model"),
    }
    with mpl.rc_context(STYLE):
        figure, axes = axes_for("negative rows called positive [%]", "positive rows found [%]")
        axes.plot([0, 100], [0, 100], color="#99a", linewidth=1, label="guessing")
        for name, (color, style, label) in looks.items():
            x, y = roc_curve(logits[name], labels)
            width = 2.8 if name == "decrypted" else 1.8
            axes.plot(100 * x, 100 * y, color=color, linestyle=style, linewidth=width, label=label)
        axes.set_aspect("equal")
        axes.set_xlim(-1, 101)
        axes.set_ylim(-1, 101)
        axes.legend(loc="lower right")
        return to_svg(figure)


def roc_curve(logits: Array, labels: Array) -> tuple[Array, Array]:
    """False and true positive rate for every threshold, ties taken together, from (0, 0)."""
    order = np.argsort(-logits, kind="stable")
    last_of_tie = np.append(np.diff(logits[order]) != 0, True)
    hits = np.cumsum(labels[order])[last_of_tie]
    alarms = np.cumsum(1 - labels[order])[last_of_tie]
    rates = [np.append(0.0, counts / counts[-1]) for counts in (alarms, hits)]
    return rates[0], rates[1]


def axes_for(x: str, y: str) -> tuple[Figure, Axes]:
    """An empty figure; x, y: words beside the axes."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes: Axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def whole_steps(axes: Axes) -> None:
    """Whole numbers on the horizontal axis."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))


def to_svg(figure: Figure) -> str:
    """The figure, without the date."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return text.getvalue()
