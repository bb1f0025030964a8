#!/usr/bin/env python3
"""Make ``.venv`` with a fitting interpreter and the pinned dependencies, or say what to install.

    python3 scripts/bootstrap.py            what running needs
    python3 scripts/bootstrap.py dev        what tests and checks need, too
    python3 scripts/bootstrap.py --explain  only say which interpreters fit, and why others do not

Standard library only; runs on any Python >= 3.8, also on one that ciphercohort itself turns down.
A second call with nothing changed returns at once: a stamp in the environment holds the digest of
``pyproject.toml`` and ``constraints.txt`` and the extras that are installed.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from protocols.platform import (  # noqa: E402
    SUPPORTED,
    Facts,
    Problem,
    dotted,
    gather,
    interpreter_problems,
    machine_problems,
)

EXTRAS = ("dev", "test", "torch")
# Extras that install torch, and the room it takes [GB]: 5.3 measured once installed, and its wheels
# on their way; a build without CUDA is far smaller.
TORCH_GB, CPU_TORCH_GB = 9, 3
STAMP = ".ciphercohort.json"
# Runs inside each candidate: the same code judges here, there, and at import time.
PROBE = """
import sys; sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True
import dataclasses, importlib.util, json
from protocols.platform import gather
facts = dataclasses.asdict(gather())
has_venv = all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))
print(json.dumps({"facts": facts, "has_venv": has_venv}))
"""


class BootstrapError(Exception):
    """The environment cannot be made; the message says what to do."""


# --- the machine, as far as decisions need it ---------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """An interpreter that was found: path, what it is, and whether it can make environments."""

    path: str
    facts: Facts
    has_venv: bool = True


class Host:
    """This machine; tests put a made-up one in its place."""

    def facts(self) -> Facts:
        """Facts of the running interpreter, for what concerns the machine alone."""
        return gather()

    def on_path(self, name: str) -> List[str]:
        """All executables of that name on PATH: a version manager's shim may hide a real one."""
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        paths = [os.path.join(folder, name) for folder in folders if folder]
        return [path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)]

    def pyenv(self, series: str) -> List[str]:
        """Interpreters of one series that pyenv installed, the newest first."""
        root = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
        found = glob.glob(os.path.join(root, "versions", series + ".*", "bin", "python"))
        return sorted(found, key=_micro, reverse=True)

    def uv(self) -> Optional[str]:
        """Path of uv, or None."""
        return shutil.which("uv")

    def uv_find(self, series: str) -> List[str]:
        """The interpreter that uv knows of; asks for no download."""
        uv = self.uv()
        if uv is None:
            return []
        command = [uv, "python", "find", "--no-project", "--system", "--no-python-downloads"]
        out = _output([*command, series])
        return [out.strip()] if out and out.strip() else []

    def uv_install(self, series: str) -> bool:
        """Let uv fetch an interpreter."""
        return subprocess.call([str(self.uv()), "python", "install", series]) == 0

    def free_gb(self, path: Path) -> float:
        """Free space where the environment goes [GB]."""
        return shutil.disk_usage(path).free / 1e9

    def probe(self, path: str) -> Optional[Candidate]:
        """Ask an interpreter what it is; None where it does not answer."""
        out = _output([path, "-I", "-c", PROBE, str(ROOT)])
        if not out:
            return None
        said = json.loads(out)
        facts = {k: tuple(v) if isinstance(v, list) else v for k, v in said["facts"].items()}
        return Candidate(path, Facts(**facts), bool(said["has_venv"]))

    def release(self) -> Dict[str, str]:
        """``/etc/os-release``, for advice on packages."""
        try:
            lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
        except OSError:
            return {}
        pairs = (line.split("=", 1) for line in lines if "=" in line)
        return {key: value.strip("\"'") for key, value in pairs}


def _micro(path: str) -> Tuple[int, ...]:
    name = Path(path).parent.parent.name  # 3.10.13
    return tuple(int(part) for part in name.split(".") if part.isdigit())


