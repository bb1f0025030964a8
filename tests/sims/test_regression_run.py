"""A regression from the command to its folder, on the toy ring (INSECURE, for tests only)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from sklearn.linear_model import LinearRegression
from typer.testing import CliRunner

from parties.schema import Schema
from sims import cli
from sims.documents import to_json
from sims.predict import ReleasedModel, load_model
from sims.run_folder import STATUS, file_digest
from sims.verify import verify_run
from tests.sims.test_recipe_gram import make_frame

TOY = ("--profile", "fast-insecure", "--target", "cost,days")
LINEAR, IMPROVED = ("--model", "linear"), ("--model", "improved-lffr")
LFFR = ("--model", "lffr")


def cohort(*words: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Training rows, test rows, a public schema."""
    folder = tmp_path_factory.mktemp("data")
    train, test, schema = folder / "train.csv", folder / "test.csv", folder / "schema.json"
    make_frame(240).to_csv(train, index=False)
    make_frame(100, seed=2).to_csv(test, index=False)
    made = cohort("schema", "init", train, "--target", "cost,days", "--out", schema)
    assert made.exit_code == 0, made.stderr
    return train, test, schema


def simulate(tables: tuple[Path, Path, Path], *words: str | Path) -> Result:
    train, test, schema = tables
    return cohort("simulate", "--data", train, "--test", test, "--schema", schema, *TOY, *words)


@pytest.fixture(scope="module")
def linear(tables: tuple[Path, Path, Path]) -> tuple[Path, Result]:
    out = tables[0].with_name("linear")
    result = simulate(tables, *LINEAR, "--no-privacy", "--iterations", "60", "--out", out)
    assert result.exit_code == 0, result.stderr
    return out, result


@pytest.fixture(scope="module")
def improved(tables: tuple[Path, Path, Path]) -> tuple[Path, dict[str, Any]]:
    """With privacy."""
    out = tables[0].with_name("improved")
    words = ("--epsilon", "5", "--colluders", "1", "--iterations", "9", "--out", out, "--json")
    result = simulate(tables, *IMPROVED, *words)
    assert result.exit_code == 0, result.stderr
    return out, json.loads(result.stdout)


# -- runs ------------------------------------------------------------------------------------------


def test_encrypted_is_the_twin_and_near_least_squares(
    linear: tuple[Path, Result], tables: tuple[Path, Path, Path]
) -> None:
    summary = json.loads((linear[0] / "summary.json").read_text())
    np.testing.assert_allclose(summary["mse"], summary["twin"]["mse"], rtol=1e-4)
    train, test = (pd.read_csv(path) for path in tables[:2])
    x, y = ["a", "b", "B"], ["cost", "days"]
    train["B"], test["B"] = train["ward"] == "B", test["ward"] == "B"
    fit = LinearRegression().fit(train[x], train[y])
    # True values count as clamped to the public range.
    targets = Schema.load(tables[2]).label
    true = targets.to_data_units(targets.encode(test)[0])
    own = ((fit.predict(test[x]) - true) ** 2).mean(axis=0)
    np.testing.assert_allclose(summary["optimum"]["mse"], own, rtol=1e-9)
    np.testing.assert_allclose(summary["mse"], own, rtol=0.3)
    assert min(summary["r2"]) > 0.9


def test_the_closing_table(linear: tuple[Path, Result]) -> None:
    words = linear[1].stdout
    for expected in ("cost", "days", "100 test rows", "squares", "no noise was added", "INSECURE"):
        assert expected in words


def test_the_folder_verifies(
    linear: tuple[Path, Result], improved: tuple[Path, Any], tables: tuple[Path, Path, Path]
) -> None:
    for out, extra in ((linear[0], set()), (improved[0], {"certificate"})):
        checks = {check.name: check for check in verify_run(out, tables[1])}
        assert all(check.passed for check in checks.values()), checks
        assert {"test scores", "figures", "model"} | extra <= set(checks)


def test_privacy_is_promised_and_written(improved: tuple[Path, dict[str, Any]]) -> None:
    out, summary = improved
    assert summary["privacy"]["epsilon"] == 5.0 and summary["privacy"]["colluders"] == 1
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["method"] == "gram" and certificate["satisfied"]
    np.testing.assert_allclose(summary["mse"], summary["twin"]["mse"], rtol=1e-4)
    assert summary["ridge"] > 0 and any("ridge=" in words for words in summary["warnings"])


# -- tampering -------------------------------------------------------------------------------------


def tampered(source: Path, folder: Path, name: str, *path: Any, value: Any) -> set[str]:
    """Names of the checks that fail once one field is changed and the digests are repaired."""
    copy = Path(shutil.copytree(source, folder / "run"))
    fields = json.loads((copy / name).read_text())
    place = fields
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (copy / name).write_text(to_json(fields))
    status = json.loads((copy / STATUS).read_text())
    status["files"] = {known: file_digest(copy / known) for known in status["files"]}
    (copy / STATUS).write_text(to_json(status))
    return {check.name for check in verify_run(copy) if not check.passed}


