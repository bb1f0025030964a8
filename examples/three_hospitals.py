"""Three hospitals and a coordinating centre on one machine, as if they were four.

    python examples/three_hospitals.py
    python examples/three_hospitals.py --data edin.csv --label label --iterations 4
    python examples/three_hospitals.py --protocol encrypted-model     (rows never leave a hospital)
    python examples/three_hospitals.py --bandwidth 100Mbit --latency 20ms
    python examples/three_hospitals.py --fast-insecure --network      (root: hosts of their own)

Starts a SuperLink, three SuperNodes and three party agents with TLS and node authentication,
trains, and compares the model with `cohort simulate` on the same rows and the same (seeded, so NOT
PRIVATE) noise, and each phase with its seconds there. Each role has a folder and processes of its
own, and uses nothing but the commands of docs/deployment.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent))
import network

from ciphercohort.deploy.supervise import child
from protocols.plan.kinds import plan_from_dict
from protocols.plan.protocol import phase_of, protocol_of

NAMES = ("hospital-a", "hospital-b", "hospital-c")
COHORT = str(Path(sys.executable).parent / "cohort")
PHASES = ("agree", "keys", "encrypt", "train", "refresh", "decrypt")
SEED = 20261121
PORT = 9092  # of the centre, where it is a host of its own
UNITS = {"kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "ms": 1e-3, "s": 1.0}
ANSWERED = re.compile(r"answered in ([0-9.]+) s")


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
        show(spent(home), summary, seconds)
        print(f"largest difference of a weight to the in-process run: {difference:.2g}")
        return 0 if difference <= tolerance(Path(deployed["model"]).parent) else 1


def tolerance(folder: Path) -> float:
    """Of a weight of a finished session: both runs flood their decryption, each by itself.

    Sums of secure aggregation are not flooded, but decoded to within 2^-20 or so.
    """
    fields = json.loads((folder / "plan.json").read_text())
    plan = plan_from_dict({key: value for key, value in fields.items() if key != "digest"})
    return max(1e-4, 10 * protocol_of(plan).release_error(plan))


def arguments() -> argparse.Namespace:
    """Options of this script."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", help="CSV; default: scikit-learn's breast cancer data")
    parser.add_argument("--label", default="label", help="its label column")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--protocol", default="encrypted-rows")
    parser.add_argument("--update", default="quadratic-gd")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--fast-insecure", action="store_true", help="a toy ring: for tests")
    parser.add_argument("--rows", type=int, help="only the first rows")
    parser.add_argument("--network", action="store_true", help="hosts of their own: see network.py")
    line = "of the line to the centre, e.g. "
    parser.add_argument("--bandwidth", type=quantity, default=math.inf, help=f"{line}100Mbit")
    parser.add_argument("--latency", type=quantity, default=0.0, help=f"{line}20ms, both ways")
    parser.add_argument(
        "--replicas", action="store_true", help="hospitals compute what the centre does, too"
    )
    parser.add_argument("--keep", help="folder to leave everything in")
    return parser.parse_args()


def quantity(text: str) -> float:
    """Such as 100Mbit or 20ms, in bit/s or seconds."""
    found = re.fullmatch(r"([0-9.]+)([a-zA-Z]+)", text)
    if found is None or found[2] not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number with one of {', '.join(UNITS)}")
    return float(found[1]) * UNITS[found[2]]


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
        *("--protocol", options.protocol, "--update", options.update),
        *("--iterations", str(options.iterations)),
        *("--epsilon", str(options.epsilon), "--colluders", "1"),
        *("--profile", profile),
    ]


def found(home: Path, options: argparse.Namespace) -> None:
    """`init` for the centre and the hospitals, and the exchange of invitation and cards."""
    fleet, control, own, line, *relays = (f"127.0.0.1:{port}" for port in free_ports(7))
    public = fleet
    if is_slow(options):
        public = line
        options.line = line, fleet
    elif options.network:
        fleet = f"{network.address(0)}:{PORT}"
        public = f"{network.line(('centre', *NAMES))}:{PORT}"
    centre, passphrase = home / "centre", home / "passphrase"
    passphrase.touch(mode=0o600)
    passphrase.write_text("correct horse battery staple\n")
    addresses = ["--fleet", fleet, "--control", control, "--serverappio", own]
    addresses += ["--public", public]
    schema = ["--schema", home / "schema.json"]
    replica = ["--replica", "own"] if options.replicas else []
    cohort("coordinator", "init", centre, *schema, *addresses, *training(options))
    common = ["--invitation", centre / "invitation.json", "--passphrase-file", passphrase]
    common += ["--consent", "policy", "--max-epsilon", options.epsilon]
    common += ["--insecure-noise-seed", SEED, *replica]
    common += ["--allow-insecure"] if options.fast_insecure else []
    introduce(home, relays, *common)


