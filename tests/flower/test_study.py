"""The study beside plain FedAvg and SecAgg+, at a toy size; and the command that prints pins."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from ciphercohort.flower import __main__ as identity
from ciphercohort.flower import study as flower


def test_all_arms_agree_and_are_counted() -> None:
    case = flower.Case(values=300, clients=4, rounds=1)
    arms = (flower.PLAIN, flower.SECURE, flower.SECAGG)
    plain, secure, secagg = flower.measure(case, arms, flower.in_process)
    assert plain.difference == 0 and 0 < secure.difference < 1e-4 and secagg.difference < 1e-4
    # float32 both ways; ours has 4 bytes a value and the shares beside them.
    assert plain.up == plain.down == 1200 + 136
    assert 1200 + 4 * 512 <= secure.up <= 16_000
    assert secure.seconds > 0 and secagg.up > 1200


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


def test_a_report_is_written(tmp_path: Path) -> None:
    flower.main(out=tmp_path, values=50, clients=3, rounds=1, secagg=False)
    report = json.loads((tmp_path / "flower.json").read_text())
    assert [arm["arm"] for arm in report["arms"]] == ["plain", "secure sums"]
