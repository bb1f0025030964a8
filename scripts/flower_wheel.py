#!/usr/bin/env python3
"""Build dist/ciphercohort_flower-VERSION-py3-none-any.whl: secure sums for Flower apps alone.

    python3 scripts/flower_wheel.py [FOLDER [WHEEL]]

WHEEL: of the whole package, as `pip wheel` makes it, which is written anew without these modules:
it then needs the small wheel, of the same version.

It holds `ciphercohort.flower` and what that imports of this repository: pure Python that runs
wherever Flower does (3.10 to 3.13; Linux, macOS, Windows). It needs NumPy, cryptography and
Flower; private sums also SciPy and dp-accounting, the extra `privacy`.
The long description's links to files lead to PUBLIC_URL of the environment (`make wheels
PUBLIC_URL=https://…`), the address of this repository's files; without one they are words alone.
`pip install .` in a clone installs all modules, these among them, so that it needs no index with
the small wheel: beside it the small one is not needed. (A dependency by a path of the clone breaks
editable installations, whose modules the small wheel's would hide, and a wheel that is moved.)

Standard library only. The bytes follow from the sources alone.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import posixpath
import re
import sys
import zipfile
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

ROOT = Path(__file__).resolve().parent.parent
OWN = ("ciphercohort", "protocols")
NEEDS = {"numpy": "numpy>=1.26", "cryptography": "cryptography>=44", "flwr": "flwr>=1.30,<2"}
PRIVACY = {"scipy": "scipy>=1.13", "dp_accounting": "dp-accounting>=0.6,<0.7"}
LATE = {"msgspec"}  # imported by functions that nothing here calls
TAG = "py3-none-any"
URL = os.environ.get("PUBLIC_URL", "")


def path_of(module: str) -> Path:
    """Its file; one that does not exist where there is no such module."""
    path = ROOT.joinpath(*module.split("."))
    package = path / "__init__.py"
    return package if package.exists() else path.with_suffix(".py")


def imports(module: str) -> Iterator[str]:
    """What a module imports, anywhere in it; names of other modules of this repository in full."""
    for node in ast.walk(ast.parse(path_of(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if path_of(name).exists())


def modules() -> Tuple[List[str], Set[str]]:
    """Modules of the wheel, and the libraries that they import.

    Raises:
        SystemExit: one of them needs what the wheel does not bring.
    """
    folder = ROOT / "ciphercohort" / "flower"
    todo = [f"ciphercohort.flower.{p.stem}" for p in folder.glob("*.py")]
    todo = [name.replace(".__init__", "") for name in todo]
    found: Set[str] = set()
    libraries: Set[str] = set()
    while todo:
        module = todo.pop()
        if module in found:
            continue
        found.add(module)
        if "." in module:
            todo.append(module.rpartition(".")[0])
        for name in imports(module):
            top = name.partition(".")[0]
            if top in OWN and path_of(name).exists():
                todo.append(name)
            elif top not in sys.stdlib_module_names and top not in OWN:
                libraries.add(top)
    beyond = libraries - {*NEEDS, *PRIVACY, *LATE}
    if beyond:
        raise SystemExit(f"ciphercohort.flower imports {', '.join(sorted(beyond))}: not in NEEDS")
    return sorted(found), libraries


def linked(text: str, folder: str, url: str) -> str:
    """A page whose links to files are absolute; url: of the repository's files, empty: no links.

    folder: that the page is in, as "docs"; empty: the repository's own.
    """

    def absolute(found: "re.Match[str]") -> str:
        words, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, mark, part = target.partition("#")
        place = posixpath.normpath(posixpath.join(folder, path))
        return f"[{words}]({url.rstrip('/')}/{place}{mark}{part})" if url else words

    return re.sub(r"!?\[([^\[\]]*)\]\(([^()\s]+)\)", absolute, text)


def metadata(version: str) -> str:
    """METADATA of the wheel."""
    lines = [
        "Metadata-Version: 2.4",
        "Name: ciphercohort-flower",
        f"Version: {version}",
        "Summary: Secure sums for Flower apps: the server gets means, under keys that nobody holds",
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        "Requires-Python: >=3.10",
        *(f"Requires-Dist: {need}" for need in NEEDS.values()),
        "Provides-Extra: privacy",
        *(f"Requires-Dist: {need}; extra == 'privacy'" for need in PRIVACY.values()),
        "Description-Content-Type: text/markdown",
        "",
        linked((ROOT / "docs" / "flower.md").read_text(encoding="utf-8"), "docs", URL),
    ]
    return "\n".join(lines)


def build(folder: Path) -> Path:
    """Write the wheel; returns its path."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(r'^version = "(.+)"$', text, re.M)
    if not match:
        raise SystemExit("pyproject.toml has no version")
    version = match[1]
    info = f"ciphercohort_flower-{version}.dist-info"
    files: Dict[str, bytes] = {}
    for module in modules()[0]:
        path = path_of(module)
        files[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    for name in ("ciphercohort/py.typed", "protocols/py.typed"):
        if (ROOT / name).exists():
            files[name] = (ROOT / name).read_bytes()
    files[f"{info}/METADATA"] = metadata(version).encode()
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    wheel = f"Wheel-Version: 1.0\nGenerator: ciphercohort\nRoot-Is-Purelib: true\nTag: {TAG}\n"
    files[f"{info}/WHEEL"] = wheel.encode()
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD").encode()
    folder.mkdir(parents=True, exist_ok=True)
    return write(folder / f"ciphercohort_flower-{version}-{TAG}.whl", files)


def without(large: Path, small: Path) -> Path:
    """Take the small wheel's modules out of the large one, which needs it from then on.

    Raises:
        SystemExit: they are of different sources, or it needs it already.
    """
    with zipfile.ZipFile(small) as archive:
        shared = {n: archive.read(n) for n in archive.namelist() if ".dist-info/" not in n}
    with zipfile.ZipFile(large) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    if any(files.pop(name, None) != data for name, data in shared.items()):
        raise SystemExit(
            f"{large} has not the modules of {small}: build both from the same sources"
        )
    (listed,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    described = listed.replace("RECORD", "METADATA")
    before, first, after = files[described].partition(b"Requires-Dist: ")
    version = small.name.split("-")[1]
    need = f"Requires-Dist: ciphercohort-flower=={version}\n"
    head, gap, page = (before + need.encode() + first + after).decode().partition("\n\n")
    head += f"\nProject-URL: Source, {URL}" * bool(URL)
    files[described] = f"{head}{gap}{linked(page, '', URL)}".encode()
    del files[listed]
    files[listed] = record(files, listed).encode()
    return write(large, files)


def write(path: Path, files: Dict[str, bytes]) -> Path:
    """A wheel of these files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return path


def record(files: Dict[str, bytes], own: str) -> str:
    """Digest and length of every file, as PEP 427 has them."""
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{own},,", ""])


if __name__ == "__main__":
    made = build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist")
    print(made)
    if len(sys.argv) > 2:
        print(without(Path(sys.argv[2]), made))
