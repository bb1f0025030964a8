"""A run folder tells how far the run came, and is never mistaken for something else."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ciphercohort.deploy.supervise import child
from ciphercohort.job.layout import HALVES, OPTIONAL, PRIVATE, RELEASE, STATUS, read_status
from ciphercohort.report.run_folder import RunFolder, file_digest
from ciphercohort.results.documents import to_json
from ciphercohort.results.result import Figures
from parties.reader.schema import Schema
from protocols.errors import ParameterError
from protocols.plan.kinds import plan_from_dict
from tests.sims.fake_run import CERTIFICATE, ROUNDS, finished_run, make_result

REPORTS = ("release/report.html", "private/report.html")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the report's figures out where they are not the point."""
    monkeypatch.setattr(
        "ciphercohort.report.run_folder.render_report", lambda result: "<html></html>"
    )


def status(path: Path) -> dict[str, Any]:
    found = json.loads((path / RELEASE / STATUS).read_text())
    assert isinstance(found, dict)
    return found


def test_it_says_from_the_start_where_the_run_is(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a" / "b", rounds=7)
    first = status(folder.path)
    assert (first["state"], first["rounds"], first["iteration"]) == ("running", 7, 0)
    assert first["pid"] == os.getpid()
    folder.note("train")
    folder.note("train", 3)
    folder.note("decrypt")  # a phase without a count leaves the count
    now = status(folder.path)
    assert (now["phase"], now["iteration"]) == ("decrypt", 3)
    assert now["started"] <= now["updated"]
    assert [item.name for item in folder.release.iterdir()] == [STATUS]  # no scratch file is left
    assert not list(folder.private.iterdir())


@pytest.mark.usefixtures("quick")
def test_an_aborted_run_says_why_and_a_finished_one_stays_finished(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", rounds=9)
    folder.note("train", 2)
    folder.abort("interrupted")
    now = status(folder.path)
    assert (now["state"], now["phase"], now["iteration"]) == ("aborted", "train", 2)
    assert now["reason"] == "aborted; private/status.json says why"
    assert (read_status(folder.path) or {})["reason"] == "interrupted"

    finished_run(tmp_path / "other")
    done = RunFolder.create(tmp_path / "third", rounds=ROUNDS)
    done.write(make_result(done))
    done.abort("too late")
    assert status(done.path)["state"] == "finished"


def test_what_a_finished_run_holds(tmp_path: Path) -> None:
    result = finished_run(tmp_path / "run", certificate=CERTIFICATE)
    path = tmp_path / "run"
    assert {item.name for item in path.iterdir()} == {RELEASE, PRIVATE}
    digests = {}
    for half, names in HALVES.items():
        written = [name for name in names if name not in OPTIONAL or name == "certificate.json"]
        assert {item.name for item in (path / half).iterdir()} == {STATUS, *written}
        digests |= {f"{half}/{name}": file_digest(path / half / name) for name in written}
    assert (read_status(path) or {})["files"] == digests

    plan = json.loads((path / "release/plan.json").read_text())
    assert plan.pop("digest") == result.plan.digest() == plan_from_dict(plan).digest()

    model = json.loads((path / "release/model.json").read_text())
    assert model["kind"] == "logistic-regression" and "INSECURE" in model
    assert (model["label"], model["positive"]) == ("died", "yes")
    coef, intercept = Schema.from_dict(model["schema"]).model_in_data_units(model["weights"])
    assert model["coef"] == coef.tolist() and model["intercept"] == intercept
    assert len(model["features"]) == len(coef)

    summary = json.loads((path / "private/summary.json").read_text())
    assert summary == json.loads(to_json(result.summary()))
    certificate = json.loads((path / "release/certificate.json").read_text())
    assert "the coordinator's word" in certificate.pop("replicas") and certificate == CERTIFICATE

    lines = [json.loads(line) for line in (path / "private/metrics.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["iteration"] * ROUNDS + ["final"]
    assert set(lines[0]) == {
        *("kind", "iteration", "loss", "accuracy", "auc", "weight_norm", "largest_logit"),
        "seconds",
    }
    assert lines[-1]["twin"]["weights"] == result.twin_weights.tolist()
    assert lines[-1]["test_rows"] == len(result.test_y)


def test_a_secure_run_is_not_called_insecure(tmp_path: Path) -> None:
    finished_run(tmp_path / "run", secure=True)
    for name in ("release/model.json", "private/summary.json", *REPORTS):
        assert "INSECURE" not in (tmp_path / "run" / name).read_text()


@pytest.mark.usefixtures("quick")
def test_figures_that_do_not_exist_are_null(tmp_path: Path) -> None:
    finished_run(tmp_path / "run", scores=Figures(accuracy=1.0, auc=float("nan")))
    text = (tmp_path / "run" / "private/summary.json").read_text()
    assert "NaN" not in text and json.loads(text)["auc"] is None
    assert json.loads(to_json({"a": np.float64("inf"), 1: (np.int64(3),)})) == {"a": None, "1": [3]}


@pytest.mark.usefixtures("quick")
def test_an_earlier_run_is_moved_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run"
    sessions = []
    for _ in range(3):
        with caplog.at_level(logging.WARNING):
            sessions.append(finished_run(path).transcript_head)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["run", "run.1", "run.2"]
    assert "is now in" in caplog.text and "run.2" in caplog.text
    RunFolder.create(path).abort("interrupted")  # aborted runs make way as well
    RunFolder.create(path)
    assert len(list(tmp_path.iterdir())) == 5


def test_nothing_else_is_touched(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(ParameterError, match="is a file"):
        RunFolder.create(file)
    with pytest.raises(ParameterError, match="cannot be written"):
        RunFolder.create(file / "below")
    for name, text in (("thesis.tex", "x"), (STATUS, '{"state": "finished"}'), (STATUS, "{")):
        other = tmp_path / f"{name}{len(text)}"
        other.mkdir()
        (other / name).write_text(text)
        with pytest.raises(ParameterError, match="no run of ciphercohort: choose another"):
            RunFolder.create(other)
        assert (other / name).read_text() == text


def test_a_run_that_goes_on_keeps_its_folder(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(ParameterError, match=f"still going on .process {os.getpid()}"):
        RunFolder.create(tmp_path / "run")
    # A killed process leaves "running" behind, but a pid that is gone.
    with child([sys.executable, "-c", ""]) as gone:
        gone.wait()
    (folder.release / STATUS).write_text(to_json({**folder.status, "pid": gone.pid}))
    RunFolder.create(tmp_path / "run")
    assert read_status(tmp_path / "run.1") is not None


def test_an_aborted_run_is_told_in_one_sentence(tmp_path: Path) -> None:
    from ciphercohort.verify.folder import verify_run

    folder = RunFolder.create(tmp_path / "run", rounds=9)
    (check,) = verify_run(tmp_path / "run")
    assert not check.passed and "is still going on (process" in check.detail
    folder.note("train", 4)
    folder.abort("party 'b' left")
    (check,) = verify_run(tmp_path / "run")
    assert not check.passed
    assert check.detail == (
        "this is the folder of a run that was aborted in phase 'train' after 4 of 9 iterations "
        "(party 'b' left) and left no model, so there is nothing to verify"
    )
