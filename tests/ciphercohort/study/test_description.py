"""Table 1 by a secure sum: pandas' figures of the pooled rows, by group and by site."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from ciphercohort.study.description import (
    ALL,
    BINS,
    ELSEWHERE,
    NONE,
    Description,
    Variable,
    _grouped,
    _lines,
)
from parties.kernel.study.described import Described
from parties.reader.arms import MISSING
from parties.reader.infer import REGRESSION_SCALING, infer_schema
from parties.reader.schema import CategoricalColumn, Label, NumericColumn, Schema
from parties.reader.views import cells_schema, encode_with_views
from protocols.errors import ParameterError, SchemaError
from protocols.names import CELLS_VIEW
from protocols.statistics.study.description import (
    are_whole,
    category_difference,
    fitting_bins,
    hidden,
    numeric_difference,
    numeric_figures,
    whole_numbers,
)
from sims.study import describe
from tests.sims.model_runs import cohort

ROWS = 600
SCHEMA = Schema(
    columns=(
        NumericColumn("age", 20.0, 90.0, 50.0, 10.0, "typical"),
        NumericColumn("bmi", 15.0, 45.0, 25.0, 5.0, "indicator"),
        NumericColumn("weight", 40.0, 140.0, 70.0, 15.0),
        CategoricalColumn("ward", ("A", "B", "C"), "typical", "A"),
        CategoricalColumn("smoker", ("no", "yes"), "indicator"),
        CategoricalColumn("sex", ("f", "m")),
    ),
    label=Label("died", "yes", "no"),
)


def table(seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)

    def gaps(cells: Any) -> Any:
        return pd.Series(cells).where(rng.random(ROWS) > 0.08)

    sex = rng.choice(["f", "m"], ROWS)
    return pd.DataFrame(
        {
            "age": gaps(np.clip(rng.normal(55 + 5 * (sex == "m"), 10), 20, 90)),
            "bmi": gaps(np.clip(rng.normal(26, 4, ROWS), 15, 45)),
            "weight": np.clip(rng.normal(75, 12, ROWS), 40, 140),
            "ward": gaps(rng.choice(["A", "B", "C"], ROWS, p=[0.2, 0.3, 0.5])),
            "smoker": gaps(rng.choice(["no", "yes"], ROWS, p=[0.7, 0.3])),
            "sex": sex,
            "died": np.where(rng.random(ROWS) < 0.2, "yes", "no"),
            "site": rng.choice(["a", "b", "c"], ROWS),
        }
    )


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("schema") / "schema.json"
    SCHEMA.save(path)
    return path


def check(found: dict[str, Any], rows: pd.DataFrame) -> None:
    """Every figure is pandas'; quantiles within a step."""
    assert found["n"] == len(rows)
    for name, own in found["columns"].items():
        cells = rows[name]
        assert own["missing"] == cells.isna().sum()
        if "counts" in own:
            assert own["counts"] == [(cells == c).sum() for c in own["categories"]]
            continue
        assert own["n"] == cells.notna().sum()
        assert own["mean"] == pytest.approx(cells.mean(), rel=1e-7)
        assert own["sd"] == pytest.approx(cells.std(), rel=1e-6)
        for key, share in (("q1", 0.25), ("median", 0.5), ("q3", 0.75)):
            ends = [cells.quantile(share, interpolation=i) for i in ("lower", "higher")]  # type: ignore[arg-type]
            assert ends[0] - own["step"] <= own[key] <= ends[1] + own["step"]


