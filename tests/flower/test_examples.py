"""The examples: fewer than ten changed lines, the plain app's model; and the page's path."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.flower.environment import ROOT, quiet

EXAMPLES = ("sklearn", "pytorch")
PAGE = ROOT / "docs" / "flower.md"


def folder_of(example: str) -> Path:
    kind = "" if example == "survival" else "quickstart-"
    return ROOT / "examples" / f"flower-{kind}{example}"


def diff_of(example: str) -> str:
    return (folder_of(example) / "from-plain.diff").read_text(encoding="utf-8")


def environment() -> dict[str, str]:
    return {**quiet(), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def run_apps(*folders_and_outs: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.flower.run_example", *map(str, folders_and_outs)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def copy(example: str, to: Path) -> Path:
    ignore = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(folder_of(example), to, ignore=ignore))


def apply(folder: Path, *options: str) -> None:
    command = ["git", "apply", "--unsafe-paths", *options, "from-plain.diff"]
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "GIT_DIR": "/nowhere"})


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_its_plain_app_with_fewer_than_ten_lines_changed(
    example: str, tmp_path: Path
) -> None:
    diff = diff_of(example)
    changed = [line for line in diff.splitlines() if re.match(r"\+(?!\+)", line)]
    removed = [line for line in diff.splitlines() if re.match(r"-(?!-)", line)]
    assert len(removed) <= len(changed) < 10
    assert f"```diff\n{diff}```" in PAGE.read_text(encoding="utf-8") or example != "sklearn"
    folder = copy(example, tmp_path / "app")
    apply(folder, "-R")
    plain = "".join(p.read_text() for p in [*folder.rglob("*.py"), folder / "pyproject.toml"])
    assert "ciphercohort" not in plain.replace('publisher = "ciphercohort"', "")
    apply(folder)
    for path in folder_of(example).rglob("*.py"):
        assert path.read_text() == (folder / path.relative_to(folder_of(example))).read_text()


def largest_difference(one: Path, other: Path) -> float:
    """Of two models; not zero: a secure sum rounds."""
    both = zip(np.load(one).values(), np.load(other).values(), strict=True)
    found = max(float(np.abs(a - b).max()) for a, b in both)
    assert found > 0
    return found


def learns_the_digits(told: str) -> bool:
    return float(re.findall(r"'accuracy': ([0-9.]+)", told)[-1]) > 0.8


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_an_example_gives_the_plain_apps_model(tmp_path: Path) -> None:
    """With torch; with scikit-learn it is the page's."""
    secure, plain = tmp_path / "secure.npz", tmp_path / "plain.npz"
    folder = copy("pytorch", tmp_path / "app")
    apply(folder, "-R")
    assert learns_the_digits(run_apps(folder_of("pytorch"), secure, folder, plain))
    # A network's steps with momentum widen 1e-6 to 6e-4 in three rounds.
    assert largest_difference(secure, plain) < 1e-2


def path_of_the_page() -> str:
    """All shell commands of the newcomer's path, in order."""
    section = (
        PAGE.read_text(encoding="utf-8").split("## From a plain app", 1)[1].split("\n## ", 1)[0]
    )
    blocks = re.findall(r"```sh\n(.*?)```", section, re.S)
    assert len(blocks) >= 3
    return "\n".join(
        block for block in blocks if "pip install" not in block and "flwr new" not in block
    )


@pytest.mark.parametrize("engine", ["one process", "simulation"])
def test_the_pages_path_as_written(engine: str, tmp_path: Path) -> None:
    """In a copy of the repository; `flwr run .` in one process unless COHORT_FLOWER_RUN is set.

    There, the app gives the same model in the clear and as a secure sum.
    """
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    if engine == "one process":
        shim = bin_ / "flwr"
        run = f"{sys.executable} -m tests.flower.run_example"
        out = f"{tmp_path}/$(ls {tmp_path} | grep -c npz).npz"
        shim.write_text(f'#!/bin/sh\nexec {run} "$2" "{out}"\n')
        shim.chmod(0o755)
    elif not os.environ.get("COHORT_FLOWER_RUN") or importlib.util.find_spec("ray") is None:
        pytest.skip("minutes, and needs flwr[simulation]: set COHORT_FLOWER_RUN=1")
    copy("sklearn", tmp_path / "repository" / "examples" / "flower-quickstart-sklearn")
    path = f"{bin_}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = tmp_path / "flwr"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", path_of_the_page()],
        cwd=tmp_path / "repository",
        env={**environment(), "PATH": path, "FLWR_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    text = done.stdout + done.stderr  # Flower logs to the second
    assert done.returncode == 0, text[-3000:]
    # Once in the clear, once as a secure sum: ten replies, then one.
    assert text.index("Received 10 results") < text.index("Received 1 results")
    if engine == "one process":
        assert largest_difference(tmp_path / "0.npz", tmp_path / "1.npz") < 1e-5
        plain, _, secure = text.partition("Received 1 results")
        assert learns_the_digits(plain) and learns_the_digits(secure)
    else:
        from tests.flower.test_flower_run import end_local_superlink

        end_local_superlink(home)
