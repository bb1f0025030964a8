"""Cost against rows, columns and ring: the planner's figures, with fitted slopes."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import log2
from pathlib import Path
from typing import Any

from protocols.errors import ParameterError
from protocols.privacy.calibrate.figures import PublicFigures
from sims.config import SimulationConfig
from sims.planning import forecast
from sims.report_html import page, picture, section, table, tag
from sims.studies.noise.figures import Line, Plot, save
from sims.studies.noise.slopes import least_squares

COLUMNS = {
    "rows": "N, of all clients",
    "features": "columns of a row without the bias",
    "parties": "P",
    "rounds": "T",
    "ring_dim": "n",
    "data_ciphertexts": "ciphertexts that hold all rows",
    "rotation_keys": "keys of the layout",
    "megabytes_party": "traffic of the busiest party [MB]",
    "memory_coordinator": "estimated peak memory [MB]",
    "seconds_iteration": "the coordinator's work in one iteration [s]; empty without timing",
    "seconds_total": "all roles in turn on this machine [s]; empty without timing",
    "refusal": "why there is no such run; empty otherwise",
}


@dataclass(frozen=True, kw_only=True)
class CostGrid:
    """Lists of values, all crossed; ring_dims: None for the smallest secure ring.

    Raises:
        ParameterError: an empty list.
    """

    rows: tuple[int, ...]
    features: tuple[int, ...]
    ring_dims: tuple[int | None, ...]
    parties: int = 3
    rounds: int = 10

    def __post_init__(self) -> None:
        for name in ("rows", "features", "ring_dims"):
            if not getattr(self, name):
                raise ParameterError(f"{name} is empty: give at least one value")


def cost_rows(grid: CostGrid, *, timing: bool) -> Iterator[dict[str, Any]]:
    """One row per combination, in the order of `COLUMNS`."""
    for ring, features, rows in product(grid.ring_dims, grid.features, grid.rows):
        config = SimulationConfig(
            parties=grid.parties, update="gd", rounds=grid.rounds, ring_dim=ring
        )
        head = {"rows": rows, "features": features, "parties": grid.parties, "rounds": grid.rounds}
        found: dict[str, Any] = {**dict.fromkeys(COLUMNS, ""), **head, "ring_dim": ring or ""}
        try:
            shape = PublicFigures.even(rows=rows, features=features, parties=grid.parties)
            body = forecast(config, shape, timing=timing).to_dict()
        except ParameterError as error:
            yield {**found, "refusal": str(error)}
            continue
        ckks = body["ckks"]
        found |= {name: ckks[name] for name in ("ring_dim", "data_ciphertexts", "rotation_keys")}
        found["megabytes_party"] = round(sum(body["bytes_per_party"].values()) / 1e6, 3)
        found["memory_coordinator"] = body["peak_memory_mb"]["coordinator"]
        if timing:
            found["seconds_iteration"] = round(body["seconds_per_iteration"], 4)
            found["seconds_total"] = round(body["total_seconds"], 3)
        yield found


def write_cost(grid: CostGrid, out: Path, command: str, *, timing: bool) -> list[str]:
    """costs.csv, plots, report.html and summary.txt; returns the lines of the summary."""
    rows = list(cost_rows(grid, timing=timing))
    out.mkdir(parents=True, exist_ok=True)
    with (out / "costs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, tuple(COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    plots, lines = list(_plots(rows)), list(_lines(rows))
    pictures = save(plots, out / "figures")
    title = f"Cost of encrypted training: {grid.parties} clients, {grid.rounds} iterations"
    shown = [picture(pictures[p.name], p.caption, p.caption) for p in plots]
    body = [
        tag("h1", title),
        section("In short", *(tag("p", line) for line in lines)),
        section("Plots", tag("div", *shown, cls="columns")),
        section("Columns of costs.csv", table(("Column", "Meaning"), COLUMNS.items())),
        section("How to get this again", tag("p", tag("code", command))),
    ]
    (out / "report.html").write_text(page(title, body), encoding="utf-8")
    (out / "summary.txt").write_text("\n".join([title, *lines]) + "\n", encoding="utf-8")
    return lines


_SHOWN = {
    "seconds_iteration": "coordinator's work in one iteration [s]",
    "seconds_total": "all roles in turn [s]",
    "megabytes_party": "traffic of the busiest party [MB]",
    "memory_coordinator": "estimated memory of the coordinator [MB]",
}


def _series(rows: Sequence[dict[str, Any]], name: str) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row[name] != "":
            label = f"{row['features']} columns, ring 2^{log2(row['ring_dim']):.0f}"
            found.setdefault(label, []).append((float(row["rows"]), float(row[name])))
    return found


def _plots(rows: Sequence[dict[str, Any]]) -> Iterator[Plot]:
    for name, y_label in _SHOWN.items():
        lines = []
        for label, points in _series(rows, name).items():
            x, y = (list(column) for column in zip(*points, strict=True))
            lines.append(Line(label=label, x=x, middle=y, low=y, high=y))
        if lines:
            yield Plot(
                name=name,
                caption=f"Predicted: {y_label}, against the rows of all clients.",
                x_label="rows N of all clients",
                y_label=y_label,
                lines=lines,
            )


def _lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Slopes against rows; costs follow ciphertexts, so they rise in steps from a constant."""
    for name, words in _SHOWN.items():
        for label, points in _series(rows, name).items():
            if len(points) < 3:
                continue
            fit = least_squares([log2(a) for a, _ in points], [log2(b) for _, b in points])
            yield (
                f"{words}, {label}: slope {fit.slope:.2f} +- {fit.half:.2f} bits per doubling of "
                f"the rows; {points[-1][1]:,.3g} at {points[-1][0]:,.0f} rows"
            )
    for row in rows:
        if row["refusal"]:
            yield f"{row['rows']} rows, {row['features']} columns: {row['refusal']}"
