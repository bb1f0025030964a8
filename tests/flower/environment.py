"""A CPython 3.12 and an environment of its own with the project and the Flower pinned for it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from protocols.platform import SUPPORTED, Facts
from tests.flower.standin import build

ROOT = Path(__file__).resolve().parents[2]
PYTHON312 = "COHORT_PYTHON312"
SERIES = (3, 12)
PIP = ("-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "-q")


class MissingError(Exception):
    """Nothing can be shown on this machine; the message says what is missing."""


def load_bootstrap() -> ModuleType:
    """scripts/bootstrap.py: it finds interpreters and asks them what they are."""
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "scripts" / "bootstrap.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_interpreter(bootstrap: Any, asked: str | None = None) -> tuple[str, Facts]:
    """Path and facts of a CPython 3.12.

    bootstrap: its `candidates` and `probe`; asked: name or path of the only one to consider.

    Raises:
        MissingError: there is none.
    """
    for path in bootstrap.candidates(asked, [SERIES]):
        facts = bootstrap.probe(path)
        if facts and facts.version[:2] == SERIES:
            return path, facts
    where = f"{asked} is none" if asked else "none on PATH or under pyenv"
    raise MissingError(f"no CPython 3.12: {where} ({PYTHON312} can name one)")


def pins() -> dict[str, str]:
    """Releases that constraints.txt names for CPython 3.12, by package."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        requirement, _, marker = line.partition(";")
        name, equals, release = requirement.strip().partition("==")
        if equals and "3.11" not in marker and "3.10" not in marker:
            found[name] = release
    return found


def make_environment(folder: Path, path: str, facts: Facts) -> Path:
    """Install; returns the environment's interpreter.

    Where no openfhe loads (an older glibc), its stand-in takes its place.

    Raises:
        MissingError: no package index has Flower.
        RuntimeError: the pins do not install.
    """
    subprocess.run([path, "-I", "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    flower = f"flwr=={pins()['flwr']}"
    probe = _pip(python, "download", "--no-deps", "-d", str(folder / "wheels"), flower)
    if probe.returncode:
        raise MissingError(f"no package index with {flower}: {_last_line(probe.stderr)}")
    packages = [f"{ROOT}[test]"]
    if facts.glibc is None or facts.glibc < SUPPORTED[SERIES]:
        packages.append(str(build(folder, SERIES, pins()["openfhe"])))
    done = _pip(python, "install", "-c", str(ROOT / "constraints.txt"), *packages)
    if done.returncode:
        raise RuntimeError(f"the pins for 3.12 do not install:\n{done.stderr[-2000:]}")
    return python


def _pip(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(python), *PIP, *words], capture_output=True, text=True)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no answer"])[-1]


def quiet() -> Mapping[str, str]:
    """Environment of the tests' processes: nothing is written beside the sources."""
    kept = {name: value for name, value in os.environ.items() if name != PYTHON312}
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }
