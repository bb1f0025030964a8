"""Three hospitals and a coordinating centre on one machine, as if they were four.

    python examples/three_hospitals.py
    python examples/three_hospitals.py --data edin.csv --label label --iterations 4
    python examples/three_hospitals.py --fast-insecure --network      (root: hosts of their own)

Starts a SuperLink, three SuperNodes and three party agents with TLS and node authentication,
trains, and compares the model with `cohort simulate` on the same rows and the same (seeded, so NOT
PRIVATE) noise. Each role has a folder and processes of its own, and uses nothing but the commands
of docs/deployment.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent))
import network

from protocols.decrypt import release_error_std
from protocols.plans import plan_from_dict

NAMES = ("hospital-a", "hospital-b", "hospital-c")
COHORT = str(Path(sys.executable).parent / "cohort")
PHASES = ("agree", "keys", "encrypt", "train", "refresh", "decrypt")
SEED = 20261121
PORT = 9092  # of the centre, where it is a host of its own


def main() -> int:
    """Run both, print the comparison; 1 if the models differ by more than `tolerance`."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="cohort-") as scratch:
        home = Path(options.keep or scratch).absolute()
        home.mkdir(parents=True, exist_ok=True)
        label = prepare(home, options)
        found(home, options)
        began = time.monotonic()
        with network_of(options), running(home, options):
            run = ["coordinator", "run", home / "centre", "--json"]
            deployed = json.loads(cohort(*run, before=inside("centre", options)))
        seconds = time.monotonic() - began
        model = json.loads(Path(deployed["model"]).read_text())
        simulated, summary = simulate(home, label, options)
        difference = max(np.abs(np.subtract(model["released"], simulated["released"])))
        show(deployed, summary, seconds)
        print(f"largest difference of a weight to the in-process run: {difference:.2g}")
        return 0 if difference <= tolerance(Path(deployed["model"]).parent) else 1


def tolerance(folder: Path) -> float:
    """Of a weight of a finished session: both runs flood their decryption, each by itself."""
    fields = json.loads((folder / "plan.json").read_text())
    plan = plan_from_dict({key: value for key, value in fields.items() if key != "digest"})
    return max(1e-4, 10 * release_error_std(plan))


