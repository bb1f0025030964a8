"""The study beside plain FedAvg and SecAgg+, at a toy size; and the command that prints pins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ciphercohort.flower import study as flower
from tests.flower.environment import ROOT


def test_all_arms_agree_and_are_counted() -> None:
    case = flower.Case(values=300, clients=4, rounds=1)
    arms = (flower.PLAIN, flower.SECURE, flower.SECAGG)
    plain, secure, secagg = flower.measure(case, arms, flower.in_process)
    assert plain.difference == 0 and 0 < secure.difference < 1e-4 and secagg.difference < 1e-4
    # float32 both ways; ours has 4 bytes a value and the shares beside them.
    assert plain.up == plain.down == 1200 + 136
    assert 1200 + 4 * 512 <= secure.up <= 16_000
    assert secure.seconds > 0 and secagg.up > 1200


def test_sizes_are_checked(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ciphercohort.flower.study", "--clients", "2", "--out"]
    done = subprocess.run([*command, str(tmp_path / "x")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode and "clients=2 is below 3" in done.stdout + done.stderr


def test_an_identity_is_printed_and_stays(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ciphercohort.flower", str(tmp_path / "home")]
    printed = [subprocess.run(command, cwd=ROOT, capture_output=True).stdout for _ in range(2)]
    assert printed[0] == printed[1] and len(bytes.fromhex(printed[0].decode().strip())) == 32
    assert (tmp_path / "home" / "identity.key").stat().st_mode & 0o777 == 0o600
    done = subprocess.run(command[:-1], cwd=ROOT, capture_output=True)
    assert done.returncode == 2 and b"usage" in done.stderr


def test_a_report_is_written(tmp_path: Path) -> None:
    flower.main(out=tmp_path, values=50, clients=3, rounds=1, secagg=False)
    report = json.loads((tmp_path / "flower.json").read_text())
    assert [arm["arm"] for arm in report["arms"]] == ["plain", "secure sums"]