@pytest.mark.parametrize(
    ("name", "path", "value", "expected"),
    [
        ("model.json", ("coef", 0, 1), 0.0, "model"),
        ("model.json", ("link", "gamma"), 0.9, "model"),
        ("model.json", ("model",), "linear", "model"),
        ("summary.json", ("relative_mse", 1), 0.0, "figures"),
        ("summary.json", ("ridge",), 0.0, "figures"),
        ("certificate.json", ("setting", "target_bound"), 0.1, "certificate"),
        ("certificate.json", ("setting", "budget", "colluders"), 0, "certificate"),
        ("certificate.json", ("figures", "noise_bound"), 0.0, "certificate"),
    ],
)
def test_a_changed_figure_is_found(
    improved: tuple[Path, Any], tmp_path: Path, name: str, path: Any, value: Any, expected: str
) -> None:
    assert expected in tampered(improved[0], tmp_path, name, *path, value=value)


# -- models and predictions ------------------------------------------------------------------------


def test_linear_coefficients_are_in_data_units(
    linear: tuple[Path, Result], tables: tuple[Path, Path, Path]
) -> None:
    fields = json.loads((linear[0] / "model.json").read_text())
    assert fields["targets"] == ["cost", "days"] and fields["kind"] == "regression"
    frame = pd.read_csv(tables[1])
    inside = frame[(frame[["a", "b"]].abs() < 0.9).all(axis=1)]
    raw = inside.assign(**{f"ward={w}": 1.0 * (inside["ward"] == w) for w in "AB"})
    x = raw[fields["features"]].to_numpy(dtype=float)
    own = x @ np.array(fields["coef"]).T + fields["intercept"]
    model = load_model(linear[0] / "model.json")
    np.testing.assert_allclose(model.predict(inside).to_numpy(), own, rtol=1e-9)
    assert abs(fields["coef"][0][0] - 30) < 2


def test_improved_predictions_follow_the_links_words(
    improved: tuple[Path, Any], tables: tuple[Path, Path, Path]
) -> None:
    fields = json.loads((improved[0] / "model.json").read_text())
    frame = pd.read_csv(tables[1]).query("abs(a) < 0.9 and abs(b) < 0.9")
    raw = frame.assign(**{f"ward={w}": 1.0 * (frame["ward"] == w) for w in "AB"})
    z = raw[fields["features"]].to_numpy(dtype=float) @ np.array(fields["coef"]).T
    z, gamma = z + fields["intercept"], fields["link"]["gamma"]
    t = (1 / (1 + np.exp(-z)) - 0.5) / gamma + 0.5
    columns = fields["schema"]["label"]["targets"]
    low, high = (np.array([c[name] for c in columns]) for name in ("low", "high"))
    model = load_model(improved[0] / "model.json")
    found = model.predict(frame)
    assert isinstance(model, ReleasedModel) and list(found.columns) == ["cost", "days"]
    np.testing.assert_allclose(found.to_numpy(), low + t * (high - low), rtol=1e-9)


def test_cohort_predict(linear: tuple[Path, Result], tables: tuple[Path, Path, Path]) -> None:
    model = linear[0] / "model.json"
    scored = cohort("predict", "--model", model, "--data", tables[1])
    assert scored.exit_code == 0 and scored.stdout.splitlines()[0] == "cost,days"
    summary = json.loads((linear[0] / "summary.json").read_text())
    assert f"R² {summary['r2'][0]:.4f}" in scored.stderr and "100 rows" in scored.stderr
    bare = tables[0].with_name("bare.csv")
    pd.read_csv(tables[1]).drop(columns="days").to_csv(bare, index=False)
    unscored = cohort("predict", "--model", model, "--data", bare)
    assert unscored.stdout == scored.stdout and "R²" not in unscored.stderr


def test_a_model_file_of_another_shape_is_refused(
    linear: tuple[Path, Result], tmp_path: Path
) -> None:
    fields = json.loads((linear[0] / "model.json").read_text())
    path = tmp_path / "model.json"
    for change in ({"weights": fields["weights"][:-1]}, {"model": "forest"}, {"kind": "other"}):
        path.write_text(json.dumps({**fields, **change}))
        assert cohort("predict", "--model", path, "--data", path).exit_code == 2


# -- report ----------------------------------------------------------------------------------------


def test_the_report_tells_it_all(linear: tuple[Path, Result], improved: tuple[Path, Any]) -> None:
    text = (linear[0] / "report.html").read_text()
    # Error by iteration, error by target, and one scatter for each target.
    assert text.count("<figure") == 4
    for words in ("least squares", "fixed Hessian", "cost", "No privacy noise", "INSECURE"):
        assert words in text
    text = (improved[0] / "report.html").read_text()
    for words in ("Conditions of the theorem", "ridge", "improved LFFR", "sums of x xᵀ", "γ"):
        assert words in text


