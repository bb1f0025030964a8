"""Grids from a YAML file, for studies that are too large for options.

    grids:
      - {protocol: encrypted-rows, updates: [barrier, gd], parties: [1, 10, 100], encrypted: [2, 5]}
      - {protocol: secure-aggregation, updates: nag, noises: [honest, all], iterations: [50, 200]}

Fields are those of `grid.Grid`; a single value stands for a list of one.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from protocols.errors import ParameterError
from sims.studies.noise.grid import Grid


def read_grids(path: Path) -> list[Grid]:
    """Grids of a YAML file: one mapping, or a list of them under `grids`.

    Raises:
        ParameterError: not such a file; the message names what is wrong.
    """
    yaml: Any = import_module("yaml")  # it has no types of its own

    try:
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ParameterError(f"grid {path}: {' '.join(str(error).split())}") from None
    listed = body.get("grids", [body]) if isinstance(body, dict) else body
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise ParameterError(f"grid {path}: expected a mapping, or a list of them under grids")
    return [Grid.from_dict(entry) for entry in listed]
