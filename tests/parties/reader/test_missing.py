"""Missing cells: refused, filled in by public values, or with an indicator; beside scikit-learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

from ciphercohort import simulate
from ciphercohort.cli.app import app
from parties.reader.infer import infer_schema
from parties.reader.look import missing_counts
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema, Targets
from parties.reader.shard import encode_scored, encode_shard
from protocols.errors import DataError, SchemaError
from sims.owners import Columns, Rows

HOLED = ["age", "dose", "score"]
TYPICAL = {"age": 50.0, "dose": 2.0, "score": 0.0}
LABEL = Label(name="died", positive="1", negative="0")


def full(rows: int = 600, seed: int = 5) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(52, 9, rows),
            "dose": rng.gamma(4, 0.5, rows),
            "score": rng.normal(0, 1, rows),
            "sex": rng.integers(0, 2, rows),
        }
    )
    z = 0.08 * (frame["age"] - 52) - 0.9 * frame["dose"] + frame["score"] + frame["sex"]
    return frame.assign(died=(z + 1 + rng.logistic(size=rows) > 0).astype(int))


def holed(frame: pd.DataFrame, share: float = 0.1, seed: int = 6) -> pd.DataFrame:
    """Cells of three columns missing, completely at random."""
    rng = np.random.default_rng(seed)
    frame = frame.copy()
    for name in HOLED:
        frame.loc[rng.random(len(frame)) < share, name] = np.nan
    return frame


def sites(table: pd.DataFrame) -> list[pd.DataFrame]:
    return [table.iloc[k::3] for k in range(3)]


def schema(missing: Any, **changes: Any) -> Schema:
    """Ranges that clamp nothing."""
    wide = [
        NumericColumn(
            name=name, low=-200, high=200, typical=TYPICAL[name], spread=9.0, missing=missing
        )
        for name in HOLED
    ]
    columns = (*wide, NumericColumn(name="sex", low=0, high=1))
    return Schema(**({"columns": columns, "label": LABEL, "scaling": "range"} | changes))


def fitted(x: Any, y: Any) -> LogisticRegression:
    return LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000).fit(x, y)


def coefficients(found: Schema, frames: list[pd.DataFrame]) -> tuple[Any, float]:
    """In data units, of the optimum on the encoded rows of all sites."""
    shards = [encode_shard(frame, found) for frame in frames]
    x, y = (np.concatenate([getattr(shard, of) for shard in shards]) for of in "xy")
    model = fitted(x[:, :-1], y)
    return found.model_in_data_units(np.append(model.coef_[0], model.intercept_[0]))


@pytest.mark.parametrize("missing", ["typical", "indicator"])
def test_coefficients_are_scikit_learns_on_pooled_rows(missing: str) -> None:
    """Three sites, 10 % of the cells of three columns missing at random."""
    table = holed(full())
    imputers = [
        (name, SimpleImputer(strategy="constant", fill_value=TYPICAL[name],
                             add_indicator=missing == "indicator"), [name])
        for name in HOLED
    ]  # fmt: skip
    pooled = ColumnTransformer([*imputers, ("sex", "passthrough", ["sex"])])
    x = pooled.fit_transform(table)
    theirs = fitted(x, table["died"])
    coef, intercept = coefficients(schema(missing), sites(table))
    assert len(coef) == x.shape[1] == (7 if missing == "indicator" else 4)
    np.testing.assert_allclose(coef, theirs.coef_[0], atol=2e-4)
    assert intercept == pytest.approx(theirs.intercept_[0], abs=2e-3)


def test_with_an_indicator_the_typical_value_does_not_matter() -> None:
    """The model is the one of the columns' means, SimpleImputer's default: same probabilities."""
    table = holed(full())
    imputer = SimpleImputer(add_indicator=True)
    theirs = make_pipeline(imputer, LogisticRegression(C=np.inf, tol=1e-10, max_iter=9000))
    features = table.drop(columns="died")
    expected = theirs.fit(features, table["died"]).predict_proba(features)[:, 1]
    found = schema("indicator")
    shard = encode_shard(table, found)
    ours = fitted(shard.x[:, :-1], shard.y).predict_proba(shard.x[:, :-1])[:, 1]
    np.testing.assert_allclose(ours, expected, atol=2e-4)
    refilled = encode_shard(table, schema("typical"))
    other = fitted(refilled.x[:, :-1], refilled.y).predict_proba(refilled.x[:, :-1])[:, 1]
    assert np.abs(other - expected).max() > 0.01  # without an indicator it does matter


def test_refuse_is_the_default_and_names_the_lines(tmp_path: Path) -> None:
    table = holed(full(40), share=0.2)
    table.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(DataError) as caught:
        encode_shard(tmp_path / "rows.csv", schema("refuse"))
    for name in HOLED:
        lines = np.flatnonzero(table[name].isna()) + 2
        first = ", ".join(map(str, lines[:5]))
        words = f"column '{name}' is missing (empty or NaN) in {len(lines)} of 40 rows"
        assert f"{words} (lines {first}" in str(caught.value)


def test_categories() -> None:
    frame = pd.DataFrame({"ward": ["A", None, "C", "B"], "died": [0, 1, 0, 1]})

    def rows(**fields: Any) -> list[list[float]]:
        ward = CategoricalColumn(name="ward", categories=("A", "B"), **fields)
        found = Schema(columns=(ward,), label=LABEL, scaling="range")
        shard = encode_shard(frame, found)
        assert shard.counts.filled == {"ward": 1} and shard.counts.unknown == {"ward": 1}
        assert found.feature_names[2:] == (("ward=missing",) if len(shard.x[0]) == 4 else ())
        return shard.x[:, :-1].tolist()  # type: ignore[no-any-return]

    assert rows(missing="typical", typical="B") == [[1, 0], [0, 1], [0, 0], [0, 1]]
    assert rows(missing="indicator") == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("scaling", ["range", "standard"])
@pytest.mark.parametrize("row_norm", [None, 0.7])
def test_rows_stay_within_the_norm_bound(scaling: Any, row_norm: float | None) -> None:
    """Values at the ends, missing ones, and both ends of what indicators add."""
    column = NumericColumn(name="a", low=0, high=9, typical=0, spread=1, missing="indicator")
    found = Schema(columns=(column,), label=LABEL, scaling=scaling, row_norm=row_norm)
    frame = pd.DataFrame({"a": [np.nan, 0, 9, 1e9, -1e9], "died": 1})
    shard = encode_shard(frame, found)
    assert (np.linalg.norm(shard.x, axis=1) <= found.norm_bound).all()
    assert (shard.x[:, 1] > 0).tolist() == [True, False, False, False, False]
    if row_norm is None:
        high = 1.0 if scaling == "range" else 2.0
        assert found.norm_bound == pytest.approx(np.sqrt(high**2 + 1 + 1))


def test_a_missing_cell_is_encoded_as_the_typical_value(tmp_path: Path) -> None:
    """Byte for byte: whatever is sent of these rows cannot tell which cells were missing."""
    table = holed(full(60))
    found = schema("typical", row_norm=2.0)
    refilled = encode_shard(table.fillna(TYPICAL), found)
    assert encode_shard(table, found).fingerprint() == refilled.fingerprint()
    assert refilled.counts.filled == {} and table.isna().any(axis=None)


def test_what_leaves_a_site_depends_on_no_missing_cell(tmp_path: Path) -> None:
    """Two runs with an indicator, other cells missing: the same plan, steps and sizes."""
    schema("indicator").save(tmp_path / "schema.json")
    seen = []
    for seed in (1, 2):
        table = holed(full(60), seed=seed)
        out = tmp_path / f"run{seed}"
        result = simulate(
            data=table, label="died", schema=tmp_path / "schema.json", parties=2, iterations=2,
            no_privacy=True, profile="fast-insecure", seed=3, out=out, update="gd", degree=3,
            learning_rate=1.0, radius=8.0,
        )  # fmt: skip
        assert result.max_abs_diff_to_twin < 1e-3
        plan = json.loads((out / "release/plan.json").read_text())
        lines = map(json.loads, (out / "release/transcript.jsonl").read_text().splitlines())
        steps = [
            tuple(line[of] for of in ("step", "sender", "recipient", "bytes"))
            for line in lines
            if line["sender"] != "coordinator"
        ]
        assert len(steps) > 10
        for name in ("session", "members", "digest"):
            plan.pop(name)
        seen.append((plan, steps))
    assert seen[0] == seen[1]


def test_counts_of_missing_cells_add_up() -> None:
    table = holed(full(90))
    parts = [missing_counts(part, schema("typical")) for part in sites(table)]
    pooled = table[[*HOLED, "sex", "died"]].isna().sum().to_numpy()
    np.testing.assert_array_equal(np.sum(parts, axis=0), pooled)
    assert pooled[:3].min() > 0 and parts[0].dtype == np.int64


def test_estimators_take_frames_with_missing_cells() -> None:
    """What the schema fills in is no error there; what it refuses still is."""
    table = holed(full(40)).assign(ward=["A", None, "B", "A"] * 10)
    table = table.astype({"sex": "category", "ward": "category"})
    ward = CategoricalColumn(name="ward", categories=("A", "B"), missing="indicator")
    found = schema("indicator", columns=(*schema("indicator").columns, ward))
    rows = Rows.read(table.drop(columns="died"), table["died"], Columns.choose((), "even", found))
    again = encode_shard(rows.frame.assign(died=rows.labels), found)
    assert again.fingerprint() == encode_shard(table, found).fingerprint()
    with pytest.raises(DataError, match=r"column 'age' is missing \(NaN\)"):
        columns = Columns.choose((), "even", schema("refuse"))
        Rows.read(table.drop(columns="died"), table["died"], columns)


def test_predictions_fill_in_too() -> None:
    row = pd.DataFrame({"age": [None], "dose": [1.0], "score": [0.0], "sex": [1]}, dtype=float)
    encoded = encode_scored(row, schema("indicator"))[0]
    assert encoded[0, [1, 3, 5]].tolist() == [1.0, 0.0, 0.0]
    assert encoded[0, 0] == TYPICAL["age"] / 200


@pytest.mark.parametrize("missing", ["typical", "indicator"])
def test_a_public_sample_says_which_columns_may_miss_cells(missing: Any) -> None:
    sample = holed(full(80)).assign(ward=["A", "B", None, "B"] * 20)
    found = infer_schema(sample, "died", missing=missing)
    policies = {column.name: column.missing for column in found.columns}
    assert policies == {**dict.fromkeys([*HOLED, "ward"], missing), "sex": "refuse"}
    assert found.columns[-1].typical == ("B" if missing == "typical" else None)
    assert encode_shard(sample, found).rows == 80
    assert Schema.from_json(found.to_json()) == found


def test_the_command_line_tells_both(tmp_path: Path) -> None:
    table = holed(full(80))
    table.to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "schema.json"
    options = ("--label", "died", "--missing", "indicator", "--out", str(out))
    made = CliRunner().invoke(app, ["schema", "init", str(tmp_path / "rows.csv"), *options])
    assert made.exit_code == 0
    said = CliRunner().invoke(app, ["schema", "check", str(out), str(tmp_path / "rows.csv")])
    counts = ", ".join(f"{name} {table[name].isna().sum()}" for name in HOLED)
    assert said.exit_code == 0 and f"missing cells: {counts}\n" in said.stdout, said.stdout
    shown = CliRunner().invoke(app, ["schema", "show", str(out)])
    assert "indicator" in shown.stdout
    wrong = CliRunner().invoke(
        app, ["schema", "init", str(tmp_path / "rows.csv"), "--label", "died", "--missing", "mean"]
    )
    assert wrong.exit_code == 2 and "is not one of refuse, typical, indicator" in wrong.stderr
    bare = CliRunner().invoke(
        app, ["schema", "init", str(tmp_path / "rows.csv"), "--label", "died"]
    )
    words = " ".join(bare.stderr.split())
    assert bare.exit_code == 0 and f"missing cells in {', '.join(HOLED)}: this schema" in words
    assert "missing cells" not in " ".join(made.stderr.split())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NumericColumn(name="a", low=0, high=1, missing="mean"), "missing='mean'"),
        (
            lambda: NumericColumn(name="a", low=0, high=1, missing="typical"),
            "needs a typical value",
        ),
        (
            lambda: NumericColumn(name="a", low=0, high=1, typical=2, missing="indicator"),
            r"needs a typical value within \[0, 1\], not 2",
        ),
        (
            lambda: CategoricalColumn(name="a", categories=("A",), missing="typical"),
            "give one of the categories",
        ),
        (
            lambda: CategoricalColumn(name="a", categories=("A",), missing="typical", typical="B"),
            "give one of the categories",
        ),
        (
            lambda: CategoricalColumn(name="a", categories=("A",), typical="A"),
            "with missing='typical', and none otherwise",
        ),
        (
            lambda: Targets(
                columns=(NumericColumn(name="a", low=0, high=1, typical=0, missing="typical"),)
            ),
            "an outcome is never filled in",
        ),
        (
            lambda: Schema(
                columns=(
                    CategoricalColumn(name="a", categories=("missing",), missing="indicator"),
                ),
                label=LABEL,
            ),
            "feature 'a=missing' arises 2 times",
        ),
    ],
)
def test_schemas_that_cannot_fill_in(make: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        make()
