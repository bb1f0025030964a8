"""`python -m tests.flower` where it is asked for, and how it finds what it needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.flower.__main__ import SKIPPED
from tests.flower.environment import (
    PYTHON312,
    ROOT,
    MissingError,
    find_interpreter,
    pins,
    quiet,
)
from tests.flower.standin import build


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(
    not os.environ.get(PYTHON312),
    reason=f"minutes of installing and training: set {PYTHON312} to a CPython 3.12, or run "
    "`python -m tests.flower`",
)
def test_flower_on_python_3_12() -> None:
    command = [sys.executable, "-m", "tests.flower", "--python", os.environ[PYTHON312]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1400)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_project_loads_with_the_stand_in_for_openfhe(tmp_path: Path) -> None:
    wheel = build(tmp_path, (3, 10), pins()["openfhe"])
    loaded = "coordinator.deployment, parties.agent.hosted, parties.flower_site"
    loaded += ", ciphercohort.deploy.flower_job"
    code = f"import openfhe, {loaded}\nassert '.whl' in openfhe.__file__\nopenfhe.GenKey()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**quiet(), "PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
    )
    assert "GenKey was called, and this openfhe is a stand-in" in done.stderr
    assert "line 3, in <module>" in done.stderr, done.stderr


# -- interpreters ---------------------------------------------------------------------------------


def machine(*paths: str) -> Any:
    """A machine on which paths are named after what lies there."""

    def probe(path: str) -> Any:
        version = re.search(r"(\d)\.(\d+)", path)
        found = (int(version[1]), int(version[2]), 1) if version else ()
        return version and SimpleNamespace(version=found)

    return SimpleNamespace(
        probe=probe, candidates=lambda asked, series: [asked] if asked else paths
    )


def test_the_first_fitting_interpreter_is_taken() -> None:
    found = machine("dead shim", "/3.11", "/here/3.12")
    assert find_interpreter(found)[0] == "/here/3.12"
    assert find_interpreter(found, "/mine/3.12")[0] == "/mine/3.12"
    with pytest.raises(MissingError, match=r"/mine/3.13 is none"):
        find_interpreter(found, "/mine/3.13")
    with pytest.raises(MissingError, match=f"no CPython 3.12.*{PYTHON312}"):
        find_interpreter(machine("/3.10", "/3.11"))


# -- pins and the stand-in ------------------------------------------------------------------------


def test_each_series_has_its_flower() -> None:
    """1.41 needs CPython 3.11; 1.30 is the last one for 3.10."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if line.startswith("flwr==")]
    assert found == [
        'flwr==1.30.0; python_version < "3.11"',
        'flwr==1.41.0; python_version >= "3.12"',
    ]
    assert pins()["flwr"] == "1.41.0" and pins()["openfhe"].endswith(".24.4")


@pytest.mark.parametrize("series", ["3.10", "3.12"])
def test_no_package_has_two_pins_for_one_series(series: str) -> None:
    held: Counter[str] = Counter()
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            pin = Requirement(line)
            held[pin.name] += not pin.marker or pin.marker.evaluate({"python_version": series})
    assert held["flwr"] == held["openfhe"] == held["cryptography"] == 1
    assert max(held.values()) == 1
