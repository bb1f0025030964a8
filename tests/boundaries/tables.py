"""Tables of usual cells with one odd row: schemas, their usual cells, cells nobody expects."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal

from hypothesis import strategies as st

from parties.reader.schema import (
    CategoricalColumn,
    Classes,
    DateColumn,
    Label,
    NumericColumn,
    Offset,
    Schema,
    Targets,
    Weight,
)

Row = tuple[Any, ...]
Cells = Literal["texts", "values", "typed", "floats"]


@dataclass(frozen=True)
class Kind:
    """A schema and the usual cells of its columns, by name."""

    name: str
    schema: Schema
    usual: Mapping[str, tuple[Any, ...]]

    @property
    def columns(self) -> tuple[str, ...]:
        """Of every row, in order."""
        return tuple(self.usual)


def _age(**changes: Any) -> NumericColumn:
    fields: dict[str, Any] = {"name": "age", "low": 0, "high": 100, "typical": 50, "spread": 20}
    return NumericColumn(**(fields | changes))


AGES = (10, 20, 37, 99, 0)
DOSES = (1.5, 0.1, 2.0, 7.25)
SMOKER = CategoricalColumn(name="smoker", categories=("yes", "no"))
TRUTH = CategoricalColumn(name="truth", categories=("True", "False"), missing="indicator")
WARD = CategoricalColumn(name="ward", categories=("1", "2", "A10"), missing="typical", typical="2")
TIMES = (date(2020, 1, 2), datetime(2020, 1, 2, 3, 4), timedelta(days=1), timedelta(hours=2))
WHEN = ("2020-01-02", "2020-01-02 00:00:00", "2020-01-02 03:04:00", "2020-01-02T03:04:00",
        "1 day, 0:00:00", "1 days 00:00:00", "1 days", "2:00:00", "0 days 02:00:00",
        "02:00:00")  # fmt: skip
"""However a time is read: of one column, each of another type."""
DOSE = NumericColumn(name="dose", low=0, high=10, typical=2, spread=1, missing="indicator")
YES_NO = Label(name="y", positive="yes", negative="no")
ONE_ZERO = Label(name="y", positive="1", negative="0")

KINDS = (
    Kind(
        "refuse",
        Schema(columns=(_age(), SMOKER), label=YES_NO, scaling="range"),
        {"age": AGES, "smoker": ("yes", "no"), "y": ("yes", "no")},
    ),
    Kind(
        "filled",
        Schema(
            columns=(_age(missing="typical"), DOSE, WARD, TRUTH), label=ONE_ZERO, scaling="standard"
        ),
        {
            "age": (*AGES, None),
            "dose": (*DOSES, None),
            "ward": ("1", "2", "A10", None),
            "truth": (True, False, None),
            "y": (1, 0),
        },
    ),
    Kind(
        "clipped",
        Schema(
            columns=(_age(), DOSE, TRUTH),
            label=Label(name="y", positive="True", negative="False"),
            scaling="standard",
            row_norm=1.5,
        ),
        {"age": AGES, "dose": DOSES, "truth": (True, False, None), "y": (True, False)},
    ),
    Kind(
        "classes",
        Schema(
            columns=(_age(missing="indicator"), SMOKER),
            label=Classes(name="y", classes=("1", "2", "3")),
            scaling="range",
        ),
        {"age": (*AGES, None), "smoker": ("yes", "no"), "y": (1, 2, 3)},
    ),
    Kind(
        "targets",
        Schema(
            columns=(_age(), WARD),
            label=Targets(
                columns=(
                    NumericColumn(name="y1", low=0, high=10),
                    NumericColumn(name="y2", low=-1, high=1),
                )
            ),
            scaling="range",
        ),
        {"age": AGES, "ward": ("1", "2", "A10", None), "y1": DOSES, "y2": (0.5, -0.25, 1.0)},
    ),
    Kind(
        "terms",
        Schema(
            columns=(_age(missing="typical"),),
            label=ONE_ZERO,
            scaling="standard",
            weight=Weight(name="weight", bound=4.0),
            offset=Offset(name="years", low=0.5, high=8.0, log=True),
        ),
        {"age": (*AGES, None), "weight": (1, 2, 0, 4), "years": (0.5, 1.0, 3.7), "y": (1, 0)},
    ),
    Kind(
        "answers",
        Schema(columns=(SMOKER, TRUTH), label=ONE_ZERO, scaling="range"),
        {"smoker": ("yes", "no"), "truth": ("True", "False", None), "y": (1, 0)},
    ),
    Kind(
        "times",
        Schema(
            columns=(CategoricalColumn(name="when", categories=WHEN, missing="indicator"),),
            label=ONE_ZERO,
            scaling="range",
        ),
        {"when": (*TIMES, None), "y": (1, 0)},
    ),
    Kind(
        "days",
        Schema(
            columns=(
                DateColumn("came", -100.0, 900.0, 365.0, 200.0, "indicator", origin="2020-01-01"),
                SMOKER,
            ),
            label=ONE_ZERO,
            scaling="standard",
            row_norm=1.5,
        ),
        {
            "came": (date(2020, 1, 2), date(2021, 6, 30), date(2019, 12, 31), None),
            "smoker": ("yes", "no"),
            "y": (1, 0),
        },
    ),
    # A column that no schema names stands beside the others in the file.
    Kind(
        "notes",
        Schema(columns=(SMOKER,), label=ONE_ZERO, scaling="range"),
        {"note": ("seen", 'height 5"', "5'", ""), "smoker": ("yes", "no"), "y": (1, 0)},
    ),
    # All numbers, as an array of floats has them.
    Kind(
        "numbers",
        Schema(
            columns=(
                _age(missing="typical"),
                DOSE,
                CategoricalColumn("ward", ("1", "2"), "indicator"),
            ),
            label=ONE_ZERO,
            scaling="range",
        ),
        {"age": (*AGES, None), "dose": (*DOSES, None), "ward": (1, 2, None), "y": (1, 0)},
    ),
)

TEXTS = (
    "unknown", "tRUE", "TRUE", "true", "True", "False", "YES", "Yes ", " yes", "no", "t", "f", "T",
    "O'Brien", "'", "''", "'yes'", '"', '"yes"', 'a "quoted" word', "a\nb", "\n", "a\r\nb", "\r",
    "a,b", "a;b", "a\tb", ",", "1,000", "1.000,5", "1 000", "1_000", "007", "01", "1.0", "1e0",
    "+1", "1.", ".5", "-0.0", "-0", "0x10", "1e400", "-1e400", "1e-400", "nan", "NaN", "inf",
    "-Infinity", "Inf", "NA", "N/A", "null", "NULL", "None", "<NA>", "#N/A", "?", "-", ".", "na",
    "3+0j", "1j", "9223372036854775808", "18446744073709551616", "-9223372036854775809",
    "123456789012345678901234567890", "2020-01-02", "2020-01-02 03:04:05", "02/01/2020", "12:30",
    "P1D", "1 day", "1 days 00:00:00", "\u0661\u0662", "\uff11", "\u00bd", "\ufeff1", "\ufeffyes",
    "", " ", "\u00a0", "\u200b1", "%", "1%", "$1", "€1", "#", "# 1", "% 1", "{0 1}", "{", "\\",
    "\\N", "a\\'b", "x" * 5000, "9" * 400, "é", "=1+1", "@data", "sep=,", "age", "b'yes'", "[1]",
    "1/2", "1d", "1f", "1L", "0b1", "1e", "e1", "--1", "1-", "(1)", "Ⅷ", "\x1c1", "1\x00",
)  # fmt: skip
"""What somebody typed."""
VALUES = (
    True, False, 0, 1, 2, -1, 3.0, -0.0, 0.1, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1,
    10**30, 10**400, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, 1 + 0j, 3 + 4j, None,
    Decimal("1"), Decimal("1.0"), Decimal("0.1"), Decimal("1E+400"), Decimal("NaN"),
    Decimal("sNaN"), Decimal("Infinity"), Decimal("123456789012345678901234567890.5"),
    date(2020, 1, 2), date(1, 1, 1), date(9999, 12, 31), datetime(2020, 1, 2, 3, 4, 5),
    datetime(2020, 1, 2, tzinfo=timezone.utc), time(12, 30), timedelta(days=1),
    timedelta(microseconds=1), timedelta(days=999_999_999), b"yes", b"\xff\x00", [1], ["yes"],
    (1,), {"a": 1},
)  # fmt: skip
"""What a database, a workbook or a frame may hold."""

SHARP = ('"see', '"', "'", "'see", "%", "% 1", "#", "{", "@data", "\\", "")
"""What opens something, or ends it, in one of the formats."""

odd_texts = st.one_of(
    st.sampled_from(SHARP),
    st.sampled_from(TEXTS),
    st.text(max_size=6),
    st.floats().map(repr),
    st.integers(-(2**70), 2**70).map(str),
)
odd_values = st.one_of(
    st.sampled_from(VALUES),
    st.sampled_from(VALUES),
    odd_texts,
    st.floats(),
    st.integers(-(2**70), 2**70),
    st.decimals(),
    st.datetimes(),
    st.timedeltas(),
    st.booleans(),
)


_NUMBERS = (*(text for text in TEXTS if re.search(r"\d", text)), "", "NaN", "inf", "True")
_OF_TYPE: Mapping[type, Any] = {
    bool: st.booleans(),
    int: st.sampled_from([v for v in VALUES if type(v) is int]) | st.integers(-(2**64), 2**64),
    float: st.sampled_from([v for v in VALUES if type(v) is float]) | st.floats(),
    str: odd_texts,
    date: st.dates(),
}


def odd_cells(kind: Kind, name: str, cells: Cells) -> Any:
    """Of one column: texts, values of any type, of the type of its usual cells, or numbers."""
    usual = [cell for cell in kind.usual[name] if cell is not None]
    if cells == "typed":
        return st.none() | _OF_TYPE[type(usual[0])]
    if cells == "floats":
        return st.none() | _OF_TYPE[float] | _OF_TYPE[int]
    odd = odd_texts if cells == "texts" else odd_values
    # What is text among numbers is refused: half of what is odd there should be read.
    return odd if isinstance(usual[0], str) else st.sampled_from(_NUMBERS) | odd


@dataclass(frozen=True)
class Pair:
    """D and D', which differ in row `at`; order: of the rows of D' by their places in D.

    batch: rows read at a time.
    """

    rows: tuple[Row, ...]
    at: int
    other: Row
    order: tuple[int, ...]
    batch: int

    @property
    def others(self) -> tuple[Row, ...]:
        """Rows of D', in their order."""
        rows = [*self.rows]
        rows[self.at] = self.other
        return tuple(rows[k] for k in self.order)


