"""Which machines and interpreters can run the cryptography, and what to do on the others.

OpenFHE's Python wheels hold one compiled extension each: ``*.22.4`` for CPython 3.10 and ``*.24.4``
for CPython 3.12, both for Linux on x86-64 with glibc, both linked against ``libgomp.so.1``. The
wheels are tagged ``py3-none-any``, so an installer puts them anywhere, and the import then fails
with a message that names neither cause nor cure.

Standard library only, and no syntax newer than Python 3.8: this file runs on the interpreters that
it turns down, and ``scripts/bootstrap.py`` runs it inside every interpreter that it looks at.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from pathlib import Path
from typing import Dict, NamedTuple, Optional, Sequence, Tuple

from protocols.errors import PlatformError

Version = Tuple[int, ...]

#: CPython series that an openfhe wheel exists for -> oldest glibc that the wheel loads with.
SUPPORTED: Dict[Version, Version] = {(3, 10): (2, 35), (3, 12): (2, 38)}


def dotted(version: Optional[Sequence[int]]) -> str:
    """Write a version with dots.

    >>> dotted((3, 10)), dotted(None)
    ('3.10', 'none')
    """
    return ".".join(map(str, version)) if version else "none"


NEEDS = " or ".join(f"CPython {dotted(v)} (glibc >= {dotted(c)})" for v, c in SUPPORTED.items())
NEEDS += " on Linux x86-64, with the system library libgomp.so.1"
CURE = (
    "on Windows take WSL 2, on other systems a linux/amd64 machine or container (Ubuntu 22.04, "
    "Debian 12 or newer); there, `python3 scripts/bootstrap.py` in a clone finds or fetches an "
    "interpreter; by hand: `apt-get install python3.10-venv libgomp1` (Ubuntu 22.04; 24.04: "
    "python3.12-venv), `uv venv --python 3.10` or `pyenv install 3.10`, then "
    "`pip install -c constraints.txt -e .`"
)


class Facts(NamedTuple):
    """One interpreter on one machine; glibc: None where another C library (musl) is used."""

    implementation: str
    version: Version
    system: str
    machine: str
    glibc: Optional[Version]

    @property
    def fits(self) -> bool:
        """Whether an openfhe wheel loads here, if libgomp is there."""
        oldest = SUPPORTED.get(self.version[:2]) if self.implementation == "cpython" else None
        is_linux = self.system == "Linux" and self.machine.lower() in ("x86_64", "amd64")
        return is_linux and oldest is not None and self.glibc is not None and self.glibc >= oldest

    def __str__(self) -> str:
        """In words."""
        names = {"cpython": "CPython", "pypy": "PyPy", "Darwin": "macOS"}
        python, system = (names.get(n, n) for n in (self.implementation, self.system))
        where = f"{system or 'an unknown system'} {self.machine}"
        return f"{python} {dotted(self.version[:2])} on {where}, glibc {dotted(self.glibc)}"


def gather() -> Facts:
    """Look at the interpreter that runs this."""
    try:
        glibc = tuple(map(int, (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[1].split(".")))
    except (AttributeError, OSError, ValueError, IndexError):  # Windows; macOS; musl
        glibc = None
    version = tuple(sys.version_info[:3])
    system = platform.system(), platform.machine()
    return Facts(sys.implementation.name, version, *system, glibc)


def failure(cause: str, facts: Facts) -> PlatformError:
    """Cause, what is needed, what this is, and the cure."""
    words = f"{cause}: it needs {NEEDS}, and this is {facts}"
    return PlatformError(f"ciphercohort cannot run here: {words}. Cure: {CURE}.")


def check_platform(facts: Optional[Facts] = None) -> None:
    """Make sure that openfhe is there and can fit; facts: of the running interpreter where None.

    Raises:
        PlatformError: it cannot; the message names cause and cure.
    """
    facts = facts or gather()
    if not facts.fits:
        raise failure("there is no openfhe build for this", facts)
    if importlib.util.find_spec("openfhe") is None:
        raise failure("openfhe is not installed in this environment", facts)


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
        # `python -m ciphercohort.cli.app` imports packages while argv[0] is still the bare "-m".
        if not sys.argv or (sys.argv[0] != "-m" and Path(sys.argv[0]).name != "cohort"):
            raise
        sys.stderr.write(f"cohort: {error}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    sys.stdout.write(f"needed: {NEEDS}\nthis is {gather()}\ncure: {CURE}\n")
