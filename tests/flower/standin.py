"""A stand-in for openfhe: installs, imports, and raises as soon as it is to compute anything.

With it the project installs and starts where no openfhe loads, such as CPython 3.12 with a glibc
below 2.38. A run that needs no OpenFHE (secure aggregation, the identity cipher) goes through; any
other one ends with an error. For throwaway environments of tests: it also answers `os.confstr` with
the glibc that `protocols.platform` asks for, in every process of the environment.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from protocols.platform import SUPPORTED, Version, dotted

# A module that only the stand-in brings.
MARKER = "openfhe_standin"
_MODULE = '''"""Stand-in: every call but settings raises."""


class Absent:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *_, **__):
        raise RuntimeError(f"{self._name} was called, and this openfhe is a stand-in")


def DisablePrecomputeCRTTablesAfterDeserializaton():
    pass  # a setting, made as protocols.ckks is loaded


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Absent(f"openfhe.{name}")
'''
# A line of a .pth file runs as every process of the environment starts.
_GLIBC = (
    "import os; os.confstr = lambda name, ask=os.confstr: "
    "'glibc {glibc}' if name == 'CS_GNU_LIBC_VERSION' else ask(name)\n"
)


def build(folder: Path, series: Version, release: str) -> Path:
    """Write the stand-in's wheel for a CPython series; returns its path.

    release: openfhe's, as the project pins it.
    """
    name = f"openfhe-{release}"
    info, suffix = f"{name}.dist-info", f"cpython-{series[0]}{series[1]}-x86_64-linux-gnu.so"
    files = {
        "openfhe/__init__.py": _MODULE,
        f"openfhe/openfhe.{suffix}": "",
        f"{MARKER}.py": "",
        f"{MARKER}.pth": _GLIBC.format(glibc=dotted(SUPPORTED[series])),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: openfhe\nVersion: {release}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    wheel = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return wheel
