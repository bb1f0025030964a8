"""What a wheel without the laboratory has: every command but the laboratory's own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ciphercohort.cli.app import app
from tests.delete.delete import QUIET
from tests.rooms.rooms import PACKAGES
from tests.support.scripts import ROOT

OF_THE_LABORATORY = {("reproduce",), ("study",), ("audit", "privacy")}


def names(command: Any = None, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Commands that are shown, by their words; a group with none is none."""
    command = command or typer.main.get_command(app)
    own = getattr(command, "commands", None)
    if own is None:
        return {path}
    found = [names(each, (*path, name)) for name, each in own.items() if not each.hidden]
    return set().union(*found)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its packages, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package,
            folder / package,
            # A module that another process is compiling just now has a name of its own.
            ignore=shutil.ignore_patterns("*.pyc.*", *["lab"] * (package == "sims")),
        )
    assert not (folder / "sims/lab").exists() and (folder / "sims/api.py").is_file()
    return folder


def cohort(wheel: Path, at: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, from the wheel."""
    start = "from ciphercohort.cli.app import main; main()"
    env = {**os.environ, **QUIET, "PYTHONPATH": str(wheel)}
    return subprocess.run(
        [sys.executable, "-c", start, *words], cwd=at, env=env, capture_output=True, text=True
    )


def test_commands(wheel: Path, tmp_path: Path) -> None:
    shown = cohort(wheel, tmp_path, "--help").stdout
    commands = {words[0] for words in names()}
    missing = {name for name in commands if f" {name} " not in shown}
    assert missing == {"reproduce", "study", "audit"}
    for words in OF_THE_LABORATORY:
        refused = cohort(wheel, tmp_path, *words)
        assert refused.returncode == 2 and "No such command" in refused.stderr, words
    former = cohort(wheel, tmp_path, "audit", "transcript", "runs/demo")
    assert former.returncode == 2 and "cohort verify" in former.stderr


@pytest.mark.slow
def test_runs(wheel: Path, tmp_path: Path) -> None:
    """One of each kind that needs more than options."""
    toy = ("--profile", "fast-insecure", "--iterations", "2", "--no-privacy", "--out", "run")
    for words in (
        ("simulate", *toy, "--update", "gd", "--keep-messages"),
        ("verify", "run"),
        ("plan", "--rows", "900", "--features", "4", "--no-timing", "--no-privacy"),
    ):
        done = cohort(wheel, tmp_path, *words)
        assert done.returncode == 0, (words, done.stderr)
    assert json.loads((tmp_path / "run/release/model.json").read_text())["coef"]
