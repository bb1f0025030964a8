"""An owner is told of every column that a cell can change, whatever view a study is of."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.account import Account
from parties.kernel.private import Private
from parties.reader.imputation import CellModel, Imputation
from parties.reader.schema import (
    CategoricalColumn,
    Classes,
    Label,
    NumericColumn,
    Schema,
    Targets,
)
from parties.reader.views import encode_with_views, views_of
from parties.verifier.foreseen import foreseen
from protocols.names import CELLS_VIEW, RANGES_VIEW

SCHEMA = Schema(
    columns=(
        NumericColumn("dose", 0.0, 10.0, missing="typical", typical=5.0),
        NumericColumn("infected", 0.0, 1.0),
        CategoricalColumn("ward", ("u", "v", "w"), "indicator"),
        CategoricalColumn("sex", ("p", "q"), missing="typical", typical="p"),
        NumericColumn("age", 0.0, 10.0, missing="indicator", typical=5.0),
    ),
    label=Targets((NumericColumn("time", 0.0, 100.0), NumericColumn("event", 0.0, 1.0))),
    scaling="range",
    imputation=Imputation(
        models=(
            # A chain: of dose by infected, of sex by dose.
            CellModel(feature="dose", draws=((0.0, 10.0, 0.0),), terms=("infected",)),
            CellModel(feature="sex=q", draws=((-40.0, 10.0),), terms=("dose",)),
        )
    ),
)
ROWS = pd.DataFrame(
    {
        "dose": [np.nan, 1.0, 2.0, 3.0],
        "infected": [0.0, 1.0, 0.0, 1.0],
        "ward": ["u", "v", "w", None],
        "sex": [None, "q", None, "q"],
        "age": [1.0, np.nan, 3.0, 4.0],
        "time": [10.0, 20.0, 30.0, 40.0],
        "event": [0.0, 1.0, 0.0, 1.0],
    }
)
OTHERS: dict[str, list[Any]] = {
    "dose": [4.0, 9.0, 8.0, 7.0],
    "infected": [1.0, 0.0, 1.0, 0.0],
    "ward": ["v", None, "u", "w"],
    "sex": ["q", None, "p", "p"],
    "age": [np.nan, 2.0, 7.0, np.nan],
    "time": [11.0, 21.0, 31.0, 41.0],
    "event": [1.0, 0.0, 1.0, 0.0],
}
VIEWS = [(view, own) for view in (RANGES_VIEW, CELLS_VIEW) for own in [*views_of(SCHEMA, view)][:4]]
"""The first of the draws stand for all."""


def encoded(rows: pd.DataFrame, view: str, schema: Schema) -> Any:
    """Features of a view, as a kernel has them."""
    found = encode_with_views(rows, SCHEMA, coins=b"k" * 32)[1].find(view, schema.digest())
    private = Private(Account(None, ""))
    with private:
        return np.array(private.keep(found).x)


@pytest.mark.parametrize(("view", "schema"), VIEWS, ids=lambda each: str(each)[:6])
def test_whatever_moves_a_feature_is_named(view: str, schema: Schema) -> None:
    hidden, drawn = list[tuple[int, str, str]](), 0
    before = encoded(ROWS, view, schema)
    moved: dict[int, set[str]] = {k: set() for k in range(before.shape[1])}
    for name, values in OTHERS.items():
        after = encoded(ROWS.assign(**{name: values}), view, schema)
        for k in np.flatnonzero((before != after).any(axis=0)):
            moved[int(k)].add(name)
    for k, names in moved.items():
        plan: Any = SimpleNamespace(
            view=view,
            schema={"digest": schema.digest()},
            statistic="a sum",
            task=SimpleNamespace(places=(k,), several=None),
            privacy=None,
        )
        told = " ".join(foreseen(plan, SimpleNamespace(schema=SCHEMA)))
        drawn += "drawn" in told
        hidden += [(k, name, told) for name in names if name not in told]
    assert not hidden and any(moved.values())
    assert bool(drawn) == (schema.imputation is not None and schema.imputation.draw > 0)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Label("died", "no", "yes"), "died"),
        (Classes("stage", ("i", "ii", "iii")), "stage"),
        (SCHEMA.label, "time, event"),
    ],
    ids=["label", "classes", "targets"],
)
def test_a_training_names_what_its_model_predicts(kind: Any, names: str) -> None:
    """By the owner's own schema, which the plan's digest is of; a sum's columns are its own."""
    own = replace(SCHEMA, label=kind)
    plan: Any = SimpleNamespace(statistic="", schema={"digest": own.digest()}, privacy=None)
    words = f"What the model predicts, by your schema: {names}"
    assert foreseen(plan, SimpleNamespace(schema=own)) == (words,)
    assert not foreseen(plan, SimpleNamespace(schema=SCHEMA)) or kind == SCHEMA.label
    plan.statistic = "a sum"
    assert not foreseen(plan, SimpleNamespace(schema=own))
