"""A SuperLink and SuperNodes that this project did not start: Flower's own commands, over TLS.

1.30 has three ports, 1.41 one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ciphercohort.deploy.flower_commands import has_one_port, host_and_port
from ciphercohort.deploy.supervise import child
from coordinator.certificates import CA, SERVER, SERVER_KEY, make_certificates

BIN = Path(sys.executable).parent
NAME = "elsewhere"
OVER_SECONDS = 900.0
_QUIET = {
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


class Fleet:
    """The processes' folder: certificates, keys, logs, numbers; `home` is the user's FLWR_HOME.

    nodes: configuration of each SuperNode; registered: their keys are known to the SuperLink;
    database: its state is in a file, state.db, and not in its memory.
    """

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[Mapping[str, Any]],
        *,
        registered: bool = True,
        database: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.home, self._nodes = folder, folder / "flwr", nodes
        self._registered, self._database = registered, database
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ending: dict[str, ExitStack] = {}
        self.home.mkdir()
        self._ports = [f"127.0.0.1:{port}" for port in free_ports(3 + len(nodes))]
        self.control = self._ports[0 if has_one_port() else 1]
        make_certificates(folder, ["localhost", "127.0.0.1"])
        root = json.dumps(str(folder / CA))
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n[superlink.{NAME}]\n'
            f'address = "{self.control}"\nroot-certificates = {root}\n'
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """SuperLink and SuperNodes, until the block ends."""
        fleet, control, serverappio = self._ports[:3]
        tls = ["--ssl-ca-certfile", CA, "--ssl-certfile", SERVER, "--ssl-keyfile", SERVER_KEY]
        link = ["flower-superlink", *tls]
        link += ["--enable-supernode-auth"] if self._registered else []
        link += ["--database", "state.db"] if self._database else []
        if has_one_port():
            link += host_and_port(fleet)
        else:
            link += ["--fleet-api-address", fleet, "--control-api-address", control]
            link += ["--serverappio-api-address", serverappio]
        try:
            self._start("superlink", link)
            for port in (fleet, self.control):
                wait_for(port)
            for k in range(len(self._nodes)):
                if self._registered:
                    self.flwr("supernode", "register", str(self._key(k)), NAME)
                self.start_node(k)
            yield
        finally:
            for process in self._processes.values():
                process.terminate()
            for name in self._processes:
                self._stop(name)

    def start_node(self, k: int) -> None:
        """A SuperNode, as one that was never here; its number is in supernodeK.pid."""
        name, address = f"supernode{k}", self._ports[3 + k]
        shutil.rmtree(self.folder / f"flwr-{name}", ignore_errors=True)
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in self._nodes[k].items())
        node = ["flower-supernode", "--root-certificates", CA, "--superlink", self._ports[0]]
        node += ["--node-config", words]
        node += host_and_port(address) if has_one_port() else ["--clientappio-api-address", address]
        if self._registered:
            node += ["--auth-supernode-private-key", f"node{k}"]
        self._start(name, node)

    def is_running(self, k: int) -> bool:
        """A SuperNode."""
        return self._processes[f"supernode{k}"].poll() is None

    def stop_node(self, k: int) -> None:
        """At once, with what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._processes[f"supernode{k}"].pid, signal.SIGKILL)
        self._stop(f"supernode{k}")

    def _start(self, name: str, command: Sequence[str]) -> None:
        self._stop(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            held = child(
                [str(BIN / command[0]), *command[1:]],
                cwd=self.folder,
                env=self.environment(name),
                stdout=log,
                stderr=log,
            )
            process = self._ending[name].enter_context(held)
        self._processes[name] = process
        (self.folder / f"{name}.pid").write_text(str(process.pid))

    def _stop(self, name: str) -> None:
        self._ending.setdefault(name, ExitStack()).close()

    def environment(self, name: str = "") -> dict[str, str]:
        """Of a process; name: one with an FLWR_HOME of its own."""
        home = self.folder / f"flwr-{name}" if name else self.home
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHONPATH")}
        return {**kept, **_QUIET, "FLWR_HOME": str(home), "PATH": path}

    def _key(self, number: int) -> Path:
        key, path = ec.generate_private_key(ec.SECP384R1()), self.folder / f"node{number}"
        kinds = serialization
        path.write_bytes(
            key.private_bytes(kinds.Encoding.PEM, kinds.PrivateFormat.OpenSSH, kinds.NoEncryption())
        )
        public = key.public_key()
        text = public.public_bytes(kinds.Encoding.OpenSSH, kinds.PublicFormat.OpenSSH)
        path.with_suffix(".pub").write_bytes(text + b"\n")
        return path.with_suffix(".pub")

    def flwr(self, *words: str) -> dict[str, Any]:
        """One command of the user's; its answer.

        Raises:
            RuntimeError: it failed.
        """
        done = self._command(*words, "--format", "json")
        found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
        if not found.get("success"):
            raise RuntimeError(done.stdout + done.stderr)
        return found

    def _command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - our own arguments, no shell
            [str(BIN / "flwr"), *words],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )

    def begin(self, app: Path, config: Mapping[str, Any]) -> str:
        """Start a run of an app; its number."""
        words = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
        return str(self.flwr("run", str(app), NAME, "--run-config", words)["run-id"])

    def status(self, run: str) -> str:
        """Of a run, such as finished:completed."""
        return str(self.flwr("ls", NAME, "--run-id", run)["runs"][0]["status"])

    def log(self, run: str) -> str:
        """What its ServerApp has said so far."""
        return self._command("log", run, NAME, "--show").stdout

    def run(self, app: Path, config: Mapping[str, Any]) -> tuple[str, str]:
        """Status and log of a run of an app."""
        run = self.begin(app, config)
        deadline = time.monotonic() + OVER_SECONDS
        while time.monotonic() < deadline:
            status = self.status(run)
            if status.startswith("finished"):
                break
            time.sleep(4.0)  # a look takes two seconds of a core
        return status, self.log(run)


def wait_for(address: str) -> None:
    """Until somebody listens there.

    Raises:
        TimeoutError: nobody does within a minute.
    """
    host, _, port = address.rpartition(":")
    for _ in range(600):
        try:
            socket.create_connection((host, int(port)), 1.0).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"nobody listens at {address}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
