"""Decisions of ``scripts/bootstrap.py`` on machines that are made up; nothing is installed."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from protocols.platform import SUPPORTED, Facts, dotted
from tests.flower.environment import load_bootstrap
from tests.protocols.test_platform import FIT

ROOT = Path(__file__).resolve().parents[2]
P312 = FIT._replace(version=(3, 12, 3), glibc=(2, 39))
P311 = FIT._replace(version=(3, 11, 2))


bootstrap = load_bootstrap()


class Machine:
    """Interpreters on PATH and under pyenv, and what they are."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch, self.facts = folder, patch, dict[str, Facts | None]()
        self.probed: list[str] = []
        patch.setenv("PATH", str(folder / "bin"))
        patch.setenv("PYENV_ROOT", str(folder / "pyenv"))
        patch.setattr(bootstrap, "probe", self.probe)

    def add(self, place: str, facts: Facts | None = FIT) -> str:
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o755)
        self.facts[str(path)] = facts
        return str(path)

    def probe(self, path: str) -> Facts | None:
        self.probed.append(path)
        return self.facts.get(path)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


# --- which interpreter --------------------------------------------------------------------------

PYENV = "pyenv/versions/{}/bin/python"


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        ({"bin/python3.10": FIT, "bin/python3.12": P312}, "bin/python3.10"),
        ({"bin/python3.10": None, PYENV.format("3.10.13"): FIT}, PYENV.format("3.10.13")),
        ({"bin/python3": P311, "bin/python3.12": P312}, "bin/python3.12"),
        ({PYENV.format("3.10.9"): FIT, PYENV.format("3.10.13"): FIT}, PYENV.format("3.10.13")),
        ({"bin/python3": FIT, "bin/python3.12": P312._replace(glibc=(2, 36))}, "bin/python3"),
        ({"bin/python3.10": FIT._replace(implementation="pypy"), "bin/python": FIT}, "bin/python"),
    ],
)
def test_the_best_fitting_interpreter_is_taken(
    machine: Machine, found: dict[str, Facts | None], taken: str
) -> None:
    for place, facts in found.items():
        machine.add(place, facts)
    path, facts = bootstrap.choose()
    assert (path, facts, machine.probed[-1]) == (str(machine.folder / taken), found[taken], path)


def test_a_dead_shim_does_not_hide_the_interpreter_behind_it(machine: Machine) -> None:
    shim, real = machine.add("shims/python3.10", None), machine.add("usr/python3.10")
    machine.patch.setenv("PATH", f"{Path(shim).parent}{os.pathsep}{Path(real).parent}")
    assert bootstrap.choose()[0] == real and machine.probed == [shim, real]


def test_the_environment_to_be_replaced_is_not_its_own_base(machine: Machine) -> None:
    inside, outside = machine.add(".venv/bin/python3.10"), machine.add("bin/python3.10")
    machine.patch.setenv("PATH", f"{Path(inside).parent}{os.pathsep}{Path(outside).parent}")
    assert bootstrap.choose(avoid=machine.folder / ".venv")[0] == outside


def test_an_interpreter_that_is_asked_for_is_the_only_one_considered(machine: Machine) -> None:
    machine.add("bin/python3.10")
    mine = machine.add("mine", P311)
    with pytest.raises(bootstrap.BootstrapError, match=f"{mine}: CPython 3.11 on Linux x86_64"):
        bootstrap.choose(mine)
    assert machine.probed == [mine]


def test_where_nothing_fits_a_person_is_told_what_to_do(machine: Machine) -> None:
    paths = machine.add("bin/python3.10", None), machine.add("bin/python3", P311)
    with pytest.raises(bootstrap.BootstrapError) as raised:
        bootstrap.choose()
    for words in (
        "needs CPython 3.10 (glibc >= 2.35) or CPython 3.12 (glibc >= 2.38)",
        f"{paths[0]}: does not run",
        f"{paths[1]}: CPython 3.11 on Linux x86_64, glibc 2.36",
        *("uv venv --python 3.10", "pyenv install 3.10", "python3.10-venv libgomp1", "WSL 2"),
    ):
        assert words in str(raised.value)


@pytest.mark.parametrize("case", ["fits", "fetched", "no uv", "not allowed", "asked"])
def test_uv_serves_where_nothing_fits_and_it_may(machine: Machine, tree: Path, case: str) -> None:
    machine.add("bin/python3", FIT if case == "fits" else P311)
    calls = list[list[str]]()
    machine.patch.setattr(bootstrap, "run", lambda command, what: calls.append(command))
    if case != "no uv":
        machine.add("bin/uv")
    arguments = tree / ".venv", "python3" if case == "asked" else None, case != "not allowed"
    if case in ("fits", "fetched"):
        bootstrap.make_environment(*arguments)
        assert calls[0][0] == ("uv" if case == "fetched" else str(machine.folder / "bin/python3"))
    else:
        with pytest.raises(bootstrap.BootstrapError, match="What to do"):
            bootstrap.make_environment(*arguments)


# --- when there is nothing to do, and when something is -----------------------------------------


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "constraints.txt").write_text("numpy==2.2.6\n")
    monkeypatch.setattr(bootstrap, "usable", lambda venv: True)
    return root


def stamped(tree: Path, *extras: str, **change: object) -> Path:
    venv = tree / ".venv"
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (venv / "bin" / "python").touch()
    stamp = {"digest": bootstrap.digest(tree), "root": str(tree), "extras": list(extras)}
    (venv / bootstrap.STAMP).write_text(json.dumps({**stamp, "asked": None, **change}))
    return venv


