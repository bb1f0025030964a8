"""Rows of a survival analysis: who enters when, leaves when, with or without an event.

A schema's targets say so, in this order: time, event and, where rows enter late, entry. An event is
the upper end of its column's range (1 of 0 and 1); entry and time have one range.

The grid of times is public. Of a range of 50 to 1,100 whole numbers each is a bin, for times
are recorded in that unit; any other range has 500 bins of equal width, or as many fewer as make
each whole number of a shorter range the end of one. With epsilon these are 50 to 100 whole numbers,
and 50 bins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ciphercohort.results.result import Array
from parties.kernel.study.lifetimes import Grid
from parties.reader.arms import Groups, groups_of, placed
from parties.reader.cells import numeric_cells
from parties.reader.schema import NumericColumn, Schema, Targets
from protocols.errors import ParameterError, SchemaError
from protocols.exchange.documents import shown

FEWEST, MOST = 50, 1100
"""Whole numbers of a range that is taken as recorded."""
BINS, PRIVATE_BINS = 500, 50
"""Of any other range; with privacy up to twice as many whole numbers are as recorded."""
LARGEST_PRIVATE = 400
"""Bins that may be asked for with privacy: each has noise of its own."""
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Stays:
    """Of a schema as `views.by_range` gives it.

    time, event, entry: names of columns, entry empty where rows enter at the start; low, high: of
    times [data units].
    """

    schema: Schema
    time: str
    event: str
    entry: str
    low: float
    high: float
    grid: Grid

    @classmethod
    def of(cls, schema: Schema, bins: int | None = None, *, private: bool = False) -> Stays:
        """bins: of equal width; None: as the range says; private: whether there is noise.

        Raises:
            SchemaError: its targets are no time, event and entry. ParameterError: bins are out of
            range.
        """
        outcome = schema.label
        if not isinstance(outcome, Targets) or len(outcome.columns) not in (2, 3):
            raise SchemaError(
                "a survival analysis needs a schema whose targets are time, event and, if rows "
                "enter late, entry: cohort schema init --time TIME --event EVENT"
            )
        time, event, *entry = outcome.columns
        if any((each.low, each.high) != (time.low, time.high) for each in entry):
            raise SchemaError(
                f"entry {shown(entry[0].name)} has another range than time {shown(time.name)}, "
                f"[{time.low:g}, {time.high:g}]: give it the same"
            )
        width = time.high - time.low
        whole = time.low == int(time.low) and width == int(width)
        most, usual = (2 * PRIVATE_BINS, PRIVATE_BINS) if private else (MOST, BINS)
        recorded = bins is None and whole and FEWEST <= width <= most
        if whole and width < FEWEST:
            usual -= usual % int(width)
        if private and (bins or 0) > LARGEST_PRIVATE:
            raise ParameterError(
                f"grid={bins}: with epsilon a grid has {LARGEST_PRIVATE} bins or less"
            )
        return cls(
            schema=schema,
            time=time.name,
            event=event.name,
            entry=entry[0].name if entry else "",
            low=time.low,
            high=time.high,
            grid=Grid(int(width) + 1 if recorded else bins or usual, recorded),
        )

    @property
    def late(self) -> bool:
        """Whether rows enter late."""
        return bool(self.entry)

    @property
    def ends(self) -> tuple[float, float]:
        """Of times [data units]."""
        return self.low, self.high

    @property
    def times(self) -> Array:
        """Ends of the bins, shape (bins,) [data units]."""
        bins = self.grid.bins
        if self.grid.recorded:
            return self.low + np.arange(bins, dtype=np.float64)
        return np.asarray(self.low + (self.high - self.low) * np.arange(1, bins + 1) / bins)

    @property
    def words(self) -> str:
        """Of the grid."""
        if self.grid.recorded:
            return f"{self.time} in steps of 1, {self.low:g} to {self.high:g}"
        step = (self.high - self.low) / self.grid.bins
        return f"{self.time} in {self.grid.bins} bins of {step:.4g}"

    def groups(self, what: str, name: str | None) -> Groups:
        """Of the rows, by a column; None: all; what: the option.

        Raises:
            ParameterError: see `groups_of`.
        """
        return Groups.whole(ALL) if name is None else groups_of(placed(self.schema), what, name)

    def nowhere(self, rows: float, least: int) -> str:
        """A note; rows: how many; least: fewer are not told."""
        many = f"fewer than {least}" if rows < least else f"{rows:,.0f}"
        return (
            f"{many} rows count nowhere, for they leave before they enter, or in the same bin of "
            "time; --grid makes bins narrower"
        )


def check_exact(epsilon: float | None) -> None:
    """Raises ParameterError: there is one, and such a model has no private form."""
    if epsilon is not None:
        raise ParameterError(
            f"epsilon={epsilon:g}: this model takes exact sums, to which every owner consents; "
            "leave it out, or take curves, which can have noise (survival, model kaplan-meier)"
        )


def likely_stays(outcome: object) -> bool:
    """Whether a label is targets that look like time, event and entry."""
    if not isinstance(outcome, Targets) or len(outcome.columns) not in (2, 3):
        return False
    return outcome.columns[1].binary


def with_stays(schema: Schema, rows: pd.DataFrame) -> Schema:
    """A schema that was inferred from rows, with ranges that fit its time, event and entry.

    Raises:
        SchemaError: an event is neither 0 nor 1, or a time is negative.
    """
    assert isinstance(schema.label, Targets)  # noqa: S101 (as it was inferred)
    time, event, *entry = schema.label.columns
    values = set(numeric_cells(rows[event.name])[0].tolist())
    if not values <= {0.0, 1.0}:
        raise SchemaError(
            f"event {shown(event.name)} has other values than 0 and 1: derive such a column, 1 for "
            "the event, or give a schema with its range"
        )
    if not min(each.low for each in (time, *entry)) >= 0:
        raise SchemaError(f"time {shown(time.name)} or its entry is negative: correct these rows")
    columns = [NumericColumn(each.name, 0.0, time.high) for each in (time, *entry)]
    columns.insert(1, NumericColumn(event.name, 0.0, 1.0, binary=True))
    return replace(schema, label=Targets(columns=tuple(columns)))
