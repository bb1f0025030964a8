"""Which machines and interpreters can run the cryptography, and what to do on the others.

OpenFHE's Python wheels hold one compiled extension each: ``*.22.4`` for CPython 3.10 (glibc 2.35 or
newer) and ``*.24.4`` for CPython 3.12 (glibc 2.38 or newer), both for Linux on x86-64, both linked
against the system's ``libgomp.so.1``. The wheels are tagged ``py3-none-any``, so an installer puts
them anywhere, and the import then fails with a message that names neither cause nor cure.

Standard library only, and no syntax newer than Python 3.8: this file runs on the interpreters that
it turns down, and ``scripts/bootstrap.py`` runs it inside every interpreter that it looks at.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, NoReturn, Optional, Sequence, Tuple

from protocols.errors import PlatformError

Version = Tuple[int, ...]

#: CPython series that an openfhe wheel exists for -> oldest glibc that the wheel loads with.
SUPPORTED: Dict[Version, Version] = {(3, 10): (2, 35), (3, 12): (2, 38)}
OLDEST_GLIBC = min(SUPPORTED.values())
MACHINES = ("x86_64", "amd64")

NEW_ENVIRONMENT = (
    "make a fresh environment on a fitting interpreter: `python3 scripts/bootstrap.py` in a clone "
    "finds or fetches one; by hand: `uv venv --python 3.10`, or `pyenv install 3.10`"
)


@dataclass(frozen=True)
class Facts:
    """What one interpreter on one machine is.

    Attributes:
        implementation: ``sys.implementation.name``: "cpython", "pypy".
        version: of the interpreter, (major, minor, micro).
        system: "Linux", "Darwin", "Windows".
        machine: processor family as the operating system names it: "x86_64", "aarch64".
        glibc: version of the GNU C library, or None where another C library (musl) is used.
        has_libgomp: whether ``libgomp.so.1`` loads; None where that cannot be asked.
        extensions: file names of openfhe's compiled extensions; None where it is not installed.
        suffixes: extension suffixes that this interpreter loads.
    """

    implementation: str
    version: Version
    system: str
    machine: str
    glibc: Optional[Version]
    has_libgomp: Optional[bool]
    extensions: Optional[Tuple[str, ...]] = None
    suffixes: Tuple[str, ...] = ()

    @property
    def python(self) -> str:
        """The interpreter in words: ``CPython 3.11``."""
        name = {"cpython": "CPython", "pypy": "PyPy"}.get(self.implementation, self.implementation)
        return f"{name} {dotted(self.version[:2])}"


@dataclass(frozen=True)
class Problem:
    """One reason why an interpreter or a machine does not fit, and what to do about it."""

    cause: str
    cure: str


def dotted(version: Sequence[int]) -> str:
    """Write a version with dots.

    >>> dotted((3, 10))
    '3.10'
    """
    return ".".join(str(part) for part in version)


def gather() -> Facts:
    """Look at the interpreter that runs this."""
    return Facts(
        implementation=sys.implementation.name,
        version=tuple(sys.version_info[:3]),
        system=platform.system(),
        machine=platform.machine(),
        glibc=_glibc(),
        has_libgomp=_has_libgomp(),
        extensions=_openfhe_extensions(),
        suffixes=tuple(importlib.machinery.EXTENSION_SUFFIXES),
    )


def _glibc() -> Optional[Version]:
    try:
        _name, number = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        return tuple(int(part) for part in number.split("."))
    except (AttributeError, OSError, ValueError):  # Windows; macOS; musl
        return None


def _has_libgomp() -> Optional[bool]:
    if platform.system() != "Linux":
        return None
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        return False
    return True


def _openfhe_extensions() -> Optional[Tuple[str, ...]]:
    """Names of the compiled files in the installed openfhe, found without importing it."""
    spec = importlib.util.find_spec("openfhe")
    if spec is None:
        return None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    return tuple(sorted(path.name for folder in folders for path in folder.glob("openfhe.*")))


def machine_problems(facts: Facts) -> List[Problem]:
    """Reasons that no interpreter on this machine could cure."""
    wheels = "openfhe ships Linux x86-64 wheels for glibc only"
    machine_cure = (
        "use a Linux x86-64 machine with glibc >= 2.35 (Ubuntu 22.04, Debian 12 or newer)"
    )
    if facts.system == "Windows":
        return [Problem(f"this is Windows, and {wheels}", "use WSL 2 with Ubuntu 22.04 or newer")]
    if facts.system != "Linux":
        name = "macOS" if facts.system == "Darwin" else facts.system or "an unknown system"
        cure = f"{machine_cure}, or a linux/amd64 container of one"
        return [Problem(f"this is {name}, and {wheels}", cure)]
    if facts.machine.lower() not in MACHINES:
        return [Problem(f"this machine is {facts.machine}, and {wheels}", machine_cure)]
    if facts.glibc is None:
        cause = f"this system's C library is not glibc (Alpine and others use musl), and {wheels}"
        return [Problem(cause, machine_cure)]
    if facts.glibc < OLDEST_GLIBC:
        cause = f"glibc {dotted(facts.glibc)} is older than {dotted(OLDEST_GLIBC)}, openfhe's least"
        return [Problem(cause, machine_cure)]
    return []


def interpreter_problems(facts: Facts) -> List[Problem]:
    """Reasons that another interpreter, or one more system package, cures."""
    found = []
    series = facts.version[:2]
    if facts.implementation != "cpython" or series not in SUPPORTED:
        wanted = " and ".join(f"CPython {dotted(series)}" for series in sorted(SUPPORTED))
        cause = f"there is no openfhe build for {facts.python}, only for {wanted}"
        found.append(Problem(cause, NEW_ENVIRONMENT))
    elif facts.glibc is not None and facts.glibc < SUPPORTED[series]:
        needed = dotted(SUPPORTED[series])
        cause = (
            f"openfhe for {facts.python} needs glibc >= {needed}, "
            f"and this machine has glibc {dotted(facts.glibc)}"
        )
        found.append(Problem(cause, NEW_ENVIRONMENT))
    if facts.has_libgomp is False:
        cause = "the system library libgomp.so.1 (GNU OpenMP) is missing or does not load"
        cure = "`apt-get install libgomp1` (Debian, Ubuntu) or `dnf install libgomp` (Fedora)"
        found.append(Problem(cause, cure))
    return found


def openfhe_problems(facts: Facts) -> List[Problem]:
    """Reasons in the installed openfhe: absent, or built for another interpreter."""
    if facts.extensions is None:
        cure = "install ciphercohort with its dependencies: `pip install -c constraints.txt -e .`"
        return [Problem("openfhe is not installed in this environment", cure)]
    if any("openfhe" + suffix in facts.extensions for suffix in facts.suffixes):
        return []
    held = ", ".join(name for name in facts.extensions if name.endswith(".so")) or "no extension"
    cause = f"the installed openfhe was built for another interpreter than {facts.python} ({held})"
    return [Problem(cause, NEW_ENVIRONMENT)]


def problems(facts: Facts) -> List[Problem]:
    """Everything that keeps openfhe from importing; the deepest cause alone where one implies more.

    >>> linux = dict(system="Linux", machine="x86_64", glibc=(2, 36), has_libgomp=True)
    >>> for problem in problems(Facts("cpython", (3, 11, 7), **linux)):
    ...     print(problem.cause)
    there is no openfhe build for CPython 3.11, only for CPython 3.10 and CPython 3.12
    """
    return machine_problems(facts) or interpreter_problems(facts) or openfhe_problems(facts)


def failure(found: Sequence[Problem]) -> PlatformError:
    """Put problems into one error, a sentence per cause and one per cure."""
    causes = "; ".join(problem.cause for problem in found)
    cures = "; ".join(dict.fromkeys(problem.cure for problem in found))
    return PlatformError(f"ciphercohort cannot run here: {causes}. Cure: {cures}.")


def import_failure(error: ImportError) -> PlatformError:
    """Explain why ``import openfhe`` failed although nothing was wrong with the platform.

    What remains is a shared library that does not load, such as a ``libstdc++`` that is older than
    openfhe's and comes first on the search path.
    """
    cause = f"openfhe is installed but does not load ({error})"
    cure = f"unset LD_LIBRARY_PATH and update libstdc++, or {NEW_ENVIRONMENT}"
    return failure([Problem(cause, cure)])


@functools.lru_cache(maxsize=None)
def _current_problems() -> Tuple[Problem, ...]:
    return tuple(problems(gather()))


def check_platform(facts: Optional[Facts] = None) -> None:
    """Make sure that openfhe can be imported; call it before the import.

    Args:
        facts: of the interpreter to judge; the running one where none are given.

    Raises:
        PlatformError: it cannot; the message names cause and cure.
    """
    found = _current_problems() if facts is None else problems(facts)
    if found:
        raise failure(found)


def guard(facts: Optional[Facts] = None) -> None:
    """Check the platform as a package is imported: an error for a library, a sentence for a person.

    Called from the ``__init__`` of the packages with entry points, so that it comes before any
    third-party import that an unfit environment lacks.

    Args:
        facts: as for `check_platform`.

    Raises:
        PlatformError: the platform does not fit.
        SystemExit: the same, where the process is the command ``cohort`` or ``python -m …``.
    """
    try:
        check_platform(facts)
    except PlatformError as error:
        if not _is_command(sys.argv):
            raise
        _exit(str(error))


def _is_command(argv: Sequence[str]) -> bool:
    # `python -m sims.cli` imports the package `sims` while argv[0] is still the bare "-m".
    return bool(argv) and (argv[0] == "-m" or Path(argv[0]).name == "cohort")


def _exit(message: str) -> NoReturn:
    sys.stderr.write(f"cohort: {message}\n")
    raise SystemExit(2) from None