def _output(command: Sequence[str]) -> Optional[str]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


# --- decisions ----------------------------------------------------------------------------------


def paths(host: Host, asked: Optional[str] = None) -> Iterator[str]:
    """Interpreters to look at, the best first, each once; found only as far as they are asked for.

    The pins were made on CPython 3.10, so it comes before 3.12 wherever both fit.
    """
    seen = set()
    if asked:
        sources: List[Callable[[], List[str]]] = [lambda: host.on_path(asked) or [asked]]
    else:
        sources = []
        for series in map(dotted, sorted(SUPPORTED)):
            sources.append(lambda series=series: host.on_path("python" + series))
            sources.append(lambda series=series: host.pyenv(series))
            sources.append(lambda series=series: host.uv_find(series))
        sources += [lambda: host.on_path("python3"), lambda: host.on_path("python")]
    for source in sources:
        for path in source():
            # /bin is /usr/bin on most systems; an environment's link to its base stays apart
            same = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if same not in seen:
                seen.add(same)
                yield path


def judge(candidate: Candidate, has_uv: bool) -> List[Problem]:
    """What keeps a candidate from carrying the environment."""
    found = interpreter_problems(candidate.facts)
    if not found and not candidate.has_venv and not has_uv:
        series = dotted(candidate.facts.version[:2])
        cure = f"`apt-get install python{series}-venv`"
        return [Problem("it cannot make environments (venv or ensurepip is missing)", cure)]
    return found


def choose(
    host: Host,
    asked: Optional[str] = None,
    download: bool = True,
    avoid: Optional[Path] = None,
) -> Tuple[Candidate, List[Tuple[str, List[Problem]]]]:
    """Find the interpreter for the environment.

    Args:
        host: the machine.
        asked: name or path of the only interpreter to consider.
        download: whether uv may fetch CPython 3.10 where nothing fits.
        avoid: the environment that is about to be replaced, activated or not.

    Returns:
        The interpreter, and those that were turned down before it, with the reasons.

    Raises:
        BootstrapError: nothing fits; the message says why and what to install.
    """
    machine = machine_problems(host.facts())
    if machine:
        raise BootstrapError("\n".join(f"{p.cause}.\nWhat to do: {p.cure}." for p in machine))
    rejected: List[Tuple[str, List[Problem]]] = []
    has_uv = host.uv() is not None

    def first_fit(several: Iterator[str]) -> Optional[Candidate]:
        for path in several:
            if avoid is not None and avoid.absolute() in Path(path).absolute().parents:
                continue
            candidate = host.probe(path)
            if candidate is None:
                rejected.append((path, [Problem("does not run", "")]))
                continue
            reasons = judge(candidate, has_uv)
            if not reasons:
                return candidate
            rejected.append((f"{path} ({candidate.facts.python})", reasons))
        return None

    best = first_fit(paths(host, asked))
    if best is None and not asked and download and has_uv:
        series = dotted(min(SUPPORTED))
        say(f"no fitting Python found; uv fetches CPython {series}")
        if host.uv_install(series):
            best = first_fit(iter(host.uv_find(series)))
    if best is None:
        raise BootstrapError(advice(host, rejected))
    return best, rejected


def advice(host: Host, rejected: Sequence[Tuple[str, Sequence[Problem]]]) -> str:
    """Say what was looked at, and exactly what to install."""
    needs = " or ".join(f"CPython {dotted(v)} (glibc >= {dotted(SUPPORTED[v])})" for v in SUPPORTED)
    glibc = host.facts().glibc
    lines = [f"ciphercohort needs {needs}; this machine has glibc {dotted(glibc or ())}."]
    if rejected:
        lines.append("Looked at:")
        for name, reasons in rejected:
            lines.append(f"  {name}: " + "; ".join(problem.cause for problem in reasons))
    # An interpreter that only lacks a package is nearer than another interpreter.
    near = [reasons for _, reasons in rejected if all("apt-get" in p.cure for p in reasons)]
    if near:
        lines.append("What to do: " + ", ".join(p.cure for p in near[0]) + ", then try again.")
        return "\n".join(lines)
    lines.append("Any one of these gives a fitting interpreter; then try again:")
    lines += [f"  {command}" for command in commands(host.release(), host.uv() is not None)]
    return "\n".join(lines)


