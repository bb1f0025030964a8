"""The command: runs end to end on the toy ring (INSECURE, for tests only), and clear refusals."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from rich.console import Console

from ciphercohort.cli.progress import Reporter, pulse
from ciphercohort.deploy.supervise import child
from parties.reader.infer import infer_schema
from parties.reader.schema import Schema
from protocols.errors import ParameterError
from sims.simulation import Event
from tests.sims.model_runs import cohort
from tests.support.rehearsals import made_up

CALIBRATION = ("calibration_slope", "calibration_intercept")
TOY = ("--profile", "fast-insecure", "--no-privacy", "--update", "gd")

REPORTS = ("release/report.html", "private/report.html")


def make_frame(rows: int = 90, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(60, 10, rows), "ward": rng.choice(["A", "B"], rows)})
    noise = rng.logistic(size=rows)
    frame["y"] = ((frame["age"] - 60) / 3 + (frame["ward"] == "B") + noise > 0).astype(int)
    return frame


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "train.csv"
    make_frame().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def test_table(table: Path) -> Path:
    path = table.with_name("test.csv")
    make_frame(60, seed=2).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def finished(table: Path, test_table: Path) -> tuple[Path, Result]:
    out = table.with_name("run")
    options = ("--label", "y", "--test", test_table, "--iterations", "3", "--out", out, "--json")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ciphercohort.planning.foresight.known", made_up)
        return out, cohort("simulate", "--data", table, *options, *TOY)


# -- runs --------------------------------------------------------------------------------------


def test_one_json_object_on_stdout(finished: tuple[Path, Result]) -> None:
    out, result = finished
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    required = {
        *("accuracy", "auc", "twin", "optimum", "max_abs_diff_to_twin", "seconds_per_iteration"),
        *("seconds", "bytes_per_party", "ring_dim", "depth", "scale_bits", "security_bits"),
        "peak_memory_mb",
    }
    assert required <= set(summary)
    figures = ("accuracy", "auc", "log_loss", "base_rate_log_loss", "brier", *CALIBRATION)
    for scores in (summary, summary["twin"], summary["optimum"]):
        assert all(isinstance(scores[name], float) for name in figures)
    assert summary["max_abs_diff_to_twin"] < 1e-4 and summary["iterations"] == 3
    predicted = summary.pop("predicted")
    assert predicted["seconds"] > 0 and predicted["bytes_per_party"] > 0
    assert summary == json.loads((out / "private/summary.json").read_text())


def test_a_diverged_training_is_told_from_a_broken_share(table: Path) -> None:
    """What no bound keeps within its slots may leave them; the shares are then as they should."""
    options = ("--label", "y", "--iterations", "3", "--learning-rate", "1e6")
    refused = cohort("simulate", "--data", table, *options, *TOY)
    assert refused.exit_code == 2
    words = "or the training diverged: lower the learning rate or the iterations, or take --update"
    assert words in " ".join(refused.stderr.split())


def test_a_toy_ring_is_called_insecure_everywhere(
    finished: tuple[Path, Result], test_table: Path
) -> None:
    out, result = finished
    assert "INSECURE" in result.stderr and "INSECURE" in json.loads(result.stdout)
    for name in ("release/model.json", "private/summary.json", *REPORTS):
        assert "INSECURE" in (out / name).read_text()
    model = out / "release/model.json"
    assert "INSECURE" in cohort("predict", "--model", model, "--data", test_table).stderr
    assert "INSECURE" in cohort("verify", out).stdout


def test_the_folder_verifies(finished: tuple[Path, Result], test_table: Path) -> None:
    out, _ = finished
    result = cohort("verify", out, "--data", test_table)
    assert result.exit_code == 0 and "every check passed" in result.stdout
    assert "test scores" in result.stdout
    assert json.loads((out / "release/status.json").read_text())["state"] == "finished"
    text = "".join(path.read_text() for path in out.rglob("*") if path.is_file())
    assert "PRIVATE KEY" not in text


def test_a_tampered_folder_does_not(finished: tuple[Path, Result], tmp_path: Path) -> None:
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    text = (tmp_path / "release/model.json").read_text()
    (tmp_path / "release/model.json").write_text(text.replace('"intercept": ', '"intercept": 1'))
    result = cohort("verify", tmp_path)
    assert result.exit_code == 1 and "FAILED" in result.stdout
    found = json.loads(cohort("verify", tmp_path, "--json").stdout)
    assert not found["passed"] and {"name", "passed", "detail"} == set(found["checks"][0])


def test_predict(finished: tuple[Path, Result], test_table: Path, tmp_path: Path) -> None:
    model, scored = finished[0] / "release/model.json", tmp_path / "scored.csv"
    printed = cohort("predict", "--model", model, "--data", test_table)
    assert printed.exit_code == 0
    frame = pd.read_csv(io.StringIO(printed.stdout))
    assert list(frame.columns) == ["probability", "prediction"] and len(frame) == 60
    accuracy = (frame["prediction"] == pd.read_csv(test_table)["y"]).mean()
    assert f"accuracy {100 * accuracy:.2f} %" in printed.stderr
    assert json.loads(finished[1].stdout)["accuracy"] == pytest.approx(accuracy)

    unlabelled = tmp_path / "new.csv"
    pd.read_csv(test_table).drop(columns="y").to_csv(unlabelled, index=False)
    quiet = cohort("predict", "--model", model, "--data", unlabelled, "--out", scored)
    assert quiet.stdout == "" and "accuracy" not in quiet.stderr
    pd.testing.assert_frame_equal(pd.read_csv(scored), frame)

    pd.read_csv(test_table).assign(y="later").to_csv(unlabelled, index=False)
    unknown = cohort("predict", "--model", model, "--data", unlabelled)
    assert unknown.exit_code == 0 and "not scored" in unknown.stderr


# -- refusals ----------------------------------------------------------------------------------


def changed(**columns: Any) -> pd.DataFrame:
    return make_frame().assign(**columns)


def spoilt(column: str, value: object) -> pd.DataFrame:
    frame = make_frame().astype({column: object})
    frame.loc[3, column] = value
    return frame


REFUSALS: dict[str, tuple[pd.DataFrame, tuple[str, ...], str]] = {
    "text in a number": (spoilt("age", "old"), ("--exclude", "ward"), "'age'"),
    "one label value": (changed(y=1), (), "label 'y' has 1 different value"),
    "unknown column": (make_frame(), ("--exclude", "wards"), "column 'wards' is not in the table"),
    "unknown split": (make_frame(), ("--split", "by:town"), "column 'town' is not in the table"),
    "no rows": (make_frame(0), (), "0 rows"),
    "empty shard": (make_frame(), ("--parties", "80"), "parties=80"),
    "too many rounds": (make_frame(), ("--iterations", "100000"), "=100000 is above 10000"),
    "below 128 bits": (
        make_frame(),
        ("--profile", "secure", "--ring-dim", "8192"),
        "fits no ring of [8192] at 128 bits",
    ),
    "epsilon twice": (make_frame(), ("--epsilon", "1"), "no-privacy is given together with eps"),
}


@pytest.mark.parametrize("declared", [True, False])
def test_every_bad_cell_is_named_at_once_by_its_row_in_the_file(
    declared: bool, tmp_path: Path
) -> None:
    """Not by that of a shuffled shard, party by party; with and without a public schema."""
    schema = tmp_path / "schema.json"
    infer_schema(make_frame(), "y").save(schema)
    bad = make_frame().astype(object)
    bad.loc[[3, 70], "age"] = np.nan
    bad.loc[8, "ward"] = bad.loc[11, "y"] = None
    bad.to_csv(tmp_path / "bad.csv", index=False)
    options = ("--data", tmp_path / "bad.csv", "--label", "y", *TOY)
    refused = cohort("simulate", *options, *(("--schema", schema) if declared else ()))
    words = " ".join(refused.stderr.split())
    assert refused.exit_code == 2
    assert "column 'age' is missing (empty or NaN) in 2 of 90 rows (lines 5, 72)" in words
    assert "column 'ward' is missing in 1 of 90 rows (line 10)" in words
    assert "label 'y' is missing in 1 of 90 rows (line 13)" in words


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_is_refused_before_any_key(case: str, tmp_path: Path) -> None:
    frame, options, words = REFUSALS[case]
    path, out = tmp_path / "table.csv", tmp_path / "run"
    frame.to_csv(path, index=False)
    asked = ("simulate", "--data", path, "--label", "y", *TOY, "--out", out, *options, "--json")
    result = cohort(*asked)
    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert words in message and "cohort: " in message
    assert "Traceback" not in result.stderr and "make the joint keys" not in message
    assert result.stdout == "" and not out.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), None),
        (("--label", "y", "--positive", "1"), None),
        (("--label", "age"), "label='age' is not the schema's 'y': leave label out"),
        (("--positive", "0"), "positive='0' is not the schema's '1': leave it out"),
        (("--model", "linear"), "a label of two values (y): choose logistic"),
    ],
)
def test_a_schema_says_what_is_predicted(
    options: tuple[str, ...], words: str | None, table: Path, tmp_path: Path
) -> None:
    infer_schema(make_frame(40), "y").save(tmp_path / "schema.json")
    asked = ("plan", "--data", table, "--schema", tmp_path / "schema.json", "--no-privacy")
    result = cohort(*asked, "--no-timing", *options)
    assert result.exit_code == (2 if words else 0), result.stderr
    assert words is None or words in " ".join(result.stderr.split())


def test_other_folders_are_left_alone(table: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    result = cohort("simulate", "--data", table, "--label", "y", *TOY, "--out", tmp_path)
    assert result.exit_code == 2 and "holds no run of ciphercohort" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_more_refusals(tmp_path: Path, test_table: Path) -> None:
    for words, message in (
        (("simulate", "--label", "y"), "label='y' is given without data"),
        (("verify", tmp_path), "is not a run folder"),
        (("predict", "--model", tmp_path / "m", "--data", test_table), "cannot be read"),
        (("schema", "show", tmp_path / "s"), "cannot be read"),
        (("schema", "init", test_table, "--label", "q"), "column 'q' is not in the table"),
        (("simulate", "--iterations", "many"), "Invalid value"),
    ):
        result = cohort(*words)
        assert result.exit_code == 2 and message in result.stderr, words
        assert result.stdout == ""


def test_a_file_that_cannot_be_written(finished: tuple[Path, Result], test_table: Path) -> None:
    model = finished[0] / "release/model.json"
    out = test_table / "below.csv"
    result = cohort("predict", "--model", model, "--data", test_table, "--out", out)
    assert result.exit_code == 2 and "Traceback" not in result.stderr


def test_debug_shows_the_traceback() -> None:
    result = cohort("simulate", "--parties", "1", "--debug")
    assert isinstance(result.exception, ParameterError)


def test_privacy_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = []

    def stop(config: Any, on_event: object = None) -> None:
        configs.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr("sims.simulation.simulate", stop)
    default = cohort("simulate")
    assert default.exit_code == 130 and "cohort: interrupted" in default.stderr
    assert "epsilon=1, delta=1e-05" in default.stderr and "the default" in default.stderr
    chosen = cohort("simulate", "--epsilon", "3", "--colluders", "1", "--seed", "4")
    assert (
        "epsilon=3, delta=1e-05 against the coordinator and 1 other owner" in chosen.stderr
        and "NOT PRIVATE" in chosen.stderr
    )
    assert "no noise" in cohort("simulate", "--no-privacy", "--split", "by:ward").stderr
    promises = [(c.epsilon, c.delta, c.colluders, c.parties) for c in configs]
    assert promises == [(1.0, 1e-5, 0, 3), (3.0, 1e-5, 1, 3), (None, 1e-5, 0, None)]


# -- schema, help ------------------------------------------------------------------------------


def test_schema_commands(test_table: Path, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    printed = cohort("schema", "init", test_table, "--label", "y", "--positive", "0")
    assert Schema.from_json(printed.stdout).label.positive == "0"
    assert "must be PUBLIC" in printed.stderr
    written = cohort("schema", "init", test_table, "--label", "y", "--out", path)
    assert written.stdout == "" and "2 columns written" in written.stderr
    again = cohort("schema", "init", test_table, "--label", "y", "--out", path)
    assert again.exit_code == 2 and "exists" in again.stderr
    shown = cohort("schema", "show", path).stdout
    assert all(word in shown for word in ("age", "numeric", "A, B", "1 (positive) or 0"))


def test_version() -> None:
    assert "openfhe 1.6" in cohort("version").stdout
    assert cohort("--version").stdout == f"ciphercohort {metadata.version('ciphercohort')}\n"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['cohort', 'simulate', '--help']\n"
        "from ciphercohort.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'openfhe', 'flwr', 'sklearn', 'pandas', 'numpy', 'matplotlib'}\n"
        "print('loaded', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.endswith("loaded []\n")


# -- progress ----------------------------------------------------------------------------------


def test_whatever_is_done_a_line_says_that_it_goes_on() -> None:
    """At 6 s a draw, of 10; and none after the end."""
    text, now = io.StringIO(), [100.0]
    console = Console(file=text, force_terminal=False, width=100)

    def line(words: str) -> None:
        text.truncate(0)
        for _ in range(500):
            if words in text.getvalue():
                return
            time.sleep(0.01)
        raise AssertionError(f"{words!r} is not in {text.getvalue()!r}")

    with pulse(console, 0.01, lambda: now[0]) as told:
        line("[   0.0 s] no sum is opened yet")
        told("draws", 0, 10)
        line("0 of 10 draws done\n")
        told("sums", 7, 0)
        told("draws", 2, 10)
        now[0] += 12.0
        line("[  12.0 s] 2 of 10 draws done, 7 sums done, about 48.0 s left\n")
    text.truncate(0)
    time.sleep(0.05)
    assert text.getvalue() == ""


def test_progress_without_a_terminal_says_what_is_left_but_not_too_often() -> None:
    """At 7 s an iteration: the pace so far times what remains, ten seconds apart at least."""
    text, now = io.StringIO(), [100.0]
    console = Console(file=text, force_terminal=False, width=100)
    reporter = Reporter(console, clock=lambda: now[0])
    reporter(Event("phase", "train"))
    for done in range(1, 11):
        now[0] += 7.0
        reporter(Event("progress", "train", done, 10))
    lines = text.getvalue().splitlines()[1:]
    assert lines[0] == "[  14.0 s] 2 of 10 iterations done, about 56.0 s left"
    assert [int(line.split("]")[1].split()[0]) for line in lines] == [2, 4, 6, 8]
    assert lines[-1].endswith("about 14.0 s left")
    replayed = Reporter(console, clock=lambda: now[0], unit="steps")
    replayed(Event("phase", "verify"))
    now[0] += 70.0
    replayed(Event("progress", "verify", 1, 9))
    assert "1 of 9 steps done" in text.getvalue()
    # Long runs speak once in a tenth of what is left.
    text.truncate(0)
    reporter(Event("phase", "train"))
    for done in range(1, 301):
        now[0] += 7.0
        reporter(Event("progress", "train", done, 300))
    assert 20 < len(text.getvalue().splitlines()) < 60


def test_a_run_says_its_costs_before_it_begins(finished: tuple[Path, Result]) -> None:
    _, result = finished
    told = result.stderr
    assert told.index("predicted: ") < told.index("make the joint keys")
    assert "per party, on this machine if nothing else runs on it" in told
    assert told.count("interval [-8, 8]") == 1


# -- before anything is loaded -----------------------------------------------------------------

EARLY: dict[str, tuple[dict[str, Any], str]] = {
    "colluders": ({"parties": 3, "colluders": 3}, "colluders=3 must be below parties=3"),
    "degree": ({"degree": 4}, "degree=4 is not one of 3, 5, 7"),
    "model": ({"model": "linaer"}, "did you mean 'linear'?"),
    "protocol": (
        {"protocol": "encrypted-row"},
        "did you mean 'encrypted-rows' or 'encrypted-model'?",
    ),
    "update": ({"update": "quadratic-dg"}, "did you mean 'quadratic-gd'"),
    "option": ({"epsilom": 1.0}, "did you mean 'epsilon'?"),
    "rate": ({"update": "gd", "learning_rate": 2.0}, "learning_rate=2.0 cannot be given for gd"),
    "radius": ({"radius": 4.0}, "radius=4.0 cannot be given for encrypted-rows with privacy"),
    "poisson": ({"model": "poisson"}, "epsilon=1: no certificate bounds what a row moves"),
    "clip": (
        {"protocol": "secure-aggregation", "update": "clipped-gd"},
        "update='clipped-gd' needs a clip",
    ),
    "batches": (
        {"protocol": "secure-aggregation", "update": "gd", "batches": 4},
        "batches=4 is an option of --update scd",
    ),
    "ring": ({"ring_dim": 3000}, "ring_dim=3000 is no power of two: take 4096"),
    "budget": ({"within": "soon"}, "within='soon' is no budget"),
    "data": ({"data": "HERE/patient.csv", "label": "y"}, "did you mean 'patients.csv'?"),
    "a folder": ({"data": "HERE", "label": "y"}, "it is a folder, give a file"),
    "schema": ({"schema": "HERE/none.json"}, "schema='HERE/none.json' cannot be read"),
    "test": ({"test": "HERE/none.csv"}, "test='HERE/none.csv' cannot be read"),
    "out": ({"out": "HERE"}, "is not empty and holds no run of ciphercohort"),
    "out file": ({"out": "HERE/patients.csv"}, "is a file: give a folder"),
    "ledger": ({"ledger": "HERE/patients.csv"}, "is a file: give a folder"),
}


def test_options_are_checked_before_anything_is_loaded(tmp_path: Path) -> None:
    """Every refusal in one process, which has loaded neither cryptography nor tables in the end."""
    (tmp_path / "patients.csv").write_text("a,y\n1,0\n")
    code = (
        "import json, sys\n"
        "from protocols.errors import CohortError\n"
        "from ciphercohort.job.config import configured\n"
        "told = {}\n"
        "for name, options in json.load(sys.stdin).items():\n"
        "    try: told[name] = str(configured(**options))\n"
        "    except CohortError as error: told[name] = f'refused: {error}'\n"
        "heavy = {'openfhe', 'torch', 'flwr', 'sklearn', 'pandas', 'matplotlib'}\n"
        "print(json.dumps([told, sorted(heavy & set(sys.modules))]))"
    )
    here = str(tmp_path)
    asked = json.dumps({name: options for name, (options, _) in EARLY.items()})
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=asked.replace("HERE", here),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    told, loaded = json.loads(done.stdout)
    assert loaded == []
    for name, (_, words) in EARLY.items():
        assert told[name].startswith("refused: "), (name, told[name])
        assert words.replace("HERE", here) in told[name], (name, told[name])


# -- Ctrl-C ------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """The command in a process and process group of its own, as a terminal runs it."""
    held = child(
        [sys.executable, "-m", "ciphercohort.cli.app", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A test run in the background has SIGINT ignored, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()},
    )
    with held as process:
        yield process


def test_ctrl_c_leaves_a_folder_that_says_where_it_stopped(table: Path, tmp_path: Path) -> None:
    """With parties in processes of their own, which the terminal interrupts as well."""
    out = tmp_path / "run"
    options = ("--label", "y", "--iterations", "200", "--out", out, "--processes", "--parties", "2")
    with running("simulate", "--data", table, *options, *TOY) as process:
        status: dict[str, Any] = {}
        for _ in range(3000):
            if (out / "release/status.json").exists():
                status = json.loads((out / "release/status.json").read_text())
            if status.get("iteration", 0) >= 2:
                break
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 130 and stdout == ""
    assert "Traceback" not in stderr
    status = json.loads((out / "release/status.json").read_text())
    assert (status["state"], status["phase"]) == ("aborted", "train")
    assert 2 <= status["iteration"] < 200 and status["reason"] == "interrupted"
    assert f"in phase 'train', {status['iteration']} of 200 iterations done" in stderr
    # Public files only: no key share, no model.
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == {
        *("release/status.json", "release/transcript.jsonl", "private/status.json")
    }
    assert "run finished" in cohort("verify", out).stdout
