"""Flower's programs with the right options: the one file that tells 1.30 from 1.41.

| | 1.30 | 1.41 |
|---|---|---|
| SuperLink | three gRPC ports: fleet, control, serverappio | one HTTP port: --host, --port |
| who may start runs there | whoever reaches the port control | `OwnMachineOnly` |
| Flower's own SuperNode, for its processes | --clientappio-api-address | --host, --port |
| Flower's own SuperNode that gives up | ends | lives on, does nothing: `end_with_main_thread` |
| packages at run time | off unless asked for | on unless --disable-runtime-… (SuperLink) |
| sender of a message | filled in by the grid | read from the process's TaskIdentity |

1.41's SuperLink and SuperNode therefore start through this file:
`python -m ciphercohort.deploy.flower_commands`. The SuperNode is Flower's own only where
`flower_node` does not know the installed Flower.
Everything is bound explicitly; telemetry and the look for updates are off.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator import settings as coordinator_files
from coordinator.certificates import CA, SERVER, SERVER_KEY
from coordinator.settings import HOME_VARIABLE
from coordinator.settings import Settings as CoordinatorSettings
from parties import launch
from protocols.errors import ParameterError, ProtocolError

if TYPE_CHECKING:  # it loads what Flower's processes need not
    from parties.agent.settings import Settings as PartySettings

CONNECTION = "cohort"
# A node's gRPC connection in 1.30; its HTTP connection of 1.41 is elsewhere.
GRPC_NODE = "client/grpc_rere_client"
COMMAND_SECONDS = 60.0
"""Of one question to a SuperLink that listens: it starts a program of Flower, on a busy machine."""
DIAL_SECONDS = 5.0
"""Of finding out whether anything listens, on the centre's own machine."""


def program(name: str) -> str:
    """A Flower program of this environment.

    Raises:
        ProtocolError: it is not installed.
    """
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise ProtocolError(f"{name} is not beside {sys.executable}: install flwr there")
    return str(path)


def _start(name: str) -> list[str]:
    started = [*launch.program("ciphercohort.deploy.flower_commands"), name]
    return started if has_one_port() else [program(name)]


def superlink(settings: CoordinatorSettings) -> list[str]:
    """Command of the coordinator's SuperLink, which keeps what it relays in memory.

    In a database each request would take a few milliseconds of a core, and each ciphertext the
    disk. It would keep no run: Flower fails those of a SuperLink that died.
    """
    folder = settings.folder
    return [
        *_start("flower-superlink"),
        *("--ssl-ca-certfile", str(folder / CA)),
        *("--ssl-certfile", str(folder / SERVER)),
        *("--ssl-keyfile", str(folder / SERVER_KEY)),
        "--enable-supernode-auth",
        *_superlink_addresses(settings),
    ]


def _superlink_addresses(settings: CoordinatorSettings) -> list[str]:
    if has_one_port():
        return [*host_and_port(settings.fleet), "--disable-runtime-dependency-installation"]
    return [
        *("--fleet-api-address", settings.fleet),
        *("--control-api-address", settings.control),
        *("--serverappio-api-address", settings.serverappio),
    ]


def check_addresses(settings: CoordinatorSettings) -> None:
    """Refuse addresses that the SuperLink could not bind.

    Raises:
        ParameterError: names the first, and what to do.
    """
    for name in ("fleet",) if has_one_port() else ("fleet", "control", "serverappio"):
        address = getattr(settings, name)
        host, _, port = address.rpartition(":")
        try:
            family, *_, bound = socket.getaddrinfo(
                host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            socket.create_server(bound[:2], family=family).close()
        except OSError as error:
            raise ParameterError(
                f"{name}={address} cannot be bound ({error.strerror}): stop what listens there, or "
                f"set another {name} in coordinator.toml"
            ) from None


def supernode(settings: PartySettings) -> list[str]:
    """Command of a party's node, which relays to the agent's socket.

    It is `parties.flower_node`, started with the command of Flower's own SuperNode, to fall back
    on where the installed Flower is unknown.
    """
    from parties.agent import settings as party_files

    folder, own = settings.folder, settings.clientappio
    address = host_and_port(own) if has_one_port() else ["--clientappio-api-address", own]
    return [
        *launch.program("parties.flower_node"),
        *_start("flower-supernode"),
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
        # 1.41 would open its old gRPC ports on every address.
        "FLWR_INTERNAL_GRPC_FLEET_API": "0",
        "FLWR_INTERNAL_GRPC_CONTROL_API": "0",
        HOME_VARIABLE: str(folder),
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
    }


def write_connection(settings: CoordinatorSettings) -> None:
    """Flower's own configuration: where `flwr` finds the SuperLink."""
    connect(settings.folder, _commands_at(settings), settings.folder / CA)


def connect(folder: Path, address: str, roots: Path | None) -> None:
    """Have `flwr` in this folder find a SuperLink; roots: certificates, the system's if None."""
    home = folder / coordinator_files.FLOWER
    home.mkdir(exist_ok=True)
    root = "" if roots is None else f"root-certificates = {json.dumps(str(roots.absolute()))}\n"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
        f"address = {json.dumps(address)}\n{root}",
        encoding="utf-8",
    )


def register(settings: CoordinatorSettings, public_key: Path) -> int:
    """Make a party's node known to the SuperLink; returns its node id."""
    found = _own(settings, ["supernode", "register", str(public_key), CONNECTION])
    return int(found["node-id"])


def connected(settings: CoordinatorSettings) -> dict[int, str]:
    """Status of every registered node, by node id."""
    found = _own(settings, ["supernode", "list", CONNECTION])
    return {int(node["node-id"]): str(node["status"]) for node in found["nodes"]}