def arguments() -> argparse.Namespace:
    """Options of this script."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", help="CSV; default: scikit-learn's breast cancer data")
    parser.add_argument("--label", default="label", help="its label column")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--update", default="quadratic-gd")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--fast-insecure", action="store_true", help="a toy ring: for tests")
    parser.add_argument("--rows", type=int, help="only the first rows")
    parser.add_argument("--network", action="store_true", help="hosts of their own: see network.py")
    parser.add_argument("--keep", help="folder to leave everything in")
    return parser.parse_args()


def prepare(home: Path, options: argparse.Namespace) -> str:
    """Rows of each hospital, all rows with a column `hospital`, test rows, public schema."""
    if options.data:
        frame, label = pd.read_csv(options.data), options.label
    else:
        from sklearn.datasets import load_breast_cancer

        frame = load_breast_cancer(as_frame=True).frame.iloc[:, [0, 1, 4, 5, 6, 7, -1]]
        frame.columns = [*(f"x{k}" for k in range(6)), "label"]
        label = "label"
    frame = frame.sample(frac=1, random_state=0).iloc[: options.rows].reset_index(drop=True)
    tests = len(frame) // 5
    frame.iloc[:tests].to_csv(home / "test.csv", index=False)
    train = frame.iloc[tests:]
    parts = np.array_split(np.arange(len(train)), len(NAMES))
    for name, part in zip(NAMES, parts, strict=True):
        train.iloc[part].to_csv(home / f"{name}.csv", index=False)
    hospital = np.concatenate([[name] * len(part) for name, part in zip(NAMES, parts, strict=True)])
    train.assign(hospital=hospital).to_csv(home / "all.csv", index=False)
    # In a deployment the schema comes from public knowledge, not from the rows.
    cohort("schema", "init", home / "test.csv", "--label", label, "--out", home / "schema.json")
    return label


def training(options: argparse.Namespace) -> list[str]:
    """Options that centre and simulation share."""
    profile = "fast-insecure" if options.fast_insecure else "secure"
    return [
        *("--update", options.update),
        *("--iterations", str(options.iterations)),
        *("--epsilon", str(options.epsilon), "--colluders", "1"),
        *("--profile", profile),
    ]


def found(home: Path, options: argparse.Namespace) -> None:
    """`init` for the centre and the hospitals, and the exchange of invitation and cards."""
    fleet, control, own, *relays = (f"127.0.0.1:{port}" for port in free_ports(6))
    public = fleet
    if options.network:
        fleet = f"{network.address(0)}:{PORT}"
        public = f"{network.line(('centre', *NAMES))}:{PORT}"
    centre, passphrase = home / "centre", home / "passphrase"
    passphrase.touch(mode=0o600)
    passphrase.write_text("correct horse battery staple\n")
    addresses = ["--fleet", fleet, "--control", control, "--serverappio", own]
    addresses += ["--public", public]
    schema = ["--schema", home / "schema.json"]
    cohort("coordinator", "init", centre, *schema, *addresses, *training(options))
    for name, relay in zip(NAMES, relays, strict=True):
        insecure = ["--allow-insecure"] if options.fast_insecure else []
        cohort(
            *("party", "init", home / name, "--invitation", centre / "invitation.json"),
            *("--data", home / f"{name}.csv", "--address", relay, "--consent", "policy"),
            *("--max-epsilon", str(options.epsilon), "--passphrase-file", passphrase),
            *("--insecure-noise-seed", str(SEED), *insecure),
        )
    cards = [home / name / "card.json" for name in NAMES]
    cohort("coordinator", "admit", centre, *cards)
    for name in NAMES:  # each owner compares the keys with the others by telephone
        cohort("party", "peers", "add", home / name, *cards)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@contextmanager
def running(home: Path, options: argparse.Namespace):
    """The four hosts, until the block ends."""
    commands = {"centre": ["coordinator", "start", home / "centre"]}
    secret = ["--passphrase-file", home / "passphrase"]
    commands |= {name: ["party", "start", home / name, *secret] for name in NAMES}
    processes = [
        subprocess.Popen([*inside(name, options), COHORT, *map(str, command)])
        for name, command in commands.items()
    ]
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(60)


def network_of(options: argparse.Namespace):
    """The hosts' network, if they have one of their own."""
    return network.hosts(("centre", *NAMES), PORT) if options.network else nullcontext()


def inside(name: str, options: argparse.Namespace) -> list[str]:
    """Where a host's commands run."""
    return network.inside(name) if options.network else []


def simulate(home: Path, label: str, options: argparse.Namespace) -> tuple[dict, dict]:
    """The same in one process: (model.json, its costs)."""
    cohort(
        *("simulate", "--data", home / "all.csv", "--label", label, "--split", "by:hospital"),
        *("--test", home / "test.csv", "--schema", home / "schema.json"),
        *("--seed", str(SEED), "--out", home / "simulated", *training(options)),
    )
    lines = (home / "simulated" / "metrics.jsonl").read_text().splitlines()
    costs = next(line for line in map(json.loads, lines) if line["kind"] == "costs")
    return json.loads((home / "simulated" / "model.json").read_text()), costs


def show(deployed: dict, simulated: dict, seconds: float) -> None:
    """Wall clock and the largest party's bytes by phase."""
    print(f"{'phase':10}{'deployed':>12}{'in process':>12}{'bytes per party':>18}")
    for phase in PHASES:
        there, here = deployed["seconds"].get(phase, 0.0), simulated["seconds"].get(phase, 0.0)
        size = deployed["bytes_per_party"].get(phase, 0)
        print(f"{phase:10}{there:10.1f} s{here:10.1f} s{size / 1e6:15.2f} MB")
    inside = sum(simulated["seconds"].values())
    print(f"{'in all':10}{sum(deployed['seconds'].values()):10.1f} s{inside:10.1f} s")
    print(f"with starting and stopping every process: {seconds:.1f} s")


def cohort(*words: object, before: list[str] | None = None) -> str:
    """One command; its messages go to the terminal, its output is returned."""
    environment = {**os.environ, "COLUMNS": "200"}
    command = [*(before or []), COHORT, *map(str, words)]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