def test_metrics_tell_every_iteration(linear: tuple[Path, Result]) -> None:
    lines = [json.loads(line) for line in (linear[0] / "metrics.jsonl").read_text().splitlines()]
    course = [line for line in lines if line["kind"] == "iteration"]
    errors = [line["training_mse"] for line in course]
    assert [line["iteration"] for line in course] == list(range(1, 61))
    assert errors[0] > 5 * errors[-1] and all(a >= b for a, b in pairwise(errors))


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--model linear", "target is missing"),
        ("--model linear --target cost,cost", "named twice"),
        ("--model linear --target cost,dyas", "target='dyas' is not a column"),
        ("--model linear --target cost --label ward", "option of --model logistic"),
        ("--model linear --target cost --update nag", "option of --model logistic"),
        ("--model linear --target cost --degree 3", "option of --model logistic"),
        (
            "--model linear --target cost --protocol secure-aggregation",
            "option of --model logistic",
        ),
        ("--model linear --target cost --ridge -1", "ridge=-1.0"),
        ("--model linear --target cost --split by:cost", "names a target"),
        ("--model linear --target cost --split dirichlet:1", "skews classes"),
        ("--model lffr --target cost --update nag", "option of --model logistic"),
        ("--model forest --target cost", "model='forest' is not one of"),
        ("--label ward --target cost", "add --model linear"),
        ("--label ward --ridge 0.1", "ridge=0.1"),
        ("--model linear --target ward", "holds texts, not numbers"),
        ("--model linear --target const", "the same value in all"),
        ("--model linear --target holes", "missing or infinite in"),
        ("--model linear --target odd", "mixes numbers with 1 different texts"),
    ],
)
def test_clear_refusals(tmp_path: Path, words: str, message: str) -> None:
    frame = make_frame(60).assign(const=3.0)
    frame["holes"] = frame["cost"].where(frame.index % 7 > 0)
    frame["odd"] = frame["cost"].astype(object).where(frame.index != 9, "n.a. yet")
    unused = {"const", "holes", "odd"} - set(words.split())
    frame.drop(columns=list(unused)).to_csv(tmp_path / "data.csv", index=False)
    base = ("simulate", "--data", tmp_path / "data.csv", "--profile", "fast-insecure")
    # In a process of its own: how cells are read must not depend on what else was loaded.
    command = [sys.executable, "-m", "sims.cli", *map(str, base), "--no-privacy", *words.split()]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 2 and message in " ".join(result.stderr.split())
    assert "n.a. yet" not in result.stderr


def test_targets_outside_the_public_range_are_clamped_and_counted(
    tables: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    frame, schema = pd.read_csv(tables[0]), Schema.load(tables[2])
    frame.loc[:4, "cost"] = 1e6
    frame.to_csv(tmp_path / "train.csv", index=False)
    changed = (tmp_path / "train.csv", tables[1], tables[2])
    out = tmp_path / "run"
    words = (*LINEAR, "--no-privacy", "--iterations", "1", "--out", out)
    assert simulate(changed, *words).exit_code == 0
    final = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    told = " ".join(note for party in final["clamped"].values() for note in party["notes"])
    assert "cost" in told and "days" not in told and schema.label_names == ("cost", "days")
    strict = simulate(changed, *words, "--strict")
    assert strict.exit_code == 2 and "targets outside their range" in strict.stderr


def test_without_data_it_takes_what_scikit_learn_ships() -> None:
    words = ("--model", "linear", "--no-privacy", "--profile", "fast-insecure", "--json")
    result = cohort("simulate", *words, "--iterations", "3")
    assert result.exit_code == 0 and json.loads(result.stdout)["features"] == 11


def test_a_schema_is_shown_and_made(tables: tuple[Path, Path, Path]) -> None:
    shown = cohort("schema", "show", tables[2])
    assert "target: cost" in shown.stdout and "row norm: none" in shown.stdout
    both = cohort("schema", "init", tables[0], "--target", "cost", "--label", "ward")
    assert both.exit_code == 2 and "either" in both.stderr


@pytest.mark.secure
def test_two_parties_at_128_bits(tables: tuple[Path, Path, Path]) -> None:
    """The twin's errors to 1e-4, after three iterations on a secure ring."""
    train, test, schema = tables
    words = ("--data", train, "--test", test, "--schema", schema, "--target", "cost,days")
    options = (*LINEAR, "--parties", "2", "--iterations", "3", "--no-privacy", "--json")
    result = cohort("simulate", *words, *options)
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert (summary["security_bits"], summary["ring_dim"]) == (128, 32768)
    np.testing.assert_allclose(summary["mse"], summary["twin"]["mse"], rtol=1e-4)
