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
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from protocols.errors import PlatformError

Version = Tuple[int, ...]
Problem = Tuple[str, str]  # cause, cure

#: CPython series that an openfhe wheel exists for -> oldest glibc that the wheel loads with.
SUPPORTED: Dict[Version, Version] = {(3, 10): (2, 35), (3, 12): (2, 38)}
NEW_ENVIRONMENT = (
    "make a fresh environment on a fitting interpreter: `python3 scripts/bootstrap.py` in a clone "
    "finds or fetches one; by hand: `uv venv --python 3.10`, or `pyenv install 3.10`"
)


class Facts(NamedTuple):
    """What one interpreter on one machine is.

    implementation: "cpython", "pypy". version: (major, minor, micro). system: "Linux", "Darwin",
    "Windows". machine: "x86_64", "aarch64". glibc: None where another C library (musl) is used.
    has_libgomp: whether ``libgomp.so.1`` loads. openfhe: whether its extension is one that this
    interpreter loads; None where it is not installed. has_venv: whether it makes environments.
    """

    implementation: str
    version: Version
    system: str
    machine: str
    glibc: Optional[Version]
    has_libgomp: bool
    openfhe: Optional[bool] = None
    has_venv: bool = True

    @property
    def python(self) -> str:
        """The interpreter in words: ``CPython 3.11``."""
        name = {"cpython": "CPython", "pypy": "PyPy"}.get(self.implementation, self.implementation)
        return f"{name} {dotted(self.version[:2])}"


def dotted(version: Sequence[int]) -> str:
    """Write a version with dots.

    >>> dotted((3, 10))
    '3.10'
    """
    return ".".join(map(str, version))


def gather() -> Facts:
    """Look at the interpreter that runs this."""
    try:
        glibc = tuple(map(int, (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[1].split(".")))
    except (AttributeError, OSError, ValueError, IndexError):  # Windows; macOS; musl
        glibc = None
    try:
        has_libgomp = bool(ctypes.CDLL("libgomp.so.1"))
    except OSError:
        has_libgomp = False
    spec = importlib.util.find_spec("openfhe")  # without importing it
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    names = ["openfhe" + suffix for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    return Facts(
        implementation=sys.implementation.name,
        version=tuple(sys.version_info[:3]),
        system=platform.system(),
        machine=platform.machine(),
        glibc=glibc,
        has_libgomp=has_libgomp,
        openfhe=None
        if spec is None
        else any((f / name).exists() for f in folders for name in names),
        has_venv=all(map(importlib.util.find_spec, ("venv", "ensurepip"))),
    )


def machine_problems(facts: Facts) -> List[Problem]:
    """The reason, if there is one, that no interpreter on this machine could cure."""
    cure = "use a Linux x86-64 machine with glibc >= 2.35 (Ubuntu 22.04, Debian 12 or newer)"
    if facts.system != "Linux":
        name = {"Darwin": "macOS", "": "an unknown system"}.get(facts.system, facts.system)
        cause, cure = f"this is {name}", f"{cure}, or a linux/amd64 container of one"
        cure = "use WSL 2 with Ubuntu 22.04 or newer" if facts.system == "Windows" else cure
    elif facts.machine.lower() not in ("x86_64", "amd64"):
        cause = f"this machine is {facts.machine}"
    elif facts.glibc is None:
        cause = "this system's C library is not glibc (Alpine and others use musl)"
    elif facts.glibc < min(SUPPORTED.values()):
        oldest = dotted(min(SUPPORTED.values()))
        return [(f"glibc {dotted(facts.glibc)} is older than {oldest}, openfhe's least", cure)]
    else:
        return []
    return [(f"{cause}, and openfhe ships Linux x86-64 wheels for glibc only", cure)]


def interpreter_problems(facts: Facts) -> List[Problem]:
    """Reasons that another interpreter, or one more system package, cures."""
    found = []
    needed = SUPPORTED.get(facts.version[:2]) if facts.implementation == "cpython" else None
    if needed is None:
        wanted = " and ".join(f"CPython {dotted(series)}" for series in sorted(SUPPORTED))
        cause = f"there is no openfhe build for {facts.python}, only for {wanted}"
        found.append((cause, NEW_ENVIRONMENT))
    elif facts.glibc is not None and facts.glibc < needed:
        cause = f"openfhe for {facts.python} needs glibc >= {dotted(needed)}, "
        cause += f"and this machine has glibc {dotted(facts.glibc)}"
        found.append((cause, NEW_ENVIRONMENT))
    if not facts.has_libgomp:
        cause = "the system library libgomp.so.1 (GNU OpenMP) is missing or does not load"
        cure = "`apt-get install libgomp1` (Debian, Ubuntu) or `dnf install libgomp` (Fedora)"
        found.append((cause, cure))
    return found


def problems(facts: Facts) -> List[Problem]:
    """Everything that keeps openfhe from importing; the deepest cause alone where one implies more.

    >>> for cause, cure in problems(Facts("cpython", (3, 11, 7), "Linux", "x86_64", (2, 36), True)):
    ...     print(cause)
    there is no openfhe build for CPython 3.11, only for CPython 3.10 and CPython 3.12
    """
    found = machine_problems(facts) or interpreter_problems(facts)
    if not found and facts.openfhe is None:
        cure = "install ciphercohort with its dependencies: `pip install -c constraints.txt -e .`"
        return [("openfhe is not installed in this environment", cure)]
    if not found and not facts.openfhe:
        cause = f"the installed openfhe was built for another interpreter than {facts.python}"
        return [(cause, NEW_ENVIRONMENT)]
    return found


def failure(found: Sequence[Problem]) -> PlatformError:
    """Put problems into one error, a sentence per cause and one per cure."""
    causes = "; ".join(cause for cause, _ in found)
    cures = "; ".join(dict.fromkeys(cure for _, cure in found))
    return PlatformError(f"ciphercohort cannot run here: {causes}. Cure: {cures}.")


def import_failure(error: ImportError) -> PlatformError:
    """Explain why ``import openfhe`` failed although nothing was wrong with the platform.

    What remains is a shared library that does not load, such as a ``libstdc++`` that is older than
    openfhe's and comes first on the search path.
    """
    cure = f"unset LD_LIBRARY_PATH and update libstdc++, or {NEW_ENVIRONMENT}"
    return failure([(f"openfhe is installed but does not load ({error})", cure)])


@functools.lru_cache(maxsize=None)
def _current() -> Facts:
    return gather()


def check_platform(facts: Optional[Facts] = None) -> None:
    """Make sure that openfhe can be imported; facts: of the running interpreter where None.

    Raises:
        PlatformError: it cannot; the message names cause and cure.
    """
    found = problems(facts or _current())
    if found:
        raise failure(found)


def guard(facts: Optional[Facts] = None) -> None:
    """Check the platform as a package is imported: an error for a library, a sentence for a person.

    Called from the ``__init__`` of the packages with entry points, so that it comes before any
    third-party import that an unfit environment lacks.

    Raises:
        PlatformError: the platform does not fit.
        SystemExit: the same, where the process is the command ``cohort`` or ``python -m …``.
    """
    try:
        check_platform(facts)
    except PlatformError as error:
        # `python -m sims.cli` imports the package `sims` while argv[0] is still the bare "-m".
        if not sys.argv or (sys.argv[0] != "-m" and Path(sys.argv[0]).name != "cohort"):
            raise
        sys.stderr.write(f"cohort: {error}\n")
        raise SystemExit(2) from None
