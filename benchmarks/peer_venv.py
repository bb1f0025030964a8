"""Another library in a throwaway environment: none is a dependency of this project."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent


@contextmanager
def interpreter(*packages: str) -> Iterator[Path | None]:
    """An interpreter with these packages, gone afterwards; None where they do not install."""
    with TemporaryDirectory(prefix="peer-") as folder:
        python = Path(folder) / "bin" / "python"
        made = _quietly([sys.executable, "-m", "venv", folder])
        install = [str(python), "-m", "pip", "install", "--quiet", *packages]
        yield python if made and _quietly(install) else None


def measure(python: Path, script: str, **shape: Any) -> dict[str, Any]:
    """What a script of this folder prints; see there.

    Raises:
        RuntimeError: it failed; the message is its error output.
    """
    done = subprocess.run(
        [str(python), str(HERE / script)],
        input=json.dumps(shape),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr.strip()[-500:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _quietly(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
