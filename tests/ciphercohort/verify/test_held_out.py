"""Simulated runs that hold rows back, judged on exactly these by scikit-learn. INSECURE rings."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from ciphercohort.job.config import SimulationConfig
from ciphercohort.results.exact_sums import MARK
from ciphercohort.results.predict import load_model
from ciphercohort.results.result import RunResult
from ciphercohort.verify.folder import verify_run
from parties.coins import Coins
from protocols.errors import DataError, ParameterError
from protocols.plan.held_out import HeldOut
from protocols.privacy.loss.ledger import Ledger
from sims.evaluation import evaluate
from sims.held_out import HeldBack
from sims.simulation import simulate
from tests.sims.evaluation_tables import table
from tests.sims.model_runs import cohort, public_schema

FRAME = table(400)
SHARE = 0.5
ASKED: dict[str, Any] = {
    "data": FRAME.drop(columns=["site", "visits", "cost"]),
    "label": "died",
    "parties": 2,
    "seed": 3,
    "held_out": SHARE,
}
SUMS: dict[str, Any] = {"protocol": "secure-aggregation", "update": "gd", "rounds": 3}
TOY: dict[str, Any] = {"profile": "fast-insecure", "rounds": 2, "degree": 3, "update": "gd"}
RUNS: dict[str, dict[str, Any]] = {
    "encrypted-rows": {**TOY, "protocol": "encrypted-rows"},
    "encrypted-model": {**TOY, "protocol": "encrypted-model", "keep_messages": True},
    # By the second moment of a secure sum, in a run of its own.
    "whitened": {
        **TOY,
        "protocol": "encrypted-model",
        "keep_messages": True,
        "update": "quadratic-gd",
        "epsilon": 8.0,
        "schema": public_schema(FRAME, "died", exclude=("site", "visits", "cost")),
    },
}


@dataclass(frozen=True)
class Run:
    folder: Path
    result: RunResult
    train: np.ndarray
    held: np.ndarray

    @property
    def truth(self) -> tuple[Any, Any]:
        """Labels and probabilities of the rows that were held back."""
        frame = FRAME.iloc[self.held]
        said = load_model(self.folder / "release/model.json").predict_proba(frame)[:, 1]
        return (frame.died == "yes").to_numpy(), said

    def agrees(self, figures: Any) -> bool:
        y, p = self.truth
        return (
            figures["rows"] == len(y)
            and abs(figures["auc"] - roc_auc_score(y, p))
            <= figures["auc_error_bound"] + 1e-9
            < 0.01
            and abs(figures["log_loss"] - log_loss(y, p)) < 1e-5
            and figures["accuracy"] == pytest.approx(accuracy_score(y, p > 0.5))
        )


def parts(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Positions in the table of training rows and of those held back, by the owners' coins."""
    back, train, held = HeldBack.load(folder), list[int](), list[int]()
    for owner in back.owners.values():
        rows, secret = np.array(owner.rows), bytes.fromhex(owner.coin.secret)
        for judged, found in ((False, train), (True, held)):
            named = replace(back.judged, judged=judged)
            found += rows[named.chosen(secret, len(rows))].tolist()
    return np.array(train), np.array(held)


def run_of(folder: Path, **options: Any) -> Run:
    result = simulate(SimulationConfig(**{**ASKED, "out": folder, **options}))
    return Run(folder, result, *parts(folder))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("held") / "run", **SUMS, evaluate=True)


def test_both_parts_are_the_table_and_training_uses_one(run: Run) -> None:
    tested = len(run.result.test_y)
    assert len(run.train) + len(run.held) + tested == len(FRAME)
    assert not set(run.train) & set(run.held)
    back = HeldBack.load(run.folder)
    sizes = {name: len(owner.rows) for name, owner in back.owners.items()}
    left = HeldOut(share=SHARE, draw="d")
    assert run.result.rows_by_party == {name: left.size(rows) for name, rows in sizes.items()}
    assert run.result.plan.num_rows == len(run.train)
    # The outside truth: an optimum on exactly the training rows.
    raw, frame = run.result.optimum_weights, FRAME.iloc[run.train]
    x = np.column_stack([frame.age, frame.dose, *(frame.ward == ward for ward in "ABC")])
    plain = LogisticRegression(C=1e8, max_iter=5000, tol=1e-10).fit(x, frame.died == "yes")
    scores = np.column_stack([x, np.ones(len(x))]) @ raw
    np.testing.assert_allclose(scores, plain.decision_function(x), atol=0.02)
    assert run.result.max_abs_diff_to_twin < 1e-6


def test_the_runs_own_evaluation_is_scikit_learns(run: Run) -> None:
    found = json.loads((run.folder / "release/evaluation.json").read_text())
    assert run.agrees(found) and found["rows_of"] == "held-out"
    assert found == json.loads((run.folder / "private/summary.json").read_text())["evaluation"]
    assert found["held_out"]["draw"] == run.result.plan.held_out.draw  # type: ignore[union-attr]
    report = (run.folder / "private/report.html").read_text()
    assert "On rows that were held back" in report and f"{found['auc']:.4f}" in report
    assert f"{found['log_loss']:.4f}" in report and "calibration slope" in report
    assert all(check.passed for check in verify_run(run.folder))
    assert not (run.folder / "private/held-out.json").stat().st_mode & 0o077


