"""The import name: light, typed, and the commands' own functions."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest

import ciphercohort
from ciphercohort.cli.app import app
from ciphercohort.job.config import DEPLOY, FORMER, PLAN, SIMULATE, configured, kinds
from ciphercohort.job.options import DeployOptions, PlanOptions, SimulateOptions, option_name
from ciphercohort.results.result import RunResult
from protocols.errors import CohortError, ParameterError
from tests.house.test_imports import PACKAGES
from tests.sims.model_runs import cohort
from tests.support.scripts import ROOT

NAMES = {
    *("Coordinator", "FederatedLogisticRegression", "FederatedRegression", "Party"),
    *("client_app", "evaluate", "load_model", "plan", "server_app", "simulate"),
}
TOY: dict[str, Any] = {"profile": "fast-insecure", "no_privacy": True, "update": "gd"}


def table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(60, 10, rows), "ward": rng.choice(["A", "B"], rows)})
    risk = (frame["age"] - 60) / 3 + (frame["ward"] == "B") + rng.logistic(size=rows)
    return frame.assign(y=np.where(risk > 0, "ill", "well"), cost=frame["age"] + risk)


# -- the package -----------------------------------------------------------------------------------


def test_it_offers_what_users_call_and_nothing_else() -> None:
    assert set(ciphercohort.__all__) == NAMES | {"__version__"}
    assert set(ciphercohort.__all__) <= set(dir(ciphercohort))
    for name in NAMES:
        assert getattr(ciphercohort, name).__name__ == name
    with pytest.raises(ImportError, match="forest"):
        exec("from ciphercohort import forest")


def test_the_import_is_light() -> None:
    script = (
        "import sys, ciphercohort\n"
        "heavy = {'openfhe', 'flwr', 'sklearn', 'pandas', 'numpy', 'scipy', 'torch', 'sims'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        f"from ciphercohort import {', '.join(sorted(NAMES))}\n"
        "assert not {'torch', 'opacus'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("module", "away"),
    [
        ("parties.verifier.process", "pandas pyarrow scipy.optimize scipy.stats flwr"),
        ("sims.party_process", "flwr sklearn matplotlib torch"),
    ],
)
def test_a_process_of_an_owner_begins_without(module: str, away: str) -> None:
    """One that has no rows loads nothing that reads tables; a spawned party loads no Flower."""
    script = f"import sys, {module}; print(*{set(away.split())!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert done.stdout.split() == []


def test_every_name_is_typed_where_it_is_loaded_from() -> None:
    """Types come from the stub, objects from the module: the two name the same homes."""
    stub = ast.parse((ROOT / "ciphercohort" / "__init__.pyi").read_text(encoding="utf-8"))
    typed = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {name: getattr(ciphercohort, name).__module__ for name in NAMES}
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").exists()


# -- the functions ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    folder = tmp_path_factory.mktemp("runs") / "run"
    test = folder.with_name("test.csv")
    table(60, seed=2).to_csv(test, index=False)
    result = ciphercohort.simulate(
        data=table(90, seed=1),
        label="y",
        positive="ill",
        exclude="cost",
        test=str(test),
        iterations=2,
        out=str(folder),
        **TOY,
    )
    assert isinstance(result, RunResult)
    return folder, result


def test_predictions_are_those_of_cohort_predict(run: tuple[Path, RunResult]) -> None:
    folder, result = run
    test, model = folder.with_name("test.csv"), ciphercohort.load_model(folder)
    printed = cohort("predict", "--model", folder / "release/model.json", "--data", test)
    expected = pd.read_csv(io.StringIO(printed.stdout))
    frame = pd.read_csv(test)
    for source in (test, frame, frame.drop(columns="y")):
        pd.testing.assert_frame_equal(model.predict(source), expected)
    assert model.classes == ("well", "ill")
    chance = model.predict_proba(test)
    assert chance.shape == (60, 2) and np.allclose(chance.sum(axis=1), 1)
    np.testing.assert_allclose(chance[:, 1], expected["probability"])
    assert (expected["prediction"] == frame["y"]).mean() == result.scores.accuracy
    document = json.loads((folder / "release/model.json").read_text())
    assert model.coefficients.to_dict() == dict(
        zip(document["features"], document["coef"], strict=True)
    )
    assert model.intercept == document["intercept"] and model.schema == result.schema


def test_the_plan_is_that_of_cohort_plan() -> None:
    words = "plan --rows 1000 --features 9 --parties 10 --colluders 3 --no-timing --json"
    found = ciphercohort.plan(rows=1000, features=9, parties=10, colluders=3, timing=False)
    assert json.loads(cohort(*words.split()).stdout) == json.loads(json.dumps(found.to_dict()))
    assert found.epsilon_by_coalition[0] <= 1.0 and found.seconds is None


def test_defaults_are_those_of_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[Any] = []

    def stop(config: Any, on_event: object = None) -> None:
        configs.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr("sims.simulation.simulate", stop)
    cohort("simulate")
    with pytest.raises(KeyboardInterrupt):
        ciphercohort.simulate()
    assert configs[0] == configs[1] and configs[0].epsilon == 1.0 and configs[0].parties == 3


@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_every_option_of_a_command_is_one_of_its_function(command: str) -> None:
    from typer.main import get_command

    screen = {"as_json", "debug", "rehearse", "no_timing"}
    shape = {"rows", "features", "norm_bound", "classes"}
    given = {each.name for each in get_command(app).commands[command].params}  # type: ignore[attr-defined]
    options = {option_name(each) for each in (SIMULATE if command == "simulate" else PLAN)}
    assert given - screen - {"help"} - shape - {*FORMER} == options | {"no_privacy"}


@pytest.mark.parametrize(
    ("typed", "fields"), [(DeployOptions, DEPLOY), (PlanOptions, PLAN), (SimulateOptions, SIMULATE)]
)
def test_every_option_has_the_type_of_its_field(typed: Any, fields: Any) -> None:
    """Also PLAN is made from these names: a misspelt one would be no option of the command."""
    hints = get_type_hints(typed)
    more = {"no_privacy"} | (set() if typed is DeployOptions else {*FORMER})
    assert set(hints) == {option_name(each) for each in fields} | more
    for each in fields:
        kind = kinds()[each.name]
        plain = {kind, *get_args(kind)} & {bool, int, float, str}
        plain |= {os.PathLike[str]} if kind == Path | None else set()
        assert plain <= set(get_args(hints[option_name(each)])), each.name


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        ("simulate", {"iteration": 3}, "iteration is no option of .* mean 'iterations'"),
        ("plan", {"ledger": "kept"}, "ledger is no option of plan"),
        ("simulate", {"no_privacy": True, "epsilon": 1.0}, "no-privacy is given together with"),
        ("simulate", {"test": "a.csv", "holdout": 0.1}, "test and test_share are both given"),
        ("plan", {}, "the shape of the data is missing"),
    ],
)
def test_refusals_are_those_of_the_commands(
    function: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ParameterError, match=words) as caught:
        getattr(ciphercohort, function)(**options)
    assert isinstance(caught.value, CohortError)


@pytest.mark.parametrize(
    ("alias", "name"), [("shards", "encrypted-rows"), ("gradients", "secure-aggregation")]
)
def test_former_names_of_the_protocols_are_aliases(alias: str, name: str) -> None:
    for given in (alias, name):
        assert configured(protocol=given).protocol == name
