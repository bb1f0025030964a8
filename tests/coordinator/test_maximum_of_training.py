"""Exact sums at a trained model: whose documents become those of the maximum, and which do not."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ciphercohort.deploy.coordinator as deployed
import ciphercohort.deploy.evaluation as planned
from ciphercohort.after import inference_table
from ciphercohort.after.judging import objective_at
from ciphercohort.deploy.coordinator import Coordinator
from ciphercohort.deploy.flower_job import DOCUMENTS as DOCUMENTS_OF_A_JOB
from ciphercohort.deploy.results import opened_table
from ciphercohort.results.documents import compare, to_json
from ciphercohort.results.predict import load_model
from ciphercohort.verify.folder import verify_run
from ciphercohort.verify.session import CENTRE
from coordinator.deployment import OUTCOME
from coordinator.log import TRANSCRIPT
from coordinator.settings import Settings
from coordinator.status import LOCK
from parties.agent.vault import Vault
from parties.policy import Policy
from protocols.errors import ParameterError
from tests.coordinator import test_inference as tables
from tests.coordinator.test_deployment import NAMES
from tests.parties.agents import PASSPHRASE
from tests.sims.model_runs import cohort

DOCUMENTS = ("model.json", "inference.json", "inference.tex", "report.html", "plan.json")


def checks(folder: Path) -> dict[str, str]:
    return {each.name: each.detail for each in verify_run(folder)}


def failed(folder: Path) -> dict[str, str]:
    return {each.name: each.detail for each in verify_run(folder) if not each.passed}


TRAINING = 'protocol = "secure-aggregation"\nas_trained = true\n'


class Centre:
    """A training that stays as trained, and its hospitals."""

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        training: str = TRAINING,
        private: bool = False,
    ) -> None:
        def drive(settings: Settings, session: str, say: Callable[[str], None]) -> Any:
            return self.hospitals.drive(session)

        patch.setattr(deployed, "drive", drive)
        self.hospitals = tables.Hospitals(folder, Vault(PASSPHRASE))
        self.hospitals.agents.private = private
        path = self.hospitals.settings.folder / "coordinator.toml"
        text = path.read_text()
        path.write_text(text[: text.index("[training]")] + "[training]\n" + training)
        for name in NAMES:
            party = self.hospitals.agents.session.parties[name]
            party._policy = Policy(
                allow_insecure=True, exact_sums=not private, accept_unbounded=True
            )
            self.hospitals.agents.restart(name)
        self.told: list[str] = []
        self.centre = Coordinator(self.hospitals.settings.folder)
        self.centre._check_certificates = lambda: None  # type: ignore[method-assign]
        self.folder = self.centre.run(tell=self.told.append).folder

    def infer(self) -> Path:
        return self.centre.infer(self.folder, tell=self.told.append)[0].parent

    def sessions(self) -> int:
        return len([*self.folder.parent.iterdir()])

    def documents(self) -> dict[str, str]:
        return {n: (self.folder / n).read_text() for n in DOCUMENTS if (self.folder / n).exists()}

    def view(self) -> str:
        return str(json.loads((self.folder / "model.json").read_text()).get("view", ""))


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Centre:
    monkeypatch.setattr(tables, "FRAMES", dict(tables.FRAMES))
    return Centre(tmp_path, monkeypatch)


def test_whitened_rows_are_held_back_by_the_coins_of_their_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second moment tosses them; the training that follows and what judges it have them."""
    training = 'epsilon = 5.0\nheld_out = 0.3\nprofile = "fast-insecure"\nring_dim = 1024\n'
    monkeypatch.setattr(tables, "FRAMES", dict(tables.FRAMES))
    found = Centre(tmp_path, monkeypatch, training, private=True)
    assert found.sessions() == 2 and failed(found.folder) == {}
    judged = found.centre.evaluate(
        found.folder, rows="held-out", epsilon=4.0, however_noisy=True, tell=found.told.append
    )
    draw = judged.opened.plan.held_out.draw  # type: ignore[union-attr]
    plans = {found.hospitals.agents.coins(name).kept[draw].plans[-1] for name in NAMES}  # type: ignore[index]
    assert plans == {judged.opened.plan.of_training}


