"""Three hospitals and a centre as processes of their own, over TLS with node authentication.

INSECURE toy ring, but for the sum of a second moment, which needs none. Each deployment takes half
a minute, most of it to start and stop everything.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from ciphercohort import Coordinator, Party, simulate
from ciphercohort.cli.app import app
from ciphercohort.deploy import drive, flower_commands
from ciphercohort.deploy.supervise import child
from coordinator.certificates import CA, make_certificates
from tests.support.processes import stray
from tests.support.scripts import load

BIN = Path(sys.executable).parent
COHORT = BIN / "cohort"
SCRIPT = "examples/three_hospitals.py"
WORDS = ("--fast-insecure", "--rows", "150", "--iterations", "2", "--epsilon", "3")
HERE = threading.Lock()
PASSPHRASE = "correct horse battery staple"
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


def check(example: Any, home: Path, kind: str, simulated: Any) -> dict[str, Any]:
    """The deployed model is the simulated one, and nothing is left; what the run cost."""
    (folder,) = (path.parent for path in home.glob("centre/sessions/*/model.json"))
    assert json.loads((folder / "plan.json").read_text())["kind"] == kind
    released = json.loads((folder / "model.json").read_text())["released"]
    allowed = example.tolerance(folder)
    assert np.abs(np.subtract(released, simulated)).max() < allowed < 0.05
    assert np.abs(released).max() > 1e-2  # not the same zero
    spent: dict[str, Any] = example.spent(home)
    assert 0 < spent["answered"] < spent["waited"] < sum(spent["seconds"].values())
    for name in example.NAMES:
        assert not list((home / name / "state").glob("*.sealed"))
        assert not (home / name / "agent.sock").exists()
        # One process for all messages.
        assert len(example.answers(home / name)) == sum(spent["trips"].values())
        log = (home / name / "logs" / "supernode.log").read_text()
        assert "its own SuperNode runs instead" not in log
    return spent


def command_here(*words: object, before: object = None) -> str:
    """`cohort` in this process, which has its libraries; its output."""
    with HERE:  # it takes the process's output
        done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_deployed_and_simulated_give_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the example, whose hosts are commands: a second moment, then rows that it whitens."""
    example = load(SCRIPT, *WORDS, "--keep", str(tmp_path))
    monkeypatch.setattr(example, "cohort", command_here)
    assert example.main() == 0
    told = capfd.readouterr()
    assert "largest difference of a weight to the in-process run" in told.out
    table = {words[0]: words[1:] for words in map(str.split, told.out.splitlines()) if words}
    assert table["phase"][:2] == ["deployed", "in"] and {"keys", "train", "refresh"} <= set(table)
    simulated = json.loads((tmp_path / "simulated" / "release" / "model.json").read_text())
    spent = check(example, tmp_path, "rows", simulated["released"])
    assert sum(spent["trips"].values()) >= 20 and spent["trips"]["refresh"] == 4
    assert len(list((tmp_path / "centre" / "sessions").iterdir())) == 2
    assert "SuperNode of hospital-a" in told.err  # of its process
    assert "ended with code" not in told.err  # a start without what looks like an error
    assert told.err.count("do not restart the agent") == len(example.NAMES)
    assert not stray(tmp_path)


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
    with ExitStack() as stack:

        def cohort(*words: object) -> subprocess.Popen[bytes]:
            return stack.enter_context(child([str(COHORT), *map(str, words)], seconds=60))

        hosts = {"centre": cohort("coordinator", "start", tmp_path / "centre")}
        for name in example.NAMES:
            hosts[name] = cohort("party", "start", tmp_path / name, *secret)
        run = cohort("coordinator", "run", tmp_path / "centre")
        wait_for(tmp_path, "relinearise")
        for pid in children(hosts["centre"].pid):  # the SuperLink
            os.kill(pid, signal.SIGKILL)
        wait_for(tmp_path, step)
        kill_tree(hosts["hospital-b"])  # agent and SuperNode
        hosts["hospital-b"] = cohort("party", "start", tmp_path / "hospital-b", *secret)
        session = wait_for(tmp_path, "refresh/1")
        run.kill()
        run.wait()
        run = cohort("coordinator", "run", tmp_path / "centre", "--session", session)
        assert run.wait(400) == 0
        for host in hosts.values():
            host.terminate()
    simulated, _ = example.simulate(tmp_path, label, options)
    folder = tmp_path / "centre" / "sessions" / session
    model = json.loads((folder / "model.json").read_text())
    difference = np.abs(np.subtract(model["released"], simulated["released"])).max()
    assert difference < example.tolerance(folder) < 0.05
    assert json.loads((folder / "status.json").read_text())["attempts"] >= 2
    verified = subprocess.run([str(COHORT), "verify", str(folder)], timeout=120)
    assert verified.returncode == 0


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
    for pid in found:
        os.kill(pid, signal.SIGKILL)


