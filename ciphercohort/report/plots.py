"""The report's figures as SVG: drawn small, so that text stays readable on a narrow screen.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; line styles and markers
differ as well. No text from outside (column or party names) enters a figure.
"""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from sklearn.calibration import calibration_curve
from sklearn.metrics import roc_curve

from ciphercohort.results.result import Array, Figures, RunResult
from protocols.models.model import Classifier
from protocols.models.registry import model_named, model_of

BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#007A5A", "#8a8f98"
SIZE = (3.9, 3.1)  # inches
STYLE = {
    "svg.fonttype": "path",
    "svg.hashsalt": "ciphercohort",
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
MOST_POINTS = 600
DIAMOND: dict[str, Any] = {"color": VERMILLION, "marker": "D", "markersize": 9, "linestyle": "none"}


def loss_figure(result: RunResult) -> str:
    """Mean loss of the twin on the training rows, from that at weights 0 on [nats]."""
    with mpl.rc_context(STYLE):
        axes = _axes("iteration", "mean loss on training rows [nats]")
        steps = [0, *(m.iteration for m in result.iterations)]
        start = result.model.start_loss(len(result.outputs) or 1)
        losses = [start, *(m.loss for m in result.iterations)]
        axes.plot(steps, losses, color=BLUE, marker="o", markersize=4, label="plaintext twin")
        return _svg(axes, "upper right", steps=True)


def course_figure(result: RunResult) -> str:
    """The model's measure on the test rows: the twin's course, the decrypted model as a point."""
    key, words = result.model.drawn
    scale = next(m.scale for m in result.model.measures if m.key == key)
    with mpl.rc_context(STYLE):
        axes = _axes("iteration", words)
        steps = [m.iteration for m in result.iterations]
        best = model_named(result.model.reference).optimum[0]
        axes.axhline(scale * result.optimum[key], color=GREEN, linestyle="--", label=best)
        clipped = scale * result.clipped_optimum[key]
        axes.axhline(clipped, color=GREY, linestyle=":", label="optimum of clipped rows")
        if key == "accuracy":
            codes = model_of(Classifier, result.plan.model).code_of(result.test_y)
            share = float(np.bincount(codes).max() / len(codes))
            axes.axhline(100 * share, color="#99a", linewidth=1, label="majority")
        values = [scale * m[key] for m in result.iterations]
        axes.plot(steps, values, color=BLUE, marker="o", markersize=4, label="plaintext twin")
        point = [scale * result.scores[key]]
        axes.plot(steps[-1:], point, label="decrypted model", **DIAMOND)
        if result.model.numeric:
            # The first steps are far worse than the last: a linear axis would hide the end.
            axes.set_yscale("log")
            return _svg(axes, "upper right", steps=True)
        low, high = axes.get_ylim()
        # Room for the legend; a span of a few points at least, so that noise looks like noise.
        axes.set_ylim(max(0.0, low - max(0.45 * (high - low), 3.0)), min(101.0, high + 1.0))
        return _svg(axes, "lower right", steps=True)


def roc_figure(result: RunResult) -> str | None:
    """Hit rate against false alarm rate on the test rows [%]; None with one class only."""
    labels = result.test_y
    if not 0 < labels.sum() < len(labels):
        return None
    with mpl.rc_context(STYLE):
        axes = _axes("negative rows called positive [%]", "positive rows found [%]")
        axes.plot([0, 100], [0, 100], color="#99a", linewidth=1, label="guessing")
        for scores, color, style, label, width in _looks(result):
            x, y, _ = roc_curve(labels, scores, drop_intermediate=False)
            axes.plot(100 * x, 100 * y, color=color, linestyle=style, linewidth=width, label=label)
        return _square(axes, "lower right")


def calibration_figure(result: RunResult) -> str:
    """Share of positive test rows by predicted probability [%], in ten bins of equal size."""
    with mpl.rc_context(STYLE):
        axes = _axes("predicted probability [%]", "positive among them [%]")
        axes.plot([0, 100], [0, 100], color="#99a", linewidth=1, label="perfect")
        for scores, color, style, label, width in _looks(result):
            predicted = result.model.decode(scores)
            true, mean = calibration_curve(
                result.test_y, predicted, pos_label=1, n_bins=10, strategy="quantile"
            )
            line: dict[str, Any] = {"color": color, "linestyle": style, "linewidth": width}
            axes.plot(100 * mean, 100 * true, marker="o", markersize=4, label=label, **line)
        figure: Any = axes.figure
        figure.legend(loc="outside upper center", ncols=2)  # curves may run anywhere
        return _square(axes)


def held_out_figures(figures: Figures) -> tuple[str, str]:
    """ROC and calibration of rows that were held back, of their counts alone [%]."""
    line: dict[str, Any] = {"color": VERMILLION, "linewidth": 2.2}
    with mpl.rc_context(STYLE):
        roc = _axes("false alarms [% of negatives]", "found [% of positives]")
        roc.plot([0, 100], [0, 100], color="#99a", linewidth=1)
        points = np.array([[100 * each["false"], 100 * each["true"]] for each in figures.roc])
        if len(points):
            roc.plot(*points.T, **line)
        curve = _axes("predicted probability [%]", "positive among them [%]")
        curve.plot([0, 100], [0, 100], color="#99a", linewidth=1)
        known = [each for each in figures.calibration if each["observed"] is not None]
        told = np.array([[100 * each["predicted"], 100 * each["observed"]] for each in known])
        if len(told):
            curve.plot(*told.T, marker="o", markersize=4, **line)
        return _square(roc), _square(curve)


def _looks(result: RunResult) -> tuple[tuple[Array, str, str, str, float], ...]:
    """(scores of the test rows, colour, line style, label, width)."""
    return (
        (result.test_scores(result.optimum_weights, raw=True), GREEN, "--", "without privacy", 1.8),
        (result.test_scores(result.twin_weights), BLUE, "-", "plaintext twin", 1.8),
        (result.own_scores(), VERMILLION, ":", "decrypted model", 2.8),
    )


def _square(axes: Axes, legend: str = "") -> str:
    """Of two axes in percent."""
    axes.set_aspect("equal")
    axes.set_xlim(-1, 101)
    axes.set_ylim(-1, 101)
    return _svg(axes, legend)


def outputs_figure(result: RunResult) -> str:
    """Relative MSE of each output, numbered from 1, of all four models."""
    looks = ((VERMILLION, ""), (BLUE, "//"), (GREEN, ".."), (GREY, "xx"))
    places = np.arange(1, len(result.outputs) + 1)
    with mpl.rc_context(STYLE):
        axes = _axes("target", result.model.drawn[1])
        for k, ((name, _, scores), (color, hatch)) in enumerate(
            zip(result.models, looks, strict=True)
        ):
            axes.bar(
                places + 0.2 * (k - 1.5),
                scores.relative_mse,
                width=0.19,
                color=color,
                hatch=hatch,
                edgecolor="white",
                label=name.removeprefix("jointly "),
            )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_ylim(0, 1.45 * axes.get_ylim()[1])
        return _svg(axes, "upper right")


def predicted_figure(true: Array, predicted: Array) -> str:
    """One point per test row, evenly thinned, and the line where both are the same [data units]."""
    kept = np.linspace(0, len(true) - 1, min(len(true), MOST_POINTS)).astype(int)
    with mpl.rc_context(STYLE):
        axes = _axes("true value", "predicted value")
        ends = [min(true.min(), predicted.min()), max(true.max(), predicted.max())]
        axes.plot(ends, ends, color="#99a", linewidth=1)
        points: dict[str, Any] = {"marker": "o", "markersize": 3, "linestyle": "none", "alpha": 0.6}
        axes.plot(true[kept], predicted[kept], color=VERMILLION, **points)
        return _svg(axes)


def _axes(x: str, y: str) -> Axes:
    """Of an empty figure; x, y: words beside the axes."""
    axes: Axes = Figure(figsize=SIZE, layout="constrained").add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return axes


def _svg(axes: Axes, legend: str = "", steps: bool = False) -> str:
    """The figure, without the date; legend: its place; steps: whole numbers below."""
    if steps:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    if legend:
        axes.legend(loc=legend)
    figure: Any = axes.figure
    return to_svg(figure)


def to_svg(figure: Figure) -> str:
    """The figure, without the date."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return text.getvalue()
