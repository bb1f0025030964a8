"""Faults of one client, and of the server, on a real SuperLink: plain, secure sums and SecAgg+.

Question: is an app with secure sums ever worse off than without?

    python -m sims.lab.studies.flower.faults OUT [--only slow] [--arm secure]

A SuperLink and four SuperNodes, Flower's own commands over TLS, run one app under each arm: three
rounds, in which every client moves a vector. One client (or the server) is faulty, at one exchange
of the second round (keys and the list of members: of the first):

    slow         answers after 0.7 of the timeout
    late         after 1.6 of it
    dead         its SuperNode is killed, and stays so
    reinstalled  its SuperNode is killed and begun anew, without the state and key that it had
    nan, shape   its update is NaN, or of another shape, from then on
    raises       its app fails, from then on
    server killed  the ServerApp is killed, and the run is begun again

Prints rounds that gave a mean, whether the model is one of those that means of all clients or of
the others make, and seconds. Logs stay in OUT.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from flwr.app import ArrayRecord, Context, Message, RecordDict
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from sims.lab.studies.flower.faults.app import (
    CLIENTS,
    EXCHANGES,
    FAULTY,
    ONCE,
    ROUNDS,
    VALUES,
    WAITING,
)
from sims.lab.studies.flower.fleet import OVER_SECONDS, Fleet
from sims.lab.studies.flower.workloads import Moved

KILLED = "server killed"
AT_EXCHANGES = (*WAITING, "dead", "reinstalled")
OF_TRAINING = ("nan", "shape", "raises")
CLOSE = 1e-3
Vector = NDArray[np.float64]
_APP = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "faults-{arm}"
version = "1.0.0"
description = "One faulty client"
license = "Apache-2.0"
dependencies = []
[tool.hatch.build.targets.wheel]
bypass-selection = true
[tool.flwr.app]
publisher = "ciphercohort"
[tool.flwr.app.components]
serverapp = "faulty_{arm}.both:server"
clientapp = "faulty_{arm}.both:client"
[tool.flwr.app.config]
fault = ""
exchange = ""
out = ""
timeout = 60.0
"""
_BOTH = """from sims.lab.studies.flower.faults import app

server = app.server_app("{arm}")
client = app.client_app("{arm}")
"""


@dataclass(frozen=True)
class Outcome:
    """Of one run. means: rounds that gave one; apart: of its model from the nearest right one."""

    status: str
    means: int
    seconds: float
    apart: float

    def __str__(self) -> str:
        if not self.means:
            return f"no model ({self.status})"
        right = "" if self.apart < CLOSE else f", model {self.apart:.1g} off"
        return f"{self.means} of {ROUNDS}{right}, {self.seconds:.0f} s"


def make_app(folder: Path, arm: str) -> Path:
    """Write the app of an arm."""
    package = folder / f"faulty_{arm}"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_APP.format(arm=arm), encoding="utf-8")
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "both.py").write_text(_BOTH.format(arm=arm), encoding="utf-8")
    return folder


def right_models() -> Iterator[Vector]:
    """All that a run may end with: in each round everybody's mean, the others', or no change.

    Or the mean of the others and of one whose update was NaN, which is no change.
    """
    for path in itertools.product(range(4), repeat=ROUNDS):
        model = Moved(VALUES).start()
        for kind in path:
            own = {k: _moved(model, k) for k in range(CLIENTS)}
            if kind == 1:
                del own[FAULTY]
            elif kind == 2:
                own[FAULTY] = model["model"].numpy()
            if kind < 3:
                model = ArrayRecord([np.mean(list(own.values()), axis=0)], keep_input=False)
                model = ArrayRecord({"model": next(iter(model.values()))})
        yield model["model"].numpy().astype(np.float64)


def _moved(model: ArrayRecord, client: int) -> NDArray[np.float32]:
    context = Context(0, 0, {"partition-id": client}, RecordDict(), {})
    request = Message(RecordDict({"arrays": model}), dst_node_id=0, message_type="train")
    content = Moved(VALUES).train(request, context).content
    found: NDArray[np.float32] = content.array_records["arrays"]["model"].numpy()
    return found


