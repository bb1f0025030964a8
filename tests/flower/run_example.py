"""`python -m tests.flower.run_example FOLDER [OUT]`: a Flower app in one process, without Ray.

What `flwr run FOLDER` does, with ten clients and the options of its pyproject.toml.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from flwr.app import Context, RecordDict

from ciphercohort.flower.in_process import InProcessGrid

CLIENTS = 10


def run(folder: Path, out: str) -> None:
    app: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"][
        "app"
    ]
    config = {**app["config"], "out": out}
    sys.path.insert(0, str(folder))
    server, client = (load(app["components"][name]) for name in ("serverapp", "clientapp"))
    nodes = {100 + k: {"partition-id": k, "num-partitions": CLIENTS} for k in range(CLIENTS)}
    grid = InProcessGrid(client, nodes, config)
    empty = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    server(grid, empty)
    received = max(grid.received.values())
    print(f"received {received} bytes of each client")


def load(component: str) -> Any:
    module, _, name = component.partition(":")
    return getattr(importlib.import_module(module), name)


if __name__ == "__main__":
    run(Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else "")
