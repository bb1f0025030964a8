"""`flwr run .` as a user types it in this repository: the main job.

Minutes long: set COHORT_FLOWER_RUN. Against a SuperLink every message starts a process of its own,
so what a client remembers is what Flower keeps for it. The simulation needs Ray (`pip install
"flwr[simulation]"`) and is skipped without it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ciphercohort.results.predict import load_model
from sims.lab.studies.flower.fleet import Fleet, free_ports
from tests.flower.elsewhere import hospitals
from tests.flower.environment import ROOT, quiet

BIN = Path(sys.executable).parent
PROTOCOLS = ("encrypted-rows", "encrypted-model", "secure-aggregation")
ONE_PORT = sys.version_info >= (3, 12)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not os.environ.get("COHORT_FLOWER_RUN"), reason="minutes: set COHORT_FLOWER_RUN=1"
    ),
]


def is_released(out: Path, protocol: str) -> None:
    """A model, and a certificate for it."""
    assert np.abs(load_model(out / "model.json").weights).max() > 1e-3
    certificate: dict[str, Any] = json.loads((out / "certificate.json").read_text())
    assert certificate["satisfied"]
    assert json.loads((out / "plan.json").read_text())["protocol"] == protocol


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.skipif(ONE_PORT, reason="1.41's SuperLink takes other options: see flower_commands")
def test_on_a_superlink(protocol: str, tmp_path: Path) -> None:
    """Somebody else's: three SuperNodes, each with a file of rows and a home folder."""
    nodes = hospitals(tmp_path / "hospitals", **{"cohort-allow-insecure": True})
    there, out = Fleet(tmp_path / "there", nodes), tmp_path / "out"
    schema = str(tmp_path / "hospitals" / "schema.json")
    options = {"protocol": protocol, "iterations": 1, "update": "gd", "schema": schema}
    if protocol != "secure-aggregation":
        options["profile"] = "fast-insecure"
    with there.running():
        status, log = there.run(ROOT, {**options, "out": str(out)})
    assert status == "finished:completed", log[-3000:]
    is_released(out, protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs flwr[simulation]")
def test_in_simulation(protocol: str, tmp_path: Path) -> None:
    """Flower's ten nodes, with the app's own rows."""
    home, out = tmp_path / "flwr", tmp_path / "out"
    options = f'protocol="{protocol}" iterations=1 parties=10 out="{out}"'
    environment = {
        **quiet(),
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_CONTROL_API_PORT": str(free_ports(1)[0]),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    try:
        done = subprocess.run(
            [str(BIN / "flwr"), "run", ".", "--stream", "--run-config", options],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1200,
        )
    finally:
        end_local_superlink(home)
    assert re.search("finished.*completed|documents:", done.stdout), done.stdout + done.stderr
    is_released(out, protocol)


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