# -- from Python, as in a notebook ----------------------------------------------------------------


@dataclass(frozen=True)
class Hosts:
    """Folders of a centre, whose SuperLink runs and knows nobody, and of three parties."""

    home: Path
    centre: Coordinator
    parties: tuple[Party, ...]
    training: Mapping[str, Any]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    home = tmp_path_factory.mktemp("hospitals")
    example = load(SCRIPT, *WORDS)
    example.prepare(home, example.arguments())
    fleet, control, own, *relays = (f"127.0.0.1:{port}" for port in example.free_ports(6))
    training = {"protocol": "encrypted-model", "update": "gd", "iterations": 2, "epsilon": 3.0}
    training |= {"profile": "fast-insecure", "colluders": 1}
    centre = Coordinator.init(
        home / "centre",
        schema=home / "schema.json",
        fleet=fleet,
        control=control,
        serverappio=own,
        **training,
    )
    parties = tuple(
        Party.init(
            home / name,
            invitation=centre.invitation,
            data=home / f"{name}.csv",
            passphrase=PASSPHRASE,
            consent="policy",
            max_epsilon=3.0,
            allow_insecure=True,
            address=relay,
            insecure_noise_seed=example.SEED,
        )
        for name, relay in zip(example.NAMES, relays, strict=True)
    )
    with centre.start():
        drive._patiently(
            time.monotonic() + 60, print, lambda: drive.register_missing(centre.settings)
        )
        yield Hosts(home, centre, parties, training)
    assert not stray(home)


def test_hosts_from_python(hosts: Hosts) -> None:
    example, home = load(SCRIPT), hosts.home
    cards = [party.card for party in hosts.parties]
    hosts.centre.admit(*cards)
    with ExitStack() as running:
        for party in hosts.parties:
            party.know(*cards)
            running.enter_context(party.start(PASSPHRASE))
        told: list[str] = []
        run = hosts.centre.run(tell=told.append)
    assert f"session {run.session}" in told and any("train" in words for words in told)
    assert run.model.schema.label.name == "label" and "ε = 3" in run._repr_html_()
    simulated = simulate(
        data=home / "all.csv",
        label="label",
        split="by:hospital",
        test=home / "test.csv",
        schema=home / "schema.json",
        seed=example.SEED,
        **hosts.training,
    )
    spent = check(example, home, "model", simulated.released)
    assert (spent["trips"]["refresh"], spent["trips"]["train"]) == (2, 4)


# -- who is turned away -------------------------------------------------------------------------


def supernode(
    hosts: Hosts, ending: str, other: Path
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A SuperNode with another file for one of its own, which gives up after five seconds."""
    settings = hosts.parties[0].settings
    usual = flower_commands.supernode(settings)
    command = [str(other) if word.endswith(ending) else word for word in usual]
    assert command != usual
    environment = flower_commands.environment(settings.folder)
    return child([*command, "--max-wait-time", "5"], env=environment, stderr=subprocess.DEVNULL)


def test_strangers_are_turned_away(hosts: Hosts, tmp_path: Path) -> None:
    """A node that nobody registered; and by a node, a server of another authority."""
    key = ec.generate_private_key(ec.SECP384R1())
    form, plain = PrivateFormat.OpenSSH, NoEncryption()
    (tmp_path / "node.key").write_bytes(key.private_bytes(Encoding.PEM, form, plain))
    make_certificates(tmp_path, ["127.0.0.1"])
    pairs = (("node.key", tmp_path / "node.key"), ("ca.crt", tmp_path / CA))
    with ExitStack() as stack:
        nodes = [stack.enter_context(supernode(hosts, *pair)) for pair in pairs]
        assert [node.wait(60) for node in nodes] == [os.EX_TEMPFAIL] * 2
