"""Command lines for both generations of Flower, and what 1.41 needs inside its processes."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ciphercohort.deploy import flower_commands
from ciphercohort.deploy.flower_commands import OwnMachineOnly
from coordinator.settings import Settings as CentreSettings
from parties import launch
from parties.agent.settings import Settings
from protocols.exchange.documents import load_toml
from tests.flower.environment import quiet
from tests.support.scripts import ROOT

GENERATIONS = pytest.mark.parametrize("one_port", [False, True], ids=["1.30", "1.41"])


@pytest.fixture
def centre(tmp_path: Path) -> CentreSettings:
    (tmp_path / "flwr").mkdir()
    return CentreSettings(
        folder=tmp_path, fleet="0.0.0.0:1", control="127.0.0.1:2", serverappio="127.0.0.1:3"
    )


@pytest.fixture
def party(tmp_path: Path) -> Settings:
    return Settings(
        folder=tmp_path,
        name="a",
        data="rows.csv",
        coordinator_key="00" * 32,
        superlink="centre.example.org:1",
        socket="/run/a b.sock",
        clientappio="127.0.0.1:4",
    )


@pytest.fixture
def generation(monkeypatch: pytest.MonkeyPatch, one_port: bool) -> bool:
    monkeypatch.setattr(flower_commands, "has_one_port", lambda: one_port)
    monkeypatch.setattr(flower_commands, "program", lambda name: name)
    return one_port


@GENERATIONS
def test_superlink(centre: CentreSettings, generation: bool) -> None:
    folder = centre.folder
    common = [
        *("--ssl-ca-certfile", f"{folder}/ca.crt", "--ssl-certfile", f"{folder}/server.pem"),
        *("--ssl-keyfile", f"{folder}/server.key", "--enable-supernode-auth"),
    ]
    old = [
        *("flower-superlink", *common, "--fleet-api-address", "0.0.0.0:1"),
        *("--control-api-address", "127.0.0.1:2", "--serverappio-api-address", "127.0.0.1:3"),
    ]
    new = [
        *(*launch.program("ciphercohort.deploy.flower_commands"), "flower-superlink", *common),
        *("--host", "0.0.0.0", "--port", "1", "--disable-runtime-dependency-installation"),
    ]
    assert flower_commands.superlink(centre) == (new if generation else old)


@GENERATIONS
def test_supernode(party: Settings, generation: bool) -> None:
    folder = party.folder
    common = [
        *("--root-certificates", f"{folder}/ca.crt", "--superlink", "centre.example.org:1"),
        *("--auth-supernode-private-key", f"{folder}/node.key"),
        *("--node-config", 'party="unix:/run/a b.sock"'),
    ]
    node = launch.program("parties.flower_node")
    old = [*node, "flower-supernode", *common, "--clientappio-api-address", "127.0.0.1:4"]
    new = [
        *node,
        *(*launch.program("ciphercohort.deploy.flower_commands"), "flower-supernode", *common),
        *("--host", "127.0.0.1", "--port", "4"),
    ]
    assert flower_commands.supernode(party) == (new if generation else old)


@GENERATIONS
def test_commands_go_to_the_port_that_takes_them(centre: CentreSettings, generation: bool) -> None:
    flower_commands.write_connection(centre)
    (connection,) = (
        value
        for name, value in load_toml(centre.folder / "flwr" / "config.toml")["superlink"].items()
        if name != "default"
    )
    assert connection == {
        "address": "127.0.0.1:1" if generation else "127.0.0.1:2",
        "root-certificates": f"{centre.folder}/ca.crt",
    }


@pytest.mark.parametrize("path", [f"{ROOT}", f":{ROOT}", f".:{ROOT}:", f"{ROOT}:./", f"{ROOT}:..:"])
@pytest.mark.parametrize("module", ["parties.agent", "parties.flower_node"])
def test_nothing_is_loaded_from_the_current_folder(module: str, path: str, tmp_path: Path) -> None:
    """Whatever lies there: every module of Python's, and our packages."""
    names = {*sys.stdlib_module_names, "numpy", "openfhe", "parties", "protocols"}
    for name in names - {*sys.builtin_module_names}:
        (tmp_path / f"{name}.py").write_text("open('LOADED', 'a').write(__name__ + ' ')")
    command = [*launch.program(module), "no such folder"]
    environment = {**quiet(), "PYTHONPATH": path}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=environment, input=b"")
    assert not (tmp_path / "LOADED").exists()
    assert done.returncode and b"No module named" not in done.stderr