def test_later_and_with_a_table_of_a_site(run: Run) -> None:
    later = evaluate(run.folder, FRAME, rows="held-out", sites="all")
    assert run.agrees(later.figures) and later.rows_of == "held-out"
    assert set(later.sites) == {"party-1", "party-2"}
    assert sum(site.rows for site in later.sites.values()) == len(run.held)
    noisy = evaluate(run.folder, FRAME, rows="held-out", epsilon=4.0, seed=1)
    assert noisy.summary()["privacy"]["epsilon"] == pytest.approx(4.0)
    assert {MARK, *noisy.summary()} == set(later.summary())


@pytest.mark.parametrize("mutant", ["all rows", "the training's rows"])
def test_other_rows_are_noticed(mutant: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Coins.chosen
    if mutant == "all rows":
        monkeypatch.setattr(Coins, "chosen", lambda self, h, shard, *_, **__: np.arange(shard.rows))
    else:
        monkeypatch.setattr(
            Coins,
            "chosen",
            lambda self, h, shard, *_, **__: chosen(self, replace(h, judged=False), shard),
        )
    assert not run.agrees(evaluate(run.folder, FRAME, rows="held-out").figures)


def test_what_cannot_be_judged_is_refused(run: Run, tmp_path: Path) -> None:
    table_of_others = FRAME.sample(frac=1.0, random_state=1)
    with pytest.raises(DataError, match="have changed since draw") as caught:
        evaluate(run.folder, table_of_others, rows="held-out")
    assert "yes" not in str(caught.value)
    with pytest.raises(DataError, match="the table that the model was trained on"):
        evaluate(run.folder, FRAME[:50], rows="held-out")
    for options, words in (
        ({"split": "by:site"}, "the run says who has which rows"),
        ({"inference": True}, "standard errors are of the rows that were trained on"),
        ({"rows": "most"}, "is not all or held-out"),
    ):
        with pytest.raises(ParameterError, match=words):
            evaluate(run.folder, FRAME, **{"rows": "held-out", **options})
    with pytest.raises(ParameterError, match="needs the folder of the run"):
        evaluate(run.folder / "release/model.json", FRAME, rows="held-out")
    (tmp_path / "model.json").write_bytes((run.folder / "release/model.json").read_bytes())
    with pytest.raises(ParameterError, match="no rows were held back from this run"):
        evaluate(tmp_path, FRAME, rows="held-out")
    with pytest.raises(ParameterError, match="add --held-out"):
        SimulationConfig(data=FRAME, label="died", evaluate=True)


@pytest.mark.parametrize("name", RUNS)
def test_all_protocols_train_on_the_other_rows_alone(name: str, tmp_path: Path) -> None:
    found = run_of(tmp_path / "run", **RUNS[name])
    plan: Any = found.result.plan
    assert plan.held_out.share == SHARE and plan.num_rows == len(found.train)
    assert found.result.max_abs_diff_to_twin < 1e-4  # the twin has these rows, picked apart
    checks = {check.name: check.passed for check in verify_run(found.folder)}
    assert all(checks.values()) and ("re-execution" in checks) == ("keep_messages" in RUNS[name])


def test_a_private_run_pays_for_the_evaluation(tmp_path: Path) -> None:
    """Ledgers add training and evaluation up, though their rows are disjoint."""
    promise = {"epsilon": 2.0, "ledger": tmp_path / "ledgers", "evaluate": True}
    with pytest.raises(ParameterError, match=r"epsilon=2 on 160 rows.*nothing was spent"):
        run_of(tmp_path / "refused", **SUMS, **promise)
    assert not (tmp_path / "refused").exists() and not (tmp_path / "ledgers").exists()
    promise["however_noisy"] = True
    found = run_of(tmp_path / "run", **{**SUMS, "rounds": 2}, **promise).result
    assert found.evaluation is not None and found.promise is not None
    assert (found.promise.epsilon, found.promise.delta) == (2.0, 1e-5)
    ledger = Ledger(path=tmp_path / "ledgers" / "party-1.jsonl", epsilon=2.0, delta=1e-5)
    spent = ledger.spent("data in memory")
    assert spent.runs == 2 and 1.9 < spent.epsilon <= 2.0
    own = found.evaluation.opened.plan.privacy
    trained = found.plan.privacy
    assert own is not None and trained is not None and own.epsilon < trained.epsilon < 2.0
    assert "ε of the whole run" in (tmp_path / "run" / "private/report.html").read_text()


def test_the_commands(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "train.csv"
    pd.DataFrame(ASKED["data"]).to_csv(data, index=False)
    told = cohort("evaluate", run.folder, "--rows", "held-out", "--data", data, "--json")
    assert told.exit_code == 0, told.stderr
    assert run.agrees(json.loads(told.stdout))
    shown = cohort("evaluate", run.folder, "--rows", "held-out", "--data", data)
    assert f"{len(run.held)} rows that were held back by 2 parties" in shown.stdout
    assert cohort("evaluate", "--data", data).exit_code == 2
