"""Append-only results: one JSON object per line, the first line says what the study is about.

A line that was cut off by a kill is dropped and its cell measured again; seeds derive from the
cell, so the same values come back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from protocols.errors import ParameterError
from sims.studies.noise.measurement import Measurement

NAME = "measurements.jsonl"
VERSION = 1


class Store:
    """The results in a folder; one writer at a time.

    Raises:
        ParameterError: the folder holds another study, or a file that is none.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self._found: dict[tuple[str, int], Measurement] = {}
        head = {"version": VERSION, **about}
        if self.path.exists() and self.path.stat().st_size:
            self._load(head)
        else:
            self._write([head])

    def __contains__(self, name: tuple[str, int]) -> bool:
        return name in self._found

    @property
    def measurements(self) -> list[Measurement]:
        """All, by cell and seed: the order of arrival does not show."""
        return sorted(self._found.values(), key=lambda m: (_order(m), m.seed))

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Keep those that are new, on disk before this returns."""
        new = [m for m in measurements if m.name not in self._found]
        self._found |= {m.name: m for m in new}
        self._write([m.to_dict() for m in new])

    def _write(self, bodies: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(body, allow_nan=False) + "\n" for body in bodies)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def _load(self, head: dict[str, Any]) -> None:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        try:
            first, *rest = [json.loads(line) for line in whole.splitlines()] or [{}]
            found = [Measurement.from_dict(body) for body in rest]
        except (ValueError, KeyError, TypeError) as error:
            raise ParameterError(f"{self.path} is no list of measurements: {error}") from None
        if not first:
            self._write([head])
        elif first != json.loads(json.dumps(head)):
            raise ParameterError(
                f"{self.path} belongs to a study of other data: choose another --out"
            )
        self._found = {m.name: m for m in found}


def _order(m: Measurement) -> tuple[Any, ...]:
    cell = m.cell
    return (cell.kind, cell.protocol, cell.mode, cell.coalition, cell.parties, cell.key)
