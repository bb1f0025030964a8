"""`flwr run .` as a user types it: this repository's app, against a SuperLink and in simulation.

Minutes long: set COHORT_FLOWER_RUN. Against a SuperLink every message starts a process of its own,
so what a client remembers is what Flower keeps for it. The simulation needs Ray (`pip install
"flwr[simulation]"`) and is skipped without it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from tests.flower.environment import ROOT, quiet

CLIENTS = 4
BIN = Path(sys.executable).parent
WANTED = pytest.mark.skipif(
    not os.environ.get("COHORT_FLOWER_RUN"), reason="minutes: set COHORT_FLOWER_RUN=1"
)
ONE_PORT = sys.version_info >= (3, 12)


def reference(clients: int, rounds: int, steps: int = 20, rate: float = 2.0) -> np.ndarray:
    """The app's model in the clear, by its own few lines."""
    x, y = load_breast_cancer(return_X_y=True)
    x, y = np.c_[x / x.max(axis=0), np.ones(len(x))], 2.0 * y - 1
    w = np.zeros(x.shape[1])
    for _ in range(rounds):
        models, counts = [], []
        for k in range(clients):
            own, labels, v = x[k::clients], y[k::clients], w.copy()
            for _ in range(steps):
                v += rate * (labels / (1 + np.exp(labels * (own @ v)))) @ own / len(labels)
            models.append(v)
            counts.append(len(labels))
        w = np.average(models, axis=0, weights=counts)
    return w


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def environment(home: Path) -> dict[str, str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return {**quiet(), "FLWR_HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def superlink(tmp_path: Path) -> Iterator[Path]:
    """FLWR_HOME of a SuperLink with four SuperNodes on this machine."""
    home = tmp_path / "flwr"
    home.mkdir()
    ports = free_ports(3 + CLIENTS)
    fleet, control, serverappio, *own = (f"127.0.0.1:{port}" for port in ports)
    link = [str(BIN / "flower-superlink"), "--insecure"]
    link += ["--fleet-api-address", fleet, "--control-api-address", control]
    link += ["--serverappio-api-address", serverappio]
    commands = [link]
    for k in range(CLIENTS):
        node = [str(BIN / "flower-supernode"), "--insecure", "--superlink", fleet]
        config = f'partition-id={k} num-partitions={CLIENTS} secure-sum-home="{tmp_path}/home{k}"'
        commands.append([*node, "--clientappio-api-address", own[k], "--node-config", config])
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{control}"\ninsecure = true\n'
    )
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with (tmp_path / f"process{number}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(command, env=environment(home), stdout=log, stderr=log)
                )
            time.sleep(3.0 if number == 0 else 0.1)
        yield home
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


def flwr(home: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(BIN / "flwr"), *words, "--format", "json"],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=300,
    )
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    assert found.get("success"), done.stdout + done.stderr
    return found


@pytest.mark.slow
@WANTED
@pytest.mark.skipif(ONE_PORT, reason="1.41's SuperLink takes other options: see flower_commands")
def test_against_a_superlink(superlink: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.npz"
    options = f'num-server-rounds=2 out="{out}"'
    run = flwr(superlink, "run", ".", "here", "--run-config", options)["run-id"]
    for _ in range(240):
        status = flwr(superlink, "ls", "here", "--run-id", str(run))["runs"][0]["status"]
        if status.startswith("finished"):
            break
        time.sleep(0.5)
    assert status == "finished:completed"
    found = np.load(out)["arr_0"]
    assert np.abs(found - reference(CLIENTS, 2)).max() < 1e-4
    assert all((tmp_path / f"home{k}" / "identity.key").exists() for k in range(CLIENTS))


def end_local_superlink(home: Path) -> None:
    """`flwr run` leaves one behind; it is the process with this FLWR_HOME."""
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes()
            mine = f"FLWR_HOME={home}".encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        if mine and b"flower-superlink" in command:
            os.kill(int(entry.name), 15)
