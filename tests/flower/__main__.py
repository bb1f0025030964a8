"""`python -m tests.flower`: the project under CPython 3.12 and the Flower pinned for it (1.41).

Finds a CPython 3.12 (COHORT_PYTHON312, PATH, pyenv), installs the project in an environment of
its own, runs the tests that need no OpenFHE, and a real deployment over TLS (`deployment.py`).
About four minutes on two cores. Exit code 1 if something is not as stated, 77 ("skipped") where
there is no such interpreter or no package index.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.flower.environment import (
    PYTHON312,
    ROOT,
    MissingError,
    find_interpreter,
    load_bootstrap,
    make_environment,
    quiet,
)

SKIPPED = 77
TESTS = (
    *("tests/flower", "tests/house/test_imports.py", "tests/house/test_bootstrap.py"),
    "tests/ciphercohort/cli/test_deployment_commands.py",
    "tests/whole/test_three_hospitals.py::test_strangers_are_turned_away",
)


def main() -> int:
    """Install, test, deploy; print the seconds of each."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.flower", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--python", default=os.environ.get(PYTHON312), help="a CPython 3.12")
    parser.add_argument("--keep", type=Path, help="folder to leave the deployment in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cohort-") as scratch:
        home, began = Path(scratch), time.monotonic()
        try:
            path, facts = find_interpreter(load_bootstrap(), options.python)
            print(f"{facts} at {path}", flush=True)
            python = make_environment(home / "venv", path, facts)
        except MissingError as error:
            print(f"skipped: {error}")
            return SKIPPED
        told = _tell("environment", began)
        flags = ("-q", "-p", "no:cacheprovider", f"--basetemp={home / 'tests'}")
        tests = _run(python, "pytest", *flags, *TESTS)
        told = _tell("tests", told)
        deployment = _run(python, "tests.flower.deployment", str(options.keep or home / "run"))
        _tell("deployment", told)
    print(f"in all {time.monotonic() - began:.0f} s: {'failed' if tests or deployment else 'ok'}")
    return int(bool(tests or deployment))


def _run(python: Path, module: str, *words: str) -> int:
    command = [str(python), "-m", module, *words]
    return subprocess.run(command, cwd=ROOT, env=dict(quiet())).returncode


def _tell(what: str, since: float) -> float:
    now = time.monotonic()
    print(f"{what}: {now - since:.0f} s", flush=True)
    return now


if __name__ == "__main__":
    sys.exit(main())