def introduce(home: Path, relays: Sequence[str], *options: object) -> None:
    """`init` of the hospitals, whose relays have these addresses, and everybody's cards."""
    at_once(
        ["party", "init", home / name, "--data", home / f"{name}.csv", "--address", bound, *options]
        for name, bound in zip(NAMES, relays, strict=True)
    )
    cards = [home / name / "card.json" for name in NAMES]
    # Each owner compares the keys with the others by telephone.
    peers = [["party", "peers", "add", home / name, *cards] for name in NAMES]
    at_once([["coordinator", "admit", home / "centre", *cards], *peers])


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
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                child([*inside(name, options), COHORT, *map(str, command)], seconds=60)
            )
            for name, command in commands.items()
        ]
        try:
            yield
        finally:
            for process in processes:
                process.terminate()


def network_of(options: argparse.Namespace):
    """The hosts' network, if they have one of their own, or a slow line."""
    if is_slow(options):
        return network.narrow(*options.line, options.latency, options.bandwidth)
    return network.hosts(("centre", *NAMES), PORT) if options.network else nullcontext()


def is_slow(options: argparse.Namespace) -> bool:
    """Whether the line to the centre is to be slower than this machine."""
    return bool(options.latency) or options.bandwidth < math.inf


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
    release = home / "simulated" / "release"
    model, costs = (json.loads((release / name).read_text()) for name in ("model.json", "run.json"))
    return model, costs


def spent(home: Path) -> dict:
    """Of all sessions: seconds and bytes by phase, round trips, seconds waited and answered in."""
    total: dict = {"seconds": Counter(), "bytes_per_party": Counter(), "trips": Counter()}
    total["waited"] = 0.0
    for folder in (home / "centre" / "sessions").iterdir():
        status = json.loads((folder / "status.json").read_text())
        total["seconds"].update(status["seconds"])
        total["bytes_per_party"].update(status["bytes_per_party"])
        total["waited"] += status["waiting_seconds"]
        lines = (folder / "transcript.jsonl").read_text().splitlines()
        steps = {line["step"] for line in map(json.loads, lines)}
        total["trips"].update(phase_of(step) for step in steps)
    total["answered"] = sum(map(max, zip(*(answers(home / name) for name in NAMES), strict=False)))
    return total


def answers(folder: Path) -> list[float]:
    """Seconds that a party took for each request."""
    log = (folder / "logs" / "supernode.log").read_text()
    return [float(seconds) for seconds in ANSWERED.findall(log)]


def show(deployed: dict, simulated: dict, seconds: float) -> None:
    """Wall clock, round trips and the largest party's bytes by phase."""
    print(
        f"{'phase':10}{'deployed':>12}{'in process':>12}{'times':>7}{'trips':>7}{'per party':>13}"
    )
    rows = [(phase, [phase]) for phase in PHASES] + [("in all", PHASES)]
    for name, phases in rows:
        there, here = (sum(costs["seconds"][p] for p in phases) for costs in (deployed, simulated))
        trips = sum(deployed["trips"][p] for p in phases)
        size = sum(deployed["bytes_per_party"][p] for p in phases) / 1e6
        times = f"{there / here:7.1f}" if here >= 0.05 else f"{'':7}"
        print(f"{name:10}{there:10.1f} s{here:10.1f} s{times}{trips:7}{size:10.2f} MB")
    above = deployed["waited"] - deployed["answered"]
    print(
        f"the centre waited {deployed['waited']:.1f} s, the slowest parties answered in "
        f"{deployed['answered']:.1f} s: {above / max(trips, 1):.2f} s a round trip to send and wait"
    )
    print(f"with starting and stopping every process: {seconds:.1f} s")


def at_once(commands: Iterable[Sequence[object]]) -> None:
    """Commands of several hosts, none of which waits for another."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda words: cohort(*words), commands))


def cohort(*words: object, before: list[str] | None = None) -> str:
    """One command; its messages go to the terminal, its output is returned."""
    environment = {**os.environ, "COLUMNS": "200"}
    command = [*(before or []), COHORT, *map(str, words)]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
