"""What a schema decides beside an option is refused where they differ; all else is honoured."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.job.config import DataOptions, SimulationConfig
from parties.reader.infer import infer_schema
from protocols.errors import CohortError, DataError, ParameterError
from sims import prepare as preparing
from sims.prepare import prepare
from sims.shape import shape_asked

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"age": RNG.uniform(20, 90, 60), "dose": RNG.uniform(-1, 1, 60), "id": range(60)}
)
FRAME = FRAME.assign(
    y=np.resize([0, 1], 60), z=RNG.uniform(0, 9, 60), site=np.resize(["a", "b"], 60)
)
DECIDED: dict[str, tuple[Any, Any]] = {
    "label": ("y", "site"),
    "positive": ("1", "0"),
    "targets": ((), ("z",)),
    "exclude": (("id", "z"), ("age",)),
    "include": (("age", "dose"), ("age",)),
    "model": ("logistic", "softmax"),
}
"""Options that a schema decides: a value that agrees with it, and one that does not."""
HONOURED = {"data", "schema", "test", "test_share", "strict", "parties", "split", "processes"}
FROM_ELSEWHERE = {"is_regression", "is_unclipped"}
"""What follows from the model and from options of training."""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("schema") / "schema.json"
    infer_schema(FRAME[["age", "dose", "y"]], "y", positive="1").save(path)
    return {"data": FRAME, "schema": path}


def prepared(given: dict[str, Any], **options: Any) -> Any:
    return prepare(SimulationConfig(**given, **options), np.random.default_rng(1))


@pytest.mark.parametrize("name", DECIDED)
def test_what_differs_is_refused_and_what_agrees_changes_nothing(
    name: str, given: dict[str, Any]
) -> None:
    agrees, differs = DECIDED[name]
    plain, found = prepared(given), prepared(given, **{name: agrees})
    assert found.schema == plain.schema and found.schema_from == plain.schema_from
    more = {"protocol": "secure-aggregation"} if name == "model" else {}
    with pytest.raises(CohortError, match=r"schema|numeric"):
        prepared(given, **{name: differs}, **more)


def test_every_option_is_one_or_the_other() -> None:
    """Of data, by name; of all others no preparation reads one but these."""
    assert {each.name for each in fields(DataOptions)} | {"model"} == DECIDED.keys() | HONOURED
    tree = ast.parse(Path(preparing.__file__).read_text())
    read = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id == "config"
    }
    assert read <= DECIDED.keys() | HONOURED | FROM_ELSEWHERE


def test_all_else_is_honoured(given: dict[str, Any], tmp_path: Path) -> None:
    FRAME.iloc[:7].to_csv(tmp_path / "test.csv", index=False)
    assert prepared(given, test=tmp_path / "test.csv").test.rows == 7
    assert prepared(given, test_share=0.5).test.rows == 30
    assert len(prepared(given, parties=4).shards) == 4
    assert set(prepared(given, parties=None, split="by:site").shards) == {"a", "b"}
    far = FRAME.assign(dose=99.0)
    assert prepared(given | {"data": far}).shards
    with pytest.raises(DataError, match="dose"):
        prepared(given | {"data": far}, strict=True)


def test_a_column_that_is_not_there_cannot_be_left_out(given: dict[str, Any]) -> None:
    with pytest.raises(CohortError, match=r"exclude='dosis' is not a column.*dose"):
        prepared(given, exclude=("dosis",))


def test_a_plan_of_rows_alone_has_the_schemas_shape(given: dict[str, Any]) -> None:
    config = SimulationConfig(schema=given["schema"], parties=3)
    found, shape = shape_asked(config, 600, None, None)
    data = prepared(given)
    assert (shape.num_features, shape.norm_bound) == (3, data.schema.norm_bound)
    assert shape.rows == 600 and found.label == "y"
    for more in ((2, None, None), (None, 1.0, None), (None, None, 3)):
        with pytest.raises(ParameterError, match="the schema fixes them"):
            shape_asked(config, 600, *more)
    for options in ({"strict": True}, {"exclude": ("age",)}, {"positive": "0"}):
        for schema in ({}, {"schema": given["schema"]}):
            own = SimulationConfig(parties=3, **schema, **options)  # type: ignore[arg-type]
            with pytest.raises(CohortError):
                shape_asked(own, 600, None if schema else 2, None)
