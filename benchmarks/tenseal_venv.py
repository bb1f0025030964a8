"""TenSEAL in a throwaway environment: it is no dependency of this project."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SCRIPT = Path(__file__).with_name("tenseal_training.py")


@contextmanager
def interpreter() -> Iterator[Path | None]:
    """An interpreter with TenSEAL, gone afterwards; None where it does not install."""
    with TemporaryDirectory(prefix="tenseal-") as folder:
        python = Path(folder) / "bin" / "python"
        made = _quietly([sys.executable, "-m", "venv", folder])
        install = [str(python), "-m", "pip", "install", "--quiet", "tenseal", "numpy"]
        yield python if made and _quietly(install) else None


def measure(python: Path, features: int) -> dict[str, Any]:
    """Seconds per sample and per epoch; see the script.

    Raises:
        RuntimeError: it failed; the message is its error output.
    """
    done = subprocess.run(
        [str(python), str(SCRIPT)],
        input=json.dumps({"features": features}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"TenSEAL: {done.stderr.strip()[-500:]}")
    return dict(json.loads(done.stdout))


def _quietly(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
