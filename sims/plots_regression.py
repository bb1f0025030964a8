"""Figures of a regression's report, in the look of `sims.plots`."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import MaxNLocator

from sims.plots import BLUE, GREEN, STYLE, VERMILLION, axes_for, to_svg, whole_steps
from sims.regression_result import RegressionMetrics, RegressionScores
from sims.result import Array

MOST_POINTS = 600


def error_figure(
    iterations: Sequence[RegressionMetrics], decrypted: RegressionScores, optimum: RegressionScores
) -> str:
    """Mean relative MSE on the test rows: the twin's course, the decrypted model as a point."""
    with mpl.rc_context(STYLE):
        figure, axes = axes_for("iteration", "squared error / range²")
        steps = [m.iteration for m in iterations]
        axes.axhline(optimum.mean_relative_mse, color=GREEN, linestyle="--", label="least squares")
        errors = [m.mean_relative_mse for m in iterations]
        axes.plot(steps, errors, color=BLUE, marker="o", markersize=3, label="plaintext twin")
        axes.plot(
            steps[-1:],
            [decrypted.mean_relative_mse],
            color=VERMILLION,
            marker="D",
            markersize=8,
            linestyle="none",
            label="decrypted model",
        )
        # The first steps are far worse than the last: a linear axis would hide the end.
        axes.set_yscale("log")
        whole_steps(axes)
        axes.legend(loc="upper right")
        return to_svg(figure)


def outputs_figure(
    decrypted: RegressionScores, twin: RegressionScores, optimum: RegressionScores
) -> str:
    """Relative MSE of each output, numbered from 1, of all three models."""
    looks = (
        (decrypted, VERMILLION, "decrypted model", ""),
        (twin, BLUE, "plaintext twin", "//"),
        (optimum, GREEN, "least squares", ".."),
    )
    places = np.arange(1, len(decrypted.mse) + 1)
    with mpl.rc_context(STYLE):
        figure, axes = axes_for("target", "squared error / range²")
        for k, (scores, color, label, hatch) in enumerate(looks):
            axes.bar(
                places + 0.27 * (k - 1),
                scores.relative_mse,
                width=0.25,
                color=color,
                hatch=hatch,
                edgecolor="white",
                label=label,
            )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_ylim(0, 1.45 * axes.get_ylim()[1])
        axes.legend(loc="upper right")
        return to_svg(figure)


def predicted_figure(true: Array, predicted: Array) -> str:
    """One point per test row, evenly thinned, and the line where both are the same [data units]."""
    kept = np.linspace(0, len(true) - 1, min(len(true), MOST_POINTS)).astype(int)
    with mpl.rc_context(STYLE):
        figure, axes = axes_for("true value", "predicted value")
        low, high = min(true.min(), predicted.min()), max(true.max(), predicted.max())
        axes.plot([low, high], [low, high], color="#99a", linewidth=1)
        axes.plot(
            true[kept],
            predicted[kept],
            color=VERMILLION,
            marker="o",
            markersize=3,
            linestyle="none",
            alpha=0.6,
        )
        return to_svg(figure)
