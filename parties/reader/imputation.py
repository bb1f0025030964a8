"""Public models of missing cells, by which an owner draws them at home, several times.

Of a number, given the other columns and the outcomes, raw and in their own units,

    b_0 + sum_t b_t x_t + s e,   e standard normal, held to the column's range;

of a category P(c) in proportion to exp(b_0c + sum_t b_tc x_t), 0 for the first one, and so of the
higher of two numbers (a `binary` column) beside the lower. Where several
columns have models they are drawn in turns, each given the others as they are (chained equations).

What is fitted to several draws is pooled by Rubin's rules. Their variance is right where outcomes
are among the models' terms, and each draw has coefficients of its own from what is known of them,
which all owners share: `cell_models.of_public` makes such.

Privacy: models are public, coins are the owner's. A draw follows from a row, its place and coins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeGuard

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from protocols.errors import SchemaError
from protocols.exchange.documents import Checked, Text, shown, suggest

if TYPE_CHECKING:
    from parties.reader.schema import Column, NumericColumn, Schema

FloatArray = NDArray[np.float64]
MOST_DRAWS = 50
TURNS = 10
"""Of several columns."""
Number = Annotated[float, Meta(ge=-1e150, le=1e150)]


class CellModel(Checked, frozen=True):
    """Of one feature: a number, or a category that is not the column's first.

    feature: its name; terms: features and targets that it depends on; draws: intercept, one
    coefficient a term and, of a number that is not binary, the standard deviation around them;
    the first draw takes
    the first of these, and so on, over again where there are fewer [data units].
    """

    REFUSAL: ClassVar[type[SchemaError]] = SchemaError
    feature: Text
    draws: Annotated[tuple[tuple[Number, ...], ...], Meta(min_length=1, max_length=MOST_DRAWS)]
    terms: tuple[Text, ...] = ()


class Imputation(Checked, frozen=True):
    """Models of columns whose cells the schema does not refuse where they are missing.

    draw: of a view of the rows, from 1; 0: none, in a schema that owners agree on.
    """

    REFUSAL: ClassVar[type[SchemaError]] = SchemaError
    models: Annotated[tuple[CellModel, ...], Meta(min_length=1)]
    draw: Annotated[int, Meta(ge=0, le=MOST_DRAWS)] = 0

    def check(self, schema: Schema) -> None:
        """Raises SchemaError: a model is of no column of the schema, or lacks a category."""
        own = {model.feature: model for model in self.models}
        outcomes = schema.label.names if hasattr(schema.label, "columns") else ()
        known = [*(n for c in schema.columns for n in complete(c).features), *outcomes]
        due = set[str]()
        for column in schema.columns:
            features = modelled(column)
            if not {*features} & {*own}:
                continue
            if not self.draw and column.missing == "refuse":
                raise SchemaError(
                    f"imputation of column {shown(column.name)}, whose missing cells are refused: "
                    "let the schema say missing: typical"
                )
            due |= {*features}
            number = is_normal(column)
            for model in (own[name] for name in features if name in own):
                for term in model.terms:
                    if term not in known or term in column.features:
                        raise SchemaError(
                            f"imputation of {shown(model.feature)} has the term {shown(term)}, "
                            f"which is no other feature or target{suggest(term, known)}"
                        )
                size = 1 + len(model.terms) + number
                if any(len(each) != size or (number and each[-1] < 0) for each in model.draws):
                    raise SchemaError(
                        f"imputation of {shown(model.feature)}: a draw is {size} numbers: "
                        "intercept, one a term and, of a number that is not one of two, a "
                        "standard deviation, 0 or more"
                    )
        if due != {*own} or len(own) != len(self.models):
            wrong = sorted(due ^ {*own}) or [model.feature for model in self.models]
            raise SchemaError(
                f"imputation: {', '.join(map(shown, wrong[:5]))}: give one model of each number, "
                "and of each category of a column but the first"
            )


def is_number(column: Column) -> TypeGuard[NumericColumn]:
    """By its fields: a schema reads models, which so load no schema."""
    return hasattr(column, "low")


def is_normal(column: Column) -> TypeGuard[NumericColumn]:
    """Whether cells are drawn as a number, and not as a category or one of two numbers."""
    return is_number(column) and not column.binary


def ends(column: NumericColumn) -> FloatArray:
    """low, high."""
    return np.array([column.low, column.high])


def modelled(column: Column) -> tuple[str, ...]:
    """Features that have a model each: the number, or all categories but the first."""
    features = complete(column).features
    return features if is_number(column) else features[1:]


def complete(column: Column) -> Column:
    """The column of whose cells none is missing."""
    spread: dict[str, None] = {"spread": None} if is_number(column) else {}
    return msgspec.structs.replace(column, missing="refuse", typical=None, **spread)


def drawn(schema: Schema, draw: int) -> Schema:
    """Of a schema by ranges with models: of the rows whose cells were drawn once.

    Raises:
        SchemaError: there is no model, or draw is out of range.
    """
    if schema.imputation is None:
        raise SchemaError(
            "imputations need public models of missing cells in the schema: cohort schema init "
            "--missing typical --impute 20"
        )
    own = {model.feature for model in schema.imputation.models}
    columns = tuple(complete(c) if {*modelled(c)} & own else c for c in schema.columns)
    imputation = Imputation(models=schema.imputation.models, draw=draw)
    return replace(schema, columns=columns, imputation=imputation)


def imputed(
    x: Mapping[str, FloatArray],
    y: FloatArray,
    schema: Schema,
    empty: Mapping[str, NDArray[np.bool_]],
    coins: bytes,
) -> FloatArray:
    """Rows of `drawn`, shape (rows, features), without bias.

    x: features by name as they were filled in, scaled; y: targets on [0, 1]; empty: by column.
    """
    assert schema.imputation is not None  # noqa: S101 (as of `drawn`)
    models = {model.feature: model for model in schema.imputation.models}
    draw, rows = schema.imputation.draw, len(y)
    seed = hashlib.sha256(coins + b"/imputation/%d" % draw).digest()
    rng = np.random.default_rng(np.frombuffer(seed, "<u4"))
    names, (shift, scale) = schema.expanded_names, schema.affine()
    raw = {n: shift[k] + scale[k] * x[n] for k, n in enumerate(names)}
    for k, target in enumerate(getattr(schema.label, "columns", ())):
        raw[target.name] = target.low + (target.high - target.low) * y[:, k]
    own = [column for column in schema.columns if {*modelled(column)} & {*models}]

    def score(name: str) -> FloatArray:
        """Sum over terms, row by row."""
        model, found = models[name], np.zeros(rows)
        intercept, *rest = model.draws[(draw - 1) % len(model.draws)]
        for term, value in zip(model.terms, rest, strict=False):
            found += value * raw[term]
        return found + intercept

    for _ in range(TURNS if len(own) > 1 else 1):
        for column in own:
            here, features = empty[column.name], column.features
            if is_normal(column):
                (name,) = features
                std = models[name].draws[(draw - 1) % len(models[name].draws)][-1]
                value = score(name) + std * rng.standard_normal(rows)
                raw[name] = np.where(here, np.clip(value, column.low, column.high), raw[name])
                continue
            scores = np.stack([np.zeros(rows), *map(score, modelled(column))], axis=1)
            share = np.cumsum(np.exp(scores - scores.max(axis=1)[:, None]), axis=1)
            coin = rng.random(rows) * share[:, -1]
            place = np.minimum((share <= coin[:, None]).sum(axis=1), scores.shape[1] - 1)
            for k, name in enumerate(features):
                value = ends(column)[place] if is_number(column) else place == k
                raw[name] = np.where(here, value, raw[name])
    return np.column_stack([(raw[n] - shift[k]) / scale[k] for k, n in enumerate(names)])