OF_A_THRESHOLD = {"threshold", "accuracy", "confusion"}
OF_A_SESSION = {"session", "plan", "transcript"}


def test_a_threshold_moves_no_figure_of_a_deployment_but_its_own(
    trained: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stated as an option, or by a centre whose plan has what log-odds it likes: verify passes."""
    monkeypatch.setattr(Coordinator, "_check_certificates", lambda self: None)
    said = []
    for centre in (0.0, 1.5, -36.0, 36.7):
        with pytest.MonkeyPatch.context() as patch:
            forged = partial(objective_at, centre=centre)
            patch.setattr(
                planned,
                "objective",
                lambda model, threshold, of=forged, **options: of(model, **options),
            )
            found = trained.centre.evaluate(trained.folder, tell=trained.told.append)
        folder = trained.centre.settings.session_folder(found.opened.plan.session)
        assert failed(folder) == {}
        fields = json.loads((folder / "evaluation.json").read_text())
        said.append({k: v for k, v in fields.items() if k not in OF_A_THRESHOLD | OF_A_SESSION})
    assert {"log_loss", "auc", "brier", "roc"} <= {*said[0]}
    for other in said[1:]:  # but for the error of each sum that is opened
        assert [*compare("evaluation", "of", other, said[0], tolerance=1e-5)] == []
    # One that no row, or every row, can be above is refused by whoever reads the plan.
    before, asked = trained.sessions(), ("--model", trained.folder / "model.json", "--threshold")
    for threshold in (0.0, 1.0, -1.0, 2.0, math.nan, math.inf):
        with pytest.raises(ParameterError, match=r"is outside \(0, 1\)"):
            trained.centre.evaluate(trained.folder, threshold=threshold)
        told = cohort(
            "coordinator", "evaluate", trained.centre.folder, *asked[:2], f"{asked[2]}={threshold}"
        )
        assert told.exit_code == 2 and "is outside (0, 1)" in told.stderr
    assert trained.sessions() == before


def test_an_evaluation_says_which_model_it_is_of(trained: Centre) -> None:
    """As trained, and at the maximum: both are of the same session."""
    first = trained.centre.evaluate(trained.folder, tell=trained.told.append)
    before = trained.documents()
    trained.infer()
    assert trained.view() == "ranges" and trained.documents() != before
    second = trained.centre.evaluate(trained.folder, tell=trained.told.append)
    said = {}
    for found, words in ((first, "is not what was judged"), (second, "at the maximum")):
        folder = trained.centre.settings.session_folder(found.opened.plan.session)
        path = folder / "evaluation.json"
        fields = json.loads(path.read_text())
        said[folder] = fields["view"]
        assert words in checks(folder)["model judged"] and failed(folder) == {}
        path.write_text(json.dumps({**fields, "view": "" if fields["view"] else "ranges"}))
        assert "evaluation.json" in failed(folder)["documents"]
    assert list(said.values()) == ["", "ranges"]


def test_documents_that_are_not_those_due_are_named_with_their_cure(trained: Centre) -> None:
    """Those before the sums that moved the model, and none."""
    before = trained.documents()
    trained.infer()
    for name in trained.documents():
        (trained.folder / name).unlink()
    for name, text in before.items():
        (trained.folder / name).write_text(text)
    told = failed(trained.folder)["documents"]
    assert "is as trained" in told and "cohort party results" in told
    (trained.folder / "model.json").unlink()
    assert "not written yet: cohort party results" in failed(trained.folder)["documents"]
    run = trained.centre.run(trained.folder.name, trained.told.append)
    assert failed(trained.folder) == {} and trained.view() == "ranges"
    # Its page is the table that its documents have.
    found = run.inference
    assert found is not None
    page, report = run._repr_html_(), (trained.folder / "report.html").read_text()
    _, lines = inference_table.cell_table(found["rows"], found["about"], "odds_ratio")
    assert len(lines) == 4 and all(
        cell in page and cell in report for line in lines for cell in line
    )


def test_a_second_series_leaves_documents_as_they_are(trained: Centre) -> None:
    """No sum is opened anew; of the same rows its last digits are others, of other rows it is told.

    Rows are added up in another order each time.
    """
    table, first = trained.centre.infer(trained.folder, tell=trained.told.append)
    found, sessions = trained.documents(), trained.sessions()
    assert len(found) == len(DOCUMENTS)
    path, again = trained.centre.infer(trained.folder, tell=trained.told.append)
    assert path == table and trained.sessions() == sessions
    assert to_json(again.rows()) == to_json(first.rows())
    known = load_model(trained.folder)
    other = replace(known, weights=3 * known.weights)
    assert opened_table(trained.centre.settings, known) is not None
    assert opened_table(trained.centre.settings, other) is None
    for factor, is_told in ((1 + 1e-15, False), (1.01, True)):
        for session in json.loads(table.read_text())["sessions"]:
            other = table.parents[1] / f"{'y' if is_told else 'z'}{session[1:]}"
            shutil.copytree(table.parents[1] / session, other)
            fields = json.loads((other / OUTCOME).read_text())
            fields["weights"] = [value * factor for value in fields["weights"]]
            fields["plan"]["session"] = other.name
            (other / OUTCOME).write_text(json.dumps(fields))
        trained.told.clear()
        trained.centre._end_at_maximum(trained.folder.name, trained.told.append)
        assert trained.documents() == found
        assert [("stays as it is" in w, "they differ" in w) for w in trained.told] == (
            [(True, True)] if is_told else []
        )
        assert bool(failed(trained.folder)) == is_told
    run = trained.centre.run(trained.folder.name, trained.told.append)
    assert trained.documents() == found and run.model.view and "they differ" in trained.told[-1]
    for name in found:
        (trained.folder / name).unlink()
    run = trained.centre.run(trained.folder.name, trained.told.append)  # a finished run is not lost
    assert not run.model.view and {"model.json", "plan.json"} < {*trained.documents()}


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_flower_run_brings_all_documents_away(
    trained: Centre, tmp_path: Path, is_moved: bool
) -> None:
    """Whatever a finished training writes; they agree with one another, and say what they lack."""
    if is_moved:
        trained.infer()
    out, left = tmp_path / "out", {LOCK, *CENTRE} - {TRANSCRIPT}
    out.mkdir()
    for name in DOCUMENTS_OF_A_JOB:
        if (trained.folder / name).exists():
            shutil.copy(trained.folder / name, out)
    names = [{path.name for path in folder.iterdir()} for folder in (trained.folder, out)]
    assert names[0] - left == names[1] and ("inference.tex" in names[1]) == is_moved
    assert failed(out) == {} and "brought away" in checks(out)["not checked"]
    shutil.copytree(out, stripped := trained.folder.parent / "stripped")
    assert "outcome.json is missing" in failed(stripped)["session"]  # where it was made
    (out / "transcript.jsonl").unlink()  # nobody's folder
    assert "outcome.json is missing" in failed(out)["session"]


def test_sums_of_more_rows_leave_a_training_as_trained(trained: Centre) -> None:
    before = trained.documents()
    for name in NAMES:
        frame = tables.FRAMES[name]
        tables.FRAMES[name] = frame.iloc[[*range(len(frame)), *range(100)]].reset_index(drop=True)
        trained.hospitals.agents.restart(name)
        card = trained.centre.settings.card_path(name)
        fields = json.loads(card.read_text())
        card.write_text(json.dumps({**fields, "rows": len(tables.FRAMES[name])}))
    table = trained.infer()
    assert trained.documents() == before and not trained.view()
    assert any("stays as trained" in words for words in trained.told)
    assert failed(trained.folder) == {}
    assert json.loads((table / "inference.json").read_text())["inference_about"]["rows"] == 1000
