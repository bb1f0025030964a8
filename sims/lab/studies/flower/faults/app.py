"""Both halves of the app that `faults` runs: a vector that clients move, and one that is faulty.

The faulty client is that of partition `FAULTY`. What it does, and at which exchange, is in the
run's configuration; `folder` in the node's is where it notes what it was asked, so that it knows it
after a restart.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
from flwr.serverapp import Grid, ServerApp

from ciphercohort.flower.memory import RECORD
from sims.lab.studies.flower.arms import ALL_STAY, PLAIN, SECAGG, SECURE, Case, Lap, serve
from sims.lab.studies.flower.arms import client_app as app_of
from sims.lab.studies.flower.workloads import Moved

CLIENTS, FAULTY, ROUNDS, VALUES = 4, 1, 3, 1000
ARMS = {"plain": PLAIN, "secure": SECURE, "stay": ALL_STAY, "secagg": SECAGG}
EXCHANGES = {
    "plain": ("train",),
    "secure": ("keys", "roster", "sum", "open"),
    "stay": ("keys", "roster", "sum"),
    "secagg": ("setup", "share_keys", "collect_masked_vectors", "unmask"),
}
"""What a client is asked in a round, by arm; keys and roster in the first one only."""
ONCE = ("keys", "roster")
WAITING = {"slow": 0.7, "late": 1.6}
"""Faults of time, as parts of the timeout."""


@dataclass(frozen=True)
class Faulty:
    """What a client does when."""

    fault: str
    exchange: str
    timeout: float
    notes: Path

    @classmethod
    def of(cls, context: Context) -> Faulty:
        """From both configurations."""
        run, folder = context.run_config, Path(str(context.node_config["folder"]))
        one = context.node_config["partition-id"] == FAULTY
        notes = folder / f"asked-{context.run_id}"
        return cls(str(run["fault"]) if one else "", str(run["exchange"]), _seconds(run), notes)

    def now(self, exchange: str) -> bool:
        """Whether this is the message: the first, or where every round has one the second."""
        if not self.fault or exchange != self.exchange:
            return False
        with self.notes.open("a+") as file:
            file.write("x")
            return file.tell() == (1 if exchange in ONCE else 2)


def _seconds(run: Any) -> float:
    return float(run["timeout"])


def exchange_of(message: Message) -> str:
    """Of our protocol, of SecAgg+, or "train"."""
    records = message.content.config_records
    if RECORD in records:
        return str(records[RECORD]["step"])
    if RECORD_KEY_CONFIGS in records:
        return str(records[RECORD_KEY_CONFIGS]["stage"])
    return "train"


def faults(message: Message, context: Context, call_next: Any) -> Message:
    """A mod in front of all others."""
    it = Faulty.of(context)
    if it.now(exchange_of(message)):
        if it.fault in WAITING:
            time.sleep(WAITING[it.fault] * it.timeout)
        elif it.fault in ("dead", "reinstalled"):
            # The group of Flower's SuperNode, which this process belongs to.
            os.killpg(int((it.notes.parent / f"supernode{FAULTY}.pid").read_text()), signal.SIGKILL)
    reply: Message = call_next(message, context)
    return reply


@dataclass(frozen=True, slots=True)
class Wrong(Moved):
    """The faulty client's update is NaN, or of another shape, or there is none; from round 2 on."""

    def train(self, message: Message, context: Context) -> Message:
        """See `Workload`."""
        it = Faulty.of(context)
        reply = Moved.train(self, message, context)
        if it.fault not in ("nan", "shape", "raises"):
            return reply
        with it.notes.open("a+") as file:
            file.write("x")
            if file.tell() < 2:
                return reply
        if it.fault == "raises":
            raise ValueError("the app of this client fails")
        moved = np.full(self.values, np.nan, np.float32)
        arrays = ArrayRecord({"model": Array(moved[: self.values // (1 + (it.fault == "shape"))])})
        metrics = reply.content.metric_records["metrics"]
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def client_app(arm: str) -> ClientApp:
    """Of an arm, by its short name."""
    return app_of(Wrong(VALUES), ARMS[arm], faults)


def server_app(arm: str) -> ServerApp:
    """Likewise; writes what it has into the run's `out`."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        out, lap = Path(str(config["out"])), _Ending(str(config["fault"]))
        while len(list(grid.get_node_ids())) < CLIENTS:
            time.sleep(0.5)
        case = Case(
            workload=Moved(VALUES),
            clients=CLIENTS,
            rounds=ROUNDS - 1,
            least=CLIENTS - 1,
            timeout=_seconds(config),
        )
        began = time.monotonic()
        try:
            serve(case, ARMS[arm], grid, context, lap)
        finally:
            model = [] if lap.model is None else lap.model[0].tolist()
            seconds = time.monotonic() - began
            text = json.dumps({"means": lap.means, "seconds": seconds, "model": model})
            out.write_text(text, encoding="utf-8")

    return app


class _Ending(Lap):
    """Notes of a server that is killed as its second round begins, where that is the fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.starts = _Deadly() if fault == "server killed" else []


class _Deadly(list[float]):
    def append(self, value: float) -> None:
        super().append(value)
        if len(self) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
