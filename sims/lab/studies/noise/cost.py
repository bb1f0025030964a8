"""Cost against rows, columns and ring, with fitted slopes.

One setting is rehearsed, the others are carried over from it by the counts of their plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ciphercohort.job.config import SimulationConfig
from ciphercohort.planning.predicted import Find, known, like, predict
from protocols.errors import ParameterError
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures
from sims.lab.studies.noise.components import WORDS
from sims.lab.studies.noise.figures import Line, Plot
from sims.lab.studies.noise.report import write_page
from sims.lab.studies.noise.slopes import least_squares

COLUMNS: dict[str, str] = WORDS["cost_columns"]
_SHOWN = {
    "seconds_iteration": "coordinator's work in one iteration [s]",
    "seconds_total": "all roles in turn [s]",
    "megabytes_party": "traffic of the busiest party [MB]",
    "memory_coordinator": "memory of the coordinator, at most [MB]",
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


def cost_table(grid: CostGrid, *, timing: bool) -> pd.DataFrame:
    """One row per combination, in the order of `COLUMNS`."""
    crossed = product(grid.ring_dims, grid.features, grid.rows)
    find = like() if timing else known
    rows = [_row(grid, *values, find) for values in crossed]
    return pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)


def _row(grid: CostGrid, ring: int | None, features: int, rows: int, find: Find) -> dict[str, Any]:
    config = SimulationConfig(parties=grid.parties, update="gd", rounds=grid.rounds, ring_dim=ring)
    found: dict[str, Any] = {"rows": rows, "features": features, "ring_dim": ring}
    found |= {"parties": grid.parties, "rounds": grid.rounds}
    try:
        shape = PublicFigures.even(rows=rows, features=features, parties=grid.parties)
        calibrated = calibrate(shape, config.for_training().wanted())
    except ParameterError as error:
        return {**found, "refusal": str(error)}
    plan: Any = calibrated.template
    found["ring_dim"], found["rotation_keys"] = plan.ckks.ring_dim, len(plan.rotations)
    found["data_ciphertexts"] = plan.layout.num_data_ciphertexts
    predicted = predict(calibrated, find)
    if predicted:
        seconds, num_bytes = predicted.costs
        found["megabytes_party"] = round(num_bytes / 1e6, 3)
        found["memory_coordinator"] = round(predicted.memory["coordinator"] / 1e6)
        found["seconds_iteration"] = round(predicted.seconds.iteration, 4)
        found["seconds_total"] = round(seconds, 3)
    return found


def write_cost(grid: CostGrid, out: Path, command: str, *, timing: bool) -> list[str]:
    """costs.csv, plots, report.html and summary.txt; returns the lines of the summary."""
    table = cost_table(grid, timing=timing)
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "costs.csv", index=False, lineterminator="\n")
    title = f"Cost of encrypted training: {grid.parties} clients, {grid.rounds} iterations"
    lines = list(_lines(table))
    fields = {"command": command, "columns": COLUMNS}
    write_page(out, "cost.html.j2", title, lines, list(_plots(table)), **fields)
    return lines


def _series(table: pd.DataFrame, name: str) -> Iterator[Line]:
    for (_, _), mine in table.dropna(subset=name).groupby(["ring_dim", "features"], sort=False):
        first = mine.iloc[0]
        label = f"{first.features} columns, ring 2^{np.log2(first.ring_dim):.0f}"
        yield Line.plain(label, list(map(float, mine.rows)), list(map(float, mine[name])))


def _plots(table: pd.DataFrame) -> Iterator[Plot]:
    for name, y_label in _SHOWN.items():
        if lines := list(_series(table, name)):
            yield Plot(
                name=name,
                caption=f"Predicted: {y_label}, against the rows of all clients.",
                x_label="rows N of all clients",
                y_label=y_label,
                lines=lines,
            )


def _lines(table: pd.DataFrame) -> Iterator[str]:
    """Slopes against rows; costs follow ciphertexts, so they rise in steps from a constant."""
    for name, words in _SHOWN.items():
        for line in _series(table, name):
            middle = line.points.middle
            if len(middle) >= 3:
                slope, half = least_squares(np.log2(middle.index), np.log2(middle))
                yield (
                    f"{words}, {line.label}: slope {slope:.2f} +- {half:.2f} bits per doubling of "
                    f"the rows; {middle.iloc[-1]:,.3g} at {middle.index[-1]:,.0f} rows"
                )
    for row in table.dropna(subset="refusal").itertuples():
        yield f"{row.rows} rows, {row.features} columns: {row.refusal}"
