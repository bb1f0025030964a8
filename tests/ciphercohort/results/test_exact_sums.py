"""What is said of sums without noise: before a run, at the head of every report, at the centre."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ciphercohort
from ciphercohort.deploy.check import check_deployed
from ciphercohort.deploy.evaluation import evaluation_plan
from ciphercohort.results.exact_sums import MARK, TOY
from ciphercohort.verify.folder import verify_run
from coordinator.deployment import create_session
from coordinator.status import read_status
from parties.agent.settings import Settings
from parties.agent.vault import Vault
from protocols.errors import ParameterError, ProtocolError
from protocols.names import check_colluders_of_sums
from protocols.words import EXACT_SUMS
from tests.coordinator.test_inference import MODEL, NAMES, Hospitals
from tests.parties.agents import PASSPHRASE
from tests.sims.model_runs import cohort, public_schema

ROWS = np.random.default_rng(3).normal(size=(150, 3))
LABELS = (ROWS[:, 0] > 0).astype(int)
FRAME = pd.DataFrame(ROWS, columns=["a", "b", "c"]).assign(y=LABELS)
SUMS: dict[str, Any] = {"protocol": "secure-aggregation", "iterations": 3}
TOYS: dict[str, Any] = {"profile": "fast-insecure", "iterations": 2, "update": "gd", "degree": 3}
PLAIN: dict[str, Any] = {"data": FRAME, "label": "y", "seed": 1}
RUNS: dict[str, tuple[bool, dict[str, Any]]] = {
    "training": (True, SUMS | {"no_privacy": True}),
    "standard errors": (True, TOYS | {"no_privacy": True, "inference": True}),
    "held-out rows": (True, TOYS | {"no_privacy": True, "evaluate": True, "held_out": 0.4}),
    "one step": (True, TOYS | {"no_privacy": True, "iterations": 1}),
    "a model alone": (True, TOYS | {"no_privacy": True}),
    "private sums": (False, SUMS | {"epsilon": 3.0, "schema": public_schema(FRAME, "y")}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_simulation_says_it_first_and_in_every_report(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exact, options = RUNS[name]
    folder = tmp_path / "run"
    with caplog.at_level(logging.WARNING):
        result = ciphercohort.simulate(**PLAIN, **options, out=folder)
    told = [words for words in caplog.messages if words.startswith(MARK)]
    assert len(told) == exact and all(EXACT_SUMS in words for words in told)
    assert result.exact_sums == exact and (MARK in repr(result)) == exact
    documents = [folder / "release" / "model.json", folder / "private" / "summary.json"]
    for body in map(json.loads, (path.read_text() for path in documents)):
        assert (body.get(MARK) == EXACT_SUMS) == exact
    first, *_ = (name for name in result.summary() if name != TOY)  # both are marks
    assert (first == MARK) == exact
    for half in ("release", "private"):
        page = (folder / half / "report.html").read_text()
        assert (f"{MARK}: {EXACT_SUMS}" in page[: page.index("<header>")]) == exact
    assert all(check.passed for check in verify_run(folder))
    notebook = result._repr_html_()
    assert (MARK in notebook[: notebook.index("trained a")]) == exact
    if result.inference is not None:
        first, *_ = result.inference.latex().splitlines()
        assert first == f"% {MARK}: {EXACT_SUMS}" and result.inference.text().startswith(MARK)


def test_the_console_says_it_before_the_first_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has been made where it is said: a run that dies at its first key has said it."""
    FRAME.to_csv(tmp_path / "rows.csv", index=False)

    def dies(*arguments: Any, **more: Any) -> Any:
        raise ProtocolError("the first key")

    monkeypatch.setattr("sims.simulation.run_parties", dies)
    words = ("--data", tmp_path / "rows.csv", "--label", "y", "--protocol", "secure-aggregation")
    shown = cohort("simulate", *words, "--no-privacy")
    said = " ".join(shown.stderr.split())
    assert 0 <= said.find(EXACT_SUMS) < said.find("the first key")


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run's rows and its model, some rows held back."""
    home = tmp_path_factory.mktemp("run")
    FRAME.to_csv(home / "rows.csv", index=False)
    options = SUMS | {"no_privacy": True, "evaluate": True, "held_out": 0.4, "label": "y"}
    ciphercohort.simulate(data=home / "rows.csv", **options, out=home / "run")
    return home


