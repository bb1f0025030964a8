"""Cost against rows, features and parties, with plots.

Question: what does an iteration's cost grow with? Rows fill ciphertexts, features fill blocks, and
parties fill columns of the same ciphertexts: the coordinator's arithmetic must not notice them.
What does grow with the parties is the reading of their refresh shares, which is shown apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import cell
from benchmarks.cases import Case
from benchmarks.table import machine

BASE = Case(name="synthetic", rows=1000, features=9, parties=2)
AXES: dict[str, Sequence[Case]] = {
    "rows": [replace(BASE, rows=rows) for rows in (100, 1000, 10_000, 100_000)],
    "features": [replace(BASE, features=columns - 1) for columns in (4, 8, 16, 32, 64, 128, 256)],
    "parties": [replace(BASE, parties=parties) for parties in (2, 3, 5, 10, 20, 50)],
}
QUICK_AXES = {
    "rows": [replace(BASE, rows=rows, secure=False) for rows in (100, 600)],
}
LABELS = {"rows": "rows of all parties", "features": "columns, bias included", "parties": "parties"}


def value(axis: str, case: dict[str, Any]) -> int:
    """Where a point stands on its axis."""
    return int(case["features"]) + 1 if axis == "features" else int(case[axis])


def measure(axes: dict[str, Sequence[Case]], say: Callable[[str], None]) -> dict[str, Any]:
    """Every point, each in its own process."""
    found: dict[str, Any] = {"machine": machine(), "axes": {}}
    for axis, cases in axes.items():
        points = []
        for case in cases:
            say(f"{axis} {value(axis, case.to_dict())}")
            points.append(cell.in_process(case).to_dict())
        found["axes"][axis] = points
    return found


def arithmetic(point: dict[str, Any]) -> float:
    """Iteration without the reading of the parties' shares, done as they come [seconds]."""
    return float(point["iteration"] - point["reading"])


def save(found: dict[str, Any], folder: Path) -> None:
    """scaling.json, and one plot per axis as SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scaling.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    for axis, points in found["axes"].items():
        figure = draw(axis, points)
        for kind in ("svg", "png"):
            figure.savefig(folder / f"scaling-{axis}.{kind}", dpi=150, bbox_inches="tight")


def draw(axis: str, points: Sequence[dict[str, Any]]) -> Any:
    """Seconds per iteration, measured and predicted; against parties, from 0."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from ciphercohort.report.plots import BLUE, GREEN, STYLE, VERMILLION

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.4, 3.3), layout="constrained")
        axes = figure.add_subplot()
        where = [value(axis, point["case"]) for point in points]
        measured = [point["iteration"] for point in points]
        axes.plot(where, measured, color=BLUE, marker="o", label="measured")
        predicted = [point["predicted"] for point in points]
        axes.plot(where, predicted, color=VERMILLION, ls="--", marker="s", label="predicted")
        if axis == "parties":
            flat = [arithmetic(point) for point in points]
            axes.plot(where, flat, color=GREEN, ls=":", marker="^", label="without shares' reading")
        axes.set(xscale="log", xlabel=LABELS[axis], ylabel="seconds per iteration")
        axes.set_xticks(where, [f"{each:,}" for each in where])
        axes.set_xticks([], minor=True)
        if axis == "parties":
            axes.set_ylim(0, 1.3 * max(measured))
        else:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("{x:g}")
        axes.legend()
        return figure
