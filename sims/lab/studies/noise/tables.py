"""Tidy tables: one row per measured or predicted figure, every column documented."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from sims.lab.studies.noise.components import COMPONENTS, WORDS
from sims.lab.studies.noise.grid import coalition_words, ring_words
from sims.lab.studies.noise.measurement import Measurement

COLUMNS: dict[str, str] = WORDS["columns"]
SUMMARY_COLUMNS = (
    *("kind", "protocol", "update", "parties", "coalition", "colluders", "mode", "split"),
    *("weights", "noise", "epsilon", "row_norm", "T_asked", "rows", "rounds", "component", "unit"),
    *("seeds", "mean", "std", "q05", "median", "q95", "predicted"),
)


def tidy(measurements: Iterable[Measurement]) -> pd.DataFrame:
    """One row per figure: `COLUMNS`; `key`, and `setting`, `who`, `series`, `ring` in words.

    Figures along a run have a `step`; a refusal has a row without a component.
    """
    columns = (*COLUMNS, "key", "setting", "who", "series", "ring")
    frame = pd.DataFrame(_rows(measurements), columns=columns, dtype=object)
    for name in ("value", "predicted"):
        frame[name] = frame[name].astype(float)
    return frame


def _rows(measurements: Iterable[Measurement]) -> Iterator[dict[str, Any]]:
    for m in measurements:
        c, who = m.cell, coalition_words(m.cell.coalition)
        head = {name: getattr(c, name) for name in COLUMNS if hasattr(c, name)}
        head |= {"row_norm": c.norm, "T_asked": c.rounds, "seed": m.seed, "key": c.key}
        head |= {"rows": m.facts.get("rows"), "rounds": m.facts.get("T")}
        head |= {"setting": c.setting, "who": who, "series": f"{c.setting}, {who}"}
        head["ring"] = ring_words(c.profile, c.ring_dim)
        if m.refusal:
            yield {**head, "refusal": m.refusal}
            continue
        for name, about in COMPONENTS.items():
            common = {**head, "component": name, "unit": about.unit}
            value, predicted = m.values.get(name), m.predicted.get(name)
            if value is not None or predicted is not None:
                relation = about.relation if predicted is not None else None
                yield {**common, "value": value, "predicted": predicted, "relation": relation}
            for step, figure in enumerate(m.courses.get(name, []), start=1):
                yield {**common, "step": step, "value": figure}


def figures_of(frame: pd.DataFrame, *components: str) -> pd.DataFrame:
    """Rows of these components, of all by default: not along a run, and no refusals."""
    mine = frame.component.isin(components) if components else frame.component.notna()
    return frame[mine & frame.step.isna()]


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean, standard deviation and quantiles over the seeds of every cell."""
    rows = figures_of(frame).dropna(subset="value")
    groups = rows.groupby(["key", "component"], sort=False)
    value = groups["value"]
    found = groups.first().reset_index()
    figures = {
        **{"seeds": value.count(), "mean": value.mean(), "std": value.std()},
        **{"q05": value.quantile(0.05), "median": value.median(), "q95": value.quantile(0.95)},
        "predicted": groups["predicted"].mean(),
    }
    return found.assign(**{k: v.to_numpy() for k, v in figures.items()})[list(SUMMARY_COLUMNS)]


def write_tables(out: Path, frame: pd.DataFrame, slopes: pd.DataFrame) -> None:
    """measurements.csv, summary.csv, slopes.csv and columns.txt."""
    tables = {"measurements": frame[list(COLUMNS)], "summary": summary(frame), "slopes": slopes}
    for name, table in tables.items():
        table.to_csv(out / f"{name}.csv", index=False, lineterminator="\n")
    lines = ["Columns of measurements.csv", ""]
    lines += [f"{name:<12} {words}" for name, words in COLUMNS.items()]
    lines += ["", "Components", ""]
    for name, c in COMPONENTS.items():
        formula = f"; {c.relation or '='} {c.formula}" if c.formula else ""
        lines.append(f"{name:<32} {c.title} [{c.unit}]{formula}")
    (out / "columns.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
