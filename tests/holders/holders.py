"""Which functions ever hold a row, a secret or noise: read off their locals as they return.

Rows and noise are known by their values: two or more numbers that stand in an encoded table, or
that a plan drew, at most `FEW` times, and on no grid. Secrets are known by their type (objects of
the kernel), or as arrays of a ring's length with -1, 0 and 1 in equal parts. A session of keys is a
key share to its own methods; whoever else has one is outside its door.

A value is looked for in arrays, and in arrays of tuples, lists and dictionaries. Sums over rows,
ciphertexts and what is computed of a secret are other numbers, and not found: this shows where the
things themselves go.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from parties.kernel.cover.share import CoverShare
from parties.kernel.ephemeral_key import EphemeralKey
from parties.kernel.keys.key_share import KeyShare
from parties.kernel.keys.session import KeySession
from parties.kernel.model.pads import Pads
from parties.kernel.sums.aggregate_share import AggregateShare
from parties.reader.shard import Shard

ROOT = Path(__file__).parents[2]
PACKAGES = ("coordinator", "parties", "protocols")
KINDS = ("row", "secret", "secret's object", "noise")
SECRETS = (
    AggregateShare,
    CoverShare,
    EphemeralKey,
    KeyShare,
    Pads,
)
MANY, FEW, MOST, LEAST_RING = 50, 4, 1 << 22, 256
LEAST_UNIT = 1 << 16
PIECE = 1 << 12
"""Numbers that are looked at together: those of an array of rows are found in the first."""
GRIDS = (1_200_000, 1 << 20)
DRAWS = "draw_noise"
CLEAR = ("sims/prepare.py", "ciphercohort/results/result.py")


@dataclass
class Holders:
    """Functions by what they held: (module, name, first line, last line)."""

    found: dict[str, set[tuple[str, str, int, int]]] = field(
        default_factory=lambda: {kind: set() for kind in KINDS}
    )
    _rows: set[float] = field(default_factory=set)
    _noise: set[float] = field(default_factory=set)
    _units: set[int] = field(default_factory=set)
    _modules: dict[CodeType, str] = field(default_factory=dict)
    _places: dict[CodeType, tuple[str, str, int, int]] = field(default_factory=dict)

    def modules(self, kind: str) -> dict[str, int]:
        """Lines of functions that held it, by module."""
        lines: dict[str, int] = {}
        for module, _, first, last in self.found[kind]:
            lines[module] = lines.get(module, 0) + last - first + 1
        return dict(sorted(lines.items()))

    def _module(self, code: CodeType) -> str:
        if code not in self._modules:
            path = Path(code.co_filename)
            ours = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts) if ours else ""
            self._modules[code] = name.removesuffix(".__init__")
        return self._modules[code]

    def look(self, frame: FrameType, event: str, result: Any) -> None:
        """For `sys.setprofile`."""
        if event != "return":
            return
        code = frame.f_code
        module = self._module(code)
        if isinstance(result, Shard) and len(result.x) > MANY:  # else a constant is rare in it
            self._rows |= rare(result.x)
        if code.co_name == DRAWS and isinstance(result, np.ndarray):
            if result.dtype == np.float64:
                self._noise |= rare(result)
            else:
                self._units |= {unit for unit in result.tolist() if abs(unit) > LEAST_UNIT}
        if not module:
            return
        for value in inside([*frame.f_locals.values(), result]):
            if isinstance(value, KeySession) and value is not frame.f_locals.get("self"):
                continue
            for kind in self._kinds(value):
                if not in_the_clear(frame):
                    self.found[kind].add(self._place(code))

    def _place(self, code: CodeType) -> tuple[str, str, int, int]:
        if code not in self._places:
            own = self._modules[code], code.co_name, code.co_firstlineno, last_line(code)
            self._places[code] = own
        return self._places[code]

    def _drawn(self, value: np.ndarray[Any, Any]) -> bool:
        return bool(self._units) and len(self._units & set(value.tolist())) > 1

    def _kinds(self, value: Any) -> Iterator[str]:
        if isinstance(value, SECRETS):
            yield "secret's object"
        if not isinstance(value, np.ndarray) or not 0 < value.size <= MOST:
            return
        if value.dtype == np.float64:
            for kind, known in (("row", self._rows), ("noise", self._noise)):
                if known and several(known, value):
                    yield kind
        elif value.dtype.kind in "iO" and value.ndim == 1 and self._drawn(value):
            yield "noise"
        if value.dtype.kind == "i" and value.ndim == 1 and value.size >= LEAST_RING:
            shares = [float(np.mean(value == trit)) for trit in (-1, 0, 1)]
            if min(shares) > 0.25 and sum(shares) == 1.0:
                yield "secret"


def several(known: set[float], value: np.ndarray[Any, Any]) -> bool:
    """Whether two or more of them stand in an array."""
    met: set[float] = set()
    for part in np.array_split(value.ravel(), 1 + value.size // PIECE):
        met |= known.intersection(part.tolist())
        if len(met) > 1:
            return True
    return False


def in_the_clear(frame: FrameType | None) -> bool:
    """Whether a simulation's twin, or its table of figures, which have all rows, called this."""
    while frame:
        path = Path(frame.f_code.co_filename)
        own = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
        if own in CLEAR or (own.startswith("sims/") and "twin" in path.name):
            return True
        frame = frame.f_back
    return False


def rare(array: np.ndarray[Any, Any]) -> set[float]:
    """Its values that stand in it a few times, and are no points of a grid, as decimals are."""
    values, counts = np.unique(array, return_counts=True)
    off = [np.abs(values * grid - np.rint(values * grid)) > 1e-9 for grid in GRIDS]
    return set(values[np.all(off, axis=0) & (counts <= FEW)].tolist())


def last_line(code: CodeType) -> int:
    """Of a function."""
    return max(line for *_, line in code.co_lines() if line is not None)


def inside(values: list[Any]) -> Iterator[Any]:
    """The values, and those in tuples, lists, dictionaries and shards."""
    for value in values:
        yield value
        if isinstance(value, tuple | list):
            yield from value[:64]
        elif isinstance(value, dict):
            yield from list(value.values())[:64]
        elif isinstance(value, Shard):
            yield value.x


@contextmanager
def watched() -> Iterator[Holders]:
    """All threads that are begun inside, and this one."""
    found = Holders()
    threading.setprofile(found.look)
    sys.setprofile(found.look)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


TOY: Mapping[str, Any] = {"profile": "fast-insecure", "update": "gd", "rounds": 2, "epsilon": 4.0}
RUNS: dict[str, dict[str, Any]] = {
    "encrypted rows": {**TOY},
    "encrypted model": {**TOY, "protocol": "encrypted-model"},
    "Gram sums": {"profile": "fast-insecure", "model": "linear", "rounds": 3, "epsilon": 4.0},
    "lffr": {"profile": "fast-insecure", "model": "lffr", "rounds": 2, "epsilon": 4.0},
    "sums": {"protocol": "secure-aggregation", "update": "gd", "rounds": 2, "epsilon": 4.0},
}


def holders_of(run: str) -> Holders:
    """Of a whole run in one process, on made rows; rings are INSECURE."""
    from ciphercohort.job.config import SimulationConfig
    from sims.simulation import simulate

    with watched() as found:
        simulate(SimulationConfig(seed=1, **RUNS[run]))
    return found
