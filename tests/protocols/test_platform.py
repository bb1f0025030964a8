"""Which interpreters and machines are turned down, and in which words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocols import platform
from protocols.errors import PlatformError
from protocols.platform import Facts

ROOT = Path(__file__).resolve().parents[2]

FIT = Facts(
    implementation="cpython",
    version=(3, 10, 13),
    system="Linux",
    machine="x86_64",
    glibc=(2, 36),
    has_libgomp=True,
    openfhe=True,
)


@pytest.mark.parametrize(
    "change",
    [{}, {"version": (3, 12, 1), "glibc": (2, 38)}, {"glibc": (2, 35)}, {"machine": "AMD64"}],
)
def test_a_fitting_platform_passes(change: dict[str, Any]) -> None:
    facts = FIT._replace(**change)
    assert platform.problems(facts) == []
    platform.check_platform(facts)
    platform.guard(facts)


@pytest.mark.parametrize(
    ("change", "cause", "cure"),
    [
        ({"version": (3, 11, 7)}, "no openfhe build for CPython 3.11", "uv venv --python 3.10"),
        ({"version": (3, 13, 0)}, "no openfhe build for CPython 3.13", "pyenv install 3.10"),
        ({"version": (3, 9, 18)}, "no openfhe build for CPython 3.9", "bootstrap.py"),
        ({"implementation": "pypy"}, "no openfhe build for PyPy 3.10", "uv venv --python 3.10"),
        ({"version": (3, 12, 1)}, "needs glibc >= 2.38, and this machine has glibc 2.36", "3.10"),
        ({"glibc": (2, 31)}, "glibc 2.31 is older than 2.35", "Ubuntu 22.04"),
        ({"glibc": None}, "C library is not glibc", "Ubuntu 22.04"),
        (
            {"system": "Darwin", "glibc": None},
            "macOS, and openfhe ships Linux x86-64 wheels",
            "x86",
        ),
        ({"system": "Windows", "machine": "AMD64"}, "this is Windows", "WSL 2"),
        ({"system": "FreeBSD"}, "this is FreeBSD", "Linux x86-64 machine"),
        ({"machine": "aarch64"}, "this machine is aarch64, and openfhe ships Linux x86-64", "x86"),
        ({"has_libgomp": False}, "libgomp.so.1", "apt-get install libgomp1"),
        ({"openfhe": None}, "openfhe is not installed", "pip install -c constraints.txt"),
        ({"openfhe": False}, "built for another interpreter", "fresh environment"),
    ],
)
def test_an_unfit_platform_is_named_with_its_cure(
    change: dict[str, Any], cause: str, cure: str
) -> None:
    facts = FIT._replace(**change)
    with pytest.raises(PlatformError) as raised:
        platform.check_platform(facts)
    said_cause, said_cure = str(raised.value).split("Cure: ")
    assert cause in said_cause
    assert cure in said_cure


def test_every_cause_of_one_level_is_named_and_every_cure_once() -> None:
    facts = FIT._replace(version=(3, 11, 7), has_libgomp=False, openfhe=None)
    causes = [cause for cause, _ in platform.problems(facts)]
    assert len(causes) == 2
    assert "CPython 3.11" in causes[0]
    assert "libgomp" in causes[1]


def test_this_interpreter_fits_and_is_read_right() -> None:
    facts = platform.gather()
    assert facts.version == tuple(sys.version_info[:3])
    assert facts.openfhe and facts.has_libgomp
    assert facts.glibc is not None and facts.glibc >= (2, 35)
    platform.check_platform()


def test_a_library_that_does_not_load_is_explained() -> None:
    error = platform.import_failure(ImportError("libstdc++.so.6: GLIBCXX_3.4.30 not found"))
    assert "GLIBCXX_3.4.30 not found" in str(error)
    assert "LD_LIBRARY_PATH" in str(error)


@pytest.mark.parametrize("argv", [["-m", "simulate"], ["/somewhere/bin/cohort", "plan"]])
def test_a_command_ends_with_a_sentence(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as stopped:
        platform.guard(FIT._replace(version=(3, 11, 7)))
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("cohort: ciphercohort cannot run here: ")


@pytest.mark.parametrize("argv", [["-c"], ["/somewhere/bin/pytest"], [""], []])
def test_a_library_import_raises(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(PlatformError):
        platform.guard(FIT._replace(version=(3, 11, 7)))


@pytest.mark.parametrize("package", ["sims.cli", "parties.agent", "coordinator.coordinator"])
def test_without_dependencies_the_first_words_are_cause_and_cure(package: str) -> None:
    # -S: no site-packages, so no openfhe, as on an interpreter that nothing was installed for.
    command = [sys.executable, "-S", "-m", package]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("cohort: ciphercohort cannot run here: openfhe is not installed")
    assert "Traceback" not in done.stderr
