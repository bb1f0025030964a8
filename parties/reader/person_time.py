"""Rows of person-time: a person is one row for each public interval of time it is at risk in.

Hazards that are constant on intervals are a Poisson model of such rows, with the logarithm of the
time at risk as offset; hazard ratios are Cox's as intervals grow short.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from parties.reader.cells import numeric_cells
from parties.reader.shard import check_columns
from parties.reader.table import Table, read_table
from protocols.errors import DataError, ParameterError
from protocols.exchange.documents import shown
from protocols.exchange.private_files import write_private

AT_RISK, INTERVAL = "at_risk", "interval"


def person_time(
    frame: pd.DataFrame, *, time: str, event: str, cuts: Sequence[float], entry: str | None = None
) -> pd.DataFrame:
    """The other columns, `event` of each interval, `at_risk` [units of time] and `interval`.

    cuts: ends of intervals, the first of which begins at 0; a person is followed to the last one.

    Raises:
        ParameterError: cuts do not rise from above 0, or a name is taken. SchemaError: a column is
            missing. DataError: there are no rows, a time is no number, or an event not 0 or 1.
    """
    ends = np.array([0.0, *cuts])
    if len(ends) < 2 or not np.isfinite(ends).all() or not (np.diff(ends) > 0).all():
        raise ParameterError(f"cuts={', '.join(map(str, cuts))} do not rise from above 0")
    named = [time, event, *([] if entry is None else [entry])]
    check_columns(frame, named)
    for name in {AT_RISK, INTERVAL} & {*frame.columns} - {*named}:
        raise ParameterError(f"the table has a column {name!r} already: rename it")
    columns = {name: numeric_cells(frame[name])[0] for name in named}
    for name, values in columns.items():
        wrong = ~np.isin(values, (0.0, 1.0)) if name == event else ~(values >= 0)
        if wrong.any():
            due = "0 or 1" if name == event else "a number from 0"
            raise DataError(f"{shown(name)} is not {due} in {wrong.sum()} of {len(frame)} rows")
    begin = columns[entry] if entry is not None else np.zeros(len(frame))
    parts = list[pd.DataFrame]()
    for low, high in pairwise(ends.tolist()):
        until = np.minimum(columns[time], high)
        at_risk = until - np.maximum(begin, low)
        here = at_risk > 0
        dies = (columns[event] == 1) & (columns[time] <= high)
        own = {
            event: dies[here].astype(int),
            AT_RISK: at_risk[here],
            INTERVAL: f"{low:g} to {high:g}",
        }
        parts.append(frame[here].drop(columns=named).assign(**own))
    return pd.concat(parts)


def write_person_time(table: Table, out: Path, **given: Any) -> int:
    """`person_time` of an owner's table, as CSV for the owner alone; how many rows there are.

    Raises:
        ParameterError: the file is there, or as of `person_time`. DataError, SchemaError: likewise.
    """
    if out.exists():
        raise ParameterError(f"out={str(out)!r} exists: choose another name, or delete it")
    found = person_time(read_table(table, label=given["time"]), **given)
    write_private(out, found.to_csv(index=False).encode())
    return len(found)
