"""The public description of the columns that all parties agree on before any data is touched.

Columns that rows are made of, with public ranges and categories; what is predicted; and what rows
have beside features.

Privacy: scaling uses numbers of the schema only, never of a private table.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike, NDArray

from protocols.errors import ParameterError, SchemaError
from protocols.exchange.documents import (
    Checked,
    Text,
    canonical_digest,
    parse_json,
    read,
    shown,
)

if TYPE_CHECKING:
    from parties.reader.imputation import Imputation
    from parties.reader.projection import Projection

_VERSION = 1
MOST_CLASSES = 100
T = TypeVar("T")
FloatArray = NDArray[np.float64]
MAX_MAGNITUDE = 1e150
"""Bound on every number of a schema, so that squares and quotients of them stay finite."""
MIN_WIDTH = 1 / MAX_MAGNITUDE
Number = Annotated[float, Meta(ge=-MAX_MAGNITUDE, le=MAX_MAGNITUDE)]
Width = Annotated[float, Meta(ge=MIN_WIDTH, le=MAX_MAGNITUDE)]
Scaling = Literal["range", "standard"]
CLAMP_SPREADS = 2.0
"""Where "standard" scaling clamps, in spreads on either side of the typical value."""
Missing = Literal["refuse", "typical", "indicator"]
"""What becomes of a cell that is empty: its row is refused; the public typical value takes its
place; or that as well, and a feature "name=missing" beside it says so."""


class Public(Checked, frozen=True):
    """A part of the schema. Raises SchemaError: a field is out of range; the message names it."""

    REFUSAL: ClassVar[type[SchemaError]] = SchemaError


class NumericColumn(Public, frozen=True, tag_field="kind", tag="numeric"):
    """A column of numbers with a public range.

    name: column name in the table.
    low, high: range that values are expected in, low < high [the column's own unit].
    typical, spread: public centre and scale of "standard" scaling, both or neither, spread > 0
        [the column's own unit]. One significant digit is enough.
    missing: of empty cells. All but "refuse" need a typical value within the range.
    binary: whether cells are low or high alone, such as 0 and 1: one between is taken as the nearer
        end.
    """

    name: Text
    low: Number
    high: Number
    typical: Number | None = None
    spread: Width | None = None
    missing: Missing = "refuse"
    binary: bool = False

    def __post_init__(self) -> None:
        """Check the fields one by one, then against each other."""
        Public.__post_init__(self)
        owner = f"column {shown(self.name)}"
        if self.high - self.low < MIN_WIDTH:
            raise SchemaError(
                f"low={self.low:g} of {owner} is not below high={self.high:g}: "
                "give a range with low < high"
            )
        fits = self.typical is not None and self.low <= self.typical <= self.high
        if self.missing != "refuse" and not fits:
            raise SchemaError(
                f"missing={self.missing!r} of {owner} needs a typical value within "
                f"[{self.low:g}, {self.high:g}], not {self.typical}: it fills empty cells"
            )
        if (self.typical is None) != (self.spread is None) and self.missing == "refuse":
            alone = "typical" if self.spread is None else "spread"
            raise SchemaError(f"{owner} has {alone} only: give typical and spread, or neither")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that this column expands to: its own, and "name=missing"."""
        return (self.name, *_indicator(self))

    def affine(self, scaling: Scaling) -> tuple[float, float]:
        """Return (shift, scale) of the scaled value (x - shift) / scale, before clamping."""
        if scaling == "standard" and self.typical is not None and self.spread is not None:
            return self.typical, self.spread
        return (self.low + self.high) / 2, (self.high - self.low) / 2

    def bound(self, scaling: Scaling) -> float:
        """Return the bound on |scaled value| after clamping: 1, or 2 for "standard"."""
        return CLAMP_SPREADS if scaling == "standard" else 1.0


class DateColumn(NumericColumn, frozen=True, tag_field="kind", tag="date"):
    """A column of days, as numbers: the days since a public one.

    origin: that day, such as 2020-01-01; low, high, typical, spread: in days since then [days].
    """

    origin: Text = msgspec.field(name="origin", default="")

    def __post_init__(self) -> None:
        """Check the origin, and the fields of a column of numbers."""
        NumericColumn.__post_init__(self)
        try:
            _ = self.first
        except ValueError:
            raise SchemaError(
                f"origin={shown(self.origin)} of column {shown(self.name)} is no day: write one, "
                "such as 2020-01-01"
            ) from None

    @property
    def first(self) -> date:
        """The origin."""
        return date.fromisoformat(self.origin)

    def day(self, days: float) -> str:
        """Such as 2020-03-01; the days where no calendar has them."""
        try:
            return (self.first + timedelta(days=days)).isoformat()
        except (OverflowError, ValueError):
            return f"{days:g} days"


class CategoricalColumn(Public, frozen=True, tag_field="kind", tag="categorical"):
    """A column with a public list of categories, one feature "name=category" in {0, 1} for each.

    name: column name in the table.
    categories: distinct, non-empty texts, at least one. A boolean cell reads as "True" or
        "False", a whole number without a decimal point.
    missing: of empty cells; "indicator" is one category more, "name=missing".
    typical: the category that "typical" fills in.
    """

    name: Text
    categories: Annotated[tuple[Text, ...], Meta(min_length=1)]
    missing: Missing = "refuse"
    typical: Text | None = None

    def __post_init__(self) -> None:
        """Check the fields; every category is listed once."""
        Public.__post_init__(self)
        is_due = self.missing == "typical"
        if (self.typical is not None) != is_due or (is_due and self.typical not in self.categories):
            raise SchemaError(
                f"missing={self.missing!r} of column {shown(self.name)} with typical="
                f"{shown(self.typical)}: give one of the categories as typical value with "
                "missing='typical', and none otherwise"
            )
        once(self.categories, f"category {{}} of column {shown(self.name)} is listed {{}} times")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the one-hot features, in the order of the categories."""
        named = tuple(f"{self.name}={category}" for category in self.categories)
        return (*named, *_indicator(self))


def _indicator(column: NumericColumn | CategoricalColumn) -> tuple[str, ...]:
    return (f"{column.name}=missing",) if column.missing == "indicator" else ()


Column = NumericColumn | DateColumn | CategoricalColumn
Columns = tuple[Column, ...]


def once(names: Iterable[str], words: str) -> None:
    """Refuse a repeated name; words: with a place for the name and one for the count."""
    for name, count in Counter(names).items():
        if count > 1:
            raise SchemaError(f"{words.format(shown(name), count)}: keep one, or rename the other")


# -- what is predicted, and what rows have beside features -----------------------------------------


class Label(Public, frozen=True):
    """The column to predict: its name, and the texts of its positive (1) and negative (0) value."""

    name: Text
    positive: Text
    negative: Text

    def __post_init__(self) -> None:
        """Check the three texts."""
        Public.__post_init__(self)
        if self.positive == self.negative:
            raise SchemaError(
                f"positive={shown(self.positive)} of label {shown(self.name)} equals negative: "
                "a label needs two different values"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Its own, alone."""
        return (self.name,)

    @property
    def values(self) -> tuple[str, ...]:
        """The two texts, in the order of their codes."""
        return self.negative, self.positive


class Classes(Public, frozen=True):
    """The column to predict, of three or more values: its name, and their texts in order."""

    name: Text
    classes: Annotated[tuple[Text, ...], Meta(min_length=3, max_length=MOST_CLASSES)]

    def __post_init__(self) -> None:
        """Check the texts; every class is listed once."""
        Public.__post_init__(self)
        once(self.classes, f"class {{}} of label {shown(self.name)} is listed {{}} times")

    @property
    def names(self) -> tuple[str, ...]:
        """Its own, alone."""
        return (self.name,)

    @property
    def values(self) -> tuple[str, ...]:
        """The texts, in the order of their codes."""
        return self.classes

    @property
    def outputs(self) -> int:
        """K."""
        return len(self.classes)


class Targets(Public, frozen=True, rename={"columns": "targets"}):
    """Numeric columns with public ranges: what a regression predicts, in the order of the outputs.

    Each is scaled to [0, 1] by its range and clamped there: the range bounds the sensitivity, and
    predictions are mapped back by it.
    """

    columns: Annotated[tuple[NumericColumn, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Check the columns; every target is named once."""
        Public.__post_init__(self)
        once(self.names, "target {} is named {} times")
        for column in self.columns:
            if column.missing != "refuse":
                raise SchemaError(
                    f"missing={column.missing!r} of target {shown(column.name)}: an outcome is "
                    "never filled in, so leave it out"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def name(self) -> str:
        """All names, for titles."""
        return ", ".join(self.names)

    @property
    def outputs(self) -> int:
        """c."""
        return len(self.columns)

    @property
    def low(self) -> FloatArray:
        """Shape (c,) [data units]."""
        return np.array([column.low for column in self.columns])

    @property
    def width(self) -> FloatArray:
        """high - low, shape (c,) [data units]."""
        return np.array([column.high - column.low for column in self.columns])

    def to_data_units(self, scaled: FloatArray) -> FloatArray:
        """Predictions on the scale of [0, 1], shape (rows, c), in the data's units."""
        return self.low + scaled * self.width


def target_shape(label: Label | Classes | Targets) -> tuple[int, ...]:
    """Of what a row predicts: () of a label, else (outputs,)."""
    return () if isinstance(label, Label) else (label.outputs,)


class Weight(Public, frozen=True):
    """The column that says how much a row counts, from 0 to a public bound.

    Rows carry it over its bound, on [0, 1]: so no row moves a sum by more than one without weights
    does. Only ratios of weights matter to what is fitted.
    """

    name: Text
    bound: Width

    @property
    def column(self) -> NumericColumn:
        """What its cells are read as."""
        return NumericColumn(name=self.name, low=0.0, high=self.bound)


class Offset(Public, frozen=True):
    """The column that is added to a row's score, with coefficient 1, on a public range.

    log: the column holds exposures above 0, such as years at risk, whose logarithm is added; low
    and high are of exposures, then. Rows carry it less the middle of its range, `centre`.
    """

    name: Text
    low: Number
    high: Number
    log: bool = False

    def __post_init__(self) -> None:
        """Check the range; of exposures it is above 0."""
        Public.__post_init__(self)
        _ = self.column  # low < high
        if self.log and not self.low > 0:
            raise SchemaError(
                f"low={self.low:g} of offset {shown(self.name)} is not above 0, which a logarithm "
                "needs: give the least exposure"
            )

    @property
    def column(self) -> NumericColumn:
        """What its cells are read as."""
        return NumericColumn(name=self.name, low=self.low, high=self.high)

    def scores(self, cells: FloatArray) -> FloatArray:
        """What cells within the range add to scores."""
        # One by one: lanes of a vector and its rest may round differently.
        return np.array(list(map(math.log, cells.tolist()))) if self.log else cells

    @property
    def _ends(self) -> FloatArray:
        return self.scores(np.array([self.low, self.high]))

    @property
    def centre(self) -> float:
        """Of what is added; the intercept takes it up."""
        return float(self._ends.mean())

    @property
    def reach(self) -> float:
        """Largest |added - centre|."""
        low, high = self._ends
        return float(high - low) / 2


def _projection(fields: dict[str, Any] | None) -> Projection | None:
    """Of a schema's document; owners whose schema has none do not load its code."""
    if fields is None:
        return None
    from parties.reader.projection import Projection

    found: Projection = read(fields, Projection, "the schema", SchemaError, "projection")
    return found


def _imputation(fields: dict[str, Any] | None) -> Imputation | None:
    """As of a projection."""
    if fields is None:
        return None
    from parties.reader.imputation import Imputation

    found: Imputation = read(fields, Imputation, "the schema", SchemaError, "imputation")
    return found


# -- all of it -------------------------------------------------------------------------------------


class _Document(Public, frozen=True):
    """A schema file; label: a `Label`, `Classes` or `Targets`."""

    version: Literal[1]
    scaling: Scaling
    label: dict[str, Any]
    columns: Columns
    row_norm: Width | None = None
    weight: Weight | None = None
    offset: Offset | None = None
    projection: dict[str, Any] | None = None
    imputation: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """Columns, label and scaling of every party's table.

    columns: numeric and categorical columns in feature order, at least one.
    label: what to predict: a column of two values, of several classes, or numeric targets.
    scaling: of numeric columns. "range": [low, high] -> [-1, 1], clamped there. "standard":
        (x - typical) / spread, clamped to [-2, 2]. Categories are one-hot in {0, 1}.
    row_norm: c > 0: rows, bias included, are divided by c and clipped to Euclidean norm 1. None:
        rows stay as scaled.
    weight, offset: columns beside the features; None: every row counts the same, and its score is
        that of its features.
    projection: of the scaled features to fewer components, before the row norm; None: none.
    imputation: models by which missing cells are drawn for `--imputations`; None: none.

    A bias column of ones comes last.

    Raises:
        SchemaError: a field is out of range, or names collide; the message names them.
    """

    columns: tuple[Column, ...]
    label: Label | Classes | Targets
    scaling: Scaling = "standard"
    row_norm: float | None = None
    weight: Weight | None = None
    offset: Offset | None = None
    projection: Projection | None = None
    imputation: Imputation | None = None

    def __post_init__(self) -> None:
        """Check the fields one by one, then against each other."""
        kinds = {"columns": Columns, "scaling": Scaling, "row_norm": Width | None}
        for name, kind in kinds.items():
            value = read(getattr(self, name), kind, "the schema", SchemaError, name)
            object.__setattr__(self, name, value)
        if not isinstance(self.label, (Label, Classes, Targets)):
            what = type(self.label).__name__
            raise SchemaError(f"label is a {what}, not a Label, Classes or Targets")
        if not self.columns and len(self.label.names) == 1:
            raise SchemaError(
                "columns=(): a model is of one column or more, curves alone, of a time and an "
                "event, need none: add one"
            )
        if isinstance(self.label, Classes) and self.offset is not None:
            raise SchemaError(
                f"offset={shown(self.offset.name)} beside a label of several classes: an offset of "
                "every class's score changes no probability; leave it out"
            )
        names = [*(column.name for column in self.columns), *self.label.names, *self.beside]
        once(names, "name {} is used by {} columns (the label counts)")
        once(self.expanded_names, "feature {} arises {} times from column and category names")
        features = len(self.expanded_names)
        if self.projection is not None and self.projection.features != features:
            raise SchemaError(
                f"projection of {self.projection.features} features, where columns have {features}:"
                " make it again with these columns (schema init --project)"
            )
        if self.imputation is not None:
            self.imputation.check(self)
        for column in self.columns if self.scaling == "standard" else ():
            if isinstance(column, NumericColumn) and column.spread is None:
                raise SchemaError(
                    f"column {shown(column.name)} has no typical value and spread, which "
                    "scaling='standard' needs: add both, or choose scaling='range'"
                )

    @property
    def beside(self) -> tuple[str, ...]:
        """Names of the columns of weights and offsets, as far as there are any."""
        return tuple(each.name for each in (self.weight, self.offset) if each is not None)

    @property
    def row_terms(self) -> dict[str, float]:
        """What a plan states of weights and offsets: the bound, and how far offsets reach."""
        found: dict[str, float] = {}
        if self.weight is not None:
            found["weight"] = self.weight.bound
        if self.offset is not None:
            found["offset"] = self.offset.reach
        return found

    @property
    def expanded_names(self) -> tuple[str, ...]:
        """Names of the expanded features, one-hot as "column=category", without the bias."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Of an encoded row, without the bias: the expanded ones, or components of them."""
        return self.expanded_names if self.projection is None else self.projection.names

    @property
    def num_features(self) -> int:
        """Length of an encoded row, the bias included."""
        return 1 + len(self.feature_names)

    @property
    def bias(self) -> float:
        """What the bias column holds in a row that is not clipped."""
        return 1.0 if self.row_norm is None else 1 / self.row_norm

    @property
    def norm_bound(self) -> float:
        """B_x, a bound on the Euclidean norm of every encoded row (it enters the sensitivity).

        1 with ``row_norm``; otherwise the root of the columns' summed squares and the bias's: of a
        number its bound, 1 for "range" and 2 for "standard", and 1 where an indicator is beside it;
        of a categorical column 1, for of its features one at most is not 0.
        """
        if self.row_norm is not None:
            return 1.0
        if self.projection is not None:
            bounds = self._of_features(lambda column: column.bound(self.scaling), 1.0)
            return math.hypot(1, self.projection.norm_bound(np.array(bounds)))
        return math.sqrt(1 + sum(self._square_bound(column) for column in self.columns))

    @property
    def entry_bound(self) -> float:
        """Bound on the absolute value of every entry of an encoded row, the bias included."""
        if self.row_norm is not None or self.projection is not None:
            return self.norm_bound
        return max([1.0, *self._of_features(lambda column: column.bound(self.scaling), 1.0)])

    def _square_bound(self, column: Column) -> float:
        if isinstance(column, CategoricalColumn):
            return 1.0
        return column.bound(self.scaling) ** 2 + len(_indicator(column))

    def affine(self) -> tuple[FloatArray, FloatArray]:
        """Return (shift, scale), float64 arrays over ``expanded_names`` [data units].

        An unclamped, unclipped feature is encoded as (x - shift) / scale / (row_norm or 1), where
        nothing projects it.
        """
        pairs = self._of_features(lambda column: column.affine(self.scaling), (0.0, 1.0))
        shift, scale = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        return shift, scale

    def _of_features(self, of_number: Callable[[NumericColumn], T], other: T) -> list[T]:
        """One of each feature; other: of a category or an indicator, which is 0 or 1."""
        return [
            of_number(column) if isinstance(column, NumericColumn) and k == 0 else other
            for column in self.columns
            for k in range(len(column.features))
        ]

    def model_in_data_units(self, weights: ArrayLike) -> tuple[FloatArray, float]:
        """Undo the scaling (not the clipping) of weights, shape (num_features,), the bias last.

        Returns: coef over ``expanded_names``, and intercept: coef @ (raw features, expanded)
        + intercept = weights @ (encoded row) for every row of which nothing was clamped or clipped;
        with offsets less their centre, so that offsets are added as they are.

        Raises:
            ParameterError: wrong shape, or a weight that is not finite.
        """
        w = np.asarray(weights, dtype=np.float64)
        if w.shape != (self.num_features,) or not np.isfinite(w).all():
            raise ParameterError(
                f"weights of shape {w.shape} are not {self.num_features} finite numbers: "
                "one per feature, and the bias last"
            )
        shift, scale = self.affine()
        # w . ((x - shift) / scale, 1) / c = (s . x + w_bias - s . shift) / c  with  s = w / scale
        c = 1.0 if self.row_norm is None else self.row_norm
        of_features, constant = w[:-1], 0.0
        if self.projection is not None:
            of_features, constant = self.projection.undone(of_features)
        slopes = of_features / scale
        centre = 0.0 if self.offset is None else self.offset.centre
        return slopes / c, float((w[-1] + constant - slopes @ shift) / c) - centre

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values."""
        plain = {name: getattr(self, name) for name in ("scaling", "row_norm", "label", "columns")}
        fields: dict[str, Any] = msgspec.to_builtins({"version": _VERSION, **plain})
        for column in (*fields["columns"], *fields["label"].get("targets", ())):
            # The digest of a schema that fills nothing in is that of version 0.1.
            if column["missing"] == "refuse":
                del column["missing"]
            if column["kind"] == "categorical" and column["typical"] is None:
                del column["typical"]
            if not column.get("binary", True):
                del column["binary"]
        for name in ("weight", "offset", "projection", "imputation"):
            if (beside := getattr(self, name)) is not None:
                fields[name] = msgspec.to_builtins(beside)
        return fields

    @classmethod
    def from_dict(cls, item: object) -> Schema:
        """Read what ``to_dict`` wrote; anything else is a SchemaError."""
        found: _Document = read(item, _Document, "the schema", SchemaError)
        kinds = {"targets": Targets, "classes": Classes}
        kind = next((kinds[key] for key in kinds if key in found.label), Label)
        return cls(
            columns=found.columns,
            label=read(found.label, kind, "the schema", SchemaError, "label"),
            scaling=found.scaling,
            row_norm=found.row_norm,
            weight=found.weight,
            offset=found.offset,
            projection=_projection(found.projection),
            imputation=_imputation(found.imputation),
        )

    def to_json(self) -> str:
        """Return the schema as JSON for a person to read and edit."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Schema:
        """Read JSON (UTF-8 where bytes); a repeated key, for one, is a SchemaError."""
        return cls.from_dict(parse_json(text, "the schema", SchemaError))

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON (sorted keys, no spaces, ASCII), in hex."""
        return canonical_digest(self.to_dict())

    def save(self, path: str | Path) -> None:
        """Write the schema to a JSON file (UTF-8)."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema file; one that is missing or holds no schema is a SchemaError."""
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise SchemaError(
                f"schema file {str(path)!r} cannot be read ({type(error).__name__}): check the path"
            ) from None
        return cls.from_json(content)
