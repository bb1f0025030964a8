"""A study across machines: the tables of a simulation, consent, and series that go on."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from rich.console import Console
from statsmodels.duration.hazard_regression import PHReg

from ciphercohort.after.sums import SpentError, sums_wanted
from ciphercohort.deploy.deployed import next_run
from ciphercohort.deploy.evaluation import evaluation_plan
from ciphercohort.deploy.party import Party
from ciphercohort.job.config import SimulationConfig
from ciphercohort.report.status_page import by_series, page, status_tables
from ciphercohort.results.predict import ReleasedModel
from ciphercohort.study import deployed, private_cox
from ciphercohort.study.asked import GlmOptions
from ciphercohort.study.description import ALL
from ciphercohort.study.glm import glm_by
from ciphercohort.study.imputed import Pooled, imputed_by
from ciphercohort.study.private_cox import private_cox_by
from ciphercohort.verify.session import ONE_SERIES, session_checks
from coordinator.status import read_status, sessions
from parties.agent.manifest import describe_plan
from parties.agent.vault import Vault
from parties.policy import Policy
from parties.reader.imputation import CellModel, Imputation
from parties.reader.schema import CategoricalColumn, NumericColumn, Schema, Targets
from parties.reader.shard import encode_shard
from parties.reader.views import by_range, encode_with_views
from parties.verifier.foreseen import foreseen
from protocols.errors import ParameterError, PolicyError, PrivacyError, ProtocolError, SchemaError
from protocols.plan.kinds import plan_from_dict
from protocols.statistics.study.objectives import PersonTimeObjective
from protocols.sums.words import remarks
from sims.simulated_sums import Sums
from sims.simulation import party_specs
from sims.study import cox, describe, glm, survival
from tests.coordinator.test_deployment import NAMES
from tests.coordinator.test_inference import FRAMES, SCHEMA, Hospitals
from tests.parties.agents import PASSPHRASE
from tests.sims.model_runs import cohort


@pytest.fixture(scope="module")
def vault() -> Vault:
    return Vault(PASSPHRASE)


@pytest.fixture
def centre(tmp_path: Path, vault: Vault) -> Hospitals:
    return Hospitals(tmp_path, vault)


def folder_of(centre: Hospitals, private: bool) -> Any:
    """What `ciphercohort.study.deployed` needs of a coordinator."""
    centre.agents.private = private
    return SimpleNamespace(settings=centre.settings, driving=lambda *asked: centre.drive)


def check_verified(document: Path) -> None:
    """A study's session passes; of changed documents each is named."""
    checks = {check.name: check for check in session_checks(document.parent)}
    assert [check for check in checks.values() if not check.passed] == []
    assert "written again" in checks["documents"].detail
    made = [p for p in document.parent.iterdir() if p.suffix in (".csv", ".tex", ".svg", ".html")]
    unchecked = re.sub(
        rf"{re.escape(document.name)} \({re.escape(ONE_SERIES)}\)", "", checks["not checked"].detail
    )
    assert len(made) >= 3 and not [p.name for p in (*made, document) if p.name in unchecked]
    texts = {path: path.read_text() for path in (*made, document)}
    for path, text in texts.items():
        figure = re.sub(r"(?<=\d\.)\d", lambda m: str((int(m[0]) + 1) % 10), text, count=1)
        path.write_text(figure if path == document else f"{text} ")
    (changed,) = (c for c in session_checks(document.parent) if c.name == "documents")
    assert not changed.passed and all(path.name in changed.detail for path in texts)
    for path, text in texts.items():
        path.write_text(text)


def pooled() -> pd.DataFrame:
    return pd.concat([frame.assign(site=name) for name, frame in FRAMES.items()])


@pytest.mark.parametrize("by", [None, "ward", "died"])
def test_a_description_is_that_of_a_simulation(
    centre: Hospitals, tmp_path: Path, by: str | None
) -> None:
    path, found = deployed.describe(folder_of(centre, False), by=by)
    SCHEMA.save(tmp_path / "schema.json")
    expected = describe(pooled(), by=by, schema=tmp_path / "schema.json", split="by:site")
    told = json.loads(path.read_text())
    due = json.loads(json.dumps(expected.groups))
    assert told["groups"].keys() == due.keys() and told["sessions"] == [path.parent.name]
    for group in due:
        for name, figures in due[group]["columns"].items():
            own = told["groups"][group]["columns"][name]
            assert own.keys() == figures.keys()
            for key, value in figures.items():
                assert own[key] == (pytest.approx(value) if isinstance(value, float) else value)
    assert told["groups"][ALL]["columns"]["age"]["missing"] == pooled().age.isna().sum()
    assert (path.parent / "table-1.tex").is_file() and found.num_rows == len(pooled())
    check_verified(path)


