"""A public projection in the schema: a function of a row alone, undone in the model."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from typer.testing import CliRunner

import ciphercohort
from ciphercohort.cli.app import app
from ciphercohort.results.predict import ReleasedModel, load_model
from ciphercohort.verify.folder import verify_run
from parties.reader.infer import infer_schema
from parties.reader.projection import GRID_BITS, UNIT_BITS, Projection
from parties.reader.schema import Schema
from parties.reader.shard import encode_scored, encode_shard
from parties.reader.views import by_range, cells_schema
from protocols.errors import ParameterError, SchemaError

WIDTH, KEPT = 12, 4
NAMES = [f"x{k}" for k in range(WIDTH)]


@cache
def frame(rows: int = 300, seed: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, KEPT))
    x = hidden @ rng.normal(size=(KEPT, WIDTH)) + 0.1 * rng.normal(size=(rows, WIDTH))
    found = pd.DataFrame(x, columns=NAMES)
    found["ward"] = np.array(["A", "B", "C"])[np.arange(rows) % 3]
    found["y"] = (hidden[:, 0] + 0.5 * rng.normal(size=rows) > 0).astype(int)
    return found


@cache
def schema(scaling: Any = "range", row_norm: Any = "auto") -> Schema:
    return infer_schema(frame(200, 5), "y", scaling=scaling, row_norm=row_norm, project=KEPT)


def test_components_are_scikit_learns() -> None:
    """An outside truth, on the sample's scaled features."""
    found = schema(row_norm=None)
    plain, _ = encode_scored(frame(200, 5), replace(found, projection=None))
    ours, _ = encode_scored(frame(200, 5), found)
    theirs = PCA(KEPT, svd_solver="full").fit(plain[:, :-1]).transform(plain[:, :-1])
    ours = ours[:, :-1] * np.sign((ours[:, :-1] * theirs).sum(axis=0))
    # Each of the entries is off by half a unit at most.
    most = np.abs(plain).sum(axis=1).max() * 2.0**-UNIT_BITS
    assert np.abs(ours - theirs).max() < most


@pytest.mark.parametrize("scaling", ["range", "standard"])
@pytest.mark.parametrize("row_norm", [None, "auto", 0.5])
def test_a_row_is_encoded_as_alone(scaling: str, row_norm: Any) -> None:
    """Bit for bit, in whatever batch; and no row is longer than the schema says."""
    own, table = schema(scaling, row_norm), frame()
    whole = encode_shard(table, own)
    assert whole.x.shape == (300, KEPT + 1) and own.num_features == KEPT + 1
    for batch in (7, 100):
        assert encode_shard(table, own, batch_rows=batch).x.tobytes() == whole.x.tobytes()
    for k in (0, 17, 299):
        alone = encode_shard(table.iloc[k : k + 1].reset_index(drop=True), own)
        assert alone.x.tobytes() == whole.x[k : k + 1].tobytes()
    other = table.copy()
    other.loc[5, NAMES] = 1e9
    moved = encode_shard(other, own).x
    assert np.delete(moved, 5, axis=0).tobytes() == np.delete(whole.x, 5, axis=0).tobytes()
    for x in (whole.x, moved):
        assert np.linalg.norm(x, axis=1).max() <= own.norm_bound * (1 + 1e-12)


def test_the_longest_row_is_within_the_bound_and_near_it() -> None:
    """One component of all features, at the corner that it is longest at."""
    projection = Projection(rows=("4096 -4096",), centre="0 2048")
    bound = projection.norm_bound(np.ones(2))
    longest = np.abs(projection(np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]]))).max()
    assert longest == 2.5 and longest <= bound <= 2.6


def test_products_are_exact() -> None:
    rng = np.random.default_rng(1)
    projection = Projection.of_public(rng.normal(size=(60, 40)).clip(-2, 2), 5)
    z = rng.uniform(-2, 2, size=(50, 40))
    units = [[int(word) for word in line.split()] for line in projection.rows]
    centre = [int(word) for word in projection.centre.split()]
    for row, found in zip(z, projection(z), strict=True):
        whole = [round(v * 2**GRID_BITS) - c * 2 ** (GRID_BITS - UNIT_BITS)
                 for v, c in zip(row.tolist(), centre, strict=True)]  # fmt: skip
        exact = [sum(a * b for a, b in zip(line, whole, strict=True)) for line in units]
        assert found.tolist() == [each / 2 ** (GRID_BITS + UNIT_BITS) for each in exact]


