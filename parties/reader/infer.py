"""First guesses for a schema, from a table that is PUBLIC: ranges reveal extreme values.

Rounding goes outward for ranges (two significant digits) and to one digit for typical value and
spread, and finer where the column's width asks for it: 2010..2020 is not widened to 2000..2100.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd

from parties.reader import Places
from parties.reader.arms import arm_of, arms_of
from parties.reader.cell_models import of_public
from parties.reader.cells import (
    cell_text,
    day_cells,
    kinds_of,
    missing_cells,
    numeric_cells,
    text_cells,
)
from parties.reader.moments import CURE, holds_moments, moment_notes
from parties.reader.projection import Projection
from parties.reader.schema import (
    CLAMP_SPREADS,
    MAX_MAGNITUDE,
    MIN_WIDTH,
    MOST_CLASSES,
    CategoricalColumn,
    Classes,
    Column,
    DateColumn,
    FloatArray,
    Label,
    Missing,
    NumericColumn,
    Offset,
    Scaling,
    Schema,
    Targets,
    Weight,
)
from parties.reader.shard import check_columns, encode_columns
from parties.reader.table import Table, read_table
from protocols.errors import DataError, ParameterError, SchemaError
from protocols.exchange.documents import looks_numeric, shown, suggest

# A linear fit needs rows as long as they are: clipping to a norm would bend it.
REGRESSION_SCALING: dict[str, Any] = {"scaling": "range", "row_norm": None}
"""Of an inferred schema with targets."""
MAX_CATEGORIES = 100
_POSITIVE_WORDS = {"1", "true", "t", "yes", "y", "positive", "pos", "+"}

SEVERAL = "; or take --model softmax --protocol secure-aggregation"


def infer_schema(
    frame: Table,
    label: str | Sequence[str],
    positive: object = None,
    scaling: Scaling = "standard",
    row_norm: Literal["auto"] | float | None = "auto",
    *,
    exclude: Sequence[str] = (),
    include: Sequence[str] | None = None,
    reference: Sequence[str] = (),
    dates: Sequence[str] = (),
    missing: Missing = "refuse",
    several: bool = False,
    weight: str | None = None,
    offset: str | None = None,
    log_offset: bool = False,
    project: int | None = None,
    impute: int | None = None,
) -> Schema:
    """Describe a PUBLIC sample; the result is a first schema for a person to check.

    frame: anything that ``read_table`` takes; arrays get the column names x1..xd.
    label: name of the label column ("y" for a pair of arrays); or, in a list, those of numeric
        targets.
    positive: the label's positive value [default: the "1"-like one, or else the larger].
    row_norm: c, None for no clipping, or "auto" for the median norm of the scaled rows.
    exclude: columns to leave out.
    include: the only columns to use [default: all]. A column named here may look like an ID or
        have more than 100 categories.
    reference: "column=category", which then comes first, where else the alphabet decides; a column
        of two numbers that is named so has these as categories.
    dates: columns of days, which count from the first of January of the earliest one's year.
    missing: of the columns that have missing cells in the sample.
    several: take a label of three or more values as classes.
    weight, offset: columns that say how much a row counts, and what is added to its score; their
        bounds are rounded outward. log_offset: see `Offset.log`.
    project: to so many components of the sample, see `Projection.of_public`.
    impute: with models of missing cells for so many draws, see `cell_models.of_public`.

    Text, boolean and categorical columns become categorical, all others numeric. Ranges are rounded
    outward to two significant digits, typical value, spread and row norm to one. Cells of two
    neighbouring whole numbers, such as 0 and 1, make a column binary.

    Raises:
        SchemaError: unknown column names, a label without exactly two values, an unusable column.
        DataError: the table cannot be read or has no rows, or a label is missing.

    Warns:
        UserWarning: a column looks like an ID, or holds dates or times; it is kept. Exposures are
            clamped to the sample's range.
    """
    names = [label] if isinstance(label, str) else list(label)
    table = read_table(frame, label=names[0])
    beside = _beside(table, weight, offset, log_offset)
    columns = [
        fill_in(column, table[column.name], missing)
        for column in _kept(
            table, names, (*exclude, *(b.name for b in beside.values())), include, dates
        )
    ]
    columns = with_references(columns, reference)
    try:
        outcome = (
            infer_label(table[label], positive, several)
            if isinstance(label, str)
            else infer_targets(table, label)
        )
    except DataError as problem:
        try:
            encode_columns(table, columns, scaling)
        except DataError as others:
            raise DataError(f"{others}; {problem}") from None
        raise
    schema = Schema(columns=tuple(columns), label=outcome, scaling=scaling, **beside)
    for words in moment_notes(schema):
        warnings.warn(words, UserWarning, stacklevel=2)
    if project is not None:
        sample = encode_columns(table, schema.columns, schema.scaling)
        schema = replace(schema, projection=Projection.of_public(sample, project))
    if impute is not None:
        schema = replace(schema, imputation=of_public(table, schema, impute))
    if row_norm == "auto":
        row_norm = typical_row_norm(table, schema)
    return replace(schema, row_norm=row_norm)


def _beside(
    table: pd.DataFrame, weight: str | None, offset: str | None, log: bool
) -> dict[str, Any]:
    """Weights and offsets of the schema, as far as they are named."""
    found: dict[str, Any] = {}
    for kind, name in (("weight", weight), ("offset", offset)):
        if name is None:
            continue
        column = _numeric(table, kind, name)
        values = numeric_cells(table[name])[0]
        if kind == "weight":
            high = float(np.nanmax(values))
            if not (np.nanmin(values) >= 0 and high > 0):
                raise SchemaError(f"weight {shown(name)} is negative, or 0 in all rows: correct it")
            found[kind] = Weight(name=name, bound=outward(high, high, ROUND_CEILING))
            continue
        # Outward rounding may reach 0, which has no logarithm.
        low = float(np.nanmin(values)) if log and column.low <= 0 else column.low
        if log:
            warnings.warn(
                f"exposures of {shown(name)} below {low:g}, about the sample's least, are taken as "
                "so long: make low of the schema's offset the shortest that there can be",
                UserWarning,
                stacklevel=3,
            )
        found[kind] = Offset(name=name, low=low, high=column.high, log=log)
    return found


def _kept(
    table: pd.DataFrame,
    labels: list[str],
    exclude: Sequence[str],
    include: Sequence[str] | None,
    dates: Sequence[str],
) -> list[Column]:
    named = tuple(include or ())
    for name in (*labels, *exclude, *named, *dates):
        if name not in table.columns:
            raise SchemaError(
                f"column {shown(name)} is not in the table{suggest(str(name), table.columns)}: "
                "check the name"
            )
    if labels[0] in exclude or labels[0] in named:
        raise SchemaError(f"label {shown(labels[0])} is among the columns to exclude or include")
    for name in (*named, *dates):
        if name in exclude:
            raise SchemaError(
                f"column {shown(name)} is to be left out (exclude, id, weight or offset) and to be "
                "used (include or date): name it once"
            )
    for name in dates if named else ():
        if name not in named:
            raise SchemaError(f"date {shown(name)} is not among the columns to include: add it")
    if len(table) == 0:
        raise DataError("the sample has 0 rows: at least 1 is needed")
    left = [
        name
        for name in table.columns
        if name not in (*labels, *exclude) and (include is None or name in named)
    ]
    if not left and len(labels) == 1:  # of several, such as a time and an event, curves take none
        raise SchemaError("no column is left to predict from: exclude fewer, or include one")
    return [
        infer_date(table[name])
        if name in dates
        else infer_column(table[name], deliberate=include is not None)
        for name in left
    ]


def with_references(columns: Sequence[Column], reference: Sequence[str]) -> list[Column]:
    """The same columns, each category that is named "column=category" the first of its own.

    A column of two numbers becomes one of categories, so that the other is compared with it.

    Raises:
        SchemaError: there is no such category.
    """
    found = {column.name: column for column in columns}
    for each in reference:
        try:
            _, column, k = arm_of(enumerate(found.values()), "reference", each, alone=False)
        except ParameterError as error:
            raise SchemaError(str(error)) from None
        arms = arms_of(column)
        missing, typical = column.missing, None
        if isinstance(column, CategoricalColumn):
            typical = column.typical
        elif missing == "typical" and column.typical is not None:
            typical = arms[column.typical > (column.low + column.high) / 2]
        others = (arm for arm in arms if arm != arms[k])
        found[column.name] = CategoricalColumn(column.name, (arms[k], *others), missing, typical)
    return list(found.values())


def infer_targets(frame: pd.DataFrame, names: Sequence[str]) -> Targets:
    """Describe targets of a PUBLIC sample: ranges rounded outward to two digits.

    Raises:
        SchemaError: an unknown column, or one that is not numeric.
    """
    return Targets(columns=tuple(_numeric(frame, "target", name) for name in names))


def _numeric(table: pd.DataFrame, kind: str, name: str) -> NumericColumn:
    """Of a weight, an offset or a target."""
    check_columns(table, (name,))
    column = infer_column(table[name], deliberate=True)
    if not isinstance(column, NumericColumn):
        raise SchemaError(
            f"{kind} {shown(name)} holds texts, not numbers: choose another column, or correct its "
            "cells"
        )
    return column


def leading_place(value: float) -> int:
    """Return the power of ten of the leading digit: 3 for 1234.5, -2 for 0.05."""
    return Decimal(repr(abs(float(value)))).adjusted()


def round_at(value: float, place: int, rounding: str = ROUND_HALF_EVEN) -> float:
    """Round to a multiple of 10^place, exactly, by a rounding mode of ``decimal``.

    >>> round_at(17.3, 1, "ROUND_CEILING"), round_at(0.1, -1, "ROUND_FLOOR")
    (20.0, 0.1)
    """
    with localcontext() as context:
        context.prec = 400  # digits: enough for any float64 within +-1e150
        return float(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(place), rounding))


def outward(value: float, width: float, rounding: str) -> float:
    """Round an end of a range to two significant digits, or to two of its width if finer."""
    places = [leading_place(number) - 1 for number in (value, width) if number]
    return round_at(value, min(places), rounding)


def infer_numeric(name: str, values: FloatArray) -> NumericColumn:
    """Describe a numeric column by its finite values, float64, shape (rows,)."""
    values = values[np.isfinite(values)]
    if values.size == 0:
        raise SchemaError(f"column {shown(name)} has no values at all: exclude it")
    low, high = float(values.min()), float(values.max())
    if max(-low, high) > MAX_MAGNITUDE / 10:
        raise SchemaError(
            f"column {shown(name)} has values beyond {MAX_MAGNITUDE / 10:g}: exclude or rescale it"
        )
    if high - low < MIN_WIDTH:  # a constant: any range around it will do
        spread, mean = max(1.0, abs(low)), low
        low, high = mean - spread, mean + spread
    else:
        spread, mean = max(float(values.std()), 2 * MIN_WIDTH), float(values.mean())
    spread_place = leading_place(spread)
    # One digit of the mean, or down to the spread's digit; never finer than a tenth of the spread.
    place = max(min(leading_place(mean), spread_place), spread_place - 1)
    typical = round_at(mean, place)
    spread = round_at(spread, spread_place)
    is_two = bool(((values == low) | (values == high)).all())
    if is_two:
        # Two values: clamping would only falsify the coefficient, so keep both within 2 spreads.
        needed = max(high - typical, typical - low) / CLAMP_SPREADS
        spread = max(spread, round_at(needed, leading_place(needed), ROUND_CEILING))
    ends = outward(low, high - low, ROUND_FLOOR), outward(high, high - low, ROUND_CEILING)
    binary = is_two and high - low == 1 and low.is_integer()
    return NumericColumn(name, *ends, typical, spread, binary=binary)


def infer_date(cells: pd.Series[Any]) -> DateColumn:
    """Describe a column of days; missing cells are passed over.

    Raises:
        SchemaError: a cell is no date.
    """
    name, zero = str(cells.name), date(1, 1, 1)
    days, texts = day_cells(cells, zero)
    if texts.any() or np.isnan(days).all():
        raise SchemaError(
            f"column {shown(name)} is to hold dates, and {int(texts.sum()) or 'all'} of its "
            f"{len(days)} cells {'hold none' if texts.any() else 'are empty'}: write dates as "
            "2024-05-31, or take it as it is"
        )
    origin = (zero + timedelta(days=int(np.nanmin(days)))).replace(month=1, day=1)
    found = infer_numeric(name, days - (origin - zero).days)
    fields = {**msgspec.structs.asdict(found), "binary": False}
    return DateColumn(origin=origin.isoformat(), **fields)


def infer_column(cells: pd.Series[Any], deliberate: bool) -> Column:
    """Describe one column; missing cells are passed over.

    deliberate: the caller named this column, so neither the number of its categories nor its
        likeness to an ID is held against it.

    Raises:
        SchemaError: dates, objects, nothing but missing cells, numbers mixed with text, or more
            than 100 categories.
    """
    name = str(cells.name)
    kinds = kinds_of(cells)
    if not kinds:
        raise SchemaError(f"column {shown(name)} has no values at all: exclude it")
    if "number" in kinds and kinds <= {"number", "numeral"}:
        if not deliberate and is_id_like(cells):
            warnings.warn(
                f"column {shown(name)} looks like a row number or an ID and is kept: exclude it "
                "unless it carries meaning",
                UserWarning,
                stacklevel=5,
            )
        return infer_numeric(name, numeric_cells(cells)[0])
    if "date" in kinds:
        raise SchemaError(f"column {shown(name)} holds dates: {CURE}")
    if "object" in kinds:
        raise SchemaError(f"column {shown(name)} holds objects: convert or exclude it")
    categories = sorted(text_cells(cells)[1])
    numeric = sum(looks_numeric(text) for text in categories)
    if numeric > 20 and len(categories) / 2 < numeric < len(categories):
        raise SchemaError(
            f"column {shown(name)} mixes numbers with {len(categories) - numeric} different texts: "
            "correct the texts, leave their cells empty, or exclude the column"
        )
    if len(categories) > MAX_CATEGORIES and not deliberate:
        if holds_moments(categories):
            raise SchemaError(
                f"column {shown(name)} holds {len(categories)} different dates or times, which as "
                f"categories are more than {MAX_CATEGORIES}: {CURE}"
            )
        raise SchemaError(
            f"column {shown(name)} has {len(categories)} different texts, more than "
            f"{MAX_CATEGORIES}: exclude it (--exclude, exclude=), or name all columns to use "
            "(--include, include=)"
        )
    return CategoricalColumn(name=name, categories=tuple(categories))


def fill_in(column: Column, cells: pd.Series[Any], missing: Missing) -> Column:
    """A column that has missing cells, with what becomes of them.

    A number's typical value is moved into its range; a category's is the sample's most frequent.
    """
    if missing == "refuse" or not missing_cells(cells).any():
        return column
    if isinstance(column, NumericColumn):
        typical = float(np.clip(column.typical or 0.0, column.low, column.high))
        return msgspec.structs.replace(column, missing=missing, typical=typical)
    codes, texts = text_cells(cells)
    most = texts[int(np.bincount(codes[codes >= 0]).argmax())] if missing == "typical" else None
    return msgspec.structs.replace(column, missing=missing, typical=most)


def is_id_like(cells: pd.Series[Any]) -> bool:
    """Say whether a column of at least 20 whole numbers counts the rows or grows with each row.

    True as well for distinct whole numbers under a name such as "id", "patient_id" or "index".
    """
    values = numeric_cells(cells)[0]
    if values.size < 20 or not np.isfinite(values).all() or (values % 1 != 0).any():
        return False
    ordered = np.sort(values)
    if (np.diff(ordered) == 0).any():
        return False
    named = re.search(r"(^|[^a-z])(id|index|key|number|nr|no)$", str(cells.name).lower())
    counts = ordered[-1] - ordered[0] == values.size - 1
    return bool(counts or named or (np.diff(values) > 0).all())


def infer_label(
    cells: pd.Series[Any], positive: object = None, several: bool = False
) -> Label | Classes:
    """Describe the label; the default positive value is the "1"-like or else the larger one.

    several: three or more values are classes, in the order of their numbers or texts.

    Raises:
        SchemaError: not two values, or `positive` is neither. DataError: a label is missing.
    """
    name = str(cells.name)
    try:
        codes, texts = text_cells(cells)
    except TypeError:
        raise SchemaError(f"label {shown(name)} holds objects: choose another column") from None
    missing = Places()
    if missing.take(cells.index, codes < 0):
        raise DataError(f"label {shown(name)} is missing in {missing}: drop these rows")
    values = sorted(set(texts))
    numeric = all(map(looks_numeric, values))
    if several and 2 < len(values) <= MOST_CLASSES and positive is None:
        return Classes(name=name, classes=tuple(sorted(values, key=float) if numeric else values))
    if len(values) != 2:
        raise SchemaError(
            f"label {shown(name)} has {len(values)} different values where 2 are needed: choose "
            f"another column, or derive a yes/no column from this one{SEVERAL * (len(values) > 2)}"
        )
    words = [text for text in values if text.casefold() in _POSITIVE_WORDS and not numeric]
    likely = words if len(words) == 1 else [max(values, key=float if numeric else str.casefold)]
    chosen = likely[0] if positive is None else cell_text(positive)
    if chosen not in values:
        raise SchemaError(
            f"positive={shown(chosen)} is no value of label {shown(name)}: "
            f"choose {shown(values[0])} or {shown(values[1])}"
        )
    negative = values[1] if chosen == values[0] else values[0]
    return Label(name=name, positive=chosen, negative=negative)


def typical_row_norm(frame: pd.DataFrame, schema: Schema) -> float:
    """Return the median norm of the complete rows, encoded and with bias, to one digit."""
    complete, columns = np.ones(len(frame), dtype=bool), schema.columns
    for column in columns:
        cells = frame[column.name]
        if isinstance(column, NumericColumn):
            complete &= np.isfinite(numeric_cells(cells)[0])
        else:
            complete &= ~missing_cells(cells)
    norm = float(np.sqrt(1 + len(columns)))
    if complete.any():
        x = encode_columns(frame[complete], columns, schema.scaling)
        x = x if schema.projection is None else schema.projection(x)
        norm = float(np.sqrt(1 + np.median(np.einsum("ij,ij->i", x, x))))
    return round_at(norm, leading_place(norm))
