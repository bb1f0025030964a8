"""A real deployment of secure aggregation: SuperLink, three SuperNodes and agents, over TLS.

`python -m tests.flower.deployment FOLDER`, under the interpreter whose Flower is meant; the noise
is seeded, so NOT PRIVATE. Secure aggregation needs no OpenFHE. The SuperNodes, authenticated by
their keys, dial in from another address. Stated and checked: the model is the in-process one;
Flower listens on 127.0.0.1 only; where the SuperLink has one port, another address reaches the
fleet API and nothing else; no node listens at all; a SuperLink that is killed in mid-run costs a
Flower run and not the session; no process is left.
"""

from __future__ import annotations

import argparse
import importlib.util
import ipaddress
import json
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ciphercohort.deploy.flower_commands import has_one_port
from coordinator.certificates import CA
from coordinator.settings import Settings
from tests.flower.standin import MARKER
from tests.support.processes import processes_of, stray
from tests.support.scripts import load

# A decoded sum is off by 2^-20 or so; the model of seeded noise is the same otherwise.
LARGEST_DIFFERENCE = 1e-6
NODES = ("hospital-a", "hospital-b", "hospital-c")
KILLED_AT = 1  # iterations that are over when the SuperLink is killed
ELSEWHERE = "127.0.0.2"  # stands for another machine: not the address that the SuperLink binds


def main() -> int:
    """Run and print; 1 if anything is not as stated."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="must not exist")
    folder = parser.parse_args().folder.absolute()
    wrong = deploy(folder)
    for words in wrong:
        print(f"NOT AS STATED: {words}")
    return int(bool(wrong))


def deploy(home: Path) -> list[str]:
    """Train twice, deployed and in one process; returns what is not as stated."""
    example = load(
        "examples/three_hospitals.py",
        "--rows",
        "150",
        "--iterations",
        "20",
        "--protocol",
        "secure-aggregation",
        "--update",
        "gd",
        "--epsilon",
        "3",
    )
    options = example.arguments()
    home.mkdir(parents=True)
    label = example.prepare(home, options)
    example.found(home, options)
    settings, wrong = Settings.load(home / "centre"), list[str]()
    began = time.monotonic()
    with relay(settings.fleet) as address, ExitStack() as stack:
        for name in example.NAMES:
            path = home / name / "party.toml"
            path.write_text(path.read_text().replace(settings.public, address))
        stack.enter_context(example.running(home, options))
        watcher = threading.Thread(target=_disturb, args=(home, settings, wrong))
        watcher.start()
        status = json.loads(example.cohort("coordinator", "run", settings.folder, "--json"))
        watcher.join()
    seconds = time.monotonic() - began
    model = json.loads(Path(status["model"]).read_text())
    simulated, costs = example.simulate(home, label, options)
    difference = float(np.abs(np.subtract(model["weights"], simulated["weights"])).max())
    example.show(example.spent(home), costs, seconds)
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"Flower {version('flwr')}, Python {python}, openfhe {openfhe()}")
    print(f"Flower runs: {status['attempts']}; largest difference of a weight: {difference:.2g}")
    if difference > LARGEST_DIFFERENCE or not np.abs(model["weights"]).max() > 1e-2:
        wrong.append(f"a weight differs by {difference:.2g} from the in-process run")
    if status["attempts"] < 2:
        wrong.append("the SuperLink was killed, and one Flower run went through")
    wrong += [f"still running: {words}" for words in stray(home)]
    return wrong


def openfhe() -> str:
    """Whether secure aggregation had an OpenFHE to fall back on."""
    found = importlib.util.find_spec(MARKER)
    return "absent (a stand-in that raises)" if found else version("openfhe")


def _disturb(home: Path, settings: Settings, wrong: list[str]) -> None:
    """While it trains: look at its ports, then kill the SuperLink."""
    try:
        _until(lambda: _iteration(settings) >= KILLED_AT, 240.0)
        where = listening(home)
        if set(where) != {"127.0.0.1"}:
            wrong.append(f"Flower listens on {', '.join(where)}")
        wrong += [f"the node of {n} listens" for n in NODES if listening(home / n)]
        if has_one_port():
            wrong += _probe(settings)
        (pid,) = [p for p in processes_of(home) if _is_superlink(p)]
        os.kill(pid, signal.SIGKILL)
    except Exception as error:
        wrong.append(f"{type(error).__name__}: {error}")


def _iteration(settings: Settings) -> int:
    for path in settings.folder.glob("sessions/*/status.json"):
        return int(json.loads(path.read_text())["iteration"])
    return 0


def _until(holds: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.2)


# -- who answers whom -----------------------------------------------------------------------------


@contextmanager
def relay(target: str) -> Iterator[str]:
    """An address whose connections reach the target from ELSEWHERE."""
    host, _, port = target.rpartition(":")

    def serve() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection((host, int(port)), 5, (ELSEWHERE, 0))
            except OSError:  # the SuperLink is down
                near.close()
                continue
            far.settimeout(None)
            for pair in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _probe(settings: Settings) -> list[str]:
    """Ask the SuperLink for commands, tasks and the fleet, from here and from elsewhere."""
    wrong = []
    for source, path, refused in (
        ("127.0.0.1", "/v1/control/list-runs", False),
        (ELSEWHERE, "/v1/control/list-runs", True),
        (ELSEWHERE, "/v1/control/start-run", True),
        (ELSEWHERE, "/v1/runtime/acquire-task", True),
        (ELSEWHERE, "/v1/fleet/../control/list-runs", False),  # 404: no such path
        (ELSEWHERE, "/docs", True),
        (ELSEWHERE, "/v1/fleet/pull-messages", False),
    ):
        code = post(settings, path, source)
        if (code == 403) != refused or (".." in path and code != 404):
            wrong.append(f"{path} from {source}: {code}")
    return wrong


def post(settings: Settings, path: str, source: str) -> int:
    """Status of an empty request to the SuperLink from one of this machine's addresses."""
    host, _, port = settings.fleet.rpartition(":")
    context = ssl.create_default_context(cafile=str(settings.folder / CA))
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-protobuf\r\n"
    with (
        socket.create_connection((host, int(port)), 20, (source, 0)) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        connection.sendall(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
        return int(connection.recv(64).split()[1])


def listening(home: Path) -> list[str]:
    """Addresses on which Flower's processes listen, one for each socket."""
    inodes = set()
    for pid in processes_of(home):
        for link in _links(Path(f"/proc/{pid}/fd")):
            inodes.add(link.removeprefix("socket:[").removesuffix("]"))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:  # TCP_LISTEN
                found.append(_address(fields[1].partition(":")[0]))
    return found


def _address(text: str) -> str:
    """Of /proc/net: 32-bit words, each with its low byte first; IPv4 in IPv6 as IPv4."""
    words = [bytes.fromhex(text[k : k + 8])[::-1] for k in range(0, len(text), 8)]
    found = ipaddress.ip_address(b"".join(words))
    return str(getattr(found, "ipv4_mapped", None) or found)


def _links(folder: Path) -> Iterator[str]:
    try:
        for entry in folder.iterdir():
            yield os.readlink(entry)
    except OSError:
        return


# -- processes ------------------------------------------------------------------------------------


def _is_superlink(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"--enable-supernode-auth" in words


if __name__ == "__main__":
    sys.exit(main())