SIMULATE = "simulate --data rows.csv --label y --protocol secure-aggregation --no-privacy"
COMMANDS = {
    "training": SIMULATE,
    "training and its standard errors": f"{SIMULATE} --inference",
    "training and its held-out rows": f"{SIMULATE} --held-out 0.4 --evaluate --inference",
    "an evaluation": "evaluate --model run --data rows.csv",
    "an evaluation and standard errors": "evaluate --model run --data rows.csv --inference",
    "held-out rows": "evaluate run --rows held-out --data rows.csv",
    "a forecast": "plan --data rows.csv --label y --protocol secure-aggregation --no-privacy",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_says_it_once(
    command: str, a_run: Path, monkeypatch: pytest.MonkeyPatch, quick_machine: None
) -> None:
    """On screen and log together."""
    monkeypatch.chdir(a_run)
    shown = cohort(*command.split())
    assert shown.exit_code == 0, shown.output
    assert " ".join(shown.output.split()).count(EXACT_SUMS) == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_estimator_says_it(caplog: pytest.LogCaptureFixture) -> None:
    for epsilon in (None, 3.0):
        caplog.clear()
        made = ciphercohort.FederatedLogisticRegression(
            protocol="secure-aggregation", iterations=3, epsilon=epsilon
        )
        made.fit(ROWS, LABELS)
        assert (EXACT_SUMS in caplog.text) == (epsilon is None)


def test_an_evaluation_says_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame(
        {"age": [30.0, 70.0] * 60, "ward": ["A", "B"] * 60, "died": ["no", "yes"] * 60}
    )
    for epsilon in (None, 10.0):
        caplog.clear()
        found = ciphercohort.evaluate(MODEL, frame, epsilon=epsilon, out=tmp_path / str(epsilon))
        body = json.loads((tmp_path / str(epsilon) / "evaluation.json").read_text())
        exact = epsilon is None
        assert (EXACT_SUMS in caplog.text) == (next(iter(body)) == MARK) == exact
        assert (MARK in found._repr_html_()) == exact


def test_a_forecast_says_it() -> None:
    words = ("plan", "--rows", 900, "--features", 4, "--no-timing")
    for more, exact in ((("--no-privacy",), True), (("--epsilon", 2), False)):
        shown = cohort(*words, "--protocol", "secure-aggregation", *more)
        assert (EXACT_SUMS in " ".join(shown.stdout.split())) == exact


# -- across machines -----------------------------------------------------------------------------


def _infer(centre: Hospitals) -> Any:
    return centre.infer(None)


def _check(centre: Hospitals) -> Any:
    centre.agents.private = False
    terms: dict[str, Any] = {"epsilon": None, "delta": 1e-5, "colluders": 0}
    return check_deployed(centre.settings, centre.drive, **terms)


def _evaluate(centre: Hospitals) -> Any:
    centre.agents.private = False
    terms: dict[str, Any] = {"epsilon": None, "delta": 1e-5, "colluders": 0}
    return centre.drive(
        create_session(centre.settings, evaluation_plan(centre.settings, MODEL, **terms))
    )


@pytest.mark.parametrize("ask", [_infer, _check, _evaluate])
def test_a_deployed_sum_is_refused_before_anything_is_spent(
    ask: Callable[[Hospitals], Any], tmp_path: Path
) -> None:
    centre = Hospitals(tmp_path, Vault(PASSPHRASE))
    refusing = centre.agents.session.parties[NAMES[1]]
    refusing._policy = replace(refusing._policy, exact_sums=False)
    centre.agents.restart(NAMES[1])
    with pytest.raises(ProtocolError, match="exact_sums = true in the policy"):
        ask(centre)
    (session,) = (centre.settings.folder / "sessions").iterdir()
    status = read_status(session)
    assert status and (status["state"], status["culprit"]) == ("aborted", NAMES[1])
    assert EXACT_SUMS in status["reason"]
    assert {step for step, _ in centre.asked} <= {"enrol", "agree", "abort"}
    asked = list(centre.asked)
    refusing._policy = replace(refusing._policy, exact_sums=True)
    centre.agents.restart(NAMES[1])
    ask(centre)
    assert len(centre.asked) > len(asked)


def test_init_asks_for_it_by_its_name(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_text("correct horse battery staple\n")
    schema, centre = tmp_path / "schema.json", tmp_path / "centre"
    for words in (
        ("schema", "init", tmp_path / "rows.csv", "--label", "y", "--out", schema),
        ("coordinator", "init", centre, "--schema", schema),
    ):
        assert cohort(*words).exit_code == 0
    common = ("--invitation", centre / "invitation.json", "--data", tmp_path / "rows.csv")
    common = (*common, "--passphrase-file", tmp_path / "secret")
    without = ("--accept-no-privacy", "--no-ledger")
    for name, more, exact in (("a", (), False), ("b", without, False), ("c", without, True)):
        flag = ("--exact-sums",) * exact
        done = cohort("party", "init", tmp_path / name, *common, *more, *flag)
        assert done.exit_code == 0, done.output
        assert Settings.load(tmp_path / name).policy.exact_sums == exact
    refused = cohort("party", "init", tmp_path / "d", *common, "--exact-sums")
    assert refused.exit_code == 2 and not (tmp_path / "d").exists()
    assert "--accept-no-privacy" in " ".join(refused.output.split())
    shown = " ".join(cohort("party", "init", "--help-all").stdout.replace("│", " ").split())
    assert "can read whole records" in shown


# -- colluders -----------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_colluders_of_sums_are_two_less_than_all(parties: int) -> None:
    check_colluders_of_sums(parties - 2, parties)
    words = f"colluders={parties - 1} is above {parties - 2}: .* at least {parties + 1} parties"
    with pytest.raises(ParameterError, match=words):
        check_colluders_of_sums(parties - 1, parties)


@pytest.mark.parametrize(
    "options",
    [SUMS, TOYS | {"inference": True}, TOYS | {"evaluate": True, "held_out": 0.4}],
)
def test_a_simulation_refuses_more_before_the_first_key(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of encrypted rows too, where sums follow: not after the training has been paid for."""
    monkeypatch.setattr("sims.simulation.run_parties", lambda *a, **k: pytest.fail("keys"))
    monkeypatch.setattr("sims.simulation.check_evaluation", lambda *a: None)
    with pytest.raises(ParameterError, match="colluders=2 is above 1"):
        ciphercohort.simulate(**PLAIN, **options, epsilon=8.0, colluders=2)


def test_a_default_of_few_owners_needs_no_sum() -> None:
    """Rows of two owners, one of whom may collude, are not whitened: that takes a secure sum."""
    few = ciphercohort.plan(rows=30_000, features=5, parties=2, colluders=1, timing=False)
    many = ciphercohort.plan(rows=30_000, features=5, parties=3, colluders=1, timing=False)
    assert few.calibration.first is None and many.calibration.first is not None