def test_a_schema_says_its_projection(tmp_path: Path) -> None:
    own = schema()
    assert Schema.from_json(own.to_json()) == own
    rows = own.to_dict()["projection"]["rows"]
    assert len(rows) == KEPT and own.digest() != replace(own, projection=None).digest()
    fields = own.to_dict()
    for bad, words in (
        ({"rows": ["1 x"], "centre": "0 0"}, "whole numbers"),
        ({"rows": ["1 2 3"], "centre": "0 0"}, "one for each feature"),
        ({"rows": ["1 2"], "centre": "0 0"}, "projection of 2 features, where columns have 15"),
        ({"rows": ["0 0"], "centre": "0 0"}, "row of zeros"),
        ({"rows": ["1 99999"], "centre": "0 0"}, "99999 units"),
        ({"rows": [], "centre": "0 0"}, "length"),
        ({"rows": ["1 2"], "centre": "0 0", "seed": 1}, "seed"),
    ):
        with pytest.raises(SchemaError, match=words):
            Schema.from_dict({**fields, "projection": bad})
    for few in (0, 15, 200):
        with pytest.raises(SchemaError, match="give a number below both"):
            infer_schema(frame(200, 5), "y", project=few)


def test_a_model_is_in_the_columns_units() -> None:
    own = schema(row_norm=None)
    model = ReleasedModel(schema=own, weights=np.linspace(-1, 1, KEPT + 1))
    assert list(model.coefficients.index) == [*NAMES, "ward=A", "ward=B", "ward=C"]
    table = frame()
    dummies = [(table["ward"] == ward).astype(float) for ward in "ABC"]
    # Within the sample's ranges, of which nothing is clamped.
    inside = [c for c in own.columns if hasattr(c, "low")]
    kept = np.all([(table[c.name] >= c.low) & (table[c.name] <= c.high) for c in inside], axis=0)
    cells = np.column_stack([table[NAMES], *dummies])
    scores = cells @ model.coefficients.to_numpy() + model.intercept
    found = model.predict(table)["probability"].to_numpy()
    assert kept.sum() > 200
    np.testing.assert_allclose(found[kept], 1 / (1 + np.exp(-scores[kept])), atol=1e-5)


def test_other_views_know_no_projection() -> None:
    for view in (by_range(schema()), by_range(schema(), private=True), cells_schema(schema())):
        assert view.projection is None and view.num_features > KEPT + 1


@pytest.mark.parametrize("protocol", ["encrypted-rows", "encrypted-model", "secure-aggregation"])
def test_training_on_components(protocol: str, tmp_path: Path) -> None:
    """Sample to prediction: simulated, private, with a model that others load."""
    sample, rows = tmp_path / "sample.csv", tmp_path / "rows.csv"
    frame(200, 5).to_csv(sample, index=False)
    frame().to_csv(rows, index=False)
    words = ["schema", "init", str(sample), "--label", "y", "--project", str(KEPT)]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "s.json")])
    assert done.exit_code == 0, done.output
    options: dict[str, Any] = {"protocol": protocol, "parties": 2, "iterations": 2, "seed": 1}
    options |= (
        {"update": "gd"} if protocol == "secure-aggregation" else {"profile": "fast-insecure"}
    )
    result = ciphercohort.simulate(
        data=rows, schema=tmp_path / "s.json", epsilon=8.0, out=tmp_path / "run", **options
    )
    assert result.plan.num_features == KEPT + 1 == len(result.weights)
    assert result.max_abs_diff_to_twin < 0.05 and result.scores["auc"] > 0.6
    model = load_model(tmp_path / "run")
    held = json.loads((tmp_path / "run" / "release" / "model.json").read_text())
    assert len(held["coef"]) == WIDTH + 3 and held["schema"]["projection"]
    assert np.array_equal(model.weights, result.weights)
    assert "x11" in (tmp_path / "run" / "release" / "report.html").read_text()
    if protocol == "encrypted-rows":
        assert all(check.passed for check in verify_run(tmp_path / "run"))
        judged = ciphercohort.evaluate(tmp_path / "run", rows, parties=2, inference=False)
        assert judged.figures["auc"] > 0.6
        with pytest.raises(ParameterError, match="model of components"):
            ciphercohort.simulate(
                data=rows, schema=tmp_path / "s.json", epsilon=8.0, inference=True, **options
            )