def pairs(kind: Kind, cells: Cells, most: int = 6) -> Any:
    """Usual rows, one of which has odd cells in D', one mostly; and another one perhaps in both.

    What a strategy is drawn from is made here once: to check it takes longer than to draw.
    """
    usual = st.tuples(*(st.sampled_from(own) for own in kind.usual.values()))
    odd = [odd_cells(kind, name, cells) for name in kind.columns]
    places = st.integers(0, len(odd) - 1)
    chosen = {n: st.lists(places, min_size=1, max_size=n) for n in (1, 3)}
    return _pairs(st.lists(usual, min_size=1, max_size=most), odd, chosen)


_OF_ODD = st.sampled_from((1, 1, 1, 3))
_BATCH = st.sampled_from((1, 2, 3, 1 << 15))


@st.composite
def _pairs(draw: Any, some: Any, odd: list[Any], chosen: Mapping[int, Any]) -> Pair:
    rows = draw(some)
    at = draw(st.integers(0, len(rows) - 1))

    def with_odd(row: Row) -> Row:
        if draw(st.integers(0, 19)) == 0:
            return (None,) * len(row)
        found = list(row)
        for k in draw(chosen[draw(_OF_ODD)]):
            found[k] = draw(odd[k])
        return tuple(found)

    other = with_odd(rows[at])
    if len(rows) > 1 and draw(st.integers(0, 9)) == 0:
        both = (at + 1) % len(rows)
        rows[both] = with_odd(rows[both])
    order = draw(st.permutations(range(len(rows))))
    return Pair(tuple(rows), at, other, tuple(order), draw(_BATCH))
