"""Dates, times and durations: no column kind of a schema, and what to do about them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from parties.reader.schema import CategoricalColumn, Schema
from protocols.exchange.documents import shown

_DAY = r"\d{4}([-./])\d{1,2}\1\d{1,2}|\d{1,2}([-./])\d{1,2}\2(?:\d{2}|\d{4})"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_NAMED = rf"\d{{1,2}}[-. ]*{_MONTH}[-, ]*\d{{4}}|{_MONTH} \d{{1,2}},? \d{{4}}"
# A dilution of 1:40 is no time of day.
_CLOCK = (
    r"-?(?:\d{2,4}:[0-5]\d|\d{1,4}:[0-5]\d:[0-5]\d(?:\.\d+)?|\d{1,2}:[0-5]\d ?[AaPp][Mm])"
    r"(?: ?(?:Z|[+-]\d{2}:?\d{2}))?"
)
_MOMENT = re.compile(rf"(?:{_DAY}|{_NAMED})(?:[T ]{_CLOCK})?|{_CLOCK}")
CURE = (
    "write a number in its place, such as the days since a public date (pandas: (column - "
    "Timestamp('2020-01-01')).dt.days; SQL: column - DATE '2020-01-01') or the hours; or let the "
    "schema count days of dates like 2024-05-31 (--date, dates=); or leave it out (--exclude, "
    "exclude=)"
)


def holds_moments(texts: Collection[str]) -> bool:
    """Whether most of the different texts of a column are dates, times or durations."""
    return 2 * sum(_MOMENT.fullmatch(text) is not None for text in texts) > len(texts)


def moment_notes(schema: Schema) -> Iterator[str]:
    """A sentence for each column whose categories are dates, times or durations."""
    for column in schema.columns:
        if isinstance(column, CategoricalColumn) and holds_moments(column.categories):
            yield (
                f"column {shown(column.name)} holds dates or times: its "
                f"{len(column.categories)} different ones are categories, each with a coefficient "
                f"of its own, and any other counts as none of them; {CURE}"
            )
