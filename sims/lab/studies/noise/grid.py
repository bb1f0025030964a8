"""What a study measures: cells, from options or from a YAML file.

Parties and coalitions are crossed. Of every other field, the mode included, the first value is the
base, and each further value is tried with all others at their base. A file has one grid, or several
under `grids`; a single value stands for a list of one:

    grids:
      - {protocol: encrypted-rows, updates: [barrier, gd], parties: [1, 10, 100], encrypted: [2, 5]}
      - {protocol: encrypted-model, parties: [], encrypted: [2, 200], profile: fast-insecure}
      - {protocol: secure-aggregation, updates: nag, noises: [honest, all], iterations: [50, 200]}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from protocols.errors import ParameterError
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION, protocol_name
from protocols.updates.registry import UPDATES

COALITIONS = ("0", "1", "half", "all-but-one")
MODES = ("fixed", "growing")
NOISE_RULES = ("honest", "all")
KINDS = ("twin", "encrypted")


def colluders_of(coalition: str, parties: int) -> int | None:
    """t of a coalition among P parties; None where nobody honest would be left.

    Raises:
        ParameterError: the coalition is no number and none of `COALITIONS`.
    """
    named = {"half": parties // 2, "all-but-one": parties - 1}
    if coalition not in named and not coalition.isdecimal():
        raise ParameterError(f"colluders={coalition!r} is not a number, half or all-but-one")
    t = named[coalition] if coalition in named else int(coalition)
    return t if t < parties else None


def coalition_words(coalition: str) -> str:
    """For legends and tables: t = 0, t = P / 2, t = P - 1."""
    return "t = " + {"half": "P / 2", "all-but-one": "P - 1"}.get(coalition, coalition)


def ring_words(profile: str, ring_dim: int | None) -> str:
    """For legends and tables: nothing at 128 bits."""
    if profile == "secure":
        return ""
    return "INSECURE ring" if ring_dim is None else f"INSECURE ring of {ring_dim:,}"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One point of the grid; every seed of it is one measurement.

    kind: "twin" or "encrypted". parties: P. coalition: see `colluders_of`. mode: "fixed" total
    data, or "growing": every client brings rows_per_party rows (0: all rows over the largest P).
    split: "even" or "dirichlet:ALPHA". noise: "honest", std sigma / sqrt(P - t) each, or "all",
    sigma each. rounds: T, None as certified. norm: rows are divided by it and clipped to 1; None
    as the schema says. weights: of the parties, "rows" or "equal" (secure aggregation). epsilon
    None: no privacy noise. profile, ring_dim: of encrypted cells.

    Raises:
        ParameterError: a field is out of range.
    """

    kind: str = "twin"
    protocol: str = ENCRYPTED_ROWS
    update: str = "gd"
    parties: int = 2
    coalition: str = "0"
    mode: str = "fixed"
    rows_per_party: int = 0
    split: str = "even"
    noise: str = "honest"
    epsilon: float | None = 1.0
    delta: float = 1e-5
    rounds: int | None = None
    norm: float | None = None
    weights: str = "rows"
    profile: str = "secure"
    ring_dim: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "protocol", protocol_name(self.protocol))
        if self.parties < 1:
            raise ParameterError(f"parties={self.parties} is below 1")
        for name, choices in (("kind", KINDS), ("mode", MODES), ("noise", NOISE_RULES)):
            if getattr(self, name) not in choices:
                raise ParameterError(
                    f"{name}={getattr(self, name)!r} is not one of {', '.join(choices)}"
                )
        if self.protocol not in UPDATES or self.update not in UPDATES[self.protocol]:
            raise ParameterError(f"update={self.update!r} is none of protocol {self.protocol!r}")
        if self.split != "even" and not self.split.startswith("dirichlet:"):
            raise ParameterError(f"split={self.split!r} is not even or dirichlet:ALPHA")
        if self.norm is not None and not self.norm > 0:
            raise ParameterError(f"norm={self.norm} must be positive")
        if colluders_of(self.coalition, self.parties) is None:
            raise ParameterError(
                f"colluders={self.coalition} of {self.parties} leave nobody honest"
            )

    @property
    def colluders(self) -> int:
        """t."""
        return colluders_of(self.coalition, self.parties) or 0

    @property
    def split_colluders(self) -> int:
        """The t of the noise split: everyone adds all is the split for P - 1."""
        return self.parties - 1 if self.noise == "all" else self.colluders

    @cached_property
    def key(self) -> str:
        """Name of the cell: digest of its fields; seeds derive from it, never from an order."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def seed_words(self, seed: int) -> list[int]:
        """What `numpy.random.default_rng` starts from."""
        return [int(self.key, 16), seed]

    @property
    def setting(self) -> str:
        """Everything but its clients and its coalition, in words."""
        words = (
            *(self.kind, self.protocol, self.update, self.mode),
            "" if self.split == "even" else self.split,
            "" if self.weights == "rows" else f"{self.weights} weights",
            "everyone adds sigma" if self.noise == "all" else "",
            "T as certified" if self.rounds is None else f"T = {self.rounds}",
            "" if self.norm is None else f"row norm {self.norm:g}",
            "no privacy" if self.epsilon is None else f"epsilon {self.epsilon:g}",
            ring_words(self.profile, self.ring_dim),
        )
        return ", ".join(filter(None, words))


# Grid field -> field of a cell.
VARIED = {
    "modes": "mode",
    "updates": "update",
    "noises": "noise",
    "splits": "split",
    "weights": "weights",
    "epsilons": "epsilon",
    "iterations": "rounds",
    "norms": "norm",
}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Lists of values, see the module; encrypted: the P that are run encrypted as well.

    Raises:
        ParameterError: an empty list, or a value out of range (from `Cell`).
    """

    protocol: str = ENCRYPTED_ROWS
    parties: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200)
    colluders: tuple[str, ...] = COALITIONS
    modes: tuple[str, ...] = ("fixed",)
    encrypted: tuple[int, ...] = ()
    updates: tuple[str, ...] = ("gd",)
    noises: tuple[str, ...] = ("honest",)
    splits: tuple[str, ...] = ("even",)
    weights: tuple[str, ...] = ("rows",)
    epsilons: tuple[float | None, ...] = (1.0,)
    iterations: tuple[int | None, ...] = (None,)
    norms: tuple[float | None, ...] = (None,)
    delta: float = 1e-5
    rows_per_party: int = 0
    profile: str = "secure"
    ring_dim: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "protocol", protocol_name(self.protocol))
        for field in fields(self):
            value = getattr(self, field.name)
            if value == () and field.name not in ("parties", "encrypted"):
                raise ParameterError(f"{field.name} is empty: give at least one value")
        if not self.parties and not self.encrypted:
            raise ParameterError("parties and encrypted are both empty: there is nothing to do")

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Grid:
        """From plain types; a single value stands for a list of one.

        Raises:
            ParameterError: an unknown field, or as the class.
        """
        known = {field.name: field.default for field in fields(cls)}
        values = {}
        for name, value in given.items():
            if name not in known:
                raise ParameterError(f"grid field {name!r} is not one of {', '.join(known)}")
            if isinstance(known[name], tuple):
                listed = value if isinstance(value, list | tuple) else [value]
                value = tuple(str(v) if name == "colluders" else v for v in listed)
            values[name] = value
        try:
            return cls(**values)
        except TypeError as error:
            raise ParameterError(f"grid: {error}") from None

    def settings(self) -> list[dict[str, Any]]:
        """The base, then one change at a time."""
        base = {target: getattr(self, name)[0] for name, target in VARIED.items()}
        changed = [
            {**base, target: value}
            for name, target in VARIED.items()
            for value in getattr(self, name)[1:]
        ]
        return [base, *changed]

    def cells(self) -> Iterator[Cell]:
        """Every cell, the encrypted ones of the base alone."""
        for setting, coalition, parties in product(self.settings(), self.colluders, self.parties):
            if colluders_of(coalition, parties) is not None:
                yield self._cell(setting, "twin", coalition, parties)
        for coalition, parties in product(self.colluders, self.encrypted):
            # Secure sums withstand P - 2; the twins' noise is divided for P - 1 as well.
            sums = self.protocol == SECURE_AGGREGATION and self.epsilons[0] is not None
            t = colluders_of(coalition, parties)
            if t is not None and t < parties - sums:
                yield self._cell(self.settings()[0], "encrypted", coalition, parties)

    def _cell(self, setting: Mapping[str, Any], kind: str, coalition: str, parties: int) -> Cell:
        share = self.rows_per_party if setting["mode"] == "growing" else 0
        encrypted: dict[str, Any] = {"profile": self.profile, "ring_dim": self.ring_dim}
        return Cell(
            kind=kind,
            protocol=self.protocol,
            parties=parties,
            coalition=coalition,
            rows_per_party=share,
            delta=self.delta,
            **setting,
            **(encrypted if kind == "encrypted" else {}),
        )


def cells_of(grids: Sequence[Grid], total_rows: int) -> list[Cell]:
    """All cells, each once; growing cells get their rows per party.

    Raises:
        ParameterError: fewer rows than the largest number of parties.
    """
    found: dict[str, Cell] = {}
    for grid in grids:
        for cell in grid.cells():
            if cell.mode == "growing" and not cell.rows_per_party:
                most = max((*grid.parties, *grid.encrypted))
                if total_rows < most:
                    raise ParameterError(f"rows={total_rows} do not reach {most} growing parties")
                cell = replace(cell, rows_per_party=total_rows // most)
            found.setdefault(cell.key, cell)
    return list(found.values())


def read_grids(path: Path) -> list[Grid]:
    """Grids of a YAML file, see the module.

    Raises:
        ParameterError: not such a file; the message names what is wrong.
    """
    try:
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ParameterError(f"grid {path}: {' '.join(str(error).split())}") from None
    listed = body.get("grids", [body]) if isinstance(body, dict) else body
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise ParameterError(f"grid {path}: expected a mapping, or a list of them under grids")
    return [Grid.from_dict(entry) for entry in listed]
