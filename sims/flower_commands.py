"""Flower's programs with the right options: the one file that tells 1.30 from 1.41.

| | 1.30 | 1.41 |
|---|---|---|
| SuperLink | three gRPC ports: fleet, control, serverappio | one HTTP port: --host, --port |
| SuperNode, for its own processes | --clientappio-api-address | --host, --port |
| packages at run time | off unless asked for | on unless --disable-runtime-… (SuperLink) |

Everything is bound explicitly; telemetry and the look for updates are off.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from coordinator import settings as coordinator_files
from coordinator.certificates import CA, SERVER, SERVER_KEY
from coordinator.settings import Settings as CoordinatorSettings
from parties import settings as party_files
from parties.settings import Settings as PartySettings
from protocols.errors import ProtocolError

HOME_VARIABLE = "CIPHERCOHORT_COORDINATOR"
CONNECTION = "cohort"
COMMAND_SECONDS = 120.0
PROGRAMS = ("flower-superlink", "flower-supernode", "flwr")


def program(name: str) -> str:
    """A Flower program of this environment.

    Raises:
        ProtocolError: it is not installed.
    """
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise ProtocolError(f"{name} is not beside {sys.executable}: install flwr there")
    return str(path)


def superlink(settings: CoordinatorSettings) -> list[str]:
    """Command of the coordinator's SuperLink."""
    folder = settings.folder
    return [
        program("flower-superlink"),
        *("--ssl-ca-certfile", str(folder / CA)),
        *("--ssl-certfile", str(folder / SERVER)),
        *("--ssl-keyfile", str(folder / SERVER_KEY)),
        "--enable-supernode-auth",
        *("--database", str(folder / "superlink.db")),
        *_superlink_addresses(settings),
    ]


def _superlink_addresses(settings: CoordinatorSettings) -> list[str]:
    if has_one_port():
        return [*_host_and_port(settings.fleet), "--disable-runtime-dependency-installation"]
    return [
        *("--fleet-api-address", settings.fleet),
        *("--control-api-address", settings.control),
        *("--serverappio-api-address", settings.serverappio),
    ]


def supernode(settings: PartySettings) -> list[str]:
    """Command of a party's SuperNode, whose relay talks to the agent's socket."""
    folder, own = settings.folder, settings.clientappio
    address = _host_and_port(own) if has_one_port() else ["--clientappio-api-address", own]
    return [
        program("flower-supernode"),
        *("--root-certificates", str(folder / party_files.CA)),
        *("--superlink", settings.superlink),
        *("--auth-supernode-private-key", str(folder / party_files.NODE_KEY)),
        *("--node-config", f"party={json.dumps('unix:' + settings.socket)}"),
        *address,
    ]


def environment(folder: Path) -> dict[str, str]:
    """Environment of Flower's programs; folder: of the party or the coordinator."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "FLWR_HOME": str(folder / coordinator_files.FLOWER),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        HOME_VARIABLE: str(folder),
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
    }


def write_connection(settings: CoordinatorSettings) -> None:
    """Flower's own configuration: where `flwr` finds the SuperLink."""
    folder = settings.folder / coordinator_files.FLOWER
    folder.mkdir(exist_ok=True)
    root = json.dumps(str(settings.folder / CA))
    address = settings.fleet if has_one_port() else settings.control
    (folder / "config.toml").write_text(
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
        f"address = {json.dumps(address)}\nroot-certificates = {root}\n",
        encoding="utf-8",
    )


def register(settings: CoordinatorSettings, public_key: Path) -> int:
    """Make a party's node known to the SuperLink; returns its node id."""
    found = _flwr(settings, ["supernode", "register", str(public_key), CONNECTION])
    return int(found["node-id"])


def connected(settings: CoordinatorSettings) -> dict[int, str]:
    """Status of every registered node, by node id."""
    found = _flwr(settings, ["supernode", "list", CONNECTION])
    return {int(node["node-id"]): str(node["status"]) for node in found["nodes"]}


def submit(settings: CoordinatorSettings, session: str) -> int:
    """Start a Flower run for a session; returns its run id."""
    app = str(settings.folder / coordinator_files.APP)
    found = _flwr(settings, ["run", app, CONNECTION, "--run-config", f'session="{session}"'])
    return int(found["run-id"])


def run_state(settings: CoordinatorSettings, run: int) -> str:
    """Status of a Flower run, such as finished:failed."""
    found = _flwr(settings, ["ls", CONNECTION, "--run-id", str(run)])
    return str(found["runs"][0]["status"])


def _flwr(settings: CoordinatorSettings, arguments: Sequence[str]) -> Mapping[str, Any]:
    """One `flwr` command; `flwr run` exits 0 even on failure, so its answer counts.

    Raises:
        ProtocolError: it failed.
    """
    done = subprocess.run(  # noqa: S603 - our own arguments, no shell
        [program("flwr"), *arguments, "--format", "json"],
        env=environment(settings.folder),
        cwd=settings.folder,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    try:
        answer: Mapping[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        answer = {}
    if done.returncode or not answer.get("success"):
        words = answer.get("error-message") or (done.stderr or done.stdout).strip()[-500:]
        raise ProtocolError(f"flwr {' '.join(arguments[:2])}: {words}")
    return answer


def _host_and_port(address: str) -> list[str]:
    host, _, port = address.rpartition(":")
    return ["--host", host.strip("[]"), "--port", port]


@lru_cache(maxsize=1)
def has_one_port() -> bool:
    """Whether this Flower's SuperLink has one HTTP port in place of three gRPC ones."""
    done = subprocess.run(  # noqa: S603 - our own arguments, no shell
        [program("flower-superlink"), "--help"],
        env={**os.environ, "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_TELEMETRY_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    return "--serverappio-api-address" not in done.stdout
