"""From the cells of a table to features, batch by batch; what is wrong is said of the whole table.

    cell -> number or text       `number`, `cell_text`
    -> value of its column       `Numbers`, `Categories`, `Labels`
    -> features of a row         `Features`, and `outcome_of` what is predicted

Each takes all batches, counts, and then says what is wrong.

Privacy: epsilon is about one row, so a row's features are a function of the schema and of that
row's cells, bit for bit, whatever stands in other rows and whatever type carries the cell: a 1 is
the same as a text of a file, as an integer, and as a float in a column that has gaps. Arrays are
used for what is the same of each element by itself (IEEE operations, conversions) alone.

Security: cells are private. Every message names columns, row numbers and counts only.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, TypeAlias
from uuid import UUID

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.reader import MISSING, Hint, Places, Problems
from parties.reader.schema import (
    CategoricalColumn,
    Classes,
    Column,
    DateColumn,
    FloatArray,
    Label,
    NumericColumn,
    Scaling,
    Targets,
)
from protocols.errors import SchemaError
from protocols.exchange.documents import shown

Scale = Scaling | Literal["unit", "weight", "clamp"]
"""Of numbers, clamped to public bounds. "range": [low, high] -> [-1, 1]; "standard": (x - typical)
/ spread, within +-2; "unit": [low, high] -> [0, 1]; "weight": the same, and nothing below low is
taken; "clamp": x, within [low, high]."""
Cell: TypeAlias = bool | int | float | Decimal | str | date | datetime | None
"""None: missing. Of a str: without spaces around it; of a float or a Decimal: not NaN."""
_MISSING, _UNKNOWN, _OBJECT = -1, -2, -3
_REFUSED = "fill in or drop these rows, or let the schema say missing: typical or indicator"

# -- one cell -------------------------------------------------------------------------------------

_WORDS = frozenset(MISSING)
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?)", re.ASCII | re.IGNORECASE
)
_TRUTH = {text: word for word in ("True", "False") for text in (word, word.upper(), word.lower())}
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)


_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)


class _Other:
    """A cell that is neither a number nor a text: a list, bytes, a complex number."""


OTHER = _Other()


def plain(cell: object) -> Cell | _Other:
    """What a cell holds, whatever type a library gave it, of Python's own types alone.

    Privacy: it never raises, whatever a cell's own methods do.
    """
    kind = type(cell)
    if kind is str:
        stripped = str(cell).strip()
        return None if stripped in _WORDS else stripped
    if kind is int or kind is bool:
        return cell  # type: ignore[return-value]
    if cell is None or cell is pd.NaT or cell is pd.NA:
        return None
    try:
        return _plain(cell)
    except Exception:  # such as of a date beyond the year 9999
        return OTHER


def _plain(cell: Any) -> Cell | _Other:
    if isinstance(cell, np.datetime64 | np.timedelta64):
        is_moment = isinstance(cell, np.datetime64)
        return plain(pd.Timestamp(cell) if is_moment else pd.Timedelta(cell))
    if isinstance(cell, str):
        return plain(str.__str__(cell))
    if isinstance(cell, bool | np.bool_):
        return bool(cell)
    if isinstance(cell, numbers.Integral):
        return int(cell)
    if isinstance(cell, Decimal):
        return None if Decimal.is_nan(cell) else Decimal(cell)
    if isinstance(cell, numbers.Real):
        real = float(cell)
        return None if math.isnan(real) else real
    if isinstance(cell, pd.Timestamp):
        moment: datetime = cell.to_pydatetime(warn=False)
        return moment
    if isinstance(cell, date):  # a zone, or a subclass, may raise later
        own = datetime if isinstance(cell, datetime) else date
        return own.fromisoformat(own.isoformat(cell))
    if isinstance(cell, time):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        return _duration(cell)
    return str(cell) if isinstance(cell, UUID | pd.Period | pd.Interval) else OTHER


def _duration(cell: timedelta) -> str:
    """As "27:30:00", hours in all."""
    micro = round(cell / timedelta(microseconds=1))
    seconds, fraction = divmod(abs(micro), 10**6)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return "-" * (micro < 0) + text + f".{fraction:06d}".rstrip("0") * (fraction > 0)


def _moment(found: re.Match[str]) -> str:
    """As "2024-05-01", or "2024-05-01 13:45:00.5" where it is not midnight."""
    day, clock, fraction, zone = found.groups(default="")
    fraction = fraction[:7].rstrip(".0")
    if clock == "00:00:00" and not fraction and not zone:
        return day
    return f"{day} {clock}{fraction}{zone.replace('Z', '+00:00')}"


def number(cell: object) -> float | None:
    """The nearest float64 of one cell; NaN: it is missing; None: it is no number.

    Truth values are 1 and 0; what is too large is infinite.
    """
    value = plain(cell)
    if value is None:
        return math.nan
    if isinstance(value, str):
        if _NUMBER.fullmatch(value):
            return float(value)
        truth = _TRUTH.get(value)
        return None if truth is None else float(truth == "True")
    if isinstance(value, int | float | Decimal):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return None


def days_since(cell: object, origin: date) -> float | None:
    """From a day to that of one cell, whatever the time; as `number`: only a date is one.

    Of texts "2024-05-01", and "2024-05-01 13:45:00" or with a T and a zone, as it stands.
    """
    value = plain(cell)
    if value is None:
        return math.nan
    if isinstance(value, str):
        found = _DATE.fullmatch(value)
        try:
            value = date.fromisoformat(found[1]) if found else None
        except ValueError:
            return None
    if not isinstance(value, date):
        return None
    return float(value.toordinal() - origin.toordinal())


def cell_text(cell: object) -> str | None:
    """The text of one cell, None where it is missing.

    "True" for True and TRUE; "1" for 1, 1.0, "1.0" and "01"; "2024-05-01" for that day and its
    midnight.

    Raises:
        TypeError: it holds a list, bytes or another object.
    """
    value = plain(cell)
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        if value in _TRUTH:
            return _TRUTH[value]
        if not _NUMBER.fullmatch(value):
            found = _TIMESTAMP.fullmatch(value)
            return _moment(found) if found else value
    if isinstance(value, date):
        return cell_text(value.isoformat(*" " * isinstance(value, datetime)))
    found_number = number(value)
    if found_number is None:
        raise TypeError("a cell holds an object")
    whole = found_number.is_integer()
    return str(int(found_number)) if whole else repr(found_number)


_KINDS = ("missing", "truth", "number", "numeral", "date", "text", "object")


def _kind(cell: object) -> str:
    value = plain(cell)
    if value is None:
        return "missing"
    if isinstance(value, bool) or (isinstance(value, str) and value in _TRUTH):
        return "truth"
    if isinstance(value, date):
        return "date"
    if isinstance(value, str):
        return "text" if number(value) is None else "numeral"
    return "object" if number(value) is None else "number"


# -- many cells, each by itself -------------------------------------------------------------------

_DIGITS = re.compile(r"[0-9.eE+ -]*")
_REALS = {bool, int, float, Decimal, type(None)}
_KEYED = {str, bool, int, float, Decimal, date, datetime, time, timedelta, type(None)}
MOST_KEYS = 1 << 16
"""Different cells of a column that are kept, but for those of a batch."""


def _is_native(cells: pd.Series[Any]) -> bool:
    """Whether a column is an array of numbers: then there are no others in it."""
    return isinstance(cells.dtype, np.dtype) and cells.dtype.kind in "biuf"


def numeric_cells(cells: pd.Series[Any]) -> tuple[FloatArray, NDArray[np.bool_]]:
    """`number` of each cell, shapes (rows,).

    Returns: float64, NaN where a cell is no number; and true where a cell is there but is none.
    """
    if _is_native(cells):
        return cells.to_numpy().astype(np.float64), np.zeros(len(cells), dtype=bool)
    column = cells.tolist()
    if (quick := _quick_numbers(column)) is not None:
        return np.array(quick, dtype=np.float64), np.zeros(len(column), dtype=bool)
    found = [number(cell) for cell in column]
    texts = np.array([value is None for value in found], dtype=bool)
    return np.array([math.nan if v is None else v for v in found], dtype=np.float64), texts


def day_cells(cells: pd.Series[Any], origin: date) -> tuple[FloatArray, NDArray[np.bool_]]:
    """`days_since` of each cell, as `numeric_cells`."""
    found = [days_since(cell, origin) for cell in cells.tolist()]
    texts = np.array([value is None for value in found], dtype=bool)
    return np.array([math.nan if v is None else v for v in found], dtype=np.float64), texts


def _quick_numbers(column: list[Any]) -> list[float] | None:
    """`number` of each cell, in less time where none of them needs more than `float`."""
    kinds = set(map(type, column))
    try:
        if kinds == {str} and _DIGITS.fullmatch("".join(column)):
            # Of these characters alone `float` takes what _NUMBER does, and spaces around it.
            return [float(cell) if cell else math.nan for cell in column]
        if kinds <= _REALS:
            return [math.nan if cell is None else float(cell) for cell in column]
    except (ValueError, OverflowError):
        pass
    return None


class _Keyed:
    """A function of one cell, kept by its type and exact text.

    Not by the cell: 1 == True == 1.0, 0.0 == -0.0, and the first of them would speak for all.
    """

    def __init__(self, function: Callable[[object], int]) -> None:
        self._function, self._known = function, dict[type, dict[str, int]]()

    def __call__(self, cells: pd.Series[Any]) -> NDArray[np.intp]:
        """Of each cell, shape (rows,)."""
        column = cells.tolist()
        kinds = set(map(type, column))
        if len(kinds) == 1 and kinds <= _KEYED:
            return np.array(self._of_type(kinds.pop(), column), dtype=np.intp)
        of_one = (self._of_type(type(c), [c])[0] if type(c) in _KEYED else self._function(c)
                  for c in column)  # fmt: skip
        return np.fromiter(of_one, dtype=np.intp, count=len(column))

    def _of_type(self, kind: type, column: list[Any]) -> list[int]:
        # Decimal digits of an int are bounded (sys.set_int_max_str_digits), others are not.
        texts = column if kind is str else list(map(hex if kind is int else repr, column))
        known = self._known.setdefault(kind, {})
        try:
            return list(map(known.__getitem__, texts))
        except KeyError:
            pass
        if len(known) > MOST_KEYS:
            known.clear()
        for text, cell in dict(zip(texts, column, strict=True)).items():
            if text not in known:
                known[text] = self._function(cell)
        return list(map(known.__getitem__, texts))


def text_cells(cells: pd.Series[Any]) -> tuple[NDArray[np.intp], list[str]]:
    """`cell_text` of each cell.

    Returns: codes, int array, shape (rows,), -1 where a cell is missing; and the distinct texts
    that the codes index, in order of appearance.

    Raises:
        TypeError: a cell holds a list or another object.
    """
    codes = dict[str, int]()

    def code(cell: object) -> int:
        text = cell_text(cell)
        return _MISSING if text is None else codes.setdefault(text, len(codes))

    return _Keyed(code)(cells), list(codes)


def missing_cells(cells: pd.Series[Any]) -> NDArray[np.bool_]:
    """Whether each cell is missing, shape (rows,)."""
    if _is_native(cells):
        found: NDArray[np.bool_] = cells.isna().to_numpy(dtype=bool)
        return found
    return _Keyed(lambda cell: int(plain(cell) is None))(cells).astype(bool)


def kinds_of(cells: pd.Series[Any]) -> set[str]:
    """Of all cells that are there, for a look at a public sample.

    "truth", "number", "numeral" (the text of a number), "date", "text", "object".
    """
    if _is_native(cells) and cells.dtype.kind != "b":
        return {"number"} if cells.notna().any() else set()
    codes = _Keyed(lambda cell: _KINDS.index(_kind(cell)))(cells)
    return {_KINDS[code] for code in np.unique(codes)} - {"missing"}


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """The same cells, numbers and truth values in arrays where a column has nothing else.

    For a table whose source has texts alone. Nothing depends on it but what people see, and what is
    guessed of a public sample: a number means the same as its text.
    """
    found = frame.copy(deep=False)
    for name in frame.columns:
        kinds = kinds_of(frame[name])
        if kinds == {"numeral"}:
            values = numeric_cells(frame[name])[0]
            whole = bool(np.isfinite(values).all()) and bool((np.abs(values) < 2**53).all())
            whole = whole and bool((values % 1 == 0).all())
            found[name] = values.astype(np.int64) if whole else values
        elif kinds == {"truth"} and not missing_cells(frame[name]).any():
            found[name] = numeric_cells(frame[name])[0].astype(bool)
    return found


class _Texts:
    """Where the texts of cells stand in a public list; what is missing or not in it is counted."""

    def __init__(self, texts: Sequence[str], owner: str) -> None:
        self._places: dict[str | None, int] = {}
        for k, text in enumerate(texts):
            own = cell_text(text)
            if own is None:
                raise SchemaError(
                    f"{owner} has {shown(text)}, which is a word for a missing cell: leave it out"
                )
            first = self._places.setdefault(own, k)
            if first != k:
                raise SchemaError(
                    f"{owner} has {shown(texts[first])} and {shown(text)}, which are the same "
                    "number, date, truth value or text: name one of them otherwise, in the table "
                    "too"
                )
        self._folded = {str(text).casefold() for text in self._places}
        self._find = _Keyed(self._place)
        self.is_spelling = True
        self.missing, self.unknown, self.objects = Places(), Places(), Places()

    def of(self, text: str) -> int:
        """Its place, or _UNKNOWN."""
        return self._places.get(cell_text(text), _UNKNOWN)

    def _place(self, cell: object) -> int:
        try:
            text = cell_text(cell)
        except TypeError:
            return _OBJECT
        return _MISSING if text is None else self._places.get(text, _UNKNOWN)

    def take(self, cells: pd.Series[Any]) -> NDArray[np.intp]:
        """One batch: places in the list, _MISSING, _UNKNOWN or _OBJECT, shape (rows,)."""
        found = self._find(cells)
        self.missing.take(cells.index, found == _MISSING)
        self.objects.take(cells.index, found == _OBJECT)
        unknown = found == _UNKNOWN
        if self.unknown.take(cells.index, unknown) and self.is_spelling:
            others = (str(cell_text(cell)) for cell in cells[unknown].tolist())
            self.is_spelling = all(text.casefold() in self._folded for text in others)
        return found


# -- one column -----------------------------------------------------------------------------------


class _Cells:
    """One column, over all batches; counts of cells that were filled in, or moved into bounds.

    outside: not in the declared range; between: neither of two numbers; unknown: of no declared
    category.
    """

    def __init__(self, column: Column, cure: str) -> None:
        self.column, self._cure = column, cure
        self.filled = self.clamped = 0
        self.outside, self.between, self.unknown = Places(), Places(), Places()


class Numbers(_Cells):
    """A column of numbers; scale: None: as they are; cure: of missing cells that it refuses."""

    column: NumericColumn

    def __init__(self, column: NumericColumn, scale: Scale | None, cure: str) -> None:
        super().__init__(column, cure)
        self._scale = scale
        self._hint, self._below = Hint(), Places()
        self._texts, self._infinite, self._missing = Places(), Places(), Places()

    def take(self, cells: pd.Series[Any], out: FloatArray) -> None:
        """One batch, into `out`, zeros of shape (rows, features)."""
        column = self.column
        if isinstance(column, DateColumn):
            values, texts = day_cells(cells, column.first)
        else:
            values, texts = numeric_cells(cells)
        missing, infinite = np.isnan(values) & ~texts, np.isinf(values)
        if self._texts.take(cells.index, texts):
            self._hint.take(_hinting(cell) for cell in cells[texts].tolist())
        self._infinite.take(cells.index, infinite)
        self._missing.take(cells.index, missing)
        self.filled += int(missing.sum())
        if column.binary:
            values = self._nearest(values, cells.index)
        values = np.where(missing | texts | infinite, column.typical or 0.0, values)
        out[:, 0] = values if self._scale is None else self._scaled(values, cells.index)
        if column.missing == "indicator":
            out[:, 1] = missing

    def _nearest(self, values: FloatArray, index: pd.Index[Any]) -> FloatArray:
        """low or high for whatever lies between, which is counted."""
        low, high = self.column.low, self.column.high
        between = (values > low) & (values < high)
        self.between.take(index, between)
        return np.where(between, np.where(values < (low + high) / 2, low, high), values)

    def _scaled(self, values: FloatArray, index: pd.Index[Any]) -> FloatArray:
        """(x - shift) / scale within public bounds; everything that leaves them is counted."""
        column, low, high = self.column, self.column.low, self.column.high
        if self._scale == "range" or self._scale == "standard":
            (shift, scale), most = column.affine(self._scale), column.bound(self._scale)
            least = -most
        elif self._scale == "clamp":
            shift, scale, least, most = 0.0, 1.0, low, high
        else:
            shift, scale, least, most = low, high - low, 0.0, 1.0
        if self._scale == "weight":
            self._below.take(index, values < low)
        outside = (values < low) | (values > high)
        self.outside.take(index, outside)
        with np.errstate(over="ignore"):  # an infinite quotient is clamped like any other
            values = (values - shift) / scale
        # Rounding alone may reach past the bound: count by the raw value.
        moved = np.abs(values) > most if self._scale == "standard" else outside
        self.clamped += int(moved.sum())
        return np.clip(values, least, most)

    def wrong(self) -> str:
        """Of all batches; empty where nothing is."""
        words = []
        if self._texts.count:
            is_date = isinstance(self.column, DateColumn)
            hint = "write dates as 2024-05-31" if is_date else self._hint
            due = "no date where one" if is_date else "text where a number"
            words.append(f"has {due} is due in {self._texts}: {hint}")
        if self._infinite.count:
            words.append(
                f"is infinite or too large for a number in {self._infinite}: correct or drop these "
                "rows"
            )
        if self._missing.count and self.column.missing == "refuse":
            words.append(f"is missing (empty or NaN) in {self._missing}: {self._cure}")
        if self._below.count:
            words.append(f"is negative in {self._below}: a weight is 0 or more")
        return ", and ".join(words)


class Categories(_Cells):
    """A column of categories, one-hot; all zeros of no declared one."""

    def __init__(self, column: CategoricalColumn, cure: str) -> None:
        super().__init__(column, cure)
        self._texts = _Texts(column.categories, f"column {shown(column.name)}")
        self._instead = _MISSING if column.typical is None else self._texts.of(column.typical)
        self.unknown = self._texts.unknown

    def take(self, cells: pd.Series[Any], out: FloatArray) -> None:
        """As of `Numbers`."""
        places = self._texts.take(cells)
        missing = places == _MISSING
        self.filled += int(missing.sum())
        places[missing] = self._instead
        rows = np.flatnonzero(places >= 0)
        out[rows, places[rows]] = 1.0
        if self.column.missing == "indicator":
            out[:, -1] = missing

    def wrong(self) -> str:
        """As of `Numbers`."""
        words = _objects(self._texts)
        if self._texts.missing.count and self.column.missing == "refuse":
            words.append(f"is missing in {self._texts.missing}: {self._cure}")
        return ", and ".join(words)

    @property
    def unknown_places(self) -> str:
        """With a hint if only spaces or capitals differ."""
        hinted = "; they differ in capitals only" * self._texts.is_spelling
        return f"{self.unknown.listed}{hinted}"


def _hinting(cell: object) -> object:
    value = plain(cell)
    return value.isoformat(*" " * isinstance(value, datetime)) if isinstance(value, date) else value


def _objects(texts: _Texts) -> list[str]:
    if not texts.objects.count:
        return []
    return [f"holds objects, not texts or numbers, in {texts.objects}: convert or leave it out"]


# -- all columns ----------------------------------------------------------------------------------


class Features:
    """Columns of a table as features: numbers, one-hot categories; missing cells are filled in.

    scale: of numbers; None: they stay as they are. cure: of missing cells that a column refuses.
    """

    def __init__(
        self, columns: Sequence[Column], scale: Scale | None = None, cure: str = _REFUSED
    ) -> None:
        self.names = tuple(column.name for column in columns)
        self._rows, self._width = 0, sum(len(column.features) for column in columns)
        self._cells: list[Numbers | Categories] = [
            Numbers(column, scale, cure)
            if isinstance(column, NumericColumn)
            else Categories(column, cure)
            for column in columns
        ]

    def take(self, table: pd.DataFrame) -> FloatArray:
        """Features of one batch, shape (rows, features); zeros of a column that is not there."""
        found, start = np.zeros((len(table), self._width)), 0
        self._rows += len(table)
        for cells in self._cells:
            column, stop = cells.column, start + len(cells.column.features)
            if column.name in table.columns:
                cells.take(table[column.name], found[:, start:stop])
            start = stop
        return found

    def refuse(self, problems: Problems, strict: bool = False) -> None:
        """What is wrong with all batches goes to `problems`; strict: see `encode_shard`."""
        before = len(problems)
        for cells in self._cells:
            if words := cells.wrong():
                problems.add(f"column {shown(cells.column.name)} {words}")
        if strict and len(problems) == before and (what := list(self._outside())):
            problems.add(
                f"{'; '.join(what[:3])}{'; ...' if what[3:] else ''}: correct them, widen the "
                "schema, or leave strict off to have them clamped and counted"
            )

    def _outside(self) -> Iterator[str]:
        for cells in self._cells:
            of = f"of {self._rows} values of column {shown(cells.column.name)} are"
            if cells.outside.count:
                yield f"{cells.outside.count} {of} outside its range ({cells.outside.listed})"
            if cells.between.count:
                low, high, found = cells.column.low, cells.column.high, cells.between  # type: ignore[union-attr]
                yield f"{found.count} {of} neither {low:g} nor {high:g} ({found.listed})"
            if isinstance(cells, Categories) and cells.unknown.count:
                yield f"{cells.unknown.count} {of} of no declared category ({cells.unknown_places})"

    def counts(self) -> dict[str, dict[str, Any]]:
        """Of all batches, by column; places: in words, see `shard.ClampCounts`."""
        found: dict[str, dict[str, Any]] = {
            "clamped": {c.column.name: c.clamped for c in self._cells},
            "outside": {c.column.name: c.outside.count for c in self._cells},
            "unknown": {c.column.name: c.unknown.count for c in self._cells},
            "between": {c.column.name: c.between.count for c in self._cells},
            "filled": {c.column.name: c.filled for c in self._cells},
            "places": {
                c.column.name: c.unknown_places
                for c in self._cells
                if isinstance(c, Categories) and c.unknown.count
            },
        }
        return {kind: {n: v for n, v in own.items() if v} for kind, own in found.items()}


class Labels:
    """The column of a label: 1.0 positive, 0.0 negative; of several classes 1.0 for a row's own."""

    def __init__(self, label: Label | Classes) -> None:
        self._label, self.names = label, label.names
        self._texts = _Texts(label.values, f"label {shown(label.name)}")

    def take(self, table: pd.DataFrame) -> FloatArray:
        """Of one batch, shape (rows,) or (rows, classes); the first value where a cell is wrong."""
        label = self._label
        if label.name not in table.columns:
            return np.zeros(len(table))
        places = np.maximum(self._texts.take(table[label.name]), 0)
        return places.astype(float) if isinstance(label, Label) else np.eye(label.outputs)[places]

    def refuse(self, problems: Problems, strict: bool = False) -> None:
        """What is wrong with all batches goes to `problems`, strict or not."""
        label, texts = self._label, self._texts
        words = _objects(texts)
        if texts.missing.count:
            words.append(f"is missing in {texts.missing}: drop these rows")
        if texts.unknown.count:
            few = ", ".join(map(shown, label.values[:5]))
            none = f"none of the {len(label.values)} classes {few}{', …' * (len(label.values) > 5)}"
            if isinstance(label, Label):
                none = f"neither {shown(label.positive)} nor {shown(label.negative)}"
            hinted = "they differ in capitals only; " * texts.is_spelling
            words.append(f"is {none} in {texts.unknown}: {hinted}correct them or the schema")
        if words:
            problems.add(f"label {shown(label.name)} {', and '.join(words)}")

    def counts(self) -> dict[str, dict[str, Any]]:
        """None: a label is what the schema says, or refused."""
        return {}


def outcome_of(label: Label | Classes | Targets) -> Labels | Features:
    """What is predicted: a label, or numeric targets on [0, 1]."""
    if isinstance(label, Targets):
        return Features(label.columns, "unit", cure="drop these rows")
    return Labels(label)
