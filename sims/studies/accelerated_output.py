"""Files of the study of accelerated methods: CSV, the table, one figure per step size."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from sims.plots import STYLE
from sims.studies.accelerated import METHODS, Trace

# Okabe and Ito's, as in `sims.plots`, with a line style each.
_LOOKS = (("#009E73", ":"), ("#000000", "-."), ("#0072B2", "--"), ("#D55E00", "-"))


def write_all(out: Path, traces: Sequence[Trace], lines: Sequence[str]) -> None:
    """traces.csv, results.csv, table.txt, suboptimality_c_*.svg and .png in the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    _write_traces(out / "traces.csv", traces)
    _write_results(out / "results.csv", traces)
    (out / "table.txt").write_text("\n".join(lines) + "\n")
    for c in sorted({trace.cell.step_scale for trace in traces}):
        with mpl.rc_context(STYLE):
            figure = trace_figure([x for x in traces if x.cell.step_scale == c], c)
            for kind in ("svg", "png"):
                name = f"suboptimality_c_{c:g}.{kind}"
                metadata = {"Date": None} if kind == "svg" else None
                figure.savefig(out / name, dpi=150, metadata=metadata)


def trace_figure(traces: Sequence[Trace], step_scale: float) -> Figure:
    """log10 of the mean suboptimality against the iteration; a panel per method, a line per T."""
    figure = Figure(figsize=(9.6, 5.8), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    for axes, method in zip(panels.flat, METHODS, strict=True):
        mine = sorted((x for x in traces if x.cell.method == method), key=lambda x: x.cell.rounds)
        for trace, (colour, style) in zip(mine, _LOOKS, strict=False):
            label = f"T = {trace.cell.rounds}"
            axes.plot(trace.iterations, trace.log_mean, color=colour, linestyle=style, label=label)
        axes.set_title(method, fontsize=11)
    panels[0, 0].legend()
    figure.supxlabel("iteration")
    figure.supylabel("log10 mean suboptimality")
    figure.suptitle(f"step {step_scale:g} / L")
    return figure


def _write_traces(path: Path, traces: Sequence[Trace]) -> None:
    rows = [
        (x.cell.method, x.cell.step_scale, x.cell.rounds, int(t), f"{mean:.6g}")
        for x in traces
        for t, mean in zip(x.iterations, x.suboptimality.mean(axis=1), strict=True)
    ]
    _write(path, ("method", "c", "T", "iteration", "mean_suboptimality"), rows)


def _write_results(path: Path, traces: Sequence[Trace]) -> None:
    rows = [
        (
            x.cell.method,
            x.cell.step_scale,
            x.cell.rounds,
            int(x.iterations[-1]),
            f"{x.log_mean[-1]:.4f}",
            f"{x.log_error:.4f}",
        )
        for x in traces
    ]
    columns = ("method", "c", "T", "iterations", "log10_mean_suboptimality", "standard_error")
    _write(path, columns, rows)


def _write(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