@pytest.mark.parametrize("by", [None, "sex", "ward", "died"])
def test_every_figure_is_that_of_the_pooled_rows(
    by: str | None, schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With none left out."""
    place = "ciphercohort.study.description.hidden"
    monkeypatch.setattr(place, lambda counts, least: hidden(counts, 1))
    rows = table()
    found = describe(rows, by=by, schema=schema, split="by:site", sites="all", least=2)
    assert by not in found.groups[ALL]["columns"]
    check(found.groups[ALL], rows)
    if by is not None:
        for group, own in found.groups.items():
            if group in (NONE, MISSING):
                check(own, rows[rows[by].isna()])
            elif group != ALL:
                check(own, rows[rows[by] == group])
        assert {*found.groups} - {ALL, NONE, MISSING} == {*rows[by].dropna().unique()}
    for site, own in found.sites.items():
        check(own, rows if site == ALL else rows[rows.site == site])
    assert {*found.sites} - {ALL} == {"a", "b", "c"}


def test_standardised_differences_are_those_of_the_rows(schema: Path) -> None:
    rows = table()
    found = describe(rows, by="sex", schema=schema, split="by:site").differences
    groups = [rows[rows.sex == sex] for sex in ("f", "m")]
    means, variances = ([getattr(g.age, f)() for g in groups] for f in ("mean", "var"))
    assert found["age"] == pytest.approx(
        abs(means[0] - means[1]) / math.sqrt(sum(variances) / 2), rel=1e-6
    )
    p, q = ((g.died == "yes").mean() for g in groups)
    due = abs(p - q) / math.sqrt((p * (1 - p) + q * (1 - q)) / 2)
    assert found["died"] == pytest.approx(due, rel=1e-9)
    # Yang and Dalton: whichever category is left out.
    shares = np.array([[(g.ward == w).sum() for w in "ABC"] for g in groups], float)
    shares /= shares.sum(axis=1, keepdims=True)
    for left in range(3):
        t, u = (np.delete(each, left) for each in shares)
        spread = (np.diag(t) - np.outer(t, t) + np.diag(u) - np.outer(u, u)) / 2
        distance = math.sqrt((t - u) @ np.linalg.solve(spread, t - u))
        assert found["ward"] == pytest.approx(distance, rel=1e-9)


def test_the_view_of_a_deployed_party_is_that_of_a_simulation() -> None:
    from parties.reader.shard import encode_shard

    own = cells_schema(SCHEMA)
    _, views = encode_with_views(table(), SCHEMA)
    found, due = views.find(CELLS_VIEW, own.digest()), encode_shard(table(), own)
    assert found is not None
    for name in ("x", "y"):
        np.testing.assert_array_equal(getattr(found._value, name), getattr(due, name))
    assert views.find(CELLS_VIEW, SCHEMA.digest()) is None


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_hidden_count_cannot_be_told_from_the_others(data: st.DataObject) -> None:
    """No line with a known sum has one hidden cell, unless all others in it are none."""
    shape = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    numbers = st.lists(st.integers(0, 40), min_size=shape[0] * shape[1], max_size=99)
    counts = np.array(data.draw(numbers)[: shape[0] * shape[1]], float).reshape(shape)
    mask = hidden(counts, 10)
    whole = counts if shape[1] == 1 else np.column_stack([counts, counts.sum(axis=1)])
    assert mask.shape == whole.shape
    assert mask[(whole > 0) & (whole < 10)].all()
    for i, j in np.argwhere(mask & (whole == 0)):  # the partner of a line that has no other
        across = shape[1] > 1 and mask[i][whole[i] > 0].all()
        assert across or mask[:, j][whole[:, j] > 0].all()
    lines = [*zip(mask.T, whole.T, strict=True)]
    lines += [*zip(mask, whole, strict=True)] if shape[1] > 1 else []
    for line, sizes in lines:
        assert line.sum() != 1 or len(line) == 1
        # Nor do hidden ones sum to so little that each is told: they are 1 or more.
        rest = (sizes > 0) & ~line
        assert not line.any() or sizes[line].sum() >= 10 or not rest.any()


@pytest.mark.parametrize("few", [[6, 14, 200], [6, 214], [12, 14, 200]])
def test_a_group_whose_size_is_hidden_has_no_figure(few: list[int], schema: Path) -> None:
    """Its mean, standard deviation and difference from others tell how many rows it has."""
    rows = pd.concat([table(k) for k in range(3)], ignore_index=True)[: sum(few)]
    rows["ward"] = np.repeat([*"ABC"][: len(few)], few)
    found: Description = describe(rows, by="ward", schema=schema, split="by:site")
    hides = min(few) < 10
    for name, size in zip("ABC", few, strict=False):
        group = found.groups[name]
        own = group["columns"]["age"]
        assert (group["n"] is None) == ((hides and size < 200) or len(few) == 2)
        told = [own[key] for key in ("mean", "sd", "q1", "median", "q3")]
        assert all(np.isnan(told)) == (group["n"] is None)
    assert np.isnan(found.differences["age"]) == hides


def test_small_counts_leave_no_file_or_screen(schema: Path, tmp_path: Path) -> None:
    rows = table()
    rows["ward"] = np.where(np.arange(ROWS) < 7, "A", "B")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "out"
    told = cohort(
        *("describe", "--data", tmp_path / "rows.csv", "--by", "sex", "--schema", schema),
        *("--split", "by:site", "--out", out),
    )
    assert told.exit_code == 0, told.output
    found = json.loads((out / "description.json").read_text())
    for own in found["groups"].values():
        assert None in own["columns"]["ward"]["counts"]
        assert all(c is None or c == 0 or c >= 10 for c in own["columns"]["ward"]["counts"])
    assert found["EXACT SUMS"] and found["privacy"] is None
    assert {path.name for path in out.iterdir()} == {
        *("description.json", "report.html", "table-1.csv", "table-1.svg", "table-1.tex")
    }
    for name in ("report.html", "table-1.csv", "table-1.tex"):
        assert "std. difference" in (out / name).read_text()
    assert "std. difference" in told.stdout
    again = cohort("describe", "--data", tmp_path / "rows.csv", "--json", "--split", "by:site")
    assert json.loads(again.stdout)["groups"][ALL]["n"] == ROWS


CODED = {"flag": "1", "gap": "1", "sex12": "2", "text": "1", "died": "1"}
"""Columns of two codes, and which of them a table counts."""


def coded(seed: int = 1) -> tuple[pd.DataFrame, Schema]:
    """Columns of two codes in every way that a schema has them, and a share that is none."""
    rng = np.random.default_rng(seed)
    flag = rng.integers(0, 2, ROWS)
    died = (rng.random(ROWS) < 0.2 + 0.3 * flag).astype(int)
    rows = pd.DataFrame(
        {
            "flag": flag,
            "gap": pd.Series(rng.random(ROWS) < 0.3).astype(float).where(rng.random(ROWS) < 0.9),
            "sex12": rng.integers(1, 3, ROWS),
            "text": rng.integers(0, 2, ROWS),
            "fraction": rng.random(ROWS).round(2),
            "died": died,
            "arm": np.where(rng.random(ROWS) < 0.3 + 0.2 * died, "new", "old"),
            "site": rng.choice(["a", "b", "c"], ROWS),
        }
    )
    schema = infer_schema(
        rows, ["died"], exclude=["site"], missing="indicator", **REGRESSION_SCALING
    )
    columns = [
        CategoricalColumn("text", ("0", "1")) if column.name == "text" else column
        for column in schema.columns
    ]
    return rows, replace(schema, columns=tuple(columns))


def test_of_two_codes_every_format_has_the_share_of_the_second(tmp_path: Path) -> None:
    """n (%), and the standardised difference of two proportions; of a share in [0, 1] the mean."""
    rows, own = coded()
    rows.to_csv(tmp_path / "rows.csv", index=False)
    own.save(tmp_path / "schema.json")
    args = ("--data", tmp_path / "rows.csv", "--schema", tmp_path / "schema.json", "--by", "arm")
    told = cohort("describe", *args, "--split", "by:site", "--out", tmp_path / "out")
    assert told.exit_code == 0, told.output
    found = json.loads((tmp_path / "out" / "description.json").read_text())
    texts = [(tmp_path / f"out/{n}").read_text() for n in ("table-1.csv", "report.html")]
    texts += [told.stdout, (tmp_path / "out/table-1.tex").read_text().replace("\\%", "%")]
    lines = [re.sub(r"<[^>]+>|[&,\\\"]|nbsp;", " ", text).split("\n") for text in texts]
    for name, code in CODED.items():
        p = rows.groupby("arm")[name].mean() - (int(code) - 1)
        due = abs(p.new - p.old) / math.sqrt((p.new * (1 - p.new) + p.old * (1 - p.old)) / 2)
        assert found["standardised_differences"][name] == pytest.approx(due, rel=1e-9)
        cells = []
        for group, part in {"all": rows, **dict(list(rows.groupby("arm")))}.items():
            figures = found["groups"][group]["columns"][name]
            seen = part[name].dropna()
            ones = (seen == int(code)).sum()
            assert figures["counts"] == [len(seen) - ones, ones] and figures["n"] == len(seen)
            assert figures["missing"] == part[name].isna().sum() and "mean" not in figures
            cells.append(f"{ones} ({100 * ones / len(seen):.1f})")
        for text in lines:
            (line,) = [" ".join(each.split()) for each in text if f"{name} = {code}" in each]
            assert " ".join(cells) in line, line
    assert all("fraction  mean (SD)" in "\n".join(text) for text in lines)
    assert found["groups"]["all"]["columns"]["fraction"]["mean"] == pytest.approx(
        rows.fraction.mean(), abs=1e-7
    )


def test_schemas_that_come_with_the_code_say_which_columns_are_codes() -> None:
    """A range of two neighbouring whole numbers is one of codes in all of them."""
    root = Path(__file__).parents[3]
    files = [*root.glob("docs/schemas/*.json"), *root.glob("sims/schemas/*.json")]
    codes = {
        (path.stem, column.name): column.binary
        for path in files
        for column in Schema.load(path).columns
        if isinstance(column, NumericColumn) and column.high - column.low == 1
    }
    assert len(codes) > 20 and all(codes.values()), codes


def test_with_epsilon_ones_are_counted_within_the_noise_that_is_stated(tmp_path: Path) -> None:
    parts = [coded(k) for k in range(12)]
    rows = pd.concat([part for part, _ in parts], ignore_index=True)
    path = tmp_path / "schema.json"
    parts[0][1].save(path)
    found = describe(rows, by="arm", schema=path, split="by:site", epsilon=4.0, seed=5).released()
    for group, part in rows.groupby("arm"):
        for name, code in CODED.items():
            own = found["groups"][group]["columns"][name]
            assert abs(own["counts"][1] - (part[name] == int(code)).sum()) < 5 * found["noise_std"]
            assert own["missing"] == 0 or name in ("gap", "text")


def test_counts_have_no_less_noise_and_no_more_than_is_stated(tmp_path: Path) -> None:
    """Of 3,000 counts, a chi-squared test: a twentieth less and a twentieth more are refused."""
    each, codes, path = 9, tuple(f"c{k}" for k in range(500)), tmp_path / "schema.json"
    columns = (CategoricalColumn("arm", ("a", "b")), CategoricalColumn("code", codes))
    Schema(columns=columns, label=Label("died", "yes", "no")).save(path)
    cells = [(arm, code, "no") for arm in "ab" for code in codes] * each
    rows = pd.DataFrame(cells, columns=["arm", "code", "died"])
    asked = {"by": "arm", "schema": path, "parties": 2, "epsilon": 8.0}
    noise = list[float]()
    for seed in range(3):
        found = describe(rows, seed=seed, **asked).released()
        counts = [found["groups"][arm]["columns"]["code"]["counts"] for arm in "ab"]
        noise += [(count - each) / found["noise_std"] for own in counts for count in own]
    assert min(noise) > -each / found["noise_std"] and len(noise) == 3000  # none is cut at 0
    for off in (0.95, 1.0, 1.05):
        square = float(np.sum((np.array(noise) / off) ** 2))
        p = 2 * min(chi2.cdf(square, len(noise)), chi2.sf(square, len(noise)))
        assert (p > 0.01) == (off == 1.0), (off, p)


def test_with_epsilon_figures_have_the_noise_that_is_stated(schema: Path) -> None:
    rows = pd.concat([table(k) for k in range(12)], ignore_index=True)
    found: Description = describe(
        rows, by="sex", schema=schema, split="by:site", epsilon=4.0, seed=5
    )
    released = found.released()
    assert released["privacy"]["epsilon"] <= 4.0 and not released.get("EXACT SUMS")
    std = released["noise_std"]
    assert 1 < std < 10 and found.groups[ALL]["n"] == len(rows)
    for group in ("f", "m"):
        own, cells = found.groups[group], rows[rows.sex == group]
        assert abs(own["n"] - len(cells)) < 5 * std
        for k, ward in enumerate("ABC"):
            assert abs(own["columns"]["ward"]["counts"][k] - (cells.ward == ward).sum()) < 5 * std
        error = 5 * std * 70 * 1.5 / len(cells)
        assert abs(own["columns"]["age"]["mean"] - cells.age.mean()) < error
        assert own["columns"]["weight"]["missing"] == 0
    with pytest.raises(AssertionError):
        check(found.groups["f"], rows[rows.sex == "f"])


def test_quantiles_are_those_of_counts_with_gaps() -> None:
    cells = np.array([0, 4, 0, 0, 4, 0, 2.0, 0, 0])  # 6 bins of [0, 6], missing, two moments
    found = numeric_figures(cells, 10, 0.0, 6.0)
    assert (found["q1"], found["median"], found["q3"]) == (1.5, 2.0, 4.5)
    assert (found["n"], found["missing"]) == (8, 2)


def heaped(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Nineteen of twenty in the first bin."""
    return np.where(rng.random(rows) < 0.95, rng.random(rows) / 20, rng.random(rows))


SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "first bin": heaped,
    "last bin": lambda rng, n: 1 - heaped(rng, n),
    "even": lambda rng, n: rng.random(n),
    "normal": lambda rng, n: np.clip(rng.normal(0.5, 0.12, n), 0, 1),
    "two heaps": lambda rng, n: np.where(rng.random(n) < 0.6, 0.01, 0.99),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noisy", [0, 1, 2])
@pytest.mark.parametrize("noise", [20.0, 100.0])
def test_the_noise_of_quantiles_and_means_is_what_it_says(
    shape: str, noisy: int, noise: float
) -> None:
    """Of 300 draws: the size of the noise, and how many are within two of it.

    noisy: counts whose noise n has, of none, of its rows or of missing values, too.
    """
    rng, rows, bins = np.random.default_rng(1), 2000, 20
    value = SHAPES[shape](rng, rows)
    counts = np.bincount(np.minimum((value * bins).astype(int), bins - 1), minlength=bins)
    cells = np.array([*counts, 0, (value - 0.5).sum(), ((value - 0.5) ** 2).sum()])
    truth = numeric_figures(cells, rows, 0.0, 1.0)
    off: dict[str, list[tuple[float, float]]] = {key: [] for key in ("mean", "q1", "median", "q3")}
    for _ in range(300):
        table = cells + noise * rng.standard_normal(len(cells))
        table[bins] *= noisy > 1
        size = rows + noise * rng.standard_normal() * (noisy > 0)
        told = numeric_figures(table, size, 0.0, 1.0, noise, of_n=noise * math.sqrt(noisy))
        for key, each in off.items():
            each.append((told[key] - truth[key], told[f"{key}_noise"]))
    for key, each in off.items():
        true, said = np.array(each).T
        ratio = np.median(said) / np.sqrt(np.mean(true**2))
        assert np.mean(np.abs(true) <= 2 * said) > 0.9, key
        if noise < 50 or key == "mean":
            assert 0.9 < ratio < (1.15 if key == "mean" and noise < 50 else 1.4), key


@settings(max_examples=60, deadline=None)
@given(
    low=st.integers(-50, 50),
    width=st.integers(1, 199),
    size=st.integers(10, 60),
    seed=st.integers(0, 2**32 - 1),
)
def test_quantiles_of_whole_numbers_are_these(low: int, width: int, size: int, seed: int) -> None:
    """By the kernel's own counts, of every range of at most as many whole numbers as bins."""
    values = np.random.default_rng(seed).integers(low, low + width + 1, size).astype(float)
    bins = fitting_bins(low, low + width, BINS)
    numbers = whole_numbers(low, low + width, bins)
    assert bins in (199, 200) and np.isfinite(numbers).sum() == width + 1
    scaled = (values - (low + width / 2)) / (width / 2)
    adds = Described(columns=((0, 1, -1, bins),))
    table = adds.exact_sum(scaled[:, None], np.zeros((size, 1)), "a").values[1:]
    found = numeric_figures(table, size, low, low + width, numbers=numbers)
    for key, share in (("q1", 0.25), ("median", 0.5), ("q3", 0.75)):
        assert found[key] == np.quantile(values, share, method="inverted_cdf")


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_a_table_says_which_quantiles_are_numbers_of_the_rows(part: float) -> None:
    rng, rows = np.random.default_rng(2), 300
    table = pd.DataFrame({"age": rng.integers(20, 90, rows), "site": rng.choice(list("abc"), rows)})
    table = table.assign(
        age=table.age + part * (table.index == 7), sex=rng.choice(["f", "m"], rows)
    )
    found = describe(table, by="sex", split="by:site")
    for group, own in [*table.groupby("sex"), (ALL, table)]:
        told = found.groups[group]["columns"]["age"]
        median = np.quantile(own.age, 0.5, method="inverted_cdf")
        assert bool(told["median"] == median and told["step"] == 0) == (part == 0)
        assert abs(told["median"] - median) <= 0.5
    assert ("do not exceed" in found.tables()[0].text()) is (part == 0)
    assert ("within one step" in found.tables()[0].text()) is (part > 0)


@pytest.mark.parametrize("digits", [0, 1, 2, 9])
@pytest.mark.parametrize("width", [1, 14, 70, 100, 186, 197, 198, 199])
@pytest.mark.parametrize("bins", [None, 1])
def test_rows_that_are_not_whole_are_not_told_as_such(
    bins: int | None, width: int, digits: int
) -> None:
    """However few bins have no whole number; bins: of one's own, as many as numbers."""
    rng, size = np.random.default_rng(4), 40
    values = rng.uniform(0, width, size).round(digits)
    bins = width + 1 if bins else fitting_bins(0, width, BINS)
    adds = Described(columns=((0, 1, -1, bins),))
    scaled = (values - width / 2) / (width / 2)
    table = adds.exact_sum(scaled[:, None], np.zeros((size, 1)), "a").values[1:]
    numbers = whole_numbers(0, width, bins)
    assert np.isfinite(numbers).sum() == width + 1
    assert are_whole(table, numbers, 0, width) is (digits == 0)
    # One row that is not whole, by a tenth.
    values = values.round()
    values[3] += 0.1 if values[3] < width else -0.1
    scaled = (values - width / 2) / (width / 2)
    table = adds.exact_sum(scaled[:, None], np.zeros((size, 1)), "a").values[1:]
    assert not are_whole(table, numbers, 0, width)


def test_whole_numbers_that_share_a_bin_or_an_edge_have_none() -> None:
    assert not np.isfinite(whole_numbers(0, 60, 200)).any()  # 20 bins' widths are 6: an edge
    assert not np.isfinite(whole_numbers(0, 200, 200)).any()
    assert not np.isfinite(whole_numbers(0.5, 20.5, 199)).any()
    assert fitting_bins(0, 60, 200) == 199 and fitting_bins(0, 61, 200) == 200
    assert fitting_bins(0, 1000, 200) == 200 and fitting_bins(0.0, 1.25, 200) == 200


def test_what_cannot_be_described_is_refused(schema: Path, tmp_path: Path) -> None:
    rows = table()
    for by, words in (("age", "and no groups"), ("wart", "is not a column")):
        with pytest.raises((ParameterError, SchemaError), match=words):
            describe(rows, by=by, schema=schema, split="by:site")
    with pytest.raises(ParameterError, match="not among"):
        describe(rows, schema=schema, split="by:site", sites=("d",))
    (tmp_path / "mine").write_text("")
    with pytest.raises(ParameterError, match="something else"):
        describe(rows, schema=schema, split="by:site", out=tmp_path)
    with pytest.raises(ParameterError, match="one party"):
        describe(rows.assign(site="a"), schema=schema, split="by:site")


def test_neither_a_share_nor_a_difference_tells_a_hidden_count() -> None:
    """n beside counts would tell the last one; a difference of two groups has all its digits."""
    ward = Variable("ward", ("A", "B"), 0, 1, (0, 2, 2, 0))
    found, _ = _grouped(
        [ward], np.array([[93.0, 50, 3, 40]]), (ALL,), total=93, private=False, least=5
    )
    own = found[ALL]["columns"]["ward"]
    assert own["counts"] == [50, None] and own["missing"] is None and own["n"] is None
    assert not any("(" in cell for line in _lines(ward, [own], [], 0.0) for cell in line[1:])
    table = np.array([[200.0, 197, 3, 0], [310, 301, 9, 0], [0, 0, 0, 0]])
    for least, is_hidden in ((10, True), (1, False)):
        _, differences = _grouped(
            [ward], table, ("a", "b", "(none)"), total=510, private=False, least=least
        )
        assert np.isnan(differences["ward"]) == is_hidden


def test_noise_of_figures_is_what_it_says() -> None:
    """Of 60 draws of the promise's noise, beside what each of them says."""
    rng, rows = np.random.default_rng(0), 1500
    table = pd.DataFrame(
        {
            "age": rng.integers(25, 75, rows),
            "sbp": rng.normal(130, 19, rows).round(),
            "sex": rng.choice(["f", "m"], rows),
            "arm": np.where(rng.random(rows) < 0.3, "new", "old"),
            "site": rng.choice(list("abcd"), rows),
        }
    )
    found, said = [], []
    for seed in range(60):
        own = describe(table, by="arm", split="by:site", epsilon=2.0, seed=seed)
        cells = [own.groups[g]["columns"][n] for g in ("all", "new") for n in ("age", "sbp")]
        found.append([*(c["mean"] for c in cells), *own.differences.values()])
        said.append([*(c["mean_noise"] for c in cells), *own.noise.values()])
        assert {*own.noise} == {*own.differences} == {"age", "sbp", "sex"}
    ratio = np.nanstd(found, axis=0) / np.nanmedian(said, axis=0)
    # A difference is no less than 0, which noise alone is not.
    assert np.all(ratio[:4] > 0.7) and np.all(ratio[:4] < 1.4) and np.all(ratio < 2)
    text = own.tables()[0].text()
    assert "NOT PRIVATE" in text and "NOT PRIVATE" in own._repr_html_()
    assert text.count("noise  ") == 4 and "±" in text
    assert "  missing" not in text  # there is none, and noise alone is not told as such
    exact = describe(table, by="arm", split="by:site")
    assert "noise" not in exact.tables()[0].text() and not exact.noise
    assert "mean_noise" not in exact.groups["all"]["columns"]["age"]


@pytest.mark.parametrize(
    ("rows", "spread", "noise", "told"),
    [
        (300, 0.1, 15, 0),
        (300, 0.05, 6, 0),
        (300, 0.2, 2, 191),
        (1000, 0.28, 15, 191),
        (1000, 0.2, 15, 80),
    ],
)
def test_a_standard_deviation_is_told_where_noise_leaves_it(
    rows: int, spread: float, noise: float, told: int
) -> None:
    """Of 200 tables: within a fifth of its noise on the mean, or in hardly any.

    Told wherever its variance was above 0, it was too large by more than its noise.
    """
    rng, bins = np.random.default_rng(1), 20
    value = np.clip(rng.normal(0.5, spread, rows), 0, 1) if spread < 0.25 else rng.random(rows)
    counts = np.bincount(np.minimum((value * bins).astype(int), bins - 1), minlength=bins)
    cells = np.array([*counts, 0, (value - 0.5).sum(), ((value - 0.5) ** 2).sum()])
    found, said, before = list[float](), list[float](), list[float]()

    def drawn(cells: np.ndarray) -> np.ndarray:
        return cells + noise * rng.standard_normal(len(cells)) * (np.arange(len(cells)) != bins)

    for _ in range(200):
        table = drawn(cells)
        before.append(numeric_figures(table, rows, 0.0, 1.0)["sd"])
        sd = numeric_figures(table, rows, 0.0, 1.0, noise)["sd"]
        if np.isfinite(sd):
            found.append(sd)
            again = (numeric_figures(drawn(table), rows, 0.0, 1.0)["sd"] for _ in range(40))
            said.append(float(np.std([*again])))
    truth = value.std(ddof=1)
    if told:
        assert len(found) >= told and abs(np.mean(found) - truth) < 0.2 * np.mean(said)
    else:
        assert len(found) < 6
        positive = np.array(before)[np.array(before) > 0]
        assert positive.mean() - truth > 0.5 * positive.std()


def test_tables_by_site_have_the_noise_of_each(schema: Path) -> None:
    """Others' rows are those of all less the site's: so is their noise."""
    rows = pd.concat([table(k) for k in range(6)], ignore_index=True)
    asked: dict[str, Any] = {"by": "sex", "schema": schema, "split": "by:site", "epsilon": 8.0}
    found = [describe(rows, sites=("a",), seed=k, **asked) for k in range(8)]
    assert [*found[0].sites] == [ALL, "a", ELSEWHERE]
    errors: dict[str, list[float]] = {name: [] for name in found[0].sites}
    for own in found:
        for name, cells in own.sites.items():
            truth = rows if name == ALL else rows[(rows.site == "a") == (name == "a")]
            age = cells["columns"]["age"]
            errors[name].append((age["mean"] - truth.age.mean()) / age["mean_noise"])
            assert cells["n"] == pytest.approx(len(truth), abs=8 * own.noise_std * math.sqrt(6))
    assert all(0.3 < np.sqrt(np.mean(np.square(each))) < 2 for each in errors.values()), errors
    first = found[0].tables()[1].text()
    assert first.count("noise  ") >= 2 and "±" in first
    noise = [cells["columns"]["age"]["mean_noise"] for cells in found[0].sites.values()]
    assert min(noise) > 0 and noise[1] > noise[0]


def test_a_table_is_the_same_whatever_column_stands_first() -> None:
    """A column of whole numbers has a mean, not a category for each of them."""
    rng, rows = np.random.default_rng(0), 300
    table = pd.DataFrame(
        {
            "age": rng.integers(20, 70, rows),
            "died": rng.integers(0, 2, rows),
            "sex": rng.choice(["f", "m"], rows),
            "weight": rng.normal(80, 9, rows).round(1),
            "site": rng.choice(list("abc"), rows),
        }
    )
    names = ["age", "died", "sex", "weight"]
    found = []
    for k in range(4):
        order = [*names[k:], *names[:k], "site"]
        told = describe(table[order], split="by:site").groups["all"]["columns"]
        found.append({name: told[name] for name in names})
    assert found[0]["age"]["mean"] == pytest.approx(table.age.mean())
    assert found[0]["died"]["categories"] == ("0", "1")
    for other in found[1:]:
        for name, figures in found[0].items():
            for key in ("mean", "sd", "median", "n", "missing", "counts"):
                assert other[name].get(key) == pytest.approx(figures.get(key)), (name, key)


@pytest.mark.parametrize(
    ("one", "other"),
    [([0, 50], [50, 0]), ([30, 20, 0], [0, 0, 50]), ([50, 0, 0], [0, 9, 1]), ([5, 0], [0, 0.9])],
    ids=str,
)
def test_groups_that_share_no_category_are_infinitely_apart(
    one: list[float], other: list[float]
) -> None:
    """Each in each order of categories; with one row in common they are as far as that says."""
    for order in itertools.permutations(range(len(one))):
        groups = [np.array(counts, float)[list(order)] for counts in (one, other)]
        assert category_difference(groups) == math.inf
        shared = [groups[0] + (groups[1] > 0), groups[1]]
        assert 0 < category_difference(shared) < math.inf
        assert category_difference([groups[0], 3 * groups[0]]) == 0


def test_numbers_that_are_constant_in_groups_are_infinitely_apart() -> None:
    """Standard deviations of these are what rounding leaves."""
    for noise in (0.0, 1e-9):
        far = [{"n": 50, "mean": mean, "sd": 1e-7 + noise} for mean in (2.0, 5.0)]
        alike = [{"n": 50, "mean": 2.0, "sd": 1.0 + k} for k in range(2)]
        assert numeric_difference(far) == math.inf and numeric_difference(alike) == 0
        assert math.isnan(numeric_difference([far[0], {**far[0], "mean": 2.0 + noise}]))
    table = pd.DataFrame({"arm": ["a", "b"] * 60, "dose": [2.0, 5.0] * 60, "x": range(120)})
    found = describe(table.assign(again=table.arm), by="arm", parties=2)
    text = found.tables()[0].text()
    for name in ("dose", "again"):
        assert found.differences[name] == math.inf
        (line,) = (row for row in text.splitlines() if row.strip().startswith(name))
        assert line.split()[-1] == "inf"


def test_a_private_table_has_no_missing_cells_where_the_schema_refuses_them(
    tmp_path: Path,
) -> None:
    """Of numbers, of categories, of two numbers, and of the outcome."""
    table = pd.DataFrame(
        {"a": ["u", "v"] * 60, "b": [0, 1] * 60, "c": [3.5, 4.5, 8.5] * 40, "y": ["n", "p"] * 60}
    )
    infer_schema(table, "y").save(tmp_path / "s.json")
    for seed in range(6):
        found = describe(table, schema=tmp_path / "s.json", epsilon=1.0, parties=2, seed=seed)
        for own in found.groups[ALL]["columns"].values():
            assert own["missing"] == 0


def test_a_picture_has_a_star_where_the_table_has() -> None:
    table = pd.DataFrame({"by": ["a", "b"] * 150, "rare": np.arange(300) < 8, "x": range(300)})
    starred, told = (describe(table, by="by", parties=2, least=least) for least in (10, 2))
    texts = [each.pictures()["table-1"][0].count('id="text_') for each in (starred, told)]
    cells = ["".join(map("".join, each.tables()[0].rows)) for each in (starred, told)]
    assert ["*" in each for each in cells] == [True, False]
    assert texts[0] > texts[1]
