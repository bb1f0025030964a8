"""`python -m tests.flower.run_example FOLDER OUT …`: Flower apps in one process, without Ray.

What `flwr run FOLDER` does, with ten clients and the options of its pyproject.toml; apps one after
the other.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flwr.app import Context, RecordDict

from ciphercohort.flower.in_process import InProcessGrid
from sims.lab.studies.flower.workloads import App

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
    # The next app may have modules of the same names.
    sys.path.remove(str(folder))
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(f"{folder}/"):
            del sys.modules[name]


if __name__ == "__main__":
    for folder, out in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        run(Path(folder).resolve(), out)
