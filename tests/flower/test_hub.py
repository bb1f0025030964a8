"""The examples are whole apps: what Flower's hub asks for, and both ways to run them."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

from tests.flower.environment import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDERS = sorted(path.parent for path in (ROOT / "examples").glob("flower-*/pyproject.toml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_example_is_a_whole_app(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["license"] == "Apache-2.0"
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    readme = (folder / project["project"]["readme"]).read_text()
    assert "flwr run . --stream" in readme and "flwr run . NAME" in readme
    app = project["tool"]["flwr"]["app"]
    for component in app["components"].values():
        module, _, name = component.partition(":")
        assert name and folder.joinpath(*module.split(".")).with_suffix(".py").exists()
    assert {"ciphercohort"} < {each.split(">")[0] for each in project["project"]["dependencies"]}
    # Flower's limit for an app is 10 MB.
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 1_000_000


def test_the_root_starts_the_main_job(tmp_path: Path) -> None:
    """examples/flower-regression from the repository's root: its options, its files, no others."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    root = tomllib.loads(text)
    folder = ROOT / "examples" / "flower-regression"
    own = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]
    app = root["tool"]["flwr"]["app"]
    assert app["config"] == own["app"]["config"]
    prefix = "examples.flower-regression."
    parts = own["app"]["components"].items()
    assert app["components"] == {name: prefix + module for name, module in parts}
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(ROOT))) as fab:
        names = {Path(name) for name in fab.namelist()}
    package = folder / "joint_model"
    files = {p.relative_to(ROOT) for p in package.iterdir() if p.suffix in (".py", ".json")}
    assert {p for p in names if p.suffix in (".py", ".json")} == {
        *files,
        Path("examples/__init__.py"),
    }


def test_there_are_five() -> None:
    assert len(FOLDERS) == 5
