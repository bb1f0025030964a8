"""`python -m tests.flower.run_example FOLDER [OUT]`: a Flower app in one process, without Ray.

What `flwr run FOLDER` does, with ten clients and the options of its pyproject.toml.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flwr.app import Context, RecordDict

from ciphercohort.flower.in_process import InProcessGrid
from ciphercohort.flower.workloads import App

CLIENTS = 10


def run(folder: Path, out: str) -> None:
    app = App(folder)
    config = {**app.config, "out": out}
    server, client = (app.component(name)[1] for name in ("serverapp", "clientapp"))
    nodes = {100 + k: {"partition-id": k, "num-partitions": CLIENTS} for k in range(CLIENTS)}
    grid = InProcessGrid(client, nodes, config)
    empty = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    server(grid, empty)
    received = max(grid.received.values())
    print(f"received {received} bytes of each client")


if __name__ == "__main__":
    run(Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else "")