@pytest.mark.parametrize(
    ("present", "wanted", "current"),
    [((), (), True), (("dev", "torch"), ("torch",), True), ((), ("dev",), False)],
)
def test_more_extras_than_asked_for_do_no_harm(
    machine: Machine, tree: Path, present: tuple[str, ...], wanted: tuple[str, ...], current: bool
) -> None:
    venv = stamped(tree, *present)
    assert bootstrap.is_current(venv, tree, wanted) is current
    if current:
        bootstrap.bootstrap(wanted, venv, tree)
        assert not machine.probed


@pytest.mark.parametrize("change", ["pyproject.toml", "constraints.txt", "root", "python", "asked"])
def test_what_makes_an_environment_stale(tree: Path, change: str) -> None:
    venv = stamped(tree, **({"root": "/elsewhere"} if change == "root" else {"asked": "python3"}))
    if "." in change:
        (tree / change).write_text("# changed\n")
    elif change == "python":
        (venv / "bin" / "python").unlink()
    assert bootstrap.is_current(venv, tree, (), None) == (change == "asked")
    assert not bootstrap.is_current(venv, tree, (), "python3.12")
    assert bootstrap.is_current(venv, tree, (), "python3") == (change == "asked")


@pytest.mark.parametrize("text", ["{", "[]", '{"extras": 1}'])
def test_a_damaged_stamp_counts_as_none(tree: Path, text: str) -> None:
    venv = stamped(tree)
    (venv / bootstrap.STAMP).write_text(text)
    assert not bootstrap.is_current(venv, tree, ())


def test_a_folder_that_is_no_environment_is_never_removed(machine: Machine, tree: Path) -> None:
    machine.add("bin/python3.10")
    machine.patch.setattr(bootstrap, "usable", lambda venv: False)
    venv = tree / ".venv"
    venv.mkdir()
    (venv / "thesis.tex").write_text("irreplaceable")
    with pytest.raises(bootstrap.BootstrapError, match="is no virtual environment"):
        bootstrap.bootstrap([], venv, tree)
    assert (venv / "thesis.tex").read_text() == "irreplaceable"


def test_an_installation_that_fails_leaves_no_stamp_and_is_taken_up_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = stamped(tree, digest="older")
    code, done = "raise SystemExit('no such release')", list[Any]()
    monkeypatch.setattr(
        bootstrap, "install", lambda *_: bootstrap.run([sys.executable, "-c", code], "it")
    )
    with pytest.raises(bootstrap.BootstrapError, match=r"it failed \(exit code 1\):\nno such rel"):
        bootstrap.bootstrap([], venv, tree)
    assert not (venv / bootstrap.STAMP).exists() and bootstrap.python_of(venv).exists()
    monkeypatch.setattr(bootstrap, "install", lambda *args: done.append(args))
    room(monkeypatch, 50.0)
    bootstrap.bootstrap(["dev"], venv, tree)  # the environment that fits is kept and updated
    assert done == [(venv, tree, ["dev", "torch"])]
    assert bootstrap.is_current(venv, tree, ["dev"])


# --- torch --------------------------------------------------------------------------------------


def room(patch: pytest.MonkeyPatch, gigabytes: float) -> None:
    usage = namedtuple("usage", "free")(gigabytes * 1e9)
    patch.setattr(bootstrap.shutil, "disk_usage", lambda path: usage)


def test_torch_comes_along_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    venv = tmp_path / ".venv"

    def wanted(free: float, *extras: str) -> list[str]:
        room(monkeypatch, free)
        found: list[str] = bootstrap.with_torch(venv, tmp_path, extras)
        return found

    assert wanted(9.5, "dev") == ["dev", "torch"]
    assert wanted(0.1) == []  # `make demo`
    assert wanted(4.0, "dev") == ["dev"]
    assert "9 GB of disk, of which 4.0 GB" in capsys.readouterr().err
    with pytest.raises(bootstrap.BootstrapError, match="9 GB of disk, of which 4.0 GB"):
        wanted(4.0, "torch")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "somewhere/whl/cpu")
    assert wanted(4.0, "dev") == ["dev", "torch"]
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL")
    (venv / "lib/python3.10/site-packages/torch").mkdir(parents=True)
    assert wanted(0.1, "dev") == ["dev", "torch"]


def test_torch_is_no_core_dependency() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    extras = text.partition("[project.optional-dependencies]")[2].partition("[project.scripts]")[0]
    assert "torch" not in extras.partition("\ntest = [")[2].partition("]\n")[0]
    assert "torch" not in text.partition("\ndependencies = [")[2].partition("]\n")[0]


# --- the script itself, and the pins ------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["scripts/bootstrap.py", "protocols/platform.py", "protocols/errors.py"]
)
def test_the_script_and_what_it_imports_parse_as_python_3_8(name: str) -> None:
    ast.parse((ROOT / name).read_text(encoding="utf-8"), feature_version=(3, 8))


def test_interpreters_answer_a_probe_and_nothing_else_does(tmp_path: Path) -> None:
    found = bootstrap.probe(sys.executable)
    assert found.version == tuple(sys.version_info[:3]) and found.fits
    assert bootstrap.probe("/bin/true") is bootstrap.probe(str(tmp_path / "nothing")) is None


def test_an_unknown_extra_is_refused() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "bootstrap.py"), "cuda"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown extra 'cuda'; there are: dev, test, torch" in done.stderr


def test_every_supported_series_has_its_openfhe_pinned() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for series in SUPPORTED:
        marker = f'; python_version == "{dotted(series)}"'
        (pin,) = [p for p in pins if p.startswith("openfhe==") and p.endswith(marker)]
        assert f"'{pin}'" in project


def test_constraints_are_plain_pins() -> None:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, _, version = line.split(";")[0].strip().partition("==")
            assert name.replace("-", "").replace("_", "").replace(".", "").isalnum(), line
            assert version.replace(".", "").isalnum(), line
