"""What is mailed depends on rows through what the protocol opens, and in no other way.

INSECURE toy rings and seeded noise, so that two runs share all coins.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.job.inputs import NOT_MET
from ciphercohort.job.layout import (
    HALVES,
    MODEL,
    PRIVATE,
    RELEASE,
    REPORT,
    STATUS,
    TABLE,
    TRANSCRIPT,
    read_status,
    release_of,
)
from ciphercohort.report.release import FRESH, IN_DIGITS, OPENED, WHITENED, Release
from ciphercohort.report.release_report import render_release
from ciphercohort.results.predict import load_model
from ciphercohort.results.result import RunResult
from ciphercohort.verify.folder import verify_run
from parties.reader.schema import (
    CategoricalColumn,
    Label,
    NumericColumn,
    Schema,
    Targets,
)
from protocols.errors import ParameterError
from sims.api import simulate
from tests.sims.fake_run import finished_run
from tests.sims.model_runs import cohort

ROWS = 120
ODD: dict[str, Any] = {"age": None, "dose": 98765432.125, "ward": "Zorblatt"}
COLUMNS = (
    NumericColumn(name="age", low=0.0, high=100.0, typical=60.0, spread=12.0, missing="typical"),
    NumericColumn(name="dose", low=-3.0, high=3.0, typical=0.0, spread=1.0),
    CategoricalColumn(name="ward", categories=("A", "B")),
)
DIED = Schema(
    columns=COLUMNS, label=Label(name="died", positive="yes", negative="no"), row_norm=2.0
)
COST = Schema(
    columns=COLUMNS,
    label=Targets(columns=(NumericColumn(name="cost", low=0.0, high=10.0),)),
    scaling="range",
)
TOY: dict[str, Any] = {"profile": "fast-insecure", "iterations": 2, "seed": 7, "parties": 2}
SUMS: dict[str, Any] = {"protocol": "secure-aggregation", "iterations": 2, "seed": 7, "parties": 2}
ROWS_GD: dict[str, Any] = {"update": "gd", "degree": 3, **TOY}
RUNS: dict[str, dict[str, Any]] = {
    "encrypted rows": {**ROWS_GD, "epsilon": 8.0, "keep_messages": True},
    "encrypted model": {**ROWS_GD, "protocol": "encrypted-model", "epsilon": 8.0},
    "secure sums": {**SUMS, "update": "gd", "epsilon": 8.0},
    "steps of coordinates": {**SUMS, "update": "scd", "batches": 2, "epsilon": 8.0},
    "no noise": {**ROWS_GD, "no_privacy": True},
    "whitened": {**TOY, "update": "quadratic-gd", "epsilon": 8.0},
    "cover": {**ROWS_GD, "parties": 3, "cover": 2, "epsilon": 8.0},
    "processes": {**SUMS, "update": "gd", "epsilon": 8.0, "processes": True},
    "standard errors": {**SUMS, "model": "linear", "no_privacy": True, "inference": True},
    "held-out rows": {
        **{**SUMS, "update": "gd", "no_privacy": True},
        **{"held_out": 0.4, "evaluate": True},
    },
    "linear": {**TOY, "model": "linear", "epsilon": 8.0},
    "improved-lffr": {**TOY, "model": "improved-lffr", "epsilon": 8.0},
    "lffr": {**TOY, "model": "lffr", "epsilon": 8.0},
}


def table(odd: bool) -> pd.DataFrame:
    """Two tables that differ in one row."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 12, ROWS).round(1),
            "dose": rng.normal(size=ROWS),
            "ward": rng.choice(["A", "B"], ROWS),
        }
    )
    score = (frame["age"] - 60) / 12 - frame["dose"]
    frame["died"] = np.where(score + rng.logistic(size=ROWS) > 0, "yes", "no")
    frame["cost"] = (5 + score + rng.normal(size=ROWS)).clip(0, 10)
    if odd:
        frame.loc[17, list(ODD)] = list(ODD.values())
        frame.loc[17, ["died", "cost"]] = ["yes" if frame.loc[17, "died"] == "no" else "no", 9.5]
    return frame