@pytest.mark.parametrize("admitted", [0, 1])
def test_without_two_admitted_parties_a_session_says_whom_it_lacks(
    centre: Hospitals, admitted: int
) -> None:
    """Of a training, a sum and a judgement."""
    model = ReleasedModel(schema=SCHEMA, weights=np.zeros(SCHEMA.num_features))
    for name in NAMES[admitted:]:
        centre.settings.card_path(name).unlink()
    for session in (
        lambda: next_run(centre.settings),
        lambda: deployed.describe(folder_of(centre, False)),
        lambda: evaluation_plan(centre.settings, model, epsilon=None, delta=0.0, colluders=0),
    ):
        with pytest.raises(ParameterError, match=f"{admitted} part.* admitted.*coordinator admit"):
            session()


def test_owners_consent_to_exact_cells_and_to_tables_of_their_own(
    centre: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ciphercohort.deploy.coordinator.drive", lambda settings, name, say: centre.drive(name)
    )
    centre.agents.private = False
    shown = cohort("coordinator", "describe", centre.settings.folder, "--by", "ward", "--json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert found["groups"]["A"]["n"] == (pooled().ward == "A").sum()
    folder = centre.settings.session_folder(found["session"])
    plan = plan_from_dict(json.loads((folder / "outcome.json").read_text())["plan"])
    text = describe_plan(plan, NAMES[0], SCHEMA.norm_bound)
    assert "how often each column has which value" in text and "shows this row" in text
    with pytest.raises(ProtocolError, match="rows alone"):
        deployed.describe(folder_of(centre, False), sites=(NAMES[0],))
    party = centre.agents.session.parties[NAMES[1]]
    party._policy = Policy(max_epsilon=None, accept_unbounded=True, allow_insecure=True)
    with pytest.raises(ProtocolError, match="exact"):
        deployed.describe(folder_of(centre, False))


def test_a_private_description_is_in_the_ledgers(centre: Hospitals) -> None:
    path, found = deployed.describe(folder_of(centre, True), by="ward", epsilon=8.0)
    told = json.loads(path.read_text())
    assert told["privacy"]["epsilon"] <= 8 and "EXACT SUMS" not in told
    assert abs(found.groups["A"]["n"] - (pooled().ward == "A").sum()) < 5 * told["noise_std"]
    assert np.isfinite(found.groups[ALL]["columns"]["age"]["mean"])
    foreseen = deployed.forecast(folder_of(centre, True), "describe", by="ward", epsilon=8.0)
    assert foreseen["noise_std"] == told["noise_std"]
    assert foreseen["values"] == found.opened.plan.length
    for name in NAMES:
        assert 0.97 * 8 < centre.agents.ledger(name).spent("rows").epsilon <= 8 * (1 + 1e-9)


def test_what_a_study_spent_without_a_result_is_on_disk(
    centre: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its document's place, made again by `verify`, and in the status."""
    kind = deployed.KINDS["describe"]

    def finds_nothing(sums: Any, options: Any) -> Any:
        kind.find(sums, options)
        raise PrivacyError("noise leaves nothing")

    patched = replace(kind, find=finds_nothing)
    monkeypatch.setitem(deployed.KINDS, "describe", patched)
    with pytest.raises(PrivacyError, match="leaves nothing; .*count epsilon=8") as found:
        deployed.describe(folder_of(centre, True), by="ward", epsilon=8.0)
    (path,) = (centre.settings.folder / "sessions").glob(f"*/{kind.name}")
    held = json.loads(path.read_text())
    assert held["refused"] == str(found.value) and held["asked"]["epsilon"] == 8.0
    assert (read_status(path.parent) or {})["reason"] == held["refused"]
    assert [c.name for c in session_checks(path.parent) if not c.passed] == []
    path.write_text(path.read_text().replace("count epsilon=8", "count epsilon=7"))
    assert "documents" in [c.name for c in session_checks(path.parent) if not c.passed]


STAYS = Schema(
    columns=(NumericColumn("age", 20.0, 90.0), CategoricalColumn("ward", ("A", "B"))),
    label=Targets(
        columns=(
            NumericColumn("months", 0.0, 60.0),
            NumericColumn("died", 0.0, 1.0),
            NumericColumn("entry", 0.0, 60.0),
        )
    ),
    scaling="range",
)


def stays(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, ward = rng.uniform(20, 90, 400), rng.choice(["A", "B"], 400)
    death = rng.exponential(40 * np.exp(-0.02 * (age - 55) - 0.6 * (ward == "B")))
    leaves = rng.uniform(6, 60, 400)
    months = np.ceil(np.minimum(death, leaves))
    entry = np.floor(months * rng.choice([0.0, 0.5], 400))
    died = (death <= leaves).astype(int)
    own = {"months": months, "died": died, "entry": entry, "age": age, "ward": ward}
    return pd.DataFrame(own)


def made_clinics(folder: Path, vault: Vault, patch: pytest.MonkeyPatch) -> Hospitals:
    """Owners of stays."""
    frames = {name: stays(k) for k, name in enumerate(NAMES)}
    patch.setattr("tests.coordinator.test_inference.SCHEMA", STAYS)
    patch.setattr("tests.coordinator.test_inference.FRAMES", frames)
    return Hospitals(folder, vault)


@pytest.fixture
def clinics(tmp_path: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> Hospitals:
    return made_clinics(tmp_path, vault, monkeypatch)


def take_schema(clinics: Hospitals, schema: Schema, patch: pytest.MonkeyPatch) -> None:
    """As if all had been set up for it."""
    patch.setattr("tests.coordinator.test_inference.SCHEMA", schema)
    schema.save(clinics.settings.folder / "schema.json")
    for name in NAMES:
        card = clinics.settings.card_path(name)
        card.write_text(json.dumps(json.loads(card.read_text()) | {"schema": schema.digest()}))
        clinics.agents.restart(name)


def test_curves_and_a_cox_model_are_those_of_a_simulation(
    clinics: Hospitals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted series goes on, opening no sum twice; status and results say what each is."""
    STAYS.save(tmp_path / "schema.json")
    rows = pd.concat([stays(k).assign(site=name) for k, name in enumerate(NAMES)])
    asked: dict[str, Any] = {"schema": tmp_path / "schema.json", "split": "by:site"}
    path, drawn = deployed.survival(folder_of(clinics, False), by="ward")
    check_verified(path)
    due = survival(rows, by="ward", **asked)
    for ward, curve in due.curves.items():
        np.testing.assert_array_equal(drawn.curves[ward].survival, curve.survival)
    assert (path.parent / "survival.svg").is_file()
    asked_for: list[str] = []

    def dying(session: str) -> dict[str, Any]:
        if len(asked_for) == 3:
            raise KeyboardInterrupt
        asked_for.append(session)
        return clinics.drive(session)

    stopped = SimpleNamespace(settings=clinics.settings, driving=lambda tell, session, asked: dying)
    with pytest.raises(KeyboardInterrupt):
        deployed.cox(stopped, curves="ward")
    before = {each.name for each in path.parent.parent.iterdir()}
    path, fitted = deployed.cox(folder_of(clinics, False), curves="ward", session=asked_for[0])
    check_verified(path)
    told, model = json.loads(path.read_text()), cox(rows, curves="ward", **asked)
    np.testing.assert_allclose(fitted.coef, model.coef, rtol=0, atol=1e-8)
    np.testing.assert_allclose(fitted.robust_se, model.robust_se, rtol=1e-5)
    assert told["sessions"][:3] == asked_for and len(told["sessions"]) == len(model.plans)
    assert {*told["sessions"]} | before == {each.name for each in path.parent.parent.iterdir()}
    assert path.parent.name == asked_for[0] and told["EXACT SUMS"]
    runs = sessions(path.parent.parent)
    fit, curves = by_series(runs)
    assert [run["session"] for run in fit] == told["sessions"] and len(curves) == 1
    screen = Console(width=80, file=StringIO(), record=True)
    screen.print(*status_tables(runs))
    shown = screen.export_text()
    assert f"{len(fit)} sums, the last is" in shown and 'cox (curves "ward"' in shown
    table = shown.partition("Parties of")[0]
    assert fit[0]["session"] in table and fit[-1]["session"] in table
    assert fit[1]["session"] not in table and 'survival (by "ward"' in table
    earlier = page(runs[-1:] + runs).partition("Earlier runs")[2]
    assert f"; {len(fit)} sums, the last is {fit[-1]['session']}" in earlier
    folders = [path.parent.with_name(run["session"]) for run in (*curves, *fit)]
    own = Party.__new__(Party)
    monkeypatch.setattr(own, "results", list)
    monkeypatch.setattr(own, "sums", lambda: folders)
    monkeypatch.setattr("ciphercohort.deploy.party.Party", lambda folder: own)
    listed = cohort("party", "results", tmp_path).output.splitlines()
    assert f"{folders[0]}  {curves[0]['purpose']}" == listed[1]
    begun, *later = dict.fromkeys(run["purpose"] for run in fit)
    purposes = "; ".join([begun, *(each for each in later if not begun.endswith(each))])
    assert purposes.count("a Cox model") == 1
    assert listed[2].startswith(f"{folders[1]}  {purposes}; {len(fit)} sums, ") and "; " in purposes
    assert listed[2].endswith(str(folders[-1])) and len(listed) == 4


def test_curves_of_a_deployment_need_no_other_column(
    clinics: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_schema(clinics, replace(STAYS, columns=()), monkeypatch)
    path, found = deployed.survival(folder_of(clinics, False))
    check_verified(path)
    assert found.rows()[0]["rows"] == 400 * len(NAMES)


def told_otherwise(path: Path, centre: Any, change: Any) -> list[str]:
    """What verify says of a document, and all made of it, of the same sums by another `asked`.

    And so does session.json, which nobody signed.
    """
    texts = {each: each.read_text() for each in path.parent.iterdir() if each.is_file()}
    held, session = json.loads(texts[path]), path.parent / "session.json"
    change(held["asked"])
    path.write_text(json.dumps(held))
    began = json.loads(texts[session])
    began["plan"]["asked"] = held["asked"]
    session.write_text(json.dumps(began))
    try:
        # Whoever has the folder writes past what the program refuses.
        with suppress(ParameterError):
            made, _ = deployed.written_again(centre.settings, path.parent, held["asked"])
            made[path.name] = json.dumps({**json.loads(made[path.name]), "asked": held["asked"]})
            for name, text in made.items():
                (path.parent / name).write_text(text)
        return [each.detail for each in session_checks(path.parent) if not each.passed]
    except ParameterError as error:
        return [str(error)]
    finally:
        for each, text in texts.items():
            each.write_text(text)


ASKED: dict[str, tuple[str, Any]] = {
    "fewer sums": ("glm", lambda asked: asked["options"].update(imputations=2)),
    "one fit": ("glm", lambda asked: asked["options"].update(imputations=None)),
    "tau": ("survival", lambda asked: asked["options"].update(tau=20.0)),
    "begin": ("survival", lambda asked: asked["options"].update(begin=30.0)),
    "least": ("survival", lambda asked: asked["options"].update(least=2)),
    "delta": ("survival", lambda asked: asked.update(delta=1e-30)),
    "colluders": ("describe", lambda asked: asked.update(colluders=1)),
    "another word": ("describe", lambda asked: asked.update(preregistered="yes")),
    "another option": ("cox", lambda asked: asked["options"].update(preregistered="yes")),
    "another column": ("cox", lambda asked: asked["columns"].append("preregistered")),
    "least of a model": ("cox", lambda asked: asked["options"].update(least=20)),
}


def test_documents_are_of_the_options_that_their_sums_were_asked_for(
    clinics: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each study each other word fails, for the plan that owners signed states them."""
    ages = CellModel(feature="age", terms=("ward=B",), draws=((55.0, -2.0, 15.0),))
    columns = (NumericColumn("age", 20.0, 90.0, typical=55.0, missing="typical"), STAYS.columns[1])
    schema = replace(STAYS, columns=columns, imputation=Imputation(models=(ages,)))
    take_schema(clinics, schema, monkeypatch)
    centre, paths = folder_of(clinics, False), dict[str, Path]()
    given: dict[str, dict[str, Any]] = {
        "describe": {"colluders": 1},
        "survival": {"by": "ward"},
        "cox": {},
        "glm": {"target": "months", "family": "gaussian", "imputations": 3},
    }
    for study, options in given.items():
        paths[study] = getattr(deployed, study)(centre, **options)[0]
        check_verified(paths[study])
        *_, unchecked = session_checks(paths[study].parent)
        several = len(json.loads(paths[study].read_text())["sessions"]) > 1
        assert ("of the same rows" in unchecked.detail) == several
    for study, change in ASKED.values():
        assert told_otherwise(paths[study], centre, change), study
    with pytest.raises(ParameterError, match="another series"):
        deployed.survival(centre, by="ward", tau=20.0, session=paths["survival"].parent.name)
    for path in paths.values():
        plans = [
            plan_from_dict(
                json.loads((path.parent.parent / each / "outcome.json").read_text())["plan"]
            )
            for each in json.loads(path.read_text())["sessions"]
        ]
        assert {each.of_series for each in plans[1:]} <= {plans[0].digest()}
        assert not plans[0].of_series and not any(each.asked for each in plans[1:])
        assert plans[0].asked == json.loads(path.read_text())["asked"]
        (told,) = (
            each for each in remarks(plans[0]) if each.startswith("it begins what was asked")
        )
        given = {k: v for k, v in plans[0].asked["options"].items() if v not in (None, False, "")}
        assert all(f"{name} {json.dumps(value)}" in told for name, value in given.items())


def test_a_crude_model_takes_the_columns_that_are_chosen(clinics: Hospitals) -> None:
    """statsmodels' of the pooled rows, in the same deployment; owners are told of the columns."""
    rows = pd.concat([stays(k) for k in range(len(NAMES))])
    # Of PHReg who enters at a time is at risk at it.
    times = {"status": rows.died, "entry": rows.entry + 0.5, "ties": "efron"}
    truth = PHReg(rows.months, rows[["age"]], **times).fit()
    path, found = deployed.cox(folder_of(clinics, False), include=("age",))
    assert found.names == ("age",)
    np.testing.assert_allclose(found.coef, truth.params, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.se, truth.bse, rtol=1e-6)
    assert json.loads(path.read_text())["asked"]["columns"] == ["age"]
    check_verified(path)
    owner = SimpleNamespace(schema=STAYS)
    words = (
        f"Columns of your rows that it takes, beside the outcome ({', '.join(STAYS.label.names)})"
    )
    assert foreseen(found.plans[0], owner) == (f"{words}: age",)
    curves = deployed.survival(folder_of(clinics, False))[1]
    assert foreseen(curves.opened.plan, owner) == (f"{words}: none",)
    counts = sm.GLM(rows.months, sm.add_constant(rows[["age"]])).fit()
    model = deployed.glm(
        folder_of(clinics, False), target="months", family="gaussian", exclude=["ward"]
    )[1]
    np.testing.assert_allclose(model.coef, counts.params, rtol=1e-6)


def test_columns_that_are_chosen_are_taken_or_refused(clinics: Hospitals) -> None:
    centre, refused = folder_of(clinics, False), folder_of(clinics, False)
    refused.driving = lambda tell, session, asked: lambda name: pytest.fail("a sum was asked for")
    path, table = deployed.describe(centre, by="ward", include=("months",))
    assert [*table.groups["A"]["columns"]] == ["months"] and not check_verified(path)
    told = foreseen(table.opened.plan, SimpleNamespace(schema=STAYS))
    assert told == ("Columns of your rows that it takes: ward, months",)
    # A plan that names one column and reads another beside it is told of both.
    task = table.opened.plan.task
    (first, *rest), *_ = task.adds.columns
    adds = replace(task.adds, columns=((0, *rest[:1], first, *rest[2:]),))
    (told,) = foreseen(
        replace(table.opened.plan, objective=replace(task, adds=adds).to_dict()),
        SimpleNamespace(schema=STAYS),
    )
    assert told.endswith("takes: age, ward, months"), told
    fitted = deployed.cox(centre, include=("age",), curves="ward")[1]
    assert fitted.names == ("age", "ward=B") and {*fitted.adjusted} == {"A", "B"}
    with pytest.raises(ParameterError, match="another series"):
        deployed.cox(centre, include=("age",), session=path.parent.name)
    for study, given, words in (
        ("cox", {"include": ("aeg",)}, "include='aeg'.*age"),
        ("cox", {"exclude": ("months",)}, "exclude='months'"),
        ("cox", {"include": ("age",), "exclude": ("age",)}, "leave it out of one"),
        ("cox", {"curves": "ward", "exclude": ("ward",)}, "leave it out of one"),
        ("glm", {"exclude": ("age", "ward")}, "no column is left"),
        ("survival", {"include": ("age",)}, "curves have none"),
    ):
        with pytest.raises(ParameterError, match=words):
            getattr(deployed, study)(refused, **given)
        with pytest.raises(ParameterError, match=words):
            deployed.forecast(refused, study, **given)


def test_a_dry_run_asks_nobody(clinics: Hospitals) -> None:
    """And says what the rows need for intervals with privacy, or that none would do."""
    own = ("survival", clinics.settings.folder, "--model", "cox", "--dry-run")
    ran = cohort("coordinator", *own, "--epsilon", "12", "--json")
    told, rows = json.loads(ran.stdout), 400 * len(NAMES)
    assert ran.exit_code == 0 and told["rows"] == rows and told["noise_std"] > 0
    assert "every number needs a standard deviation of some" in ran.stderr
    assert "opens" in cohort("coordinator", *own).stdout
    few = cohort("coordinator", *own, "--epsilon", "0.1")
    assert few.exit_code == 2 and "leave no interval" in few.stderr
    assert cohort("coordinator", *own, "--session", "a").exit_code == 2
    assert cohort("coordinator", "glm", *own[1:2], "--epsilon", "1", "--dry-run").exit_code == 2
    assert not (clinics.settings.folder / "sessions").exists()


def test_private_curves_are_in_the_ledgers(clinics: Hospitals) -> None:
    path, found = deployed.survival(folder_of(clinics, True), epsilon=8.0)
    told = json.loads(path.read_text())
    assert told["privacy"]["epsilon"] <= 8 and "EXACT SUMS" not in told
    (curve,) = found.curves.values()
    assert curve.reached > 20 and (path.parent / "survival.svg").is_file()
    check_verified(path)
    for name in NAMES:
        assert 0.97 * 8 < clinics.agents.ledger(name).spent("rows").epsilon <= 8 * (1 + 1e-9)


def test_what_noise_will_leave_nothing_of_asks_nobody(
    clinics: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that insists is refused by what its sums open; its series goes on, and is read again."""
    centre = folder_of(clinics, True)
    with pytest.raises(PrivacyError, match="drowns every group.*nothing was spent"):
        deployed.survival(centre, epsilon=0.01)
    with pytest.raises(PrivacyError, match="nothing was spent.*insist by --however-noisy"):
        deployed.cox(centre, epsilon=0.9)
    with pytest.raises(PrivacyError, match="more than all rows; nothing was spent: take"):
        deployed.cox(centre, epsilon=0.6, however_noisy=True)
    assert not (clinics.settings.folder / "sessions").exists()
    for name in NAMES:
        assert clinics.agents.ledger(name).spent("rows").epsilon == 0

    def nothing(*_: object) -> None:
        raise PrivacyError("nothing can be estimated")

    monkeypatch.setattr(private_cox, "read", nothing)
    with pytest.raises(SpentError, match="as spent"):
        deployed.cox(centre, epsilon=0.9, however_noisy=True)
    (path,) = clinics.settings.folder.rglob("survival.json")
    assert "however_noisy" not in path.read_text()
    assert [each.detail for each in session_checks(path.parent) if not each.passed] == []
    with pytest.raises(SpentError, match="as spent"):
        deployed.cox(centre, epsilon=0.9, session=path.parent.name)


def test_private_hazards_are_those_of_a_simulation(
    clinics: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Number by number, from the same noise; each sum is in the ledgers."""
    # Else the last digits of a point, which encryption moves, would change the seeded noise.
    monkeypatch.setattr(PersonTimeObjective, "stream", "of this test")
    path, found = deployed.cox(folder_of(clinics, True), epsilon=12.0)
    own = by_range(STAYS)
    shards = {name: encode_shard(stays(k), own) for k, name in enumerate(NAMES)}
    named = {"model": "linear", "targets": STAYS.label.names}
    config = SimulationConfig(epsilon=12.0, seed=3, **named)  # type: ignore[arg-type]
    specs = party_specs(config, shards, 3, "")
    due = private_cox_by(Sums(specs=specs, schema=own, wanted=sums_wanted(12.0, 1e-5, 0)))
    np.testing.assert_allclose(found.coef, due.coef, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.se, due.se, rtol=0, atol=1e-6)
    told = json.loads(path.read_text())
    assert told["privacy"]["epsilon"] == 12 and len(told["sessions"]) == 7
    check_verified(path)
    for name in NAMES:
        assert 0.97 * 12 < clinics.agents.ledger(name).spent("rows").epsilon <= 12 * (1 + 1e-9)


def test_survival_needs_a_schema_of_stays_and_consent(clinics: Hospitals) -> None:
    with pytest.raises(ParameterError, match="exact sums"):
        deployed.glm(folder_of(clinics, True), target="died", epsilon=1.0)
    party = clinics.agents.session.parties[NAMES[1]]
    party._policy = Policy(max_epsilon=None, accept_unbounded=True, allow_insecure=True)
    with pytest.raises(ProtocolError, match="exact"):
        deployed.survival(folder_of(clinics, False))
    (clinics.settings.folder / "schema.json").write_text(SCHEMA.to_json())
    with pytest.raises(SchemaError, match="targets are time, event"):
        deployed.cox(folder_of(clinics, False))


def test_a_generalised_model_is_that_of_a_simulation(clinics: Hospitals, tmp_path: Path) -> None:
    """Deaths by age and ward; each hospital has an intercept of its own."""
    STAYS.save(tmp_path / "schema.json")
    rows = pd.concat([stays(k).assign(site=name) for k, name in enumerate(NAMES)])
    given: dict[str, Any] = {"target": "died", "site_intercepts": True, "family": "binomial"}
    for name, party in clinics.agents.session.parties.items():
        party._policy = replace(party._policy, site_tables=True)
        clinics.agents.restart(name)
    path, found = deployed.glm(folder_of(clinics, False), **given)
    check_verified(path)
    # An owner has to accept them by name.
    assert found.plans[-1].alone == NAMES
    with pytest.raises(PolicyError, match="site_tables"):
        Policy(exact_sums=True).check_alone(found.plans[-1], NAMES[0])
    due = glm(rows, schema=tmp_path / "schema.json", split="by:site", **given)
    told = json.loads(path.read_text())
    np.testing.assert_allclose(found.coef, due.coef, rtol=0, atol=1e-8)
    assert told["EXACT SUMS"] and len(told["sessions"]) == len(found.plans) == len(due.plans)
    with pytest.raises(ParameterError, match="no target of the schema"):
        deployed.glm(folder_of(clinics, False), target="age")


def test_a_weighted_model_is_that_of_a_simulation(clinics: Hospitals, tmp_path: Path) -> None:
    """Owners are told of every column and of weights; documents of other options fail."""
    STAYS.save(tmp_path / "schema.json")
    rows = pd.concat([stays(k).assign(site=name) for k, name in enumerate(NAMES)])
    given: dict[str, Any] = {"target": "died", "propensity": "ward=B", "include": ("ward",)}
    path, found = deployed.glm(folder_of(clinics, False), **given)
    check_verified(path)
    assert {"balance.csv", "propensity.tex", "balance.svg"} <= {
        p.name for p in path.parent.iterdir()
    }
    due = glm(rows, schema=tmp_path / "schema.json", split="by:site", **given)
    np.testing.assert_allclose(found.coef, due.coef, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.errors["robust_se"], due.errors["robust_se"], rtol=1e-7)
    told = json.loads(path.read_text())
    for one, other in zip(told["propensity"]["balance"], due.weighting.balance(), strict=True):
        assert one.pop("name") == other.pop("name")
        assert one == pytest.approx(other, rel=1e-7, abs=1e-7)
    t = (rows.ward == "B").astype(float)
    p = sm.GLM(t, sm.add_constant(rows[["age"]]), family=sm.families.Binomial()).fit().fittedvalues
    x = sm.add_constant(pd.DataFrame({"ward=B": t}))
    model = sm.GLM(
        rows.died, x, family=sm.families.Binomial(), var_weights=t / p + (1 - t) / (1 - p)
    ).fit(cov_type="HC0")
    np.testing.assert_allclose(found.coef, model.params, atol=1e-6)
    np.testing.assert_allclose(found.errors["robust_se"], model.bse, rtol=1e-6)
    owner = SimpleNamespace(
        schema=STAYS,
        had_these_rows=lambda before: True,
        asked_of=lambda before: found.plans[0].asked if before == found.plans[0].digest() else {},
    )
    for plan in (found.plans[0], found.plans[-1]):
        told = foreseen(plan, owner)
        assert told[0].endswith(": age, ward"), told
    # Later sums are told by what the first was asked for.
    assert told[-1].startswith('When it began you were asked for: study "glm"')
    assert 'target "died"; family "binomial"; propensity "ward=B"' in told[-1]
    asked = "".join(remarks(found.plans[0]))
    for said in ('propensity "ward=B"', 'estimand "ate"', "trim 0.01"):
        assert said in asked
    assert "no weight is sent alone" in "".join(remarks(found.plans[-1]))
    for name, value in (
        ("estimand", "att"),
        ("trim", 0.2),
        ("propensity", "ward=A"),
        ("propensity", None),
        ("propensity_columns", "age"),
        ("weight", "entry"),
    ):
        change = partial(dict.update, **{name: value})
        assert told_otherwise(path, clinics, lambda asked, f=change: f(asked["options"])), name
    with pytest.raises(ParameterError, match="leave it out of one"):
        deployed.glm(folder_of(clinics, False), target="died", propensity="ward=B", exclude="ward")
    with pytest.raises(ParameterError, match="exclude leaves no column"):
        deployed.glm(folder_of(clinics, False), target="died", propensity="ward=B", exclude="age")
    own = deployed.glm(folder_of(clinics, False), target="ward=B")[1]
    assert own.names == ("intercept", "age")
    np.testing.assert_allclose(own.coef, found.weighting.model.coef, atol=1e-6)


def test_imputations_are_those_of_a_simulation(
    tmp_path: Path, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn by each owner at home, from coins that are the same in all sums of a series."""
    frames = {name: stays(k).drop(columns="entry") for k, name in enumerate(NAMES)}
    for frame in frames.values():
        frame.loc[frame.index % 3 == 0, "age"] = np.nan
    ages = CellModel(feature="age", terms=("ward=B", "died"), draws=((55.0, 1.0, -2.0, 15.0),))
    known = Schema(
        columns=(
            NumericColumn("age", 20.0, 90.0, typical=55.0, missing="typical"),
            CategoricalColumn("ward", ("A", "B")),
        ),
        label=Targets(columns=STAYS.label.columns[:2]),  # type: ignore[union-attr]
        scaling="range",
        imputation=Imputation(models=(ages,)),
    )
    monkeypatch.setattr("tests.coordinator.test_inference.SCHEMA", known)
    monkeypatch.setattr("tests.coordinator.test_inference.FRAMES", frames)
    given: dict[str, Any] = {"target": "months", "family": "gaussian", "imputations": 2}
    path, found = deployed.glm(folder_of(Hospitals(tmp_path, vault), False), **given)
    own, coins = by_range(known), b""
    views = {n: encode_with_views(rows, known, coins=coins)[1] for n, rows in frames.items()}
    shards = {name: encode_shard(rows, own) for name, rows in frames.items()}
    named = {"model": "linear", "targets": known.label.names}
    config = SimulationConfig(epsilon=None, seed=3, **named)  # type: ignore[arg-type]
    wanted = sums_wanted(None, 1e-5, 0)
    specs = party_specs(config, shards, 3, "")
    sums = Sums(specs=specs, schema=own, wanted=wanted, views=views)
    due = imputed_by(glm_by, sums, GlmOptions(**given))
    told = json.loads(path.read_text())
    assert isinstance(found, Pooled) and isinstance(due, Pooled)
    for one, other in zip(found.rows(), due.rows(), strict=True):
        assert one.pop("name") == other.pop("name")
        assert one == pytest.approx(other, rel=1e-6)
    assert len({fit.coef.tobytes() for fit in found.fits}) == 2
    assert told["EXACT SUMS"] and len(told["sessions"]) == len(told["plans"])
    check_verified(path)
    assert (path.parent / "glm.tex").is_file() and told["inference"][1]["fraction_missing"] > 0.05


def places(values: Any, kept: bytes) -> int:
    """Where twelve values in a row, six or more far from 0, stand, as float64 or int64."""
    near = 1e-6 * np.abs(values).max()
    large = np.abs(values) > 1000 * near
    starts = [k for k in np.flatnonzero(large[:-11]) if large[k : k + 12].sum() > 5][:40]
    found = 0
    for shift in range(8):
        whole = kept[shift : shift + (len(kept) - shift) // 8 * 8]
        for told in (np.nan_to_num(np.frombuffer(whole, "<f8")), np.frombuffer(whole, "<i8")):
            for k in starts:
                firsts = np.flatnonzero(np.abs(told[:-11] - values[k]) < near)
                due = values[k : k + 12]
                found += sum(np.allclose(told[i : i + 12], due, 0, near) for i in firsts)
    return found


def test_kept_messages_have_the_whole_sum_and_no_owners(clinics: Hospitals) -> None:
    """Of curves and of a Cox model's first and last sum; the whole sum is found in all of them."""
    drawn = deployed.survival(folder_of(clinics, False), by="ward")[1]
    fitted = deployed.cox(folder_of(clinics, False), curves="ward")[1]
    shards = [encode_shard(stays(k), by_range(STAYS)) for k in range(len(NAMES))]
    for plan in (drawn.opened.plan, fitted.plans[0], fitted.plans[-1]):
        folder = clinics.settings.session_folder(plan.session) / "messages"
        kept = b"".join(path.read_bytes() for path in sorted(folder.glob("*.msg")))
        own = [plan.task.adds.exact_sum(s.x, s.y, "a").values for s in shards]  # type: ignore[attr-defined]
        assert places(sum(own) / plan.num_rows, kept) > 20
        for values in own:
            assert places(values, kept) == places(values / plan.num_rows, kept) == 0
