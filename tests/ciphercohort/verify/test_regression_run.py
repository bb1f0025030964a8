"""Regressions from the command to their folder, on the toy ring (INSECURE, for tests only)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from ciphercohort import FederatedRegression
from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import figures_of
from ciphercohort.results.predict import ReleasedModel, load_model
from ciphercohort.verify.folder import verify_run
from parties.reader.schema import Schema
from parties.reader.shard import encode_outcome
from protocols.errors import PrivacyError
from protocols.models.registry import model_named
from protocols.privacy.calibrate.lffr import largest_lffr_rate
from sims.prepare import prepare
from tests.sims.model_runs import PRIVATE, RUNS, TOY, Run, Tables, cohort, make_counts, make_frame

Runs = Callable[[str], Run]

# -- every model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_encrypted_is_the_twin_and_the_folder_verifies(name: str, runs: Runs) -> None:
    run = runs(name)
    # The flooding alone: 1e-4 [std] at these toy rings; mean squares of large targets by more.
    assert run.summary["max_abs_diff_to_twin"] < 1e-3
    np.testing.assert_allclose(run.summary["mse"], run.summary["twin"]["mse"], rtol=5e-3)
    checks = {check.name: check for check in verify_run(run.folder, run.tables.test)}
    assert all(check.passed for check in checks.values()), checks
    extra = {"certificate"} if name in PRIVATE else set()
    assert {"test scores", "figures", "model", "re-execution"} | extra <= set(checks)


@pytest.mark.parametrize("name", RUNS)
def test_predictions_follow_the_links_words(name: str, runs: Runs) -> None:
    """From model.json alone, as a reader of its words would compute them."""
    run = runs(name)
    fields, frame = run.read("model.json"), pd.read_csv(run.tables.test)
    frame = frame.query("abs(a) < 0.9 and abs(b) < 0.9")
    raw = frame.assign(**{f"ward={w}": 1.0 * (frame["ward"] == w) for w in "AB"})
    z = raw[fields["features"]].to_numpy(dtype=float) @ np.array(fields["coef"]).T
    z = z + fields["intercept"]
    columns, link = fields["schema"]["label"]["targets"], fields["link"]
    low, high = (np.array([c[end] for c in columns]) for end in ("low", "high"))
    own = {
        "linear": lambda: z,
        "improved": lambda: (
            low + ((1 / (1 + np.exp(-z)) - 0.5) / link["gamma"] + 0.5) * (high - low)
        ),
        "lffr": lambda: low + (high - low) / (1 + np.exp(-z)),
        "poisson": lambda: np.clip(np.exp(z), high * np.exp(-2 * link["radius"]), high),
    }[name.partition("-")[0]]()
    model = load_model(run.folder / "release/model.json")
    found = model.predict(frame)
    assert isinstance(model, ReleasedModel) and list(found.columns) == fields["targets"]
    np.testing.assert_allclose(found.to_numpy(), own, rtol=1e-9)
    assert fields["kind"] == "regression" and fields["targets"] == run.tables.targets.split(",")
    assert link["meaning"] == model_named(fields["model"]).link
    assert ("gamma" in link) == (name == "improved")


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [("improved", "gram", "ridge="), ("lffr-private", "lffr", "_rate=")],
)
def test_privacy_is_promised_and_written(name: str, method: str, words: str, runs: Runs) -> None:
    run = runs(name)
    assert run.summary["privacy"]["epsilon"] == 5.0 and run.summary["privacy"]["colluders"] == 1
    certificate = run.read("certificate.json")
    assert certificate["method"] == method and certificate["satisfied"]
    assert certificate["setting"]["budget"]["colluders"] == 1
    assert any(words in warning for warning in run.summary["warnings"])


@pytest.mark.parametrize(
    ("run", "name", "path", "value", "expected"),
    [
        ("improved", "model.json", ("coef", 0, 1), 0.0, "model"),
        ("improved", "model.json", ("model",), "linear", "model"),
        ("improved", "summary.json", ("ridge",), 0.0, "figures"),
        ("improved", "certificate.json", ("setting", "budget", "colluders"), 0, "certificate"),
        ("lffr-private", "model.json", ("coef", 0, 1), 0.0, "model"),
        ("lffr-private", "certificate.json", ("setting", "learning_rate"), 1e-3, "certificate"),
        ("lffr-private", "certificate.json", ("figures", "reached"), 0.0, "certificate"),
    ],
)
def test_a_changed_figure_is_found(
    runs: Runs, tmp_path: Path, run: str, name: str, path: Any, value: Any, expected: str
) -> None:
    assert expected in runs(run).tampered(tmp_path, name, *path, value=value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("improved", ("Conditions of the theorem", "improved LFFR", "sums of x xᵀ", "γ", "Ridge")),
        ("poisson", ("Poisson regression", "encrypted copies", "nag", "D²", "exponential")),
    ],
)
def test_the_report_tells_it_all(name: str, expected: tuple[str, ...], runs: Runs) -> None:
    text = runs(name).report
    for words in expected:
        assert words in text
    # Error by iteration, error by target, and one scatter for each target.
    assert text.count("<figure") == 2 + len(runs(name).tables.targets.split(","))
    assert ("encrypted sums" in text) == (name in ("linear", "improved"))


# -- linear, and improved LFFR ---------------------------------------------------------------------


def test_linear_is_near_scikit_learns_least_squares(runs: Runs, tables: Tables) -> None:
    run = runs("linear")
    train, test = pd.read_csv(tables.train), pd.read_csv(tables.test)
    x, y = ["a", "b", "B"], ["cost", "days"]
    train["B"], test["B"] = train["ward"] == "B", test["ward"] == "B"
    fit = LinearRegression().fit(train[x], train[y])
    # True values count as clamped to the public range.
    targets = Schema.load(tables.schema).label
    true = targets.to_data_units(encode_outcome(test, targets))
    own = ((fit.predict(test[x]) - true) ** 2).mean(axis=0)
    np.testing.assert_allclose(run.summary["optimum"]["mse"], own, rtol=1e-9)
    np.testing.assert_allclose(run.summary["mse"], own, rtol=0.3)
    assert min(run.summary["r2"]) > 0.9
    assert abs(run.read("model.json")["coef"][0][0] - 30) < 2
    assert runs("improved").summary["ridge"] > 0


def test_cohort_predict(runs: Runs, tables: Tables) -> None:
    run = runs("linear")
    model = run.folder / "release/model.json"
    scored = cohort("predict", "--model", model, "--data", tables.test)
    assert scored.exit_code == 0 and scored.stdout.splitlines()[0] == "cost,days"
    assert f"R² {run.summary['r2'][0]:.4f}" in scored.stderr and "100 rows" in scored.stderr
    bare = tables.train.with_name("bare.csv")
    pd.read_csv(tables.test, float_precision="round_trip").drop(columns="days").to_csv(
        bare, index=False
    )
    unscored = cohort("predict", "--model", model, "--data", bare)
    assert unscored.stdout == scored.stdout and "R²" not in unscored.stderr


# -- LFFR ------------------------------------------------------------------------------------------


def test_the_estimator_of_counts() -> None:
    frame = make_counts(150)
    own: dict[str, Any] = {"profile": "fast-insecure", "iterations": 15}
    model = FederatedRegression(model="poisson", targets="visits", epsilon=None, **own).fit(frame)
    assert model.coef_.shape == (4,) and model.predict(frame).min() > 0
    assert model.score(frame, frame["visits"]) > 0.1
    assert model.result_.iterations[-1].largest_logit <= 3
    with pytest.raises(PrivacyError, match=r"--no-privacy \(epsilon=None\)"):
        FederatedRegression(model="poisson", targets="visits", **own).fit(frame)


def test_the_rate_is_the_largest_that_stays_in_the_interval() -> None:
    """A stricter promise has a lower one; a step of 1 / 1000 more leaves the ball."""
    rates = []
    for epsilon in (0.5, 5.0):
        config = SimulationConfig(
            data=make_frame(120), model="lffr", targets=("cost", "days"), epsilon=epsilon, seed=1
        )
        data = prepare(config, np.random.default_rng(1))
        figures = figures_of(data.schema, (shard.rows for shard in data.shards.values()))
        found = largest_lffr_rate(figures, config.wanted()).setting
        largest = 1 / (0.155 * found.norm_bound**2)
        rates.append(found.learning_rate)
        assert found.reached() <= found.radius and found.learning_rate <= largest
        beyond = replace(found, learning_rate=1.001 * found.learning_rate)
        assert found.learning_rate == largest or beyond.reached() > found.radius
    assert rates[0] < rates[1]


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--model linear", "target is missing"),
        ("--model linear --target cost,dyas", "target='dyas' is not a column"),
        ("--model linear --target cost --label ward", "option of --model logistic"),
        ("--model linear --target cost --update nag", "option of --model logistic"),
        ("--model linear --target cost --split by:cost", "names a target"),
        ("--model poisson --target cost", "of target cost is not 0, from which"),
        (
            "--model poisson --target cost --protocol secure-aggregation",
            "take encrypted-rows or encrypted-model",
        ),
        ("--label ward --target cost", "label=ward is an option of --model logistic"),
        ("--model logistic --target cost", "add --model linear"),
        ("--model linear --target ward", "holds texts, not numbers"),
        ("--model linear --target const", "the same value in all"),
        ("--model linear --target odd", "mixes numbers with 1 different texts"),
    ],
)
def test_clear_refusals(tmp_path: Path, words: str, message: str) -> None:
    frame = make_frame(60).assign(const=3.0)
    frame["odd"] = frame["cost"].astype(object).where(frame.index != 9, "n.a. yet")
    unused = {"const", "odd"} - set(words.split())
    frame.drop(columns=list(unused)).to_csv(tmp_path / "data.csv", index=False)
    given = ("--data", tmp_path / "data.csv", *TOY, "--no-privacy", *words.split())
    refused = cohort("simulate", *given)
    assert refused.exit_code == 2 and message in " ".join(refused.stderr.split())
    assert "n.a. yet" not in refused.stderr


def test_targets_outside_the_public_range_are_clamped_and_counted(
    tables: Tables, tmp_path: Path
) -> None:
    frame = pd.read_csv(tables.train)
    frame.loc[:4, "cost"] = 1e6
    frame.to_csv(tmp_path / "train.csv", index=False)
    changed, out = replace(tables, train=tmp_path / "train.csv"), tmp_path / "run"
    words = ("--model", "linear", "--no-privacy", "--iterations", "1", "--out", out)
    assert changed.simulate(*words).exit_code == 0
    final = json.loads((out / "private/metrics.jsonl").read_text().splitlines()[-1])
    told = " ".join(note for party in final["clamped"].values() for note in party["notes"])
    assert "cost" in told and "days" not in told
    strict = changed.simulate(*words, "--strict")
    assert strict.exit_code == 2 and "are outside its range" in strict.stderr


def test_without_data_it_takes_what_scikit_learn_ships() -> None:
    words = ("--model", "linear", "--no-privacy", "--profile", "fast-insecure", "--json")
    result = cohort("simulate", *words, "--iterations", "3")
    assert result.exit_code == 0 and json.loads(result.stdout)["features"] == 11


def test_a_schema_is_shown_and_made(tables: Tables) -> None:
    shown = cohort("schema", "show", tables.schema)
    assert "target: cost" in shown.stdout and "row norm: none" in shown.stdout
    both = cohort("schema", "init", tables.train, "--target", "cost", "--label", "ward")
    assert both.exit_code == 2 and "either" in both.stderr


@pytest.mark.secure
def test_two_parties_at_128_bits(tables: Tables) -> None:
    """The twin's errors to 1e-3, after two iterations on a secure ring."""
    few = ("--parties", "2", "--iterations", "2", "--as-trained")
    options = ("--model", "linear", *few, "--no-privacy", "--json")
    result = tables.simulate("--profile", "secure", *options)
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert (summary["security_bits"], summary["ring_dim"]) == (128, 32768)
    np.testing.assert_allclose(summary["mse"], summary["twin"]["mse"], rtol=1e-3)


@pytest.mark.parametrize("model", ["linear", "lffr"])
def test_training_that_has_not_converged_says_so(tables: Tables, runs: Runs, model: str) -> None:
    """Two iterations leave much; the default of sums leaves nothing to tell."""
    words = ("--model", model, "--no-privacy", "--profile", "fast-insecure", "--json")
    few = json.loads(tables.simulate(*words, "--iterations", "2", "--as-trained").stdout)[
        "warnings"
    ]
    told = [w for w in few if "has not converged: 2 iterations leave" in w]
    assert len(told) == 1 and "--iterations" in told[0]
    assert not any("converged" in w for w in runs("linear").summary["warnings"])
