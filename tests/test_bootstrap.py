"""Decisions of ``scripts/bootstrap.py`` on machines that are made up; nothing is installed."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from protocols.platform import SUPPORTED, Facts, dotted

ROOT = Path(__file__).resolve().parent.parent


def load():
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "scripts" / "bootstrap.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


bootstrap = load()


def facts(version: str = "3.10.13", glibc: tuple[int, ...] | None = (2, 36), **change) -> Facts:
    base = Facts(
        implementation="cpython",
        version=tuple(int(part) for part in version.split(".")),
        system="Linux",
        machine="x86_64",
        glibc=glibc,
        has_libgomp=True,
    )
    return dataclasses.replace(base, **change)


class FakeHost(bootstrap.Host):
    """A machine: where interpreters lie, what they are, and what uv would do."""

    def __init__(
        self,
        path: dict[str, list[str]] | None = None,
        pyenv: dict[str, list[str]] | None = None,
        uv: dict[str, str] | None = None,
        uv_fetches: str | None = None,
        interpreters: dict[str, Facts] | None = None,
        no_venv: tuple[str, ...] = (),
        release: dict[str, str] | None = None,
        here: Facts | None = None,
    ) -> None:
        self._path, self._pyenv, self._uv = path or {}, pyenv or {}, uv
        self.uv_fetches, self.interpreters = uv_fetches, interpreters or {}
        self.no_venv, self._release = no_venv, release or {}
        self.here = here or facts("3.11.2")
        self.probed: list[str] = []
        self.installed: list[str] = []

    def facts(self):
        return self.here

    def on_path(self, name):
        return self._path.get(name, [])

    def pyenv(self, series):
        return self._pyenv.get(series, [])

    def uv(self):
        return None if self._uv is None else "/uv"

    def uv_find(self, series):
        found = (self._uv or {}).get(series)
        return [found] if found else []

    def uv_install(self, series):
        self.installed.append(series)
        if self.uv_fetches:
            self._uv[series] = self.uv_fetches
        return bool(self.uv_fetches)

    def probe(self, path):
        self.probed.append(path)
        known = self.interpreters.get(path)
        return known and bootstrap.Candidate(path, known, path not in self.no_venv)

    def release(self):
        return self._release


def refusal(host: FakeHost, **options) -> str:
    with pytest.raises(bootstrap.BootstrapError) as raised:
        bootstrap.choose(host, **options)
    return str(raised.value)


# --- which interpreter --------------------------------------------------------------------------


def test_3_10_on_the_path_is_taken_and_nothing_else_is_started() -> None:
    host = FakeHost(
        path={"python3.10": ["/bin/python3.10"], "python3.12": ["/bin/python3.12"]},
        interpreters={"/bin/python3.10": facts(), "/bin/python3.12": facts("3.12.1")},
    )
    chosen, rejected = bootstrap.choose(host)
    assert (chosen.path, rejected, host.probed) == ("/bin/python3.10", [], ["/bin/python3.10"])


def test_a_dead_shim_does_not_hide_the_interpreter_behind_it() -> None:
    host = FakeHost(
        path={"python3.10": ["/shims/python3.10", "/usr/bin/python3.10"]},
        interpreters={"/usr/bin/python3.10": facts()},
    )
    chosen, rejected = bootstrap.choose(host)
    assert chosen.path == "/usr/bin/python3.10"
    assert [name for name, _ in rejected] == ["/shims/python3.10"]


@pytest.mark.parametrize("source", ["pyenv", "uv"])
def test_3_10_under_a_version_manager_is_found(source: str) -> None:
    given = {"pyenv": {"3.10": ["/there"]}, "uv": {"3.10": "/there"}}[source]
    host = FakeHost(**{source: given}, interpreters={"/there": facts()})
    assert bootstrap.choose(host)[0].path == "/there"
    assert host.installed == []


def test_3_12_is_taken_where_glibc_allows() -> None:
    host = FakeHost(
        path={"python3.12": ["/p312"]},
        interpreters={"/p312": facts("3.12.3", glibc=(2, 39))},
        here=facts("3.12.3", glibc=(2, 39)),
    )
    assert bootstrap.choose(host)[0].path == "/p312"


def test_3_12_is_passed_over_on_an_older_glibc() -> None:
    host = FakeHost(
        path={"python3": ["/p310"], "python3.12": ["/p312"]},
        interpreters={"/p310": facts(), "/p312": facts("3.12.1")},
    )
    chosen, rejected = bootstrap.choose(host)
    assert chosen.path == "/p310"
    assert "needs glibc >= 2.38" in rejected[0][1][0].cause


def test_the_plain_name_serves_where_it_fits() -> None:
    host = FakeHost(path={"python3": ["/p"]}, interpreters={"/p": facts()})
    assert bootstrap.choose(host)[0].path == "/p"


def test_pypy_is_passed_over() -> None:
    host = FakeHost(
        path={"python3.10": ["/pypy", "/real"]},
        interpreters={"/pypy": facts(implementation="pypy"), "/real": facts()},
    )
    assert bootstrap.choose(host)[0].path == "/real"


def test_uv_fetches_3_10_as_the_last_resort() -> None:
    host = FakeHost(
        path={"python3": ["/p311"]},
        uv={},
        uv_fetches="/uv310",
        interpreters={"/p311": facts("3.11.7"), "/uv310": facts()},
    )
    assert bootstrap.choose(host)[0].path == "/uv310"
    assert host.installed == ["3.10"]


def test_uv_fetches_nothing_when_told_not_to() -> None:
    host = FakeHost(uv={}, uv_fetches="/uv310", interpreters={"/uv310": facts()})
    assert "uv python install 3.10" in refusal(host, download=False)
    assert host.installed == []


def test_a_failed_download_ends_with_advice() -> None:
    assert "pyenv install 3.10" in refusal(FakeHost(uv={}))


def test_an_interpreter_that_is_asked_for_is_the_only_one_considered() -> None:
    host = FakeHost(
        path={"python3.10": ["/p310"]},
        uv={},
        uv_fetches="/uv310",
        interpreters={"/p310": facts(), "/mine": facts("3.11.7")},
    )
    assert "/mine (CPython 3.11): there is no openfhe build" in refusal(host, asked="/mine")
    assert host.probed == ["/mine"]
    assert host.installed == []


def test_the_environment_to_be_replaced_is_not_its_own_base(tmp_path: Path) -> None:
    inside = str(tmp_path / ".venv" / "bin" / "python3.10")
    host = FakeHost(
        path={"python3.10": [inside, "/p310"]}, interpreters={inside: facts(), "/p310": facts()}
    )
    assert bootstrap.choose(host, avoid=tmp_path / ".venv")[0].path == "/p310"


def test_one_folder_under_two_names_is_looked_at_once(tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    (tmp_path / "bin").symlink_to(tmp_path / "usr")
    both = [str(tmp_path / folder / "python3.10") for folder in ("bin", "usr")]
    assert list(bootstrap.paths(FakeHost(path={"python3.10": both}))) == both[:1]


def test_pyenv_versions_are_sorted_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("3.10.9", "3.10.13", "3.1.5", "3.11.7"):
        python = tmp_path / "versions" / version / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    found = [Path(path).parts[-3] for path in bootstrap.Host().pyenv("3.10")]
    assert found == ["3.10.13", "3.10.9"]


# --- what is said -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (facts(system="Darwin", machine="arm64", glibc=None), "openfhe ships Linux x86-64 wheels"),
        (facts(system="Windows", machine="AMD64", glibc=None), "WSL 2"),
        (facts(machine="aarch64"), "openfhe ships Linux x86-64 wheels"),
        (facts(glibc=None), "musl"),
        (facts(glibc=(2, 31)), "glibc 2.31 is older than 2.35"),
    ],
)
def test_a_machine_that_can_not_run_it_is_told_so_at_once(here: Facts, said: str) -> None:
    host = FakeHost(path={"python3.10": ["/p310"]}, interpreters={"/p310": facts()}, here=here)
    assert said in refusal(host)
    assert host.probed == []


@pytest.mark.parametrize(
    ("release", "first"),
    [
        ({"ID": "ubuntu", "VERSION_ID": "22.04"}, "sudo apt-get install python3.10 python3.10-v"),
        ({"ID": "ubuntu", "VERSION_ID": "24.04"}, "sudo apt-get install python3.12 python3.12-v"),
        ({"ID": "fedora", "VERSION_ID": "41"}, "sudo dnf install python3.12 libgomp"),
        ({"ID": "debian", "VERSION_ID": "12"}, "uv python install 3.10   # uv itself: pipx"),
        ({}, "uv python install 3.10"),
    ],
)
def test_advice_fits_the_distribution(release: dict[str, str], first: str) -> None:
    host = FakeHost(path={"python3": ["/p"]}, interpreters={"/p": facts("3.11.2")}, release=release)
    text = refusal(host)
    assert "needs CPython 3.10 (glibc >= 2.35) or CPython 3.12 (glibc >= 2.38)" in text
    assert "this machine has glibc 2.36" in text
    assert "/p (CPython 3.11): there is no openfhe build for CPython 3.11" in text
    steps = text.split("then try again:\n")[1].splitlines()
    assert steps[0].strip().startswith(first)
    assert steps[-1].strip() == "pyenv install 3.10"


def test_a_missing_library_alone_is_all_that_is_asked_for() -> None:
    host = FakeHost(
        path={"python3.10": ["/p310"], "python3": ["/p311"]},
        interpreters={
            "/p310": facts(has_libgomp=False),
            "/p311": facts("3.11.2", has_libgomp=False),
        },
    )
    assert refusal(host).endswith("then try again.")
    assert "apt-get install libgomp1" in refusal(host)
    assert "pyenv" not in refusal(host)


def test_a_missing_venv_module_alone_is_all_that_is_asked_for() -> None:
    host = FakeHost(
        path={"python3.10": ["/p310"]}, interpreters={"/p310": facts()}, no_venv=("/p310",)
    )
    assert "`apt-get install python3.10-venv`" in refusal(host)
    assert "pyenv" not in refusal(host)


def test_uv_makes_environments_for_interpreters_that_can_not() -> None:
    host = FakeHost(
        path={"python3.10": ["/p310"]}, uv={}, interpreters={"/p310": facts()}, no_venv=("/p310",)
    )
    assert bootstrap.choose(host)[0].path == "/p310"


def test_no_python_at_all_still_gives_advice() -> None:
    text = refusal(FakeHost())
    assert "Looked at" not in text
    assert "pyenv install 3.10" in text


# --- when there is nothing to do ----------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "constraints.txt").write_text("numpy==2.2.6\n")
    return root


def stamped(tree: Path, *extras: str, **change: object) -> Path:
    venv = tree / ".venv"
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (venv / "bin" / "python").touch()
    stamp = {"digest": bootstrap.digest(tree), "root": str(tree), "extras": list(extras)}
    (venv / bootstrap.STAMP).write_text(json.dumps({**stamp, "asked": None, **change}))
    return venv


def test_a_matching_stamp_ends_the_call_before_anything_is_looked_at(tree: Path) -> None:
    host = FakeHost()
    bootstrap.bootstrap(["dev"], stamped(tree, "dev"), host=host, root=tree)
    assert host.probed == []


@pytest.mark.parametrize(
    ("present", "wanted", "current"),
    [
        ((), (), True),
        (("dev",), (), True),
        (("dev", "torch"), ("torch",), True),
        ((), ("dev",), False),
        (("dev",), ("torch",), False),
    ],
)
def test_more_extras_than_asked_for_do_no_harm(
    tree: Path, present: tuple[str, ...], wanted: tuple[str, ...], current: bool
) -> None:
    assert bootstrap.is_current(stamped(tree, *present), tree, wanted) is current


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_file_makes_the_environment_stale(tree: Path, name: str) -> None:
    venv = stamped(tree)
    (tree / name).write_text("# changed\n")
    assert not bootstrap.is_current(venv, tree, ())


def test_a_moved_tree_makes_the_environment_stale(tree: Path) -> None:
    assert not bootstrap.is_current(stamped(tree, root="/elsewhere"), tree, ())


def test_a_missing_interpreter_makes_the_environment_stale(tree: Path) -> None:
    venv = stamped(tree)
    (venv / "bin" / "python").unlink()
    assert not bootstrap.is_current(venv, tree, ())


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"extras": 1}'])
def test_a_damaged_stamp_counts_as_none(tree: Path, text: str) -> None:
    venv = stamped(tree)
    (venv / bootstrap.STAMP).write_text(text)
    assert not bootstrap.is_current(venv, tree, ())


def test_asking_for_another_interpreter_makes_the_environment_stale(tree: Path) -> None:
    venv = stamped(tree, asked="python3.10")
    assert bootstrap.is_current(venv, tree, (), None)
    assert bootstrap.is_current(venv, tree, (), "python3.10")
    assert not bootstrap.is_current(venv, tree, (), "python3.12")


def test_a_folder_that_is_no_environment_is_never_removed(tree: Path) -> None:
    venv = tree / ".venv"
    venv.mkdir()
    (venv / "thesis.tex").write_text("irreplaceable")
    host = FakeHost(path={"python3.10": ["/p310"]}, interpreters={"/p310": facts()})
    with pytest.raises(bootstrap.BootstrapError, match="is no virtual environment"):
        bootstrap.bootstrap([], venv, host=host, root=tree)
    assert (venv / "thesis.tex").read_text() == "irreplaceable"


def test_an_installation_that_fails_leaves_no_stamp_and_shows_why(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = stamped(tree, digest="older")

    def fail(*_: object) -> None:
        bootstrap.run([sys.executable, "-c", "print('no such release'); raise SystemExit(3)"], "it")

    monkeypatch.setattr(bootstrap, "usable", lambda *_: True)
    monkeypatch.setattr(bootstrap, "install", fail)
    with pytest.raises(bootstrap.BootstrapError, match=r"it failed \(exit code 3\):\nno such rel"):
        bootstrap.bootstrap([], venv, host=FakeHost(), root=tree)
    assert not (venv / bootstrap.STAMP).exists()


def test_a_stale_environment_that_fits_is_kept_and_updated(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = stamped(tree, digest="older")
    calls = []
    monkeypatch.setattr(bootstrap, "usable", lambda *_: True)
    monkeypatch.setattr(bootstrap, "install", lambda *args: calls.append(args))
    bootstrap.bootstrap(["dev"], venv, host=FakeHost(), root=tree)
    assert calls == [(venv, tree, ["dev", "torch"])]
    assert bootstrap.is_current(venv, tree, ["dev"])


# --- the script itself --------------------------------------------------------------------------


def test_the_script_and_what_it_imports_parse_as_python_3_8() -> None:
    for name in ("scripts/bootstrap.py", "protocols/platform.py", "protocols/errors.py"):
        ast.parse((ROOT / name).read_text(encoding="utf-8"), feature_version=(3, 8))


def test_the_running_interpreter_answers_a_probe() -> None:
    candidate = bootstrap.Host().probe(sys.executable)
    assert candidate is not None
    assert candidate.facts.version == tuple(sys.version_info[:3])
    assert bootstrap.judge(candidate, has_uv=True) == []


def test_something_that_is_no_interpreter_does_not_answer(tmp_path: Path) -> None:
    assert bootstrap.Host().probe("/bin/true") is None
    assert bootstrap.Host().probe(str(tmp_path / "nothing")) is None


def test_an_unknown_extra_is_refused() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "bootstrap.py"), "cuda"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown extra 'cuda'; there are: dev, test, torch" in done.stderr


def test_every_supported_series_has_its_openfhe_pinned() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for series in SUPPORTED:
        marker = f'; python_version == "{dotted(series)}"'
        lines = [line for line in pins.splitlines() if line.startswith("openfhe==")]
        (pin,) = [line for line in lines if line.endswith(marker)]
        assert f"'{pin}'" in project


def test_constraints_are_plain_pins() -> None:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            requirement = line.split(";")[0].strip()
            name, _, version = requirement.partition("==")
            assert name.replace("-", "").replace("_", "").replace(".", "").isalnum(), line
            assert version.replace(".", "").isalnum(), line


# --- torch --------------------------------------------------------------------------------------


class SmallHost(FakeHost):
    """A machine with so much free disk [GB]."""

    def __init__(self, free: float) -> None:
        super().__init__()
        self.free = free

    def free_gb(self, path):
        return self.free


def test_torch_comes_along_where_there_is_room(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    venv = tmp_path / ".venv"

    def wanted(free: float, *extras: str) -> list:
        return bootstrap.with_torch(SmallHost(free), venv, tmp_path, extras)

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
