"""The study beside plain FedAvg and SecAgg+, at a toy size; and the command that prints pins."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from ciphercohort.flower import __main__ as identity
from protocols.errors import ParameterError
from sims.lab.studies.flower import __main__ as flower
from sims.lab.studies.flower import arms, workloads
from tests.flower.test_examples import copy


def test_all_arms_agree_and_are_counted() -> None:
    case = arms.Case(workload=workloads.Moved(300), clients=4, rounds=1)
    every = (arms.PLAIN, arms.SECURE, arms.ALL_STAY, arms.SECAGG)
    plain, secure, stay, secagg = flower.measure(case, every, flower.in_process)
    assert plain.difference == 0
    assert all(0 < arm.difference < 1e-4 for arm in (secure, stay, secagg))
    # float32 both ways; ours has 4 bytes a value, in the first of both rounds 8, and what opens it.
    assert plain.up == plain.down == 1200 + 136
    assert 1200 + 4 * 512 <= secure.up <= 16_000
    assert 1800 + 2 * 2048 <= stay.up <= 1800 + 2 * 2048 + 1000
    assert secure.seconds > 0 and secagg.up > 1200


def test_an_apps_own_training_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = copy("sklearn", tmp_path / "app")
    options = ["local-epochs=1"]
    flower.main(out=tmp_path, train=app, option=options, clients=3, rounds=1, passes=2)
    report = json.loads((tmp_path / "flower.json").read_text())
    assert "processor seconds" in capsys.readouterr().out
    for k, arm in enumerate(report["arms"]):
        for name in ("seconds", "processor", "first_seconds", "first_processor"):
            every = sorted(one[k][name] for one in report["passes"])
            assert every[0] > 0 and len(every) == 2 and arm[name] == sum(every) / 2
    assert (report["values"], report["options"]) == (650, options)
    assert [0 <= arm["difference"] < 1e-4 for arm in report["arms"]] == [True] * 4
    for folder, named, reason in (
        (app, "epochs=1", "has no option epochs"),
        (tmp_path, "", "is no Flower app"),
    ):
        with pytest.raises(ParameterError, match=reason):
            workloads.App(folder, (named,))


def test_sizes_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.exceptions.Exit):
        flower.main(out=tmp_path / "x", clients=2)
    assert "clients=2 is below 3" in capsys.readouterr().err


def test_an_identity_is_printed_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for words, code in ((("f", str(tmp_path / "home")), 0),) * 2 + ((("f",), 2),):
        monkeypatch.setattr("sys.argv", list(words))
        assert identity.main() == code
        printed.append(capsys.readouterr())
    assert printed[0] == printed[1] and len(bytes.fromhex(printed[0].out.strip())) == 32
    assert (tmp_path / "home" / "identity.key").stat().st_mode & 0o777 == 0o600
    assert "usage" in printed[2].err