def test_every_process_of_ours_is_started_in_one_place() -> None:
    """Or in Python's isolated mode."""
    start = re.compile(r"sys\.executable,(?! \"-I\")")
    packages = ("ciphercohort", "coordinator", "parties", "protocols", "sims")
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if start.search(path.read_text())}
    assert found == {"parties/launch.py"}


@pytest.mark.parametrize("line", ["", "{}", "[1]", "no JSON", '{"passphrase": 3}'])
def test_an_agent_without_a_passphrase_says_so(line: str, tmp_path: Path) -> None:
    command = [*launch.program("parties.agent"), str(tmp_path)]
    done = subprocess.run(command, input=f"{line}\n", capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert json.loads(done.stdout)["kind"] == "MessageError"


def test_the_installed_programs_know_every_option(centre: CentreSettings, party: Settings) -> None:
    """And the launcher, where there is one, starts them; of the node: those it falls back on."""
    node = flower_commands.supernode(party)
    own = len(launch.program("parties.flower_node"))
    for command in (flower_commands.superlink(centre), node[own:]):
        start = command[: next(k for k, word in enumerate(command) if word.startswith("--"))]
        done = subprocess.run(
            [*start, "--help"], capture_output=True, text=True, timeout=300, env=dict(quiet())
        )
        assert done.returncode == 0, done.stderr
        known = done.stdout.replace(",", " ").replace("]", " ").split()
        for word in command:
            assert not word.startswith("--") or word in known, word


def test_telemetry_updates_and_old_ports_are_off(centre: CentreSettings) -> None:
    environment = flower_commands.environment(centre.folder)
    assert {name: value for name, value in environment.items() if name.startswith("FLWR_")} == {
        "FLWR_HOME": f"{centre.folder}/flwr",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_INTERNAL_GRPC_FLEET_API": "0",
        "FLWR_INTERNAL_GRPC_CONTROL_API": "0",
    }


# -- inside 1.41's processes ----------------------------------------------------------------------

HERE, THERE = ("10.0.0.1", 9092), ("10.0.0.7", 40000)


def answer(path: str, client: Any, server: Any, kind: str = "http") -> Any:
    """Status that a request is answered with; 200 if it was passed on."""
    sent: list[dict[str, Any]] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    scope = {"type": kind, "path": path, "client": client, "server": server}
    asyncio.run(OwnMachineOnly(inner)(scope, None, send))
    return sent[0].get("status", sent[0]["type"])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run", "/docs", "", "/v1/fleet", "/V1/fleet/x", "//v1/fleet/x",
    ],
)  # fmt: skip
def test_other_machines_reach_the_fleet_alone(path: str) -> None:
    assert answer(path, THERE, HERE) == 403
    assert answer(path, (HERE[0], 50000), HERE) == 200
    assert answer("/v1/fleet/pull-messages", THERE, HERE) == 200


def test_who_can_not_be_told_is_another_machine() -> None:
    for client, server in ((None, None), (None, HERE), (THERE, None)):
        assert answer("/v1/control/start-run", client, server) == 403
    assert answer("/v1/fleet/x", THERE, HERE, kind="websocket") == "websocket.close"
    assert answer("", None, None, kind="lifespan") == 200


def test_the_superlink_serves_behind_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    uvicorn = pytest.importorskip("uvicorn", reason="1.30 has no HTTP")
    loaded: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        pass

    def start() -> None:
        config = uvicorn.Config(app, ws="none")
        config.load()
        loaded.append(config.loaded_app)

    monkeypatch.setattr(uvicorn.Config, "load", uvicorn.Config.load)  # and back
    flower = importlib.import_module("flwr.superlink.cli.flower_superlink")
    monkeypatch.setattr(flower, "flower_superlink", start)
    flower_commands.serve_guarded()
    assert [type(served) for served in loaded] == [OwnMachineOnly]


def test_a_supernode_ends_with_its_main_thread() -> None:
    """Although another thread of it would go on."""
    code = """
import sys, threading, time
import flwr.supernode.cli.flower_supernode
from ciphercohort.deploy.flower_commands import end_with_main_thread

def give_up():
    threading.Thread(target=time.sleep, args=(999,)).start()
    raise OSError('handshake')

sys.modules["flwr.supernode.cli.flower_supernode"].flower_supernode = give_up
end_with_main_thread()
"""
    began = time.monotonic()
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=dict(quiet()))
    assert done.returncode == 1 and "OSError: handshake" in done.stderr
    # Imports alone take ten seconds and more where a machine is busy.
    assert time.monotonic() - began < 500