def submit(settings: CoordinatorSettings, session: str) -> int:
    """Start a Flower run for a session; returns its run id."""
    app = str(settings.folder / coordinator_files.APP)
    found = _own(settings, ["run", app, CONNECTION, "--run-config", f'session="{session}"'])
    return int(found["run-id"])


def log_of(folder: Path, run: int) -> str:
    """What a run's ServerApp has said so far."""
    return _said(folder, ["log", str(run), CONNECTION, "--show"]).stdout


def run_state(settings: CoordinatorSettings, run: int) -> str:
    """Status of a Flower run, such as finished:failed; finished:lost: by a SuperLink that died."""
    found = _own(settings, ["ls", CONNECTION])["runs"]
    states = {int(each["run-id"]): str(each["status"]) for each in found}
    return states.get(run, "finished:lost")


def flwr(folder: Path, arguments: Sequence[str]) -> Mapping[str, Any]:
    """One `flwr` command; `flwr run` exits 0 even on failure, so its answer counts.

    folder: with Flower's own configuration in `coordinator.settings.FLOWER`.

    Raises:
        ProtocolError: it failed, or took longer than `COMMAND_SECONDS`.
    """
    done = _said(folder, [*arguments, "--format", "json"])
    try:
        answer: Mapping[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        answer = {}
    if done.returncode or not answer.get("success"):
        words = answer.get("error-message") or (done.stderr or done.stdout).strip()[-500:]
        raise ProtocolError(f"flwr {' '.join(arguments[:2])}: {words}")
    return answer


def _said(folder: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - our own arguments, no shell
            [program("flwr"), *arguments],
            env=environment(folder),
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS,
        )
    except subprocess.TimeoutExpired:
        words = f"no answer within {COMMAND_SECONDS:g} s"
        raise ProtocolError(f"flwr {' '.join(arguments[:2])}: {words}") from None


def _own(settings: CoordinatorSettings, arguments: Sequence[str]) -> Mapping[str, Any]:
    """See `flwr`, of the centre's own SuperLink: where none listens, that is said at once.

    Flower itself would go on dialling for as long as it is let.
    """
    address = _commands_at(settings)
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), DIAL_SECONDS).close()
    except OSError as error:
        why = error.strerror or error
        raise ProtocolError(f"nothing listens at {address} ({why})") from None
    return flwr(settings.folder, arguments)


def _commands_at(settings: CoordinatorSettings) -> str:
    """Where the centre's own SuperLink takes commands."""
    return _dialled(settings.fleet) if has_one_port() else settings.control


def _dialled(address: str) -> str:
    """What this machine dials to reach a bound address."""
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host == "0.0.0.0" else address  # noqa: S104 - not bound here


def host_and_port(address: str) -> list[str]:
    """As options of 1.41's programs."""
    host, _, port = address.rpartition(":")
    return ["--host", host.strip("[]"), "--port", port]


def has_one_port() -> bool:
    """Whether this Flower's SuperLink has one HTTP port in place of three gRPC ones.

    Raises:
        ProtocolError: Flower is not installed.
    """
    found = find_spec("flwr")  # loads nothing
    if found is None or not found.submodule_search_locations:
        raise ProtocolError("flwr is not installed")
    return not any(Path(p, GRPC_NODE).is_dir() for p in found.submodule_search_locations)


# --- what 1.41 needs inside its processes ------------------------------------------------------

FLEET = "/v1/fleet/"
# An ASGI application, in the words of its specification.
Application = Callable[[Any, Any, Any], Awaitable[None]]


class OwnMachineOnly:
    """Lets other machines reach the SuperLink's fleet API, and this machine the rest as well.

    Security: the one port of 1.41 also takes commands (`flwr run`: code of the sender's choice, on
    the coordinator and on every party's relay) and hands out the tasks of the SuperLink's own
    processes, both without authentication. A connection from this machine comes from the address
    that it goes to; no connection from elsewhere does.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it with 403."""
        if scope["type"] == "lifespan" or self._is_allowed(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"this machine only\n"})
        else:
            await send({"type": "websocket.close"})

    @staticmethod
    def _is_allowed(scope: Any) -> bool:
        client, server = scope.get("client"), scope.get("server")
        if client and server and client[0] == server[0]:
            return True
        return scope["type"] == "http" and str(scope["path"]).startswith(FLEET)


def serve_guarded() -> None:
    """`flower-superlink` of 1.41 behind `OwnMachineOnly`; options: of sys.argv."""
    import uvicorn
    from flwr.superlink.cli.flower_superlink import flower_superlink

    load = uvicorn.Config.load

    def load_guarded(config: Any) -> None:
        load(config)
        config.loaded_app = OwnMachineOnly(config.loaded_app)

    uvicorn.Config.load = load_guarded
    flower_superlink()


def end_with_main_thread() -> None:
    """`flower-supernode` of 1.41; options: of sys.argv.

    Its main thread, which asks the SuperLink for messages, gives up for good where a TLS handshake
    is cut short (by a SuperLink that dies, or a load balancer in front of it that lives on), while
    another thread keeps the process: nobody would start it again.
    """
    from flwr.supernode.cli.flower_supernode import flower_supernode

    try:
        flower_supernode()
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def take_identity(run_id: int, node_id: int) -> None:
    """Make this process the sender of the messages that it creates, as Flower's own grids do."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # 1.30: a message is addressed when it is sent
        return
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run_id, node_id


if __name__ == "__main__":
    _PROGRAMS = {"flower-superlink": serve_guarded, "flower-supernode": end_with_main_thread}
    _PROGRAMS[sys.argv.pop(1)]()
