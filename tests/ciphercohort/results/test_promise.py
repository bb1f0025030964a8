"""The whole run costs the same in every output, whatever became of the sums after the training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ciphercohort.cli.console import closing_lines
from ciphercohort.report.release import Release
from ciphercohort.verify.folder import verify_run
from protocols.errors import PrivacyError
from protocols.words import number
from sims.api import simulate
from tests.sims.evaluation_tables import table
from tests.sims.model_runs import public_schema

FRAME = table(900)
ASKED: dict[str, Any] = {
    "data": FRAME,
    "model": "linear",
    "target": "cost",
    "split": "by:site",
    "schema": public_schema(FRAME, ["cost"], exclude=("died", "visits", "site")),
    "protocol": "secure-aggregation",
    "iterations": 2,
    "epsilon": 12.0,
    "seed": 2,
    "however_noisy": True,
}
GIVEN, REFUSED, PAID = "given", "refused before its sum", "refused after its sum"


def outcome_of(
    evaluation: str, intervals: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    def refuse(*_: object) -> Any:
        raise PrivacyError("the noise hides them")

    if evaluation == REFUSED:
        monkeypatch.setattr("sims.afterwards.LEAST", 10**9)
    if intervals in (REFUSED, PAID):
        what = "noisy_least_squares" if intervals == PAID else "ProductsObjective"
        monkeypatch.setattr(f"ciphercohort.after.inference.{what}", lambda *a, **k: refuse())
    asked = dict(ASKED)
    if evaluation:
        asked |= {"held_out": 0.3, "evaluate": True}
    return simulate(**asked, inference=bool(intervals), out=folder)


@pytest.mark.parametrize("intervals", ["", GIVEN, REFUSED, PAID])
@pytest.mark.parametrize("evaluation", ["", GIVEN, REFUSED])
def test_every_output_says_what_the_whole_run_cost(
    evaluation: str, intervals: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    result = outcome_of(evaluation, intervals, run, monkeypatch)
    monkeypatch.undo()
    assert (result.evaluation is not None) == (evaluation == GIVEN)
    assert (result.inference is not None) == (intervals == GIVEN)
    opened, lost = evaluation == GIVEN or intervals in (GIVEN, PAID), intervals == PAID
    whole = json.loads((run / "release/run.json").read_text())["promise"]
    trained = result.plan.privacy
    assert whole["training"] == [trained.epsilon, trained.delta]
    assert (trained.epsilon < 11.9) == bool(evaluation or intervals)
    assert (whole["epsilon"], whole["delta"]) == ((12.0, 1e-5) if opened else (*whole["training"],))
    assert (whole["after"] is not None) == opened
    assert whole["without_result"] == (["standard errors"] if lost else [])
    assert Release.load(run / "release").promise == result.promise
    for name in ("release/model.json", "release/certificate.json", "private/summary.json"):
        assert json.loads((run / name).read_text())["privacy_in_all"] == whole, name
    console, notebook = "\n".join(closing_lines(result)), result._repr_html_()
    pages = [(run / half / "report.html").read_text() for half in ("release", "private")]
    for text in (console, notebook):
        assert ("epsilon=12, delta=1e-05 for the whole run" in text) == opened
    for text in pages:
        assert ("ε of the whole run" in text) == opened
        assert number(trained.epsilon) in text
        assert not opened or number(whole["after"]) in text
    for text in (console, notebook, *pages):
        assert ("paid for without a result: sums for the standard errors" in text) == lost
    assert any("none of their sums was opened" in w for w in result.warnings) == (
        intervals == REFUSED
    )
    assert all(check.passed for check in verify_run(run))
    for name in ("model.json", "certificate.json"):
        path = run / "release" / name
        kept = path.read_text()
        path.write_text(json.dumps(json.loads(kept) | {"privacy_in_all": {"epsilon": 0.1}}))
        failed = {check.name: check.detail for check in verify_run(run) if not check.passed}
        assert name in failed["whole run"]
        path.write_text(kept)
