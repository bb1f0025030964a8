"""Tidy CSV files: one row per measurement, every column documented."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sims.studies.noise.components import COMPONENTS
from sims.studies.noise.measurement import Measurement
from sims.studies.noise.slopes import Slope

COLUMNS = {
    "kind": "twin (plaintext, the same noise) or encrypted",
    "protocol": "encrypted-rows (once) or secure-aggregation (an encrypted sum per round)",
    "update": "update rule",
    "parties": "P, number of clients",
    "coalition": "how the number of colluders follows from P",
    "colluders": "t, clients that may pool what they see with the coordinator",
    "mode": "fixed: all rows shared out; growing: rows_per_party rows each",
    "split": "even, or dirichlet:ALPHA of the classes",
    "weights": "of the clients in the sum: rows (as their rows) or equal",
    "noise": "honest: std sigma / sqrt(P - t) each; all: sigma each",
    "epsilon": "promised; empty without privacy noise",
    "delta": "promised",
    "row_norm": "rows are divided by it and clipped to 1; empty: as the schema says",
    "seed": "number of the repetition",
    "rows": "N, training rows of all clients",
    "T_asked": "iterations that were asked for; empty: as certified",
    "rounds": "T, iterations that were run",
    "component": "what was measured",
    "step": "iteration, of components that are measured along a run; empty otherwise",
    "value": "measured; empty where only a prediction is made",
    "unit": "of value and predicted",
    "predicted": "by the formula, or the bound; empty without",
    "relation": "= (formula) or <= (bound); empty without a prediction",
    "refusal": "why the cell was not run; empty otherwise",
}
SLOPE_COLUMNS = (
    *(
        "series",
        "setting",
        "coalition",
        "component",
        "parties",
        "points",
        "slope",
        "low",
        "high",
        "predicted",
    ),
    *("offset_bits", "margin_bits", "relation", "agrees", "explanation"),
)
SUMMARY_COLUMNS = (
    *("kind", "protocol", "update", "parties", "coalition", "colluders", "mode", "split"),
    *("weights", "noise", "epsilon", "row_norm", "T_asked", "rows", "rounds", "component", "unit"),
    *("seeds", "mean", "std", "q05", "median", "q95", "predicted"),
)


def tidy_rows(measurements: Iterable[Measurement]) -> Iterator[dict[str, Any]]:
    """One row per measured or predicted figure, in the order of `COLUMNS`."""
    for m in measurements:
        head = _head(m)
        if m.refusal:
            yield {**dict.fromkeys(COLUMNS, ""), **head, "refusal": m.refusal}
            continue
        for name, component in COMPONENTS.items():
            value, predicted = m.values.get(name), m.predicted.get(name)
            common = {**dict.fromkeys(COLUMNS, ""), **head, "component": name}
            common["unit"] = component.unit
            if value is not None or predicted is not None:
                yield {
                    **common,
                    "value": _text(value),
                    "predicted": _text(predicted),
                    "relation": component.relation if predicted is not None else "",
                }
            for step, figure in enumerate(m.courses.get(name, []), start=1):
                yield {**common, "step": step, "value": _text(figure)}


def _head(m: Measurement) -> dict[str, Any]:
    c = m.cell
    fields = {name: getattr(c, name) for name in COLUMNS if hasattr(c, name)}
    fields |= {"row_norm": c.norm, "seed": m.seed, "T_asked": c.rounds}
    fields |= {"rows": m.facts.get("rows", ""), "rounds": m.facts.get("T", "")}
    return {name: "" if value is None else value for name, value in fields.items()}


def _text(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def summary_rows(measurements: Iterable[Measurement]) -> Iterator[dict[str, Any]]:
    """Mean, standard deviation and quantiles over the seeds of every cell."""
    cells: dict[str, list[Measurement]] = defaultdict(list)
    for m in measurements:
        if not m.refusal:
            cells[m.cell.key].append(m)
    for group in cells.values():
        head = _head(group[0])
        for name, component in COMPONENTS.items():
            values = [m.values[name] for m in group if name in m.values]
            if not values:
                continue
            low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
            formulas = [m.predicted[name] for m in group if name in m.predicted]
            found = {
                "component": name,
                "unit": component.unit,
                "seeds": len(values),
                "mean": _text(float(np.mean(values))),
                "std": "" if math.isnan(spread) else _text(spread),
                "q05": _text(low),
                "median": _text(middle),
                "q95": _text(high),
                "predicted": _text(float(np.mean(formulas))) if formulas else "",
            }
            yield {key: value for key, value in (head | found).items() if key in SUMMARY_COLUMNS}


def slope_rows(slopes: Iterable[Slope]) -> Iterator[dict[str, Any]]:
    """As `Slope`; agrees: yes, no, or empty without a prediction."""
    for slope in slopes:
        body = asdict(slope)
        body["parties"] = " ".join(map(str, slope.parties))
        body["offset_bits"], body["margin_bits"] = body.pop("offset"), body.pop("margin")
        body["relation"] = COMPONENTS[slope.component].relation
        body["agrees"] = {True: "yes", False: "no", None: ""}[slope.agrees]
        for name, value in body.items():
            if value is None or value != value:  # None or not a number: too few points
                body[name] = ""
        yield {name: body[name] for name in SLOPE_COLUMNS}


def write_tables(out: Path, measurements: Sequence[Measurement], slopes: Sequence[Slope]) -> None:
    """measurements.csv, summary.csv, slopes.csv and columns.txt."""
    _write(out / "measurements.csv", tuple(COLUMNS), tidy_rows(measurements))
    _write(out / "summary.csv", SUMMARY_COLUMNS, summary_rows(measurements))
    _write(out / "slopes.csv", SLOPE_COLUMNS, slope_rows(slopes))
    lines = ["Columns of measurements.csv", ""]
    lines += [f"{name:<12} {words}" for name, words in COLUMNS.items()]
    lines += ["", "Components", ""]
    for name, c in COMPONENTS.items():
        formula = f"; {c.relation or '='} {c.formula}" if c.formula else ""
        lines.append(f"{name:<32} {c.title} [{c.unit}]{formula}")
    (out / "columns.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write(path: Path, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
