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

    def __init__(
        self, folder: Path, nodes: Sequence[Mapping[str, Any]], *, registered: bool = True
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.home, self._nodes = folder, folder / "flwr", nodes
        self._registered = registered
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
        link = ["flower-superlink", *tls]
        link += ["--enable-supernode-auth"] if self._registered else []
        link += ["--fleet-api-address", fleet, "--control-api-address", control]
        processes = [self._start("superlink", [*link, "--serverappio-api-address", serverappio])]
        try:
            for port in (fleet, control):
                wait_for(port)
            for k, (config, address) in enumerate(zip(self._nodes, own, strict=True)):
                words = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
                node = ["flower-supernode", "--root-certificates", CA, "--superlink", fleet]
                node += ["--clientappio-api-address", address, "--node-config", words]
                if self._registered:
                    self.flwr("supernode", "register", str(self._key(k)), NAME)
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


def wait_for(address: str) -> None:
    """Until somebody listens there."""
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


EXACT = {
    "cohort-exact-sums": True,
    "cohort-min-colluders": 0,
    "cohort-accept-unbounded": True,
}
"""Terms of an owner who accepts a run without noise or a proof that its iterates stay bounded."""
COLUMNS = ["rate_marriage", "yrs_married", "religious", "educ", "occupation", "occupation_husb"]


def women() -> Any:
    """A foreign table: statsmodels' survey of 6,366 women, R. Fair 1978."""
    from statsmodels.datasets import fair

    data = fair.load_pandas().data
    data["affair"] = (data.affairs > 0).astype(int)
    return data[[*COLUMNS, "affair"]].sample(frac=1, random_state=0)


def schema_of(frame: Any) -> dict[str, Any]:
    """Public ranges: the survey's own scales."""
    columns = [
        {
            "kind": "numeric",
            "name": name,
            "low": float(frame[name].min()),
            "high": float(frame[name].max()),
            "typical": round(float(frame[name].mean()), 1),
            "spread": round(float(frame[name].std()), 1),
        }
        for name in COLUMNS
    ]
    label = {"name": "affair", "positive": "1", "negative": "0"}
    found = {"version": 1, "scaling": "standard", "row_norm": None, "label": label}
    return {**found, "columns": columns}


def hospitals(folder: Path, **more: Any) -> list[dict[str, Any]]:
    """Three nodes' configurations, each with a file of rows and a home folder; schema.json."""
    frame = women()
    folder.mkdir(parents=True)
    (folder / "schema.json").write_text(json.dumps(schema_of(frame)))
    frame.to_csv(folder / "all.csv", index=False)
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
    terms = EXACT if config.get("no-privacy") else {}
    there = Elsewhere(folder, hospitals(folder / "hospitals", **terms))
    config = {"schema": str(folder / "hospitals" / "schema.json"), **config}
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
