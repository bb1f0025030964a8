#!/usr/bin/env python3
"""Make ``.venv`` with a fitting interpreter and the pinned dependencies, or say what to install.

    python3 scripts/bootstrap.py            what running needs
    python3 scripts/bootstrap.py dev        what tests and checks need, too
    python3 scripts/bootstrap.py --explain  only say which interpreter would be taken

Standard library only; runs on any Python >= 3.8, also on one that ciphercohort itself turns down.
A second call with nothing changed returns at once: a stamp in the environment holds the digest of
``pyproject.toml`` and ``constraints.txt`` and the extras that are installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from protocols.platform import CURE, NEEDS, SUPPORTED, Facts, Version, dotted  # noqa: E402

EXTRAS = ("dev", "test", "torch")
# Room that torch takes [GB]: 5.3 measured once installed, and its wheels on their way; a build
# without CUDA is far smaller.
TORCH_GB, CPU_TORCH_GB = 9, 3
STAMP = ".ciphercohort.json"
# Runs inside each candidate: the same code judges here, there, and at import time.
PROBE = """
import sys; sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True
import json; from protocols.platform import gather
print(json.dumps(gather()))
"""


class BootstrapError(Exception):
    """The environment cannot be made; the message says what to do."""


def say(line: str) -> None:
    """Tell a person, on standard error."""
    sys.stderr.write(f"bootstrap: {line}\n")
    sys.stderr.flush()


# --- interpreters -------------------------------------------------------------------------------


def candidates(
    asked: Optional[str] = None, series: Sequence[Version] = tuple(sorted(SUPPORTED))
) -> Iterator[str]:
    """Interpreters to look at, the best first; found only as far as they are asked for.

    The pins were made on CPython 3.10, so it comes before 3.12 wherever both fit.
    """
    if asked:
        yield from _on_path(asked) or [asked]
        return
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for wanted in map(dotted, series):
        yield from _on_path("python" + wanted)
        installed = versions.glob(wanted + ".*/bin/python")
        yield from sorted(map(str, installed), key=_numbers, reverse=True)
    yield from (path for name in ("python3", "python") for path in _on_path(name))


def _on_path(name: str) -> List[str]:
    """All executables of that name on PATH: a version manager's shim may hide a real one."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found = (shutil.which(name, path=folder) for folder in folders if folder)
    return [path for path in found if path]


def _numbers(path: str) -> List[int]:
    return [int(number) for number in re.findall(r"\d+", Path(path).parts[-3])]  # 3.10.13


