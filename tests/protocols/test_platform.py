"""Which interpreters and machines are turned down, and in which words."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocols import platform
from protocols.errors import PlatformError
from protocols.platform import Facts

ROOT = Path(__file__).resolve().parents[2]

FIT = Facts("cpython", (3, 10, 13), "Linux", "x86_64", (2, 36))


@pytest.mark.parametrize(
    "change",
    [{}, {"version": (3, 12, 1), "glibc": (2, 38)}, {"glibc": (2, 35)}, {"machine": "AMD64"}],
)
def test_a_fitting_platform_passes(change: dict[str, Any]) -> None:
    platform.check_platform(FIT._replace(**change))
    platform.guard(FIT._replace(**change))


@pytest.mark.parametrize(
    ("change", "this"),
    [
        ({"version": (3, 11, 7)}, "CPython 3.11 on Linux x86_64, glibc 2.36"),
        ({"version": (3, 13, 0)}, "CPython 3.13"),
        ({"version": (3, 9, 18)}, "CPython 3.9"),
        ({"implementation": "pypy"}, "PyPy 3.10"),
        ({"version": (3, 12, 1)}, "CPython 3.12 on Linux x86_64, glibc 2.36"),
        ({"glibc": (2, 31)}, "glibc 2.31"),
        ({"glibc": None}, "glibc none"),
        ({"system": "Darwin", "glibc": None}, "macOS x86_64"),
        ({"system": "Windows", "machine": "AMD64"}, "Windows AMD64"),
        ({"system": "FreeBSD"}, "FreeBSD"),
        ({"machine": "aarch64"}, "Linux aarch64"),
    ],
)
def test_an_unfit_platform_is_named_with_what_is_needed_and_the_cure(
    change: dict[str, Any], this: str
) -> None:
    with pytest.raises(PlatformError) as raised:
        platform.check_platform(FIT._replace(**change))
    cause, cure = str(raised.value).split("Cure: ")
    assert "no openfhe build" in cause and this in cause.partition("and this is ")[2]
    assert "CPython 3.10 (glibc >= 2.35) or CPython 3.12 (glibc >= 2.38) on Linux x86-64" in cause
    for words in ("bootstrap.py", "uv venv --python 3.10", "pyenv install 3.10", "WSL 2"):
        assert words in cure


def test_a_missing_openfhe_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PlatformError, match="openfhe is not installed.*pip install -c constraints"):
        platform.check_platform(FIT)


def test_this_interpreter_fits_and_is_read_right() -> None:
    facts = platform.gather()
    assert facts.version == tuple(sys.version_info[:3])
    assert facts.glibc is not None and facts.glibc >= (2, 35)
    platform.check_platform()


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


@pytest.mark.parametrize(
    "package", ["ciphercohort.cli.app", "parties.agent", "coordinator.coordinator"]
)
def test_without_dependencies_the_first_words_are_cause_and_cure(package: str) -> None:
    # -S: no site-packages, so no openfhe, as on an interpreter that nothing was installed for.
    command = [sys.executable, "-S", "-m", package]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("cohort: ciphercohort cannot run here: openfhe is not installed")
    assert "Traceback" not in done.stderr
