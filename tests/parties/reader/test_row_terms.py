"""Weights and offsets of rows: declared with public bounds, held to them; no cell in a message."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from parties.reader.infer import infer_schema
from parties.reader.schema import Label, NumericColumn, Offset, Schema, Weight
from parties.reader.shard import encode_scored, encode_shard
from protocols.errors import DataError, SchemaError

LABEL = Label(name="died", positive="yes", negative="no")
PLAIN = Schema(columns=(NumericColumn(name="age", low=0, high=100),), label=LABEL, scaling="range")
WEIGHT, OFFSET = Weight(name="w", bound=4), Offset(name="years", low=0.5, high=8, log=True)
SCHEMA = replace(PLAIN, weight=WEIGHT, offset=OFFSET)


def table(**changes: Any) -> pd.DataFrame:
    cells: dict[str, Any] = {
        "age": [10, 50, 90],
        "died": ["yes", "no", "no"],
        "w": [0, 1, 4.0],
        "years": [0.5, 2, 8],
    }
    return pd.DataFrame(cells | changes)


# -- schema ---------------------------------------------------------------------------------------


def test_the_schema_survives_json_and_says_what_it_adds() -> None:
    assert Schema.from_json(SCHEMA.to_json()) == SCHEMA
    assert SCHEMA.digest() != PLAIN.digest() and "weight" not in PLAIN.to_dict()
    # log 8 - log 0.5 = log 16 around log 2.
    assert SCHEMA.row_terms == {"weight": 4.0, "offset": pytest.approx(np.log(16) / 2)}
    assert PLAIN.row_terms == {} and OFFSET.centre == pytest.approx(np.log(2))
    # Scores in data units are without the centre, so that offsets are added as they are.
    weights = np.array([1.0, 2.0])
    (_, plain), (_, shifted) = (s.model_in_data_units(weights) for s in (PLAIN, SCHEMA))
    assert plain - shifted == pytest.approx(np.log(2))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("weight", {"name": "w", "bound": 0}, "bound"),
        ("weight", {"name": "age", "bound": 1}, "name 'age' is used by 2 columns"),
        ("weight", "w", "weight"),
        ("offset", {"name": "died", "low": 0, "high": 1}, "name 'died' is used by 2 columns"),
        ("offset", {"name": "o", "low": 1, "high": 1}, "low=1 of column 'o' is not below"),
        ("offset", {"name": "o", "low": 0, "high": 1, "log": True}, "not above 0, which a log"),
    ],
)
def test_the_schema_refuses(field: str, value: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        Schema.from_json(json.dumps(PLAIN.to_dict() | {field: value}))


def test_a_public_sample_gives_bounds() -> None:
    sample = table(w=[0, 1, 3.14159], years=[0.013, 2, 7.77])
    with pytest.warns(UserWarning, match=r"exposures of 'years' below 0\.0\d+, about the sample's"):
        found = infer_schema(
            sample, "died", scaling="range", weight="w", offset="years", log_offset=True
        )
    assert found.weight == Weight(name="w", bound=3.2)  # outward, two digits
    # Two digits of 0.013 and of the width, and never down to 0.
    assert found.offset is not None and 0 < found.offset.low <= 0.013
    assert [column.name for column in found.columns] == ["age"]
    with pytest.raises(SchemaError, match="negative, or 0 in all rows"):
        infer_schema(sample.assign(w=[-1, 0, 1]), "died", weight="w")


# -- rows -----------------------------------------------------------------------------------------


def test_weights_are_over_their_bound_and_offsets_around_zero() -> None:
    shard = encode_shard(table(), SCHEMA)
    np.testing.assert_allclose(shard.weight, [0, 0.25, 1])
    np.testing.assert_allclose(shard.offset, [-np.log(4), 0, np.log(4)], atol=1e-15)
    assert not shard.weight.flags.writeable and shard.num_features == 2
    plain = encode_shard(table(), PLAIN)
    assert (plain.weight == 1).all() and (plain.offset == 0).all()
    assert plain.fingerprint() != shard.fingerprint()
    other = encode_shard(table(w=[0, 1, 3.5]), SCHEMA)
    assert other.fingerprint() != shard.fingerprint()
    # Prediction needs the offset, not the weight.
    features, offset = encode_scored(table().drop(columns="w"), SCHEMA)
    np.testing.assert_array_equal(features, encode_scored(table(), SCHEMA)[0])
    np.testing.assert_array_equal(offset, shard.offset)


def test_values_beyond_the_bounds_are_clamped_and_counted() -> None:
    beyond = table(w=[0, 1, 400], years=[0.01, 2, 80])
    shard = encode_shard(beyond, SCHEMA)
    assert shard.weight.max() == 1 and np.abs(shard.offset).max() == SCHEMA.row_terms["offset"]
    assert shard.counts.outside == {"w": 1, "years": 2}
    with pytest.raises(
        DataError, match=r"1 of 3 values of column 'w' are outside its range \(row 3\)"
    ):
        encode_shard(beyond, SCHEMA, strict=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"w": [1, -7741, 1]}, r"column 'w' is negative in 1 of 3 rows \(row 2\)"),
        ({"w": [1, None, 1]}, r"column 'w' is missing .* \(row 2\): correct or drop"),
        ({"years": [1, "7741,5", 1]}, r"column 'years' has text .* decimal comma"),
        ({"years": [1, np.inf, 1]}, r"column 'years' is infinite"),
    ],
)
def test_rows_that_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        encode_shard(table(**changes), SCHEMA)
    assert "7741" not in str(caught.value)
    with pytest.raises(SchemaError, match="column 'w' of the schema is not in the table"):
        encode_shard(table(**changes).drop(columns="w"), SCHEMA)


@pytest.mark.parametrize(
    ("changes", "schema", "words"),
    [
        ({"weight": np.array([0, 1, 4.0])}, SCHEMA, r"weights are not 3 numbers on \[0, 1\]"),
        ({"weight": np.array([0, 1, -0.1])}, SCHEMA, r"weights are not 3 numbers on \[0, 1\]"),
        ({"weight": np.array([0, 1, np.nan])}, SCHEMA, "weights are not 3 numbers"),
        ({"weight": np.ones(2)}, SCHEMA, "weights are not 3 numbers"),
        ({"offset": np.full(3, 2.0)}, SCHEMA, r"offsets are not 3 numbers on \[-1.38"),
        ({"weight": None}, SCHEMA, "rows without weights, which the schema has"),
        ({}, replace(SCHEMA, weight=None), r"weights are not 3 numbers on \[1, 1\]"),
        ({}, replace(SCHEMA, offset=None), r"offsets are not 3 numbers on \[0, 0\]"),
    ],
)
def test_no_shard_is_born_beyond_its_bounds(
    changes: dict[str, Any], schema: Schema, words: str
) -> None:
    """The first is a party that forgets the bound: its rows would count four times too much."""
    with pytest.raises(DataError, match=words):
        replace(encode_shard(table(), SCHEMA), **(changes | {"schema": schema}))


# -- commands -------------------------------------------------------------------------------------


def test_schema_commands(tmp_path: Path) -> None:
    data, schema = tmp_path / "rows.csv", tmp_path / "schema.json"
    table().to_csv(data, index=False)
    options = ["--weight", "w", "--offset", "years", "--log-offset", "--out", str(schema)]
    runner = CliRunner()
    made = runner.invoke(app, ["schema", "init", str(data), "--label", "died", *options])
    assert made.exit_code == 0, made.output
    shown = runner.invoke(app, ["schema", "show", str(schema)]).output
    assert "weight: w, 0 to 4" in shown and "its logarithm is added" in shown
    assert runner.invoke(app, ["schema", "check", str(schema), str(data)]).exit_code == 0
    swapped = runner.invoke(app, ["schema", "check", str(data), str(schema)])
    assert swapped.exit_code and "the schema comes first, then the table" in swapped.output
    alone = runner.invoke(app, ["schema", "init", str(data), "--label", "died", "--log-offset"])
    assert alone.exit_code and "add --offset COLUMN" in alone.output