def probe(path: str) -> Optional[Facts]:
    """Ask an interpreter what it is; None where it does not answer."""
    command = [path, "-I", "-c", PROBE, str(ROOT)]
    try:
        said = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60
        )
        found = json.loads(said.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return Facts(*(tuple(v) if isinstance(v, list) else v for v in found))


def choose(asked: Optional[str] = None, avoid: Optional[Path] = None) -> Tuple[str, Facts]:
    """Path and facts of the interpreter for the environment.

    asked: name or path of the only one to consider; avoid: the environment that is about to be
    replaced, activated or not.

    Raises:
        BootstrapError: nothing fits; the message says what was looked at and what to install.
    """
    looked = {}
    for path in candidates(asked):
        if avoid and avoid.absolute() in Path(path).absolute().parents:
            continue
        facts = probe(path)
        if facts and facts.fits:
            return path, facts
        looked[path] = str(facts or "does not run")
    lines = [f"ciphercohort needs {NEEDS}.", *(f"  {p}: {what}" for p, what in looked.items())]
    raise BootstrapError("\n".join([*lines, f"What to do: {CURE}. Then try again."]))


# --- the environment ----------------------------------------------------------------------------


def digest(root: Path) -> str:
    """SHA-256 of what an installation depends on, extras aside."""
    total = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        content = (root / name).read_bytes()
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


def read_stamp(venv: Path, root: Path) -> Dict[str, Any]:
    """What the last successful call left; extras: None where it is none of this tree as it is now.

    An installation that was cut short has left nothing.
    """
    try:
        stamp = json.loads((venv / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        stamp = {}
    stamp = stamp if isinstance(stamp, dict) else {}
    ours = (stamp.get("digest"), stamp.get("root")) == (digest(root), str(root))
    if not ours or not isinstance(stamp.get("extras"), list) or not python_of(venv).exists():
        stamp["extras"] = None
    return stamp


def is_current(venv: Path, root: Path, extras: Sequence[str], asked: Optional[str] = None) -> bool:
    """Whether nothing is left to do: more extras than asked for do no harm."""
    stamp = read_stamp(venv, root)
    present = stamp["extras"]
    same = asked is None or asked == stamp.get("asked")
    return present is not None and set(extras) <= set(present) and same


def python_of(venv: Path) -> Path:
    """The environment's interpreter."""
    return venv / "bin" / "python"


def usable(venv: Path) -> bool:
    """Whether an environment from an earlier call can be kept and updated."""
    facts = probe(str(python_of(venv)))
    return facts is not None and facts.fits and any(venv.glob("lib/python*/site-packages/pip"))


def make_environment(venv: Path, asked: Optional[str], download: bool) -> None:
    """Create the environment, in the place of an unfit or half-made one.

    Where no interpreter fits, uv finds or fetches one, if it is here and may.
    """
    if venv.exists() and not (venv / "pyvenv.cfg").exists() and any(venv.iterdir()):
        raise BootstrapError(f"{venv} exists and is no virtual environment: move it away.")
    try:
        path, facts = choose(asked, avoid=venv)
        command = [path, "-I", "-m", "venv", str(venv)]
        say(f"making {venv.name} with {facts} ({path})")
    except BootstrapError:
        if asked or not download or not shutil.which("uv"):
            raise
        command = ["uv", "venv", "--seed", "--python", dotted(min(SUPPORTED)), str(venv)]
        say(f"no fitting Python found; uv makes {venv.name} with one of its own")
    shutil.rmtree(venv, ignore_errors=True)
    run(command, "making the environment")


def with_torch(venv: Path, root: Path, extras: Sequence[str]) -> List[str]:
    """The extras to install: tests bring torch along where the disk has room for it.

    Raises BootstrapError: the extra `torch` itself is asked for, and there is no room.
    """
    wanted = sorted(extras)
    if not set(extras) & {"dev", "torch"}:
        return wanted
    slim = os.environ.get("PIP_EXTRA_INDEX_URL", "").rstrip("/").endswith("/cpu")
    need, free = CPU_TORCH_GB if slim else TORCH_GB, shutil.disk_usage(root).free / 1e9
    if free >= need or any(venv.glob("lib/python*/site-packages/torch")):
        return sorted({*extras, "torch"})
    lack = (
        f"torch needs {need} GB of disk, of which {free:.1f} GB are free: make room, or let "
        f"PIP_EXTRA_INDEX_URL name an index of builds without CUDA ({CPU_TORCH_GB} GB)"
    )
    if "torch" in extras:
        raise BootstrapError(f"{lack}. `make demo` needs no torch.")
    say(f"{lack}. Going on without: tests that need torch are skipped")
    return wanted


def install(venv: Path, root: Path, extras: Sequence[str]) -> None:
    """Install the project, editable, with the pinned dependencies, then load openfhe once."""
    python, named = str(python_of(venv)), f"[{','.join(extras)}]" if extras else ""
    say(f"installing the pinned dependencies {named}: some minutes")
    command = [python, "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    # Of 15,000 modules few are ever imported: those are compiled then.
    command += ["--no-compile", "-c", str(root / "constraints.txt")]
    run([*command, "-e", f"{root}{named}"], "the installation")
    run([python, "-I", "-c", "import protocols.ckks"], "loading openfhe")


def run(command: Sequence[str], what: str) -> None:
    """Run a command: on a terminal it tells how it goes on, elsewhere it speaks where it fails."""
    live = sys.stderr.isatty()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if live else subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        tail = (done.stdout or b"").decode("utf-8", "replace").splitlines()[-25:]
        raise BootstrapError("\n".join([f"{what} failed (exit code {done.returncode}):", *tail]))


def bootstrap(
    extras: Sequence[str],
    venv: Path,
    root: Path = ROOT,
    asked: Optional[str] = None,
    download: bool = True,
) -> None:
    """Bring the environment to what the tree asks for; do nothing where it is there already."""
    if is_current(venv, root, extras, asked):
        return
    stamp = read_stamp(venv, root)
    wanted = with_torch(venv, root, sorted({*extras, *(stamp["extras"] or ())}))
    if (asked is not None and asked != stamp.get("asked")) or not usable(venv):
        make_environment(venv, asked, download)
    if (venv / STAMP).exists():
        (venv / STAMP).unlink()  # an installation that is cut short counts as none
    fresh = {"digest": digest(root), "extras": wanted, "root": str(root), "asked": asked}
    install(venv, root, wanted)
    (venv / STAMP).write_text(json.dumps(fresh), encoding="utf-8")
    say(f"{venv.name} is ready")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Command line; 0 when the environment is ready, 2 when a person has to act."""
    parser = argparse.ArgumentParser(description="Make .venv, or say what to install first.")
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=f"any of: {', '.join(EXTRAS)}")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="default: .venv")
    parser.add_argument("--python", default=os.environ.get("COHORT_PYTHON"), help="use only this")
    parser.add_argument("--no-download", action="store_true", help="never let uv fetch a Python")
    parser.add_argument("--explain", action="store_true", help="only say what would be taken")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.extras) - set(EXTRAS))
    if unknown:
        parser.error(f"unknown extra {unknown[0]!r}; there are: {', '.join(EXTRAS)}")
    download = not (options.no_download or os.environ.get("COHORT_NO_DOWNLOAD"))
    try:
        if options.explain:
            say("{} ({})".format(*choose(options.python)))
        else:
            bootstrap(options.extras, options.venv, asked=options.python, download=download)
    except BootstrapError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        say("stopped; the next call starts over where it has to")
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
