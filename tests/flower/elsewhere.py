"""A SuperLink and SuperNodes that this project did not start: Flower's own commands, over TLS.

`python -m tests.flower.elsewhere FOLDER [KEY=VALUE …]` runs examples/flower-regression there with
`flwr run`, as a user who was given an address does, and prints what it left; FOLDER must not exist.
KEY=VALUE: run configuration. The nodes' keys are registered, and each node has rows of its own in a
file. Flower 1.30's options (three ports); 1.41 has others.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from coordinator.certificates import CA, SERVER, SERVER_KEY, make_certificates
from tests.flower.environment import ROOT, quiet

APP = ROOT / "examples" / "flower-regression"
BIN = Path(sys.executable).parent
NAME = "elsewhere"
OVER_SECONDS = 900.0


class Elsewhere:
    """The processes' folder: certificates, keys, logs; `home` is the user's FLWR_HOME."""

    def __init__(self, folder: Path, nodes: Sequence[Mapping[str, Any]]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.home, self._nodes = folder, folder / "flwr", nodes
        self.home.mkdir()
        self._ports = [f"127.0.0.1:{port}" for port in free_ports(3 + len(nodes))]
        self.control = self._ports[1]
        make_certificates(folder, ["localhost", "127.0.0.1"])
        root = json.dumps(str(folder / CA))
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n[superlink.{NAME}]\n'
            f'address = "{self.control}"\nroot-certificates = {root}\n'
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """SuperLink and SuperNodes, until the block ends."""
        fleet, control, serverappio, *own = self._ports
        tls = ["--ssl-ca-certfile", CA, "--ssl-certfile", SERVER, "--ssl-keyfile", SERVER_KEY]
        link = ["flower-superlink", *tls, "--enable-supernode-auth"]
        link += ["--fleet-api-address", fleet, "--control-api-address", control]
        processes = [self._start("superlink", [*link, "--serverappio-api-address", serverappio])]
        try:
            self._patiently("ls")
            for k, (config, address) in enumerate(zip(self._nodes, own, strict=True)):
                self.flwr("supernode", "register", str(self._key(k)), NAME)
                words = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
                node = ["flower-supernode", "--root-certificates", CA, "--superlink", fleet]
                node += ["--clientappio-api-address", address, "--node-config", words]
                node += ["--auth-supernode-private-key", f"node{k}"]
                processes.append(self._start(f"supernode{k}", node))
            yield
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                process.wait(60)

    def _start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                cwd=self.folder,
                env=self.environment(name),
                stdout=log,
                stderr=log,
            )

    def environment(self, name: str = "") -> dict[str, str]:
        """Of a process; name: one with an FLWR_HOME of its own."""
        home = self.folder / f"flwr-{name}" if name else self.home
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        kept = {k: v for k, v in quiet().items() if not k.startswith("PYTHONPATH")}
        return {**kept, "FLWR_HOME": str(home), "PATH": path}

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

    def _patiently(self, *words: str) -> None:
        for attempt in range(60):
            try:
                self.flwr(*words, NAME)
                return
            except (AssertionError, ValueError):
                if attempt == 59:
                    raise
                time.sleep(0.5)

    def flwr(self, *words: str) -> dict[str, Any]:
        """One command of the user's; its answer."""
        done = self._command(*words, "--format", "json")
        found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
        assert found.get("success"), done.stdout + done.stderr
        return found

    def _command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / "flwr"), *words],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )

    def run(self, app: Path, config: Mapping[str, Any]) -> tuple[str, str]:
        """Status and log of a run of an app."""
        words = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
        run = str(self.flwr("run", str(app), NAME, "--run-config", words)["run-id"])
        deadline = time.monotonic() + OVER_SECONDS
        while time.monotonic() < deadline:
            status = str(self.flwr("ls", NAME, "--run-id", run)["runs"][0]["status"])
            if status.startswith("finished"):
                break
            time.sleep(4.0)  # a look takes two seconds of a core
        return status, self._command("log", run, NAME, "--show").stdout


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def hospitals(folder: Path, **more: Any) -> list[dict[str, Any]]:
    """Three nodes' configurations, each with a file of rows and a home folder."""
    from sklearn.datasets import load_breast_cancer

    frame = load_breast_cancer(as_frame=True).frame.iloc[:, [0, 1, 4, 5, 6, 7, -1]]
    frame.columns = [name.replace(" ", "_") for name in frame.columns]
    frame = frame.sample(frac=1, random_state=0)
    folder.mkdir(parents=True)
    found = []
    for k in range(3):
        frame.iloc[k::3].to_csv(folder / f"rows{k}.csv", index=False)
        own = {"cohort-data": str(folder / f"rows{k}.csv"), "cohort-home": str(folder / f"home{k}")}
        found.append({**own, "cohort-name": f"hospital-{'abc'[k]}", **more})
    return found


def main() -> int:
    """Run and print; 1 if the run did not complete."""
    folder = Path(sys.argv[1]).absolute()
    given = (word.partition("=") for word in sys.argv[2:])
    config = {name: json.loads(value) for name, _, value in given}
    there = Elsewhere(folder, hospitals(folder / "hospitals"))
    began = time.monotonic()
    with there.running():
        print(f"up after {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        status, log = there.run(APP, {**config, "out": str(folder / "out")})
    print(f"{status} after {time.monotonic() - began:.0f} s\n{log}")
    for path in sorted((folder / "out").glob("*")):
        print(f"{path.stat().st_size:>10,} bytes  {path.name}")
    return int(status != "finished:completed")


if __name__ == "__main__":
    sys.exit(main())
