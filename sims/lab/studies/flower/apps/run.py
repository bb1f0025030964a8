"""One app in one process: `python -m sims.lab.studies.flower.apps.run FOLDER OUT CLIENTS CONFIG`.

Writes its last model as OUT.npz and its metrics as OUT.json; CONFIG: JSON, in the place of the
app's own. Clients draw the same random numbers in a round whatever else happens, so that an app and
its encrypted twin can be compared.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.common import parameters_to_ndarrays
from flwr.server import strategy as legacy
from flwr.serverapp.strategy import Strategy

from ciphercohort.flower.in_process import InProcessGrid
from sims.lab.studies.flower.apps import stand_ins
from sims.lab.studies.flower.workloads import App

METRICS = ("train_metrics_clientapp", "evaluate_metrics_clientapp")


def seed(number: int) -> None:
    """All generators that the apps use."""
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)


class SeededGrid(InProcessGrid):
    """Seeds by client, kind of message and round."""

    def deliver(self, request: Message) -> Message:
        """See `InProcessGrid`."""
        configs = request.content.config_records
        config: Any = configs.get("config") or configs.get("fitins.config") or {}
        number = int(config.get("server-round", 0))
        who = (request.metadata.dst_node_id, number, len(request.metadata.message_type))
        kept = random.getstate(), np.random.get_state()  # noqa: NPY002
        seed(int(np.random.SeedSequence(who).generate_state(1)[0]))
        try:
            return super().deliver(request)
        finally:
            random.setstate(kept[0])
            np.random.set_state(kept[1])  # noqa: NPY002


def keep_results(found: dict[str, Any]) -> None:
    """Have Flower's strategies leave their last model, and metrics, there."""
    aggregate = legacy.FedAvg.aggregate_fit

    def keep(kind: Any, /, **named: Any) -> None:
        """Of a strategy with a `start` of its own, as apps may have."""
        if "start" not in vars(kind):
            return
        start = kind.start

        def started(self: Any, *arguments: Any, **named: Any) -> Any:
            result = start(self, *arguments, **named)
            found["arrays"] = [array.numpy() for array in (result.arrays or {}).values()]
            kinds = {name: getattr(result, name).values() for name in METRICS}
            found["metrics"] = {name: [dict(m) for m in rounds] for name, rounds in kinds.items()}
            return result

        kind.start = started

    def aggregated(self: Any, *arguments: Any) -> Any:
        result = aggregate(self, *arguments)
        if result[0] is not None:
            found["arrays"] = parameters_to_ndarrays(result[0])
        return result

    keep(Strategy)
    Strategy.__init_subclass__ = classmethod(keep)  # type: ignore[assignment]
    legacy.FedAvg.aggregate_fit = aggregated  # type: ignore[assignment,method-assign]


def main(folder: Path, out: str, clients: int, config: dict[str, Any]) -> None:
    """See the module."""
    stand_ins.install()
    os.chdir(folder)
    found: dict[str, Any] = {}
    keep_results(found)
    with suppress(ImportError):
        importlib.import_module("torch")
    seed(1)
    app = App(folder)
    config = {**app.config, **config}
    server, client = (app.component(name)[1] for name in ("serverapp", "clientapp"))
    nodes = {
        100 + k: {"partition-id": k, "num-partitions": clients, "db-url": str(k)}
        for k in range(clients)
    }
    grid = SeededGrid(client, nodes, config)
    server(grid, Context(1, 1, {}, RecordDict(), config))
    np.savez(f"{out}.npz", *found.get("arrays", []))
    Path(f"{out}.json").write_text(json.dumps(found.get("metrics", {})), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))
