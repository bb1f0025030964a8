"""A tampered byte fails a check, and so does a forgery that repairs the digests around it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ciphercohort.job.layout import HALVES, RELEASE, STATUS
from ciphercohort.results.documents import to_json
from ciphercohort.results.result import RunResult
from ciphercohort.verify.folder import verify_run
from protocols.errors import DataError, ParameterError
from protocols.exchange.transcript import Transcript
from tests.sims.fake_run import finished_run, make_frame, place, reseal

Fields = dict[str, Any]


@pytest.fixture
def run(fake: tuple[Path, RunResult], tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return Path(shutil.copytree(fake[0], tmp_path / "run"))


def failed(path: Path, **options: Any) -> dict[str, str]:
    """Details of the failed checks by name."""
    return {check.name: check.detail for check in verify_run(path, **options) if not check.passed}


def edit(path: Path, name: str, change: Callable[[Fields], object]) -> None:
    """Change a JSON file and repair the digest."""
    fields = json.loads(place(path, name).read_text())
    change(fields)
    place(path, name).write_text(to_json(fields))
    reseal(path)


def rewrite(path: Path, change: Callable[[list[Fields]], object]) -> None:
    """Change the transcript, and chain it again."""
    lines = [json.loads(line) for line in place(path, "transcript.jsonl").read_text().splitlines()]
    change(lines)
    transcript = Transcript(place(path, "transcript.jsonl"))
    for line in lines:
        transcript.add(
            step=line["step"],
            sender=line["sender"],
            recipient=line["recipient"],
            size=line["bytes"],
            message=line["message"],
        )
    transcript.close()
    edit(path, "model.json", lambda fields: fields.update(transcript=transcript.head))
    edit_final(path, lambda fields: fields.update(transcript=transcript.head))


def edit_final(path: Path, change: Callable[[Fields], object]) -> None:
    """Change the last line of metrics.jsonl and repair the digest."""
    lines = [json.loads(line) for line in place(path, "metrics.jsonl").read_text().splitlines()]
    change(lines[-1])
    place(path, "metrics.jsonl").write_text("".join(to_json(line, indent=None) for line in lines))
    reseal(path)


def test_a_run_passes(run: Path) -> None:
    checks = verify_run(run)
    assert all(check.passed for check in checks)
    names = [check.name for check in checks]
    assert names == [
        *("run finished", "files unchanged", "transcript chain", "plan digest", "plan valid"),
        *("message sequence", "slot bound", "model", "costs", "whole run", "figures"),
        *("schema", "documents", "not checked"),
    ]
    assert "INSECURE" in checks[4].detail
    rewrite(run, lambda lines: None)  # the forger's tools alone do no harm
    assert failed(run) == {}


def test_a_secure_run_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ciphercohort.report.run_folder.render_report", lambda result: "")
    finished_run(tmp_path / "run", secure=True)
    assert failed(tmp_path / "run") == {}
    assert "128-bit" in verify_run(tmp_path / "run")[4].detail


@pytest.mark.parametrize("name", ["transcript.jsonl", "plan.json", "model.json"])
def test_any_changed_byte_is_found(run: Path, name: str) -> None:
    """Without the digests of status.json, only what changes no figure at all may pass."""
    rng, path = random.Random(3), place(run, name)
    whole = path.read_bytes()
    for _ in range(5):
        position = rng.randrange(len(whole))
        other = rng.choice([byte for byte in range(256) if byte != whole[position]])
        path.write_bytes(whole[:position] + bytes([other]) + whole[position + 1 :])
        assert "files unchanged" in failed(run)
    for cut in (whole[:-1], whole[: len(whole) // 2], b"", whole + b"\n"):
        path.write_bytes(cut)
        assert f"release/{name}: found SHA-256" in failed(run)["files unchanged"]


def test_a_changed_digit_is_found_even_if_the_digests_are_repaired(run: Path) -> None:
    rng = random.Random(4)
    for name in ("transcript.jsonl", "plan.json"):
        whole = place(run, name).read_text()
        digits = [k for k, letter in enumerate(whole) if letter.isdigit()]
        for position in rng.sample(digits, 8):
            digit = str((int(whole[position]) + rng.randrange(1, 10)) % 10)
            text = whole[:position] + digit + whole[position + 1 :]
            # "1.50" for "1.5" would be the same number; no digit of these files is like that
            assert text != whole
            place(run, name).write_text(text)
            reseal(run)
            assert failed(run), (name, position)
        place(run, name).write_text(whole)


@pytest.mark.parametrize(
    ("name", "change", "check", "words"),
    [
        ("model.json", lambda f: f["coef"].__setitem__(1, 0.5), "model", "coef[1]: found 0.5"),
        ("model.json", lambda f: f["weights"].__setitem__(0, 9.0), "figures", "weights"),
        ("model.json", lambda f: f.update(positive="no"), "model", "expected 'yes'"),
        ("model.json", lambda f: f["schema"].update(row_norm=3.0), "model", "schema.digest"),
        ("model.json", lambda f: f.pop("INSECURE"), "model", "INSECURE: found False"),
        ("model.json", lambda f: f.update(plan="00"), "plan digest", "model.json, field plan"),
        ("model.json", lambda f: f.update(transcript="00"), "transcript chain", "found 00"),
        ("plan.json", lambda f: f.update(session="x"), "plan digest", "plan.json, field digest"),
        ("plan.json", lambda f: f["ckks"].update(security_bits=128), "plan valid", "log2(QP)"),
        ("plan.json", lambda f: f.pop("members"), "plan valid", "members"),
        ("summary.json", lambda f: f.update(accuracy=0.99), "figures", "accuracy: found 0.99"),
        ("summary.json", lambda f: f.update(max_abs_diff_to_twin=0.0), "figures", "max_abs"),
        ("summary.json", lambda f: f.pop("INSECURE"), "figures", "INSECURE: found False"),
        (
            "summary.json",
            lambda f: f["bytes_per_party"].update(keys=1),
            "figures",
            "bytes_per_party.keys: found 1, expected",
        ),
    ],
)
def test_a_forged_field_is_named(
    run: Path, name: str, change: Callable[[Fields], object], check: str, words: str
) -> None:
    edit(run, name, change)
    found = failed(run)
    assert "files unchanged" not in found
    assert words in found[check] and any(name in detail for detail in found.values())


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        (lambda lines: lines.pop(), "message sequence", "no message from 'hospital-3'"),
        (lambda lines: lines.insert(-6, lines[-7]), "message sequence", "one message too many"),
        (lambda lines: lines.extend(lines[-12:-6]), "message sequence", "2 steps 'decrypt'"),
        (lambda lines: lines[5].update(sender="eve"), "message sequence", "'eve'"),
        (lambda lines: lines[-1].update(bytes=10**9), "costs", "bytes_per_party.decrypt"),
        (lambda lines: lines[0].update(step="gossip"), "costs", "KeyError 'gossip'"),
    ],
)
def test_a_rewritten_transcript_is_named(
    run: Path, change: Callable[[list[Fields]], object], check: str, words: str
) -> None:
    rewrite(run, change)
    found = failed(run)
    assert "transcript chain" not in found
    assert words in found[check]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f["twin"]["weights"].__setitem__(0, 0.0), "max_abs_diff_to_twin"),
        (lambda f: f["rows"].update({"hospital-1": 5}), "rows.hospital-1: found 5, expected 120"),
        (lambda f: f.update(noise="system"), "noise: found 'system'"),
        (lambda f: f.update(kind="other"), "KeyError 'other'"),
    ],
)
def test_forged_metrics_are_named(
    run: Path, change: Callable[[Fields], object], words: str
) -> None:
    edit_final(run, change)
    assert words in failed(run)["figures"]


def test_missing_lines_and_files(run: Path) -> None:
    lines = place(run, "metrics.jsonl").read_text().splitlines(keepends=True)
    place(run, "metrics.jsonl").write_text("".join(lines[1:]))
    assert "found 3 lines 'iteration', expected 4" in failed(run)["figures"]
    place(run, "metrics.jsonl").unlink()
    found = failed(run)
    assert found["files unchanged"] == "private/metrics.jsonl is missing"
    assert "No such file" in found["metrics.jsonl readable"]
    for text in ("{", "[1]", "[" * 100_000):
        place(run, "plan.json").write_text(text)
        assert "plan.json" in failed(run)["plan.json readable"]


def test_files_must_be_listed(run: Path) -> None:
    edit(run, STATUS, lambda fields: fields["files"].pop("plan.json"))
    assert "release/plan.json is not listed" in failed(run)["files unchanged"]
    status = json.loads(place(run, STATUS).read_text())
    status["files"] = {**dict.fromkeys(HALVES[RELEASE], "x"), "../../etc/passwd": "00"}
    place(run, STATUS).write_text(to_json(status))
    found = failed(run)["files unchanged"]
    assert "is no file of a run" in found and "certificate.json is missing" in found


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="is not a run folder"):
        verify_run(tmp_path)


def test_scores_are_computed_again(run: Path, tmp_path: Path) -> None:
    frame = make_frame(200, seed=2)
    assert failed(run, data=frame) == {}
    assert "test scores" in [check.name for check in verify_run(run, frame)]
    assert "expected 199, the rows" in failed(run, data=frame.head(199))["test scores"]
    other = failed(run, data=make_frame(200, seed=3))["test scores"]
    assert "metrics.jsonl, field decrypted.accuracy" in other and "optimum.auc" in other
    assert "'age'" in failed(run, data=frame.drop(columns="age"))["test scores"]
    with pytest.raises(DataError, match="does not exist"):
        verify_run(run, tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("name", "figure"),
    [("decrypted", "log_loss"), ("twin", "calibration_slope"), ("optimum", "brier")],
)
def test_figures_forged_in_both_files_are_computed_again(run: Path, name: str, figure: str) -> None:
    frame = make_frame(200, seed=2)
    assert failed(run, data=frame) == {}
    edit_final(run, lambda final: final[name].update({figure: 0.25}))
    place = (lambda f: f) if name == "decrypted" else (lambda f: f[name])
    edit(run, "summary.json", lambda fields: place(fields).update({figure: 0.25}))
    assert failed(run) == {}
    found = failed(run, data=frame)
    assert f"metrics.jsonl, field {name}.{figure}: found 0.25" in found["test scores"]


def test_privacy_needs_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ciphercohort.report.run_folder.render_report", lambda result: "")
    finished_run(tmp_path / "run", privacy=True)
    assert "is missing, although the plan promises" in failed(tmp_path / "run")["certificate"]
