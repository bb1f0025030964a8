"""Tables and the figure of `quadratic`."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sims.documents import to_json
from sims.plots import BLUE, STYLE, VERMILLION
from sims.studies.quadratic import Curve, Run

# Chiang, Table II: accuracy and AUC of the encrypted run after 4 iterations, degree 5.
PAPER = {"edin": (0.8952, 0.943), "lbw": (0.7135, 0.667)}
# Wall clock per iteration [s]; the paper's at 80 bits on 2 virtual cores.
PAPER_SECONDS, GOAL_SECONDS = 73.0, 1.6
_LOOKS = {"nag": (VERMILLION, "--", "s", "NAG"), "quadratic-nag": (BLUE, "-", "o", "enhanced NAG")}


def table_lines(runs: Sequence[Run]) -> Iterator[str]:
    """The cross-validation, for people: means over folds."""
    folds = [run for run in runs if run.part != "all rows"]
    yield "seconds per iteration: coordinator; CPU seconds: coordinator and all parties"
    yield f"{'':21}{'accuracy %':>10}{'AUC':>8}{'s':>9}{'CPU s':>9}"
    for name in dict.fromkeys(run.data for run in folds):
        mine = [run for run in folds if run.data == name]
        wall, cpu = (
            float(np.median([getattr(run, field) for run in mine]))
            for field in ("seconds", "cpu_seconds")
        )
        for title, prefix in (("encrypted", ""), ("plaintext twin", "twin_")):
            accuracy, auc = (
                float(np.mean([getattr(run, prefix + field) for run in mine]))
                for field in ("accuracy", "auc")
            )
            timing = "" if prefix else f"{wall:9.2f}{cpu:9.2f}"
            yield f"{name:<6}{title:<15}{100 * accuracy:10.2f}{auc:8.4f}{timing}"
        if name in PAPER:
            accuracy, auc = PAPER[name]
            yield f"{name:<6}{'paper':<15}{100 * accuracy:10.2f}{auc:8.3f}{PAPER_SECONDS:9.2f}"
        gaps = [max(abs(r.accuracy - r.twin_accuracy), abs(r.auc - r.twin_auc)) for r in mine]
        yield (
            f"{name:<5} largest gap to the twin in a fold: score {max(gaps):.1e}, "
            f"weight {max(run.weight_gap for run in mine):.1e}; "
            f"largest logit {max(run.largest_logit for run in mine):.2f}"
        )
    yield f"goal: {GOAL_SECONDS} s per iteration on 2 idle cores"


def write(out: Path, runs: Sequence[Run], curves: Sequence[Curve]) -> None:
    """Everything into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(Run.__dataclass_fields__))
        writer.writeheader()
        writer.writerows(run.to_dict() for run in runs)
    body = {"runs": [r.to_dict() for r in runs], "curves": [c.to_dict() for c in curves]}
    (out / "results.json").write_text(to_json(body, indent=2) + "\n")
    (out / "table.txt").write_text("\n".join(table_lines(runs)) + "\n")
    if curves:
        with mpl.rc_context(STYLE):
            figure = convergence_figure(runs, curves)
            for kind in ("svg", "png"):
                metadata = {"Date": None} if kind == "svg" else None
                figure.savefig(out / f"convergence.{kind}", dpi=150, metadata=metadata)


def convergence_figure(runs: Sequence[Run], curves: Sequence[Curve]) -> Figure:
    """Mean log-likelihood against the iteration: twins as lines, encrypted runs as points."""
    names = list(dict.fromkeys(curve.data for curve in curves))
    figure = Figure(figsize=(4.6 * len(names), 3.6), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        for curve in (curve for curve in curves if curve.data == name):
            colour, style, marker, title = _LOOKS[curve.update]
            steps = np.arange(curve.likelihood.size + 1)
            values = np.append(-np.log(2), curve.likelihood)
            axes.plot(steps, values, color=colour, linestyle=style, label=f"{title}, twin")
            mine = [
                run
                for run in runs
                if (run.data, run.update, run.part) == (name, curve.update, "all rows")
            ]
            axes.plot(
                [run.iterations for run in mine],
                [-run.loss for run in mine],
                color=colour,
                marker=marker,
                markerfacecolor="white",
                markersize=6,
                linestyle="none",
                label=f"{title}, encrypted",
            )
        axes.set_title(name, fontsize=11)
        axes.set_xlabel("iterations of the run")
        axes.legend(loc="lower right")
    panels[0].set_ylabel("mean log-likelihood of training rows [nats]")
    return figure
