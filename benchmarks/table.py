"""The table: every case beside its prediction and beside the alternatives, as JSON and as text."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import baselines, cell, peer_venv, session
from benchmarks.cases import UPDATES, Case
from ciphercohort.planning.rehearsed import processor

COLUMNS = (
    "data",
    "update",
    "ciphertexts",
    "s / iteration",
    "predicted",
    "MB per party (predicted)",
    "peak memory",
    "(a) per sample",
    "(b) row-major",
    "(c) TenSEAL",
    "(d) NumPy",
)
Say = Callable[[str], None]


def measure(cases: Sequence[Case], python: Path | None, say: Say) -> dict[str, Any]:
    """Everything: one row for each case and update; python: an interpreter with TenSEAL."""
    rows = []
    for case in cases:
        alternatives = beside(case, python)
        for update in UPDATES:
            mine = Case(**{**case.to_dict(), "update": update})
            say(f"{case.name}, {update}")
            found = cell.in_process(mine)
            rows.append({**found.to_dict(), "alternatives": alternatives})
    return {"machine": machine(), "rows": rows}


def beside(case: Case, python: Path | None) -> dict[str, Any]:
    """Seconds per iteration of the alternatives; None: not measured."""
    plan, (x, y) = session.plan_of(case), case.data()
    sample, packed = baselines.per_sample(plan, x), baselines.row_major(plan, x)
    return {
        "per_sample": {**asdict(sample), "iteration": sample.iteration},
        "row_major": {**asdict(packed), "iteration": packed.iteration},
        "tenseal": _tenseal(case, python),
        "numpy": {"iteration": baselines.plain(x, y, plan)},
    }


def _tenseal(case: Case, python: Path | None) -> dict[str, Any] | None:
    if python is None:
        return None
    found = peer_venv.measure(python, "tenseal_training.py", features=case.features + 1)
    return {**found, "iteration": found["sample"] * case.rows + found["epoch"]}


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    import os

    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "clock": "CPU seconds" if os.environ.get(cell.CPU_CLOCK) else "wall clock",
        "openfhe": metadata.version("openfhe"),
        "python": platform.python_version(),
    }


# -- for a person ---------------------------------------------------------------------------------


def cells(row: dict[str, Any]) -> list[str]:
    """One line of the table."""
    case, own, others = row["case"], row["iteration"], row["alternatives"]
    mark = "" if cell.quiet(max(row["load"])) else " (busy)"

    def factor(name: str) -> str:
        if others[name] is None:
            return ""
        lasts = others[name]["iteration"]
        # Another layout of the rows needs the same update and refresh.
        lasts += row["beside"] if name in ("per_sample", "row_major") else 0
        return f"{as_seconds(lasts)} ({lasts / own:.3g}x)"

    return [
        f"{case['name']} {case['rows']:,} x {case['features']}",
        case["update"],
        f"{row['data_ciphertexts']} (k = {row['features_per_ciphertext']})",
        f"{as_seconds(own)}{mark}",
        f"{as_seconds(row['predicted'])} ({row['ratio']:.2f})",
        f"{row['bytes_per_party'] / 1e6:,.1f} ({row['predicted_bytes'] / 1e6:,.1f})",
        f"{row['peak_memory'] / 1e9:.1f} GB",
        *(factor(name) for name in ("per_sample", "row_major", "tenseal", "numpy")),
    ]


def show(result: dict[str, Any]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    clock = result["machine"]["clock"]
    table = Table(*COLUMNS, title=f"{clock}, per full-batch iteration (ratio to ours)")
    for row in result["rows"]:
        table.add_row(*cells(row))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def markdown(result: dict[str, Any]) -> str:
    """The table for docs/benchmarks.md."""
    return "\n".join(shown(COLUMNS, map(cells, result["rows"]))) + "\n"


def shown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table in Markdown."""
    lines = [" | ".join(("", *columns, "")).strip(), "|---" * len(columns) + "|"]
    return lines + [" | ".join(("", *row, "")).strip() for row in rows]


def save(result: dict[str, Any], folder: Path) -> None:
    """benchmarks.json and benchmarks.md."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    (folder / "benchmarks.md").write_text(markdown(result), encoding="utf-8")


def as_seconds(value: float) -> str:
    """Three digits and a unit."""
    return f"{value:,.3g} s" if value >= 1 else f"{value * 1e3:,.3g} ms"
