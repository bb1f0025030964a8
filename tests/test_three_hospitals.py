"""Three hospitals and a centre as processes of their own, over TLS with node authentication.

INSECURE toy ring. It takes about a minute, most of it to start and stop everything.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from ciphercohort import Coordinator, Party
from tests.flower.deployment import _stray
from tests.scripts import ROOT, load

BIN = Path(sys.executable).parent
SCRIPT = "examples/three_hospitals.py"
WORDS = ("--fast-insecure", "--rows", "150", "--iterations", "2", "--epsilon", "3")
MISSING = [
    name
    for name in ("flower-superlink", "flower-supernode", "flwr", "cohort")
    if not (BIN / name).exists()
]

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed beside Python: {', '.join(MISSING)}"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


SLOW = pytest.mark.skipif(
    not os.environ.get("COHORT_SLOW"), reason="minutes under a real SuperLink: set COHORT_SLOW=1"
)


def by_command(home: Path, protocol: str) -> None:
    """The example, whose hosts are commands."""
    command = [sys.executable, str(ROOT / SCRIPT), *WORDS, "--protocol", protocol]
    command += ["--keep", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "largest difference of a weight to the in-process run" in done.stdout


def from_python(home: Path, protocol: str) -> None:
    """All four hosts from this process, as in a notebook."""
    example = load(SCRIPT, *WORDS, "--protocol", protocol)
    options = example.arguments()
    label = example.prepare(home, options)
    example.found(home, options)
    passphrase = (home / "passphrase").read_text().strip()
    with ExitStack() as hosts:
        centre = hosts.enter_context(Coordinator(home / "centre").start())
        for name in example.NAMES:
            hosts.enter_context(Party(home / name).start(passphrase))
        told: list[str] = []
        run = centre.run(tell=told.append)
    assert f"session {run.session}" in told and any("train" in words for words in told)
    assert run.model.schema.label.name == label and "ε = 3" in run._repr_html_()
    example.simulate(home, label, options)


@pytest.mark.parametrize(
    ("deploy", "protocol"), [(by_command, "encrypted-rows"), (from_python, "encrypted-model")]
)
def test_deployed_and_simulated_give_the_same_model(
    tmp_path: Path, deploy: Callable[[Path, str], None], protocol: str
) -> None:
    deploy(tmp_path, protocol)
    (folder,) = (path.parent for path in tmp_path.glob("centre/sessions/*/model.json"))
    assert len(list(folder.parent.iterdir())) == 2  # the second moment's, and the training's
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["kind"] == {"encrypted-rows": "rows", "encrypted-model": "model"}[protocol]
    model = json.loads((folder / "model.json").read_text())
    simulated = json.loads((tmp_path / "simulated" / "model.json").read_text())
    allowed = load(SCRIPT).tolerance(folder)
    assert np.abs(np.subtract(model["released"], simulated["released"])).max() < allowed < 0.05
    assert np.abs(model["released"]).max() > 1e-2  # not the same zero
    for name in ("hospital-a", "hospital-b", "hospital-c"):
        assert not list((tmp_path / name / "state").glob("*.sealed"))
        assert not (tmp_path / name / "agent.sock").exists()
    assert not _stray(tmp_path)
    spent = load(SCRIPT).spent(tmp_path)
    assert sum(spent["trips"].values()) >= 20 and spent["trips"]["refresh"] == 2
    assert 0 < spent["answered"] < spent["waited"] < sum(spent["seconds"].values())
    for name in ("hospital-a", "hospital-b", "hospital-c"):  # one process for all messages
        assert len(load(SCRIPT).answers(tmp_path / name)) == sum(spent["trips"].values())
        log = (tmp_path / name / "logs" / "supernode.log").read_text()
        assert "its own SuperNode runs instead" not in log


@pytest.mark.parametrize(
    ("text", "value"), [("100Mbit", 1e8), ("20ms", 0.02), ("1.5Gbit", 1.5e9), ("2s", 2.0)]
)
def test_quantities_of_a_line(text: str, value: float) -> None:
    assert load(SCRIPT).quantity(text) == pytest.approx(value)
    for wrong in ("100", "Mbit", "20 m", "1.2.3ms"):
        with pytest.raises((ValueError, argparse.ArgumentTypeError)):
            load(SCRIPT).quantity(wrong)


@SLOW
@pytest.mark.parametrize(
    ("protocol", "step"), [("encrypted-rows", "contribute"), ("encrypted-model", "gradient/1")]
)
def test_what_is_killed_comes_back_to_the_same_model(
    tmp_path: Path, protocol: str, step: str
) -> None:
    words = ["--fast-insecure", "--rows", "150", "--iterations", "3", "--epsilon=3"]
    example = load(SCRIPT, *words, "--protocol", protocol)
    options = example.arguments()
    label = example.prepare(tmp_path, options)
    example.found(tmp_path, options)
    secret = ["--passphrase-file", tmp_path / "passphrase"]
    hosts = {"centre": cohort("coordinator", "start", tmp_path / "centre")}
    for name in example.NAMES:
        hosts[name] = cohort("party", "start", tmp_path / name, *secret)
    run = cohort("coordinator", "run", tmp_path / "centre")
    try:
        wait_for(tmp_path, "relinearise")
        for child in children(hosts["centre"].pid):  # the SuperLink
            os.kill(child, signal.SIGKILL)
        wait_for(tmp_path, step)
        kill_tree(hosts["hospital-b"])  # agent and SuperNode
        hosts["hospital-b"] = cohort("party", "start", tmp_path / "hospital-b", *secret)
        session = wait_for(tmp_path, "refresh/1")
        run.kill()
        run.wait()
        run = cohort("coordinator", "run", tmp_path / "centre", "--session", session)
        assert run.wait(400) == 0
    finally:
        run.kill()
        for host in hosts.values():
            host.send_signal(signal.SIGTERM)
        for host in hosts.values():
            host.wait(60)
    simulated, _ = example.simulate(tmp_path, label, options)
    folder = tmp_path / "centre" / "sessions" / session
    model = json.loads((folder / "model.json").read_text())
    difference = np.abs(np.subtract(model["released"], simulated["released"])).max()
    assert difference < example.tolerance(folder) < 0.05
    assert json.loads((folder / "status.json").read_text())["attempts"] >= 2
    assert cohort("audit", "transcript", folder).wait(120) == 0


def cohort(*words: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([str(BIN / "cohort"), *map(str, words)])


def wait_for(home: Path, step: str) -> str:
    """Until the run asks for a step; returns its session."""
    for _ in range(1200):
        for path in (home / "centre" / "sessions").glob("*/status.json"):
            if json.loads(path.read_text())["step"] == step:
                return path.parent.name
        time.sleep(0.2)
    raise AssertionError(f"the run never came to {step}")


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    return [child for child, parent in pairs if parent == pid]


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """kill -9, its children too."""
    found = children(process.pid)
    process.kill()
    process.wait()
    for child in found:
        os.kill(child, signal.SIGKILL)


# -- who is turned away -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def centre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A SuperLink that knows nobody, and three parties."""
    home = tmp_path_factory.mktemp("hospitals")
    example = load(SCRIPT, "--fast-insecure", "--rows", "60", "--epsilon=3")
    options = example.arguments()
    example.prepare(home, options)
    example.found(home, options)
    for card in (home / "centre" / "parties").glob("*.json"):
        card.unlink()
    superlink = subprocess.Popen([str(BIN / "cohort"), "coordinator", "start", home / "centre"])
    try:
        from coordinator.settings import Settings
        from sims import drive

        settings = Settings.load(home / "centre")
        drive._patiently(time.monotonic() + 60, print, lambda: drive.register_missing(settings))
        yield home
    finally:
        superlink.send_signal(signal.SIGTERM)
        superlink.wait(60)


def supernode(home: Path, name: str, *changes: tuple[str, str]) -> tuple[int | None, str]:
    """A SuperNode for at most 20 s: (exit code, output)."""
    from parties.agent.settings import Settings
    from sims import flower_commands

    settings = Settings.load(home / name)
    command = flower_commands.supernode(settings)
    for old, new in changes:
        command[command.index(old)] = new
    environment = flower_commands.environment(settings.folder)
    with open(home / "node.log", "w+") as log:
        process = subprocess.Popen(
            [*command, "--max-wait-time", "15"], env=environment, stdout=log, stderr=log
        )
        try:
            code: int | None = process.wait(25)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        return code, log.read()


def test_an_unregistered_node_is_turned_away(centre: Path) -> None:
    code, output = supernode(centre, "hospital-a")
    assert code, output
    assert "superlink_registered" not in output


def test_a_server_of_another_authority_is_not_trusted(centre: Path) -> None:
    from coordinator.certificates import CA, make_certificates

    other = centre / "other"
    other.mkdir()
    make_certificates(other, ["127.0.0.1"])
    ours = str(centre / "hospital-b" / "ca.crt")
    code, output = supernode(centre, "hospital-b", (ours, str(other / CA)))
    assert code, output