def commands(release: Dict[str, str], has_uv: bool) -> List[str]:
    """Commands that install a fitting interpreter, the simplest first."""
    packaged = {
        ("ubuntu", "22.04"): "sudo apt-get install python3.10 python3.10-venv libgomp1",
        ("ubuntu", "24.04"): "sudo apt-get install python3.12 python3.12-venv libgomp1",
    }
    found = []
    name = (release.get("ID", ""), release.get("VERSION_ID", ""))
    if name in packaged:
        found.append(packaged[name])
    elif name[0] == "fedora":
        found.append("sudo dnf install python3.12 libgomp")
    found.append("uv python install 3.10" + ("" if has_uv else "   # uv itself: pipx install uv"))
    found.append("pyenv install 3.10")
    return found


def digest(root: Path) -> str:
    """SHA-256 of what an installation depends on, extras aside."""
    total = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        content = (root / name).read_bytes()
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


def installed_extras(venv: Path, root: Path) -> Optional[List[str]]:
    """Extras in the environment, or None where it does not belong to this tree as it is now."""
    stamp = read_stamp(venv)
    if stamp.get("digest") != digest(root) or stamp.get("root") != str(root):
        return None
    return sorted(stamp["extras"]) if python_of(venv).exists() else None


def read_stamp(venv: Path) -> Dict[str, Any]:
    """What the last successful call left behind; empty after none, or one that was cut short."""
    try:
        stamp = json.loads((venv / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and isinstance(stamp.get("extras"), list) else {}


def is_current(venv: Path, root: Path, extras: Sequence[str], asked: Optional[str] = None) -> bool:
    """Whether nothing is left to do: more extras than asked for do no harm."""
    present = installed_extras(venv, root)
    if present is None or not set(extras) <= set(present):
        return False
    return asked is None or asked == read_stamp(venv).get("asked")


def python_of(venv: Path) -> Path:
    """The environment's interpreter."""
    return venv / "bin" / "python"


# --- doing it -----------------------------------------------------------------------------------


def say(line: str) -> None:
    """Tell a person, on standard error."""
    sys.stderr.write(f"bootstrap: {line}\n")
    sys.stderr.flush()


def make_environment(host: Host, venv: Path, chosen: Candidate) -> None:
    """Create the environment, in the place of an unfit or half-made one."""
    if venv.exists():
        if not (venv / "pyvenv.cfg").exists() and any(venv.iterdir()):
            raise BootstrapError(f"{venv} exists and is no virtual environment: move it away.")
        shutil.rmtree(venv)
    say(f"making {venv.name} with {chosen.facts.python} ({chosen.path})")
    if chosen.has_venv:
        run([chosen.path, "-I", "-m", "venv", str(venv)], "making the environment")
    else:
        run([str(host.uv()), "venv", "--quiet", "--seed", "--python", chosen.path, str(venv)], "uv")


def usable(host: Host, venv: Path) -> bool:
    """Whether an environment from an earlier call can be kept and updated."""
    if not python_of(venv).exists():
        return False
    candidate = host.probe(str(python_of(venv)))
    if candidate is None or judge(candidate, has_uv=True):
        return False
    return _output([str(python_of(venv)), "-I", "-m", "pip", "--version"]) is not None


def with_torch(host: Host, venv: Path, root: Path, extras: Sequence[str]) -> List[str]:
    """The extras to install: tests bring torch along where the disk has room for it.

    Raises BootstrapError: the extra `torch` itself is asked for, and there is no room.
    """
    wanted = sorted(extras)
    if not set(extras) & {"dev", "torch"}:
        return wanted
    if any(venv.glob("lib/python*/site-packages/torch")):
        return sorted({*extras, "torch"})
    slim = os.environ.get("PIP_EXTRA_INDEX_URL", "").rstrip("/").endswith("/cpu")
    need, free = CPU_TORCH_GB if slim else TORCH_GB, host.free_gb(root)
    if free >= need:
        say(f"torch comes along: some minutes, {'2' if slim else '5.3'} GB")
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
    target = f"{root}[{','.join(extras)}]" if extras else str(root)
    command = [str(python_of(venv)), "-I", "-m", "pip", "install"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command += ["-c", str(root / "constraints.txt"), "-e", target]
    say(f"installing the pinned dependencies{' with ' + ', '.join(extras) if extras else ''}")
    run(command, "the installation")
    run([str(python_of(venv)), "-I", "-c", "import protocols.ckks"], "loading openfhe")


def run(command: Sequence[str], what: str) -> None:
    """Run a command with a line of progress on a terminal; show its output only if it fails."""
    started = time.monotonic()
    lines: List[str] = []
    live = sys.stderr.isatty()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        for raw in process.stdout or ():
            lines.append(raw.decode("utf-8", "replace").rstrip())
            if live:
                line = f"  {time.monotonic() - started:3.0f} s  {lines[-1].strip()}"
                sys.stderr.write("\r\x1b[K" + line[: shutil.get_terminal_size().columns - 1])
                sys.stderr.flush()
    if live:
        sys.stderr.write("\r\x1b[K")
    if process.returncode != 0:
        tail = "\n".join(lines[-25:])
        raise BootstrapError(f"{what} failed (exit code {process.returncode}):\n{tail}")


def bootstrap(
    extras: Sequence[str],
    venv: Path,
    *,
    host: Optional[Host] = None,
    root: Path = ROOT,
    asked: Optional[str] = None,
    download: bool = True,
) -> None:
    """Bring the environment to what the tree asks for; do nothing where it is there already."""
    host = host or Host()
    if is_current(venv, root, extras, asked):
        return
    started = time.monotonic()
    known = {*extras, *(installed_extras(venv, root) or ())}
    wanted = with_torch(host, venv, root, sorted(known))
    other = asked is not None and asked != read_stamp(venv).get("asked")
    if other or not usable(host, venv):
        chosen, _ = choose(host, asked, download, avoid=venv)
        make_environment(host, venv, chosen)
    if (venv / STAMP).exists():
        (venv / STAMP).unlink()  # an installation that is cut short counts as none
    stamp = {"digest": digest(root), "extras": wanted, "root": str(root), "asked": asked}
    install(venv, root, wanted)
    (venv / STAMP).write_text(json.dumps(stamp), encoding="utf-8")
    say(f"{venv.name} is ready ({time.monotonic() - started:.0f} s)")


def explain(host: Host, asked: Optional[str], download: bool) -> None:
    """Say which interpreter would be taken, and why the ones before it are not."""
    chosen, rejected = choose(host, asked, download)
    for name, reasons in rejected:
        say(f"not {name}: " + "; ".join(problem.cause for problem in reasons))
    say(f"fits: {chosen.path} ({chosen.facts.python}, glibc {dotted(chosen.facts.glibc or ())})")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Command line; 0 when the environment is ready, 2 when a person has to act."""
    parser = argparse.ArgumentParser(description="Make .venv, or say what to install first.")
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=f"any of: {', '.join(EXTRAS)}")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="default: .venv")
    parser.add_argument("--python", default=os.environ.get("COHORT_PYTHON"), help="use only this")
    parser.add_argument("--no-download", action="store_true", help="never let uv fetch a Python")
    parser.add_argument("--explain", action="store_true", help="change nothing, only say")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.extras) - set(EXTRAS))
    if unknown:
        parser.error(f"unknown extra {unknown[0]!r}; there are: {', '.join(EXTRAS)}")
    download = not (options.no_download or os.environ.get("COHORT_NO_DOWNLOAD"))
    try:
        if options.explain:
            explain(Host(), options.python, download=False)
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
