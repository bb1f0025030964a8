"""The distribution of the secure sums alone: pure Python, without what the whole package needs."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.flower.environment import ROOT, quiet

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCRIPT = ROOT / "scripts" / "flower_wheel.py"
ALLOWED = {"numpy", "cryptography", "flwr"}
# A round of three clients, where libraries of REFUSED cannot be imported.
ROUND = """
import sys
for name in REFUSED:
    sys.modules[name] = None  # importing it fails
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
import ciphercohort, ciphercohort.flower as flower
from ciphercohort.flower.in_process import InProcessGrid
assert ".whl" in flower.__file__, flower.__file__
app = ClientApp(mods=[flower.SecureSumMod(privacy=PRIVACY)])
@app.train()
def train(message, context):
    w = message.content["arrays"]["w"].numpy()
    if PRIVACY:
        rows = flower.lot(50)
        w = np.zeros((len(rows), 4))
    else:
        w = w + context.node_config["partition-id"]
    reply = {"arrays": ArrayRecord({"w": Array(w)}), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(reply), reply_to=message)
grid = InProcessGrid(app, {k + 1: {"partition-id": k} for k in range(3)})
privacy = None
if PRIVACY:
    privacy = flower.Privacy.for_rounds(
        epsilon=4.0, delta=1e-5, rounds=1, clip=1.0, sampling=0.5, records=150
    )
strategy = flower.SecureSum(FedAvg(fraction_evaluate=0.0), privacy=privacy)
result = strategy.start(grid, ArrayRecord({"w": Array(np.zeros(4))}), num_rounds=1)
w = result.arrays["w"].numpy()
assert PRIVACY or np.abs(w - 1).max() < 1e-4, w
print("mean", w)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path_factory.mktemp("dist"))],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


def test_it_is_pure_and_whole(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert all(n.endswith((".py", ".typed")) or ".dist-info/" in n for n in names)
        record = next(name for name in names if name.endswith("RECORD"))
        listed = archive.read(record).decode().split()
        assert len(listed) == len(names) < 80
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    needs = {line for line in metadata.splitlines() if line.startswith("Requires-Dist")}
    plain = {n.split()[1].split(">")[0] for n in needs if "extra" not in n}
    assert plain == ALLOWED
    assert not [n for n in names if n.startswith(("sims/", "parties/", "coordinator/"))]


def test_its_bytes_follow_from_the_sources(wheel: Path, tmp_path: Path) -> None:
    build: Any = runpy.run_path(str(SCRIPT))["build"]
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize("privacy", [False, True])
def test_a_round_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path, privacy: bool) -> None:
    """Private sums need the extra, and nothing beyond."""
    refused = ["openfhe", "pandas", "sklearn", "msgspec"]
    refused += [] if privacy else ["scipy", "dp_accounting"]
    code = f"REFUSED = {refused}\nPRIVACY = {privacy}\n{ROUND}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**quiet(), "PYTHONPATH": os.fspath(wheel)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "mean" in done.stdout


def whole(folder: Path) -> Path:
    """A wheel of all packages, as the build backend makes it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    path = folder / "ciphercohort-0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in (file for package in packages for file in (ROOT / package).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(ROOT).as_posix())
        described = "Metadata-Version: 2.4\nName: ciphercohort\nRequires-Dist: numpy\n\nText\n"
        archive.writestr("ciphercohort-0.dist-info/METADATA", described)
        archive.writestr("ciphercohort-0.dist-info/RECORD", "")
    return path


def test_the_whole_package_needs_the_small_wheel_in_place_of_a_second_copy(
    wheel: Path, tmp_path: Path
) -> None:
    without: Any = runpy.run_path(str(SCRIPT))["without"]
    large = whole(tmp_path)
    everything = set(zipfile.ZipFile(large).namelist())
    without(large, wheel)
    with zipfile.ZipFile(large) as rest, zipfile.ZipFile(wheel) as small:
        names, own = set(rest.namelist()), {n for n in small.namelist() if ".dist-info/" not in n}
        assert names | own == everything and not names & own
        described = rest.read("ciphercohort-0.dist-info/METADATA").decode().splitlines()
        version = wheel.name.split("-")[1]
        need = f"Requires-Dist: ciphercohort-flower=={version}"
        assert described[2:4] == [need, "Requires-Dist: numpy"]
        listed = rest.read("ciphercohort-0.dist-info/RECORD").decode().splitlines()
        assert {line.split(",")[0] for line in listed} == names
        rest.extractall(tmp_path / "alone")
        rest.extractall(tmp_path / "both")
        small.extractall(tmp_path / "both")
    for folder, loads in (("both", True), ("alone", False)):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import ciphercohort.cli.app, ciphercohort.flower as f; print(f.__file__)",
            ],
            cwd=tmp_path,
            env={**quiet(), "PYTHONPATH": str(tmp_path / folder)},
            capture_output=True,
            text=True,
        )
        assert (str(tmp_path / folder) in done.stdout) == loads, done.stderr
    with pytest.raises(SystemExit, match="has not the modules"):
        without(large, wheel)


@pytest.mark.parametrize(("page", "folder"), [("README.md", ""), ("docs/flower.md", "docs")])
def test_a_long_description_has_no_link_that_leads_nowhere(page: str, folder: str) -> None:
    """With an address every file has its own there; without one, links to files are words."""
    linked: Any = runpy.run_path(str(SCRIPT))["linked"]
    text = (ROOT / page).read_text(encoding="utf-8")
    public = "https://example.org/files/"
    targets = re.findall(r"\]\(([^()\s]+)\)", linked(text, folder, public))
    own = [each for each in targets if each.startswith(public)]
    assert own and all(each.startswith(("https://", "http://", "#")) for each in targets)
    for each in own:
        assert (ROOT / each.removeprefix(public).partition("#")[0]).exists(), each
    alone = linked(text, folder, "")
    assert all(t.startswith(("http", "#")) for t in re.findall(r"\]\(([^()\s]+)\)", alone))
    assert linked("[a](b.md#c)", "docs", "") == "a"
    assert linked("[a](../b.md#c)", "docs", "https://x") == "[a](https://x/b.md#c)"