def outcome(found: dict[str, Any], status: str, right: list[Vector]) -> Outcome:
    """From what the server wrote."""
    model = np.array(found.get("model", []), dtype=np.float64)
    apart = min((np.abs(model - one).max() for one in right), default=0.0) if model.size else 0.0
    finite = bool(np.isfinite(model).all())
    return Outcome(
        status.removeprefix("finished:"),
        int(found.get("means", 0)),
        float(found.get("seconds", 0.0)),
        float(apart) if finite else np.inf,
    )


@dataclass
class Study:
    """The fleet and what it runs."""

    fleet: Fleet
    apps: dict[str, Path]
    timeout: float
    right: list[Vector]

    def run(self, arm: str, fault: str, exchange: str) -> Outcome:
        """One run; what died stands again afterwards."""
        name = "-".join(filter(None, (arm, fault.replace(" ", "-"), exchange)))
        out = self.fleet.folder / f"{name}.json"
        config = {
            "fault": fault,
            "exchange": exchange,
            "timeout": self.timeout,
            "out": str(out),
        }
        run = self.fleet.begin(self.apps[arm], config)
        status = self._ended(run, fault)
        if fault == KILLED:
            (self.fleet.folder / f"{name}-killed.log").write_text(self.fleet.log(run))
            run = self.fleet.begin(self.apps[arm], {**config, "fault": ""})
            status = self._ended(run, "")
        (self.fleet.folder / f"{name}.log").write_text(self.fleet.log(run), encoding="utf-8")
        if not self.fleet.is_running(FAULTY):
            self.fleet.start_node(FAULTY)
        found = json.loads(out.read_text()) if out.exists() else {}
        return outcome(found, status, self.right)

    def _ended(self, run: str, fault: str) -> str:
        deadline, status = time.monotonic() + OVER_SECONDS, "running"
        while time.monotonic() < deadline and not status.startswith("finished"):
            time.sleep(3.0)
            if fault == "reinstalled" and not self.fleet.is_running(FAULTY):
                self.fleet.start_node(FAULTY)
            status = self.fleet.status(run)
        return status


def cases(arm: str, only: str) -> Iterator[tuple[str, str]]:
    """Fault and exchange of an arm's runs."""
    found = [("", "")]
    found += [(fault, exchange) for fault in AT_EXCHANGES for exchange in EXCHANGES[arm]]
    found += [(fault, "") for fault in (*OF_TRAINING, KILLED)]
    return (case for case in found if case[0].startswith(only))


def main(
    out: Annotated[Path, typer.Argument(help="New folder for processes, logs, the table.")],
    only: Annotated[str, typer.Option(help="Faults that begin like this.")] = "",
    arm: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(EXCHANGES)}.")] = None,
    timeout: Annotated[float, typer.Option(help="Of an exchange [s].")] = 40.0,
) -> None:
    """Run all of them."""
    out = out.absolute()
    nodes = [
        {
            "partition-id": k,
            "num-partitions": CLIENTS,
            "folder": str(out),
        }
        for k in range(CLIENTS)
    ]
    table = Table("arm", "fault", "at", "rounds with a mean")
    fleet = Fleet(out, nodes, registered=False)
    arms = arm or ["plain", "secure", "secagg"]
    apps = {name: make_app(out / "apps" / name, name) for name in arms}
    study, rows = Study(fleet, apps, timeout, list(right_models())), []
    with fleet.running():
        for name in arms:
            for fault, exchange in cases(name, only):
                found = study.run(name, fault, exchange)
                at = exchange + (" of round 1" if exchange in ONCE else "")
                rows.append([name, fault or "none", at, str(found)])
                table.add_row(*rows[-1])
                print(" | ".join(rows[-1]), flush=True)
                (out / "faults.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
