"""Missing cells drawn at home from public models."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, kstest, norm

from parties.reader.imputation import CellModel, Imputation, drawn
from parties.reader.infer import infer_schema
from parties.reader.schema import CategoricalColumn, NumericColumn, Schema, Targets
from parties.reader.shard import Shard, encode_shard
from parties.reader.views import by_range, encode_with_views, views_of
from protocols.errors import SchemaError
from protocols.names import RANGES_VIEW

ROWS = 4000
COLUMNS = (
    NumericColumn("age", 20.0, 90.0),
    NumericColumn("bmi", 10.0, 60.0, typical=30.0, missing="typical"),
    CategoricalColumn("arm", ("a", "b")),
    CategoricalColumn("stage", ("I", "II", "III"), missing="indicator"),
)
BMI = CellModel(feature="bmi", terms=("age", "arm=b", "y"), draws=((20.0, 0.1, 2.0, 3.0, 1.5),))
STAGES = (
    CellModel(feature="stage=II", draws=((0.5,),)),
    CellModel(feature="stage=III", terms=("age",), draws=((-1.0, 0.02), (1.0, 0.0))),
)


def schema(*models: CellModel) -> Schema:
    return Schema(
        columns=COLUMNS,
        label=Targets(columns=(NumericColumn("y", -1.0, 4.0),)),
        scaling="range",
        imputation=Imputation(models=models),
    )


def table(*, empty: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    age, arm = rng.uniform(20, 90, ROWS).round(), rng.choice(["a", "b"], ROWS)
    bmi, y = rng.uniform(15, 50, ROWS).round(1), rng.uniform(-1, 4, ROWS)
    stage = pd.Series(rng.choice(["I", "II", "III"], ROWS), dtype=object)
    found = pd.DataFrame({"age": age, "bmi": bmi, "arm": arm, "stage": stage, "y": y})
    if empty:
        found.loc[rng.random(ROWS) < 0.5, "bmi"] = np.nan
        found.loc[rng.random(ROWS) < 0.5, "stage"] = None
    return found


def rows(known: Schema, draw: int, coins: bytes = b"c") -> Shard:
    views = encode_with_views(table(), known, coins=coins)[1]
    return views.imputed(drawn(by_range(known), draw))


def features(shard: Shard) -> pd.DataFrame:
    """In their own units."""
    shift, scale = shard.schema.affine()
    return pd.DataFrame(shift + scale * shard.x[:, :-1], columns=list(shard.schema.expanded_names))


def test_draws_follow_their_models() -> None:
    """And neither 10 % more nor less spread, nor a shift of a tenth, does."""
    known, cells = schema(BMI, *STAGES), table()
    found = features(rows(known, 1))
    assert "stage=missing" not in found and "bmi=missing" not in found
    here = cells.bmi.isna()
    mean = 20 + 0.1 * cells.age + 2 * (cells.arm == "b") + 3 * cells.y
    z = ((found.bmi - mean) / 1.5)[here]
    assert fits(z)
    assert not fits(1.1 * z) and not fits(0.9 * z) and not fits(z + 0.1) and not fits(z - 0.1)
    empty = cells.stage.isna()
    weights = np.stack([0 * cells.age, 0.5 + 0 * cells.age, -1 + 0.02 * cells.age], axis=1)
    share = (np.exp(weights) / np.exp(weights).sum(axis=1, keepdims=True))[empty]
    counts = found[["stage=I", "stage=II", "stage=III"]].to_numpy()[empty].sum(axis=0)
    spread = np.sqrt((share * (1 - share)).sum(axis=0))
    assert (np.abs(counts - share.sum(axis=0)) < 4 * spread).all()


def fits(z: pd.Series[float]) -> bool:
    """Whether they look standard normal, p 0.001 each of mean, spread and shape."""
    n, square = len(z), float((z**2).sum())
    mean = abs(z.mean()) * np.sqrt(n) < norm.isf(0.0005)
    spread = 0.0005 < chi2.sf(square, n) < 0.9995
    return bool(mean and spread and kstest(z, norm.cdf).pvalue > 1e-3)


def test_cells_that_are_there_stay_and_draws_are_the_owners_own() -> None:
    known, cells = schema(BMI, *STAGES), table()
    first, again, second, other = (
        features(rows(known, *which)) for which in ((1,), (1,), (2,), (1, b"of another"))
    )
    pd.testing.assert_frame_equal(first, again)
    there = cells.bmi.notna()
    for found in (first, second, other):
        np.testing.assert_allclose(found.bmi[there], cells.bmi[there], atol=1e-12)
        own = cells.stage.notna()
        assert ((found["stage=II"] > 0.5) == (cells.stage == "II"))[own].all()
        assert (found[["stage=I", "stage=II", "stage=III"]].sum(axis=1) == 1).all()
        assert found.bmi.between(10, 60).all()
    for found in (second, other):
        assert not (found.bmi == first.bmi)[~there].any()
    # The second draw takes the second coefficients: a third category with weight e, not one of age.
    third = second["stage=III"][cells.stage.isna()].mean()
    assert third == pytest.approx(np.e / (1 + np.exp(0.5) + np.e), abs=0.03)


def test_a_row_is_drawn_by_itself() -> None:
    """Whatever cells other rows have."""
    known, cells = schema(BMI, *STAGES), table()
    of_all = features(rows(known, 1))
    cells.loc[1:, "bmi"] = 12.0
    cells.loc[1:, "stage"] = "I"
    own = drawn(by_range(known), 1)
    alone = features(encode_with_views(cells, known, coins=b"c")[1].imputed(own))
    pd.testing.assert_series_equal(of_all.iloc[0], alone.iloc[0])


def test_one_without_a_model_stays_as_it_was() -> None:
    found = features(rows(schema(BMI), 1))
    np.testing.assert_array_equal(found["stage=missing"], table().stage.isna())
    plain = encode_shard(table(), by_range(schema(BMI)))
    kept = [name for name in found if name != "bmi"]
    np.testing.assert_array_equal(found[kept], features(plain)[kept])


def test_each_draw_is_a_view_that_a_plan_may_ask_for() -> None:
    known = schema(BMI, *STAGES)
    views = encode_with_views(table(), known, coins=b"c")[1]
    digests = {own.digest() for own in views_of(known, RANGES_VIEW)}
    for draw in (1, 50):
        own = drawn(by_range(known), draw)
        shard = views.find(RANGES_VIEW, own.digest())
        assert own.digest() in digests and shard is not None
    assert len(digests) == 52
    plain = replace(known, imputation=None)
    assert len([*views_of(plain, RANGES_VIEW)]) == 2
    with pytest.raises(SchemaError, match="public models"):
        drawn(by_range(plain), 1)
    with pytest.raises(SchemaError, match="draw"):
        drawn(by_range(known), 51)


def test_models_are_in_the_schema_and_its_digest() -> None:
    known = schema(BMI, *STAGES)
    assert Schema.from_json(known.to_json()) == known
    assert known.digest() != schema(BMI).digest() != replace(known, imputation=None).digest()
    assert "imputation" not in replace(known, imputation=None).to_dict()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"feature": "age", "draws": [[1.0, 1.0]]}, "missing cells are refused"),
        ({"feature": "size", "draws": [[1.0, 1.0]]}, "one model of each number"),
        ({"feature": "bmi", "draws": [[1.0]]}, "a draw is 2 numbers"),
        ({"feature": "bmi", "draws": [[1.0, -1.0]]}, "0 or more"),
        ({"feature": "bmi", "terms": ["aeg"], "draws": [[1.0, 1.0, 1.0]]}, "no other feature"),
        ({"feature": "bmi", "terms": ["bmi"], "draws": [[1.0, 1.0, 1.0]]}, "no other feature"),
        ({"feature": "stage=II", "draws": [[1.0]]}, "stage=III"),
        ({"feature": "bmi", "draws": []}, "draws"),
    ],
)
def test_models_that_do_not_fit_are_refused(fields: dict[str, Any], words: str) -> None:
    document = {**schema(BMI).to_dict(), "imputation": {"models": [fields]}}
    with pytest.raises(SchemaError, match=words):
        Schema.from_json(json.dumps(document))


def test_models_of_a_public_sample_are_near_those_that_made_it() -> None:
    """Coefficients differ between draws as the posterior does; neither more nor less."""
    sample = features(rows(schema(BMI, *STAGES), 1))
    cells = table().assign(bmi=sample.bmi)
    cells = cells[table().bmi.isna()]  # all of these are of the model
    cells.loc[cells.index[:5], "bmi"] = np.nan
    cells["stage"] = np.array(["I", "II", "III"])[
        sample[["stage=I", "stage=II", "stage=III"]].to_numpy()[table().bmi.isna()].argmax(axis=1)
    ]
    cells.loc[cells.index[5:9], "stage"] = None
    found = infer_schema(cells, ["y"], scaling="range", row_norm=None, missing="typical", impute=50)
    assert found.imputation is not None
    models = {model.feature: model for model in found.imputation.models}
    bmi, draws = models["bmi"], np.array(models["bmi"].draws)
    place = {"": 0, **{term: k + 1 for k, term in enumerate(bmi.terms)}}
    due = {"age": 0.1, "arm=b": 2.0, "y": 3.0, "stage=II": 0.0, "": 20.0}
    for term, value in due.items():
        own = draws[:, place[term]]
        assert abs(own.mean() - value) < 5 * own.std()
    rows_of = len(cells) - 9
    assert draws[:, -1].mean() == pytest.approx(1.5, rel=0.05)
    error = 1.5 / (cells.y.std() * np.sqrt(rows_of))
    assert 0.75 < draws[:, place["y"]].std() / error < 1.3
    half = np.array(models["stage=II"].draws)
    assert abs(half[:, 0].mean()) < 5 * half[:, 0].std() and half[:, 0].std() > 0.05


@pytest.mark.parametrize(("draws", "words"), [(0, "no number of draws"), (5, "too few")])
def test_a_sample_without_missing_cells_has_no_models(draws: int, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        infer_schema(table(empty=False), ["y"], scaling="range", row_norm=None, impute=draws)


@pytest.mark.parametrize("ends", [(0.0, 1.0), (1.0, 2.0)])
def test_one_of_two_numbers_is_drawn_as_a_category_of_two(ends: tuple[float, float]) -> None:
    """The same draws, of the same models; in every view cells are at an end."""
    low, high = ends
    rng = np.random.default_rng(5)
    cells = table(empty=False).drop(columns=["bmi", "stage"])
    flag = rng.random(ROWS) < 0.3
    empty = rng.random(ROWS) < 0.4
    coded = {
        "flag": pd.Series(np.where(flag, high, low)).where(~empty),
        "flag=yes": pd.Series(np.where(flag, "yes", "no"), dtype=object).where(~empty, None),
    }
    columns = {
        "flag": NumericColumn("flag", low, high, typical=low, missing="typical", binary=True),
        "flag=yes": CategoricalColumn("flag", ("no", "yes"), missing="indicator"),
    }
    shards = {}
    for name, column in columns.items():
        model = CellModel(feature=name, terms=("age", "y"), draws=((-3.0, 0.03, 0.4),))
        known = Schema(
            columns=(COLUMNS[0], column),
            label=Targets(columns=(NumericColumn("y", -1.0, 4.0),)),
            scaling="range",
            imputation=Imputation(models=(model,)),
        )
        views = encode_with_views(cells.assign(flag=coded[name]), known, coins=b"c")[1]
        shards[name] = features(views.imputed(drawn(by_range(known), 1)))[name]
    number, category = shards["flag"], shards["flag=yes"]
    assert {*number.round(12)} == {low, high}
    np.testing.assert_allclose((number - low) / (high - low), category, atol=1e-12)
    assert 0.1 < category[empty].mean() < 0.9 and (category[~empty] == flag[~empty]).all()


def test_models_of_two_numbers_have_no_spread() -> None:
    column = NumericColumn("flag", 0.0, 1.0, typical=0.0, missing="typical", binary=True)
    rng = np.random.default_rng(5)
    cells = table(empty=False).drop(columns=["bmi", "stage"])
    odds = np.exp(-1.0 + 0.5 * cells.y)
    flag = pd.Series((rng.random(ROWS) < odds / (1 + odds)).astype(float))
    found = infer_schema(
        cells.assign(flag=flag.where(rng.random(ROWS) < 0.7)),
        ["y"],
        scaling="range",
        missing="typical",
        impute=2,
    )
    assert found.imputation is not None
    (model,) = found.imputation.models
    assert model.feature == "flag"
    assert {len(each) for each in model.draws} == {1 + len(model.terms)}
    assert model.draws[0][1 + model.terms.index("y")] == pytest.approx(0.5, abs=0.1)
    with pytest.raises(SchemaError, match="a draw is 2 numbers"):
        Schema(
            columns=(COLUMNS[0], column),
            label=Targets(columns=(NumericColumn("y", -1.0, 4.0),)),
            scaling="range",
            imputation=Imputation(
                models=(CellModel(feature="flag", terms=("y",), draws=((0.0, 1.0, 0.5),)),)
            ),
        )