def run(name: str, odd: bool, folder: Path) -> RunResult:
    asked, predicts = RUNS[name], "cost" if "model" in RUNS[name] else "died"
    test, schema = folder / "test.csv", folder / "schema.json"
    folder.mkdir()
    table(odd=False).head(30).to_csv(test, index=False)
    (COST if predicts == "cost" else DIED).save(schema)
    rows = table(odd).drop(columns="died" if predicts == "cost" else "cost")
    return simulate(data=rows, test=test, schema=schema, out=folder / "run", **asked)


def without(value: Any, paths: tuple[str, ...]) -> Any:
    """A JSON value less the fields of these paths; `*`: all of it."""
    if "*" in paths:
        return None
    if isinstance(value, list):
        return [without(item, paths) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {
        key: tuple(path.partition(".")[2] for path in paths if path.startswith(f"{key}."))
        for key in value
    }
    return {key: without(item, inner[key]) for key, item in value.items() if key not in paths}


def fixed(release: Path) -> dict[str, Any]:
    """All files of a release, by name, less what may differ."""
    found: dict[str, Any] = {}
    whitens = (release / "second-moment").exists()
    for path in sorted(release.rglob("*")):
        name = str(path.relative_to(release))
        allowed = (*OPENED.get(path.name, ()), *FRESH.get(path.name, ()))
        allowed += WHITENED.get(path.name, ()) if whitens else ()
        if path.suffix == ".jsonl":
            # One plan is the first that the parties agree to.
            digits = IN_DIGITS if whitens or path.parent != release else ()
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = [
                without(line, (*allowed, "bytes") if line["step"] in digits else allowed)
                for line in lines
            ]
        elif path.suffix == ".json":
            found[name] = without(json.loads(path.read_text()), allowed)
        else:
            found[name] = path.is_dir() or None
    return found


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two JSON values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from differences(one.get(key, "-"), other.get(key, "-"), f"{place}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for k, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{place}[{k}]")
    elif one != other:
        yield f"{place}: {one!r} {other!r}"


def private_figures(value: Any) -> Iterator[float]:
    """Long numbers of summary and metrics that only pooled rows give."""
    if isinstance(value, dict):
        for each in value.values():
            yield from private_figures(each)
    elif isinstance(value, list):
        for each in value:
            yield from private_figures(each)
    # Shares of few rows may be equal by chance.
    elif isinstance(value, float) and float(Fraction(value).limit_denominator(ROWS)) != value:
        yield value


@pytest.mark.parametrize("name", RUNS)
def test_one_row_changes_nothing_but_what_is_opened(name: str, tmp_path: Path) -> None:
    results = [run(name, odd, tmp_path / str(odd)) for odd in (False, True)]
    plain, odd = (tmp_path / str(each) / "run" / RELEASE for each in (False, True))
    assert not list(differences(fixed(plain), fixed(odd)))

    # What is not JSON is made of what is.
    alone = Path(shutil.copytree(odd, tmp_path / "mailed"))
    loaded = Release.load(alone)
    assert (alone / REPORT).read_text() == render_release(loaded)
    if "inference" in RUNS[name]:
        assert (alone / TABLE).read_text() == loaded.documents()[TABLE]
    assert all(check.passed for check in verify_run(alone)), verify_run(alone)
    assert load_model(alone).coefficients.to_numpy().shape

    # The owners' half knows of the row, the other has no trace of it nor of a figure of rows.
    told = " ".join(results[1].warnings) + json.dumps(results[1].clamped)
    assert "no declared category" in told and results[1].filled != results[0].filled
    files = [path for path in odd.rglob("*") if path.is_file() and path.suffix != ".msg"]
    text = "\n".join(path.read_text() for path in files)
    notes = {note for each in results[1].clamped.values() for note in each["notes"]}
    notes |= {*results[1].warnings} - {*results[1].public_warnings}
    notes |= {*results[1].inference.kept} if results[1].inference else set()
    # What opened counts tell stands in their document, as of a model that is no better than none.
    notes -= {*results[1].evaluation.notes} if results[1].evaluation else set()
    assert len(notes) > 1
    for trace in ("Zorblatt", "98765432", "no declared", "missing cells", "test row", *notes):
        assert trace not in text, trace
    summary = json.loads((odd.parent / PRIVATE / "summary.json").read_text())
    lines = (odd.parent / PRIVATE / "metrics.jsonl").read_text().splitlines()
    metrics = [{**json.loads(line), "seconds": 0.0} for line in lines]
    mine = [summary[key] for key in ("twin", "optimum", "clipped_optimum")]
    mine += [metrics[:-1], metrics[-1]["twin"], metrics[-1]["optimum"]]
    figures = {repr(value) for value in private_figures(mine)}
    # A coefficient that took few steps may come out as the twin's, to the last bit.
    figures -= {repr(value) for value in private_figures(metrics[-1]["decrypted"]["weights"])}
    assert len(figures) > 10
    assert not [figure for figure in figures if figure in text]


def test_a_note_of_rows_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison has power: the same with all warnings of the simulation."""
    honest = Release.of
    monkeypatch.setattr(Release, "of", lambda r: replace(honest(r), notes=r.warnings))
    for odd in (False, True):
        run("secure sums", odd, tmp_path / str(odd))
    plain, odd_one = (fixed(tmp_path / str(each) / "run" / RELEASE) for each in (False, True))
    assert any("/run.json/notes" in where for where in differences(plain, odd_one))


def test_modes_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run("held-out rows", True, tmp_path / "one")
    finally:
        os.umask(before)
    private = tmp_path / "one" / "run" / PRIVATE
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in private.iterdir()}
    assert set(found) == {*HALVES[PRIVATE], STATUS} and set(found.values()) == {0o600}


# -- reading it ------------------------------------------------------------------------------------


def test_every_command_takes_the_folder_and_its_release(tmp_path: Path) -> None:
    run("encrypted rows", False, tmp_path / "one")
    whole, rows = tmp_path / "one" / "run", tmp_path / "one" / "test.csv"
    mailed = Path(shutil.copytree(whole / RELEASE, tmp_path / "mailed"))
    for folder in (whole, mailed):
        for words in (
            ("verify", folder),
            ("predict", "--model", folder, "--data", rows),
            ("predict", "--model", release_of(folder) / MODEL, "--data", rows),
            ("evaluate", "--model", folder, "--data", rows),
            ("evaluate", folder, "--data", rows),
        ):
            done = cohort(*words)
            assert done.exit_code == 0, (words, done.output)
    assert cohort("verify", whole, "--data", rows).exit_code == 0
    refused = cohort("verify", mailed, "--data", rows)
    assert refused.exit_code == 2 and "leave data out" in " ".join(refused.stderr.split())
    status = read_status(mailed)
    assert status is not None and set(status["files"]) == {
        f"{RELEASE}/{name}" for name in os.listdir(mailed) if name not in (STATUS, "messages")
    }


def test_former_paths_are_told_the_new_ones(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    with pytest.raises(ParameterError, match=r"it is .*run/release/model\.json"):
        load_model(tmp_path / "run" / MODEL)
    old = tmp_path / "old"
    shutil.copytree(tmp_path / "run" / RELEASE, old)
    fields = json.loads((old / STATUS).read_text())
    del fields["layout"]
    (old / STATUS).write_text(json.dumps(fields))
    for read in (load_model, verify_run):
        with pytest.raises(ParameterError, match=r"earlier version.*old/release.*old/model\.json"):
            read(old)
    assert load_model(old / MODEL).session


# -- its inputs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_an_inferred_schema_is_a_condition_that_is_not_met(
    given: bool, private: bool, tmp_path: Path
) -> None:
    out, test = tmp_path / "run", tmp_path / "test.csv"
    rows = table(odd=False).drop(columns="cost")
    # So many that noise hardly ever leaves no table.
    pd.concat([rows] * 40).to_csv(tmp_path / "rows.csv", index=False)
    rows.head(30).to_csv(test, index=False)
    DIED.save(tmp_path / "schema.json")
    words: list[object] = ["--data", tmp_path / "rows.csv", "--test", test, "--label", "died"]
    words += ["--protocol", "secure-aggregation", "--update", "gd", "--iterations", 2, "--out", out]
    words += ["--epsilon", 12, "--inference"] if private else ["--no-privacy"]
    words += ["--schema", tmp_path / "schema.json"] if given else []
    done = cohort("simulate", *words)
    assert done.exit_code == 0, done.output
    met, missed = given or not private, [] if given or not private else [NOT_MET]
    model = json.loads((out / RELEASE / MODEL).read_text())
    source = "given" if given else "inferred"
    assert model["inputs"] == {"schema": source} and model["unmet"] == missed
    assert load_model(out).schema_from == source
    summary = json.loads((out / PRIVATE / "summary.json").read_text())
    assert summary["inputs"] == {"schema": source} and summary["unmet"] == missed
    assert ("schema: inferred" in " ".join(done.stderr.split())) != given
    assert ("certificate: NOT satisfied" in " ".join(done.stdout.split())) != met
    for half in (RELEASE, PRIVATE):
        page = (out / half / REPORT).read_text()
        header = page[page.index("<header>") : page.index("</header>")]
        assert (NOT_MET in header) != met
        assert ("public_schema" in page) != met
    if private:
        certificate = json.loads((out / RELEASE / "certificate.json").read_text())
        assert certificate["inputs"] == {"schema": source}
        assert (certificate["satisfied"], certificate["unmet"]) == (met, missed)
        assert (certificate["binding"] == "public_schema") != met
        assert all(each["satisfied"] for each in certificate["conditions"])
        assert ("does not hold" in (out / RELEASE / TABLE).read_text()) != met
    for folder in (out, out / RELEASE):
        checked = cohort("verify", folder)
        assert checked.exit_code == (0 if met else 1), checked.output
        failed = [check.name for check in verify_run(folder) if not check.passed]
        assert failed == ([] if met else ["schema"])
        names = [check.name for check in verify_run(folder)]
        assert ("certificate" in names) == (private and met)
    with pytest.raises(ParameterError, match="release/ is what is verified"):
        verify_run(out / PRIVATE)


@pytest.mark.parametrize("file", [MODEL, "certificate.json"])
def test_a_schema_that_is_called_given_afterwards_is_named(file: str, tmp_path: Path) -> None:
    rows = table(odd=False).drop(columns="cost")
    simulate(data=rows, label="died", out=tmp_path / "run", **RUNS["secure sums"])
    path = tmp_path / "run" / RELEASE / file
    fields = json.loads(path.read_text())
    fields.update(inputs={"schema": "given"}, unmet=[])
    path.write_text(json.dumps(fields))
    failed = {check.name: check.detail for check in verify_run(tmp_path / "run")}
    assert "inputs" in failed["schema"] or "unmet" in failed["schema"]


@pytest.mark.parametrize("model", ["logistic", "linear", "softmax"])
def test_data_sets_of_the_package_have_public_schemas(model: str, tmp_path: Path) -> None:
    asked = {**SUMS, "parties": 3, "epsilon": 20.0, "update": "scd" if model == "linear" else "gd"}
    result = simulate(model=model, **asked, out=tmp_path / "run")
    assert result.schema_from == "given" and result.certificate is not None
    assert result.certificate["satisfied"] and not result.unmet
    assert all(check.passed for check in verify_run(tmp_path / "run"))
    assert (tmp_path / "run" / RELEASE / TRANSCRIPT).is_file()
