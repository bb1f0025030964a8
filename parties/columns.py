"""Columns as everyone may know them: a name, and a range, categories or two label values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from parties.checks import MIN_WIDTH, check_keys, check_number, check_text, shown
from protocols.errors import SchemaError

Scaling = Literal["range", "standard"]
SCALINGS: tuple[Scaling, ...] = ("range", "standard")
CLAMP_SPREADS = 2.0
"""Where "standard" scaling clamps, in spreads on either side of the typical value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NumericColumn:
    """A column of numbers with a public range.

    name: column name in the table.
    low, high: range that values are expected in, low < high [the column's own unit].
    typical, spread: public centre and scale of "standard" scaling, both or neither, spread > 0
        [the column's own unit]. One significant digit is enough.

    Raises:
        SchemaError: a field is out of range; the message names it.
    """

    name: str
    low: float
    high: float
    typical: float | None = None
    spread: float | None = None

    def __post_init__(self) -> None:
        """Check every field and store the numbers as floats."""
        check_text("name", self.name, "a numeric column")
        owner = f"column {shown(self.name)}"
        for field in ("low", "high", "typical", "spread"):
            value = getattr(self, field)
            if value is None and field in ("typical", "spread"):
                continue
            object.__setattr__(self, field, check_number(field, value, owner))
        if self.high - self.low < MIN_WIDTH:
            raise SchemaError(
                f"low={self.low:g} of {owner} is not below high={self.high:g}: "
                "give a range with low < high"
            )
        if (self.typical is None) != (self.spread is None):
            alone = "typical" if self.spread is None else "spread"
            raise SchemaError(f"{owner} has {alone} only: give typical and spread, or neither")
        if self.spread is not None and self.spread < MIN_WIDTH:
            raise SchemaError(
                f"spread={self.spread:g} of {owner} is not above 0: give a positive spread, "
                "such as one standard deviation"
            )

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that this column expands to: its own."""
        return (self.name,)

    def affine(self, scaling: Scaling) -> tuple[float, float]:
        """Return (shift, scale) of the scaled value (x - shift) / scale, before clamping."""
        if scaling == "standard" and self.typical is not None and self.spread is not None:
            return self.typical, self.spread
        return (self.low + self.high) / 2, (self.high - self.low) / 2

    def bound(self, scaling: Scaling) -> float:
        """Return the bound on |scaled value| after clamping: 1, or 2 for "standard"."""
        return CLAMP_SPREADS if scaling == "standard" else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return the column as plain JSON values."""
        fields = ("name", "low", "high", "typical", "spread")
        return {"kind": "numeric"} | {field: getattr(self, field) for field in fields}


@dataclass(frozen=True, kw_only=True, slots=True)
class CategoricalColumn:
    """A column with a public list of categories, one feature "name=category" in {0, 1} for each.

    name: column name in the table.
    categories: distinct, non-empty texts, at least one. A boolean cell reads as "True" or
        "False", a whole number without a decimal point.

    Raises:
        SchemaError: a field is out of range; the message names it.
    """

    name: str
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the name and the categories."""
        check_text("name", self.name, "a categorical column")
        owner = f"column {shown(self.name)}"
        given: object = self.categories
        if not isinstance(given, (list, tuple)) or not given:
            raise SchemaError(
                f"categories={shown(given)} of {owner} is not a list of at least "
                "1 text: list every category that may occur"
            )
        seen: set[str] = set()
        for category in self.categories:
            if check_text("category", category, owner) in seen:
                raise SchemaError(
                    f"category {shown(category)} of {owner} is listed twice: list it once"
                )
            seen.add(category)
        object.__setattr__(self, "categories", tuple(self.categories))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the one-hot features, in the order of the categories."""
        return tuple(f"{self.name}={category}" for category in self.categories)

    def to_dict(self) -> dict[str, Any]:
        """Return the column as plain JSON values."""
        return {"kind": "categorical", "name": self.name, "categories": list(self.categories)}


Column = NumericColumn | CategoricalColumn


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """The column to predict: its name, and the texts of its positive (1) and negative (0) value.

    Raises:
        SchemaError: a text is empty, or both values are the same.
    """

    name: str
    positive: str
    negative: str

    def __post_init__(self) -> None:
        """Check the three texts."""
        check_text("name", self.name, "the label")
        check_text("positive", self.positive, f"label {shown(self.name)}")
        check_text("negative", self.negative, f"label {shown(self.name)}")
        if self.positive == self.negative:
            raise SchemaError(
                f"positive={shown(self.positive)} of label {shown(self.name)} equals negative: "
                "a label needs two different values"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the label as plain JSON values."""
        return {"name": self.name, "positive": self.positive, "negative": self.negative}


def column_from_dict(item: object, owner: str) -> Column:
    """Read one column; raise SchemaError for unknown keys, kinds or wrong types."""
    kind = item.get("kind") if isinstance(item, Mapping) else None
    if kind == "numeric":
        fields = check_keys(item, ("kind", "name", "low", "high"), ("typical", "spread"), owner)
        return NumericColumn(**{key: fields[key] for key in fields if key != "kind"})
    if kind == "categorical":
        fields = check_keys(item, ("kind", "name", "categories"), (), owner)
        return CategoricalColumn(name=fields["name"], categories=fields["categories"])
    check_keys(item, ("kind",), tuple(item) if isinstance(item, Mapping) else (), owner)
    raise SchemaError(f"kind={shown(kind)} of {owner} is not 'numeric' or 'categorical'")


def label_from_dict(item: object) -> Label:
    """Read the label; raise SchemaError for unknown keys or wrong types."""
    return Label(**check_keys(item, ("name", "positive", "negative"), (), "the label"))
