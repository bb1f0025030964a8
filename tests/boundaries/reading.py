"""Boundary in: every row of a table is what it is alone, whatever the other rows hold."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

from parties.reader.schema import Schema
from parties.reader.shard import Shard, encode_shard
from protocols.errors import CohortError
from tests.boundaries.formats import Format, UnfitError
from tests.boundaries.tables import Kind, Pair, Row

Vector = bytes
REFUSED = None
_KEPT = 20_000


class BoundaryError(AssertionError):
    """The property does not hold."""


class Reading:
    """Reads tables of one format and kind in one folder, and remembers rows that it read alone.

    taken: tables that were not refused.
    """

    def __init__(self, form: Format, kind: Kind, folder: Path) -> None:
        self.form, self.folder = form, folder
        self.kind, self._schema = kind, _named(form, kind)
        self.taken = 0
        self._alone: OrderedDict[str, Vector | None] = OrderedDict()

    def check(self, pair: Pair) -> bool:
        """Whether the format holds such cells; raises BoundaryError."""
        try:
            for rows in (pair.rows, pair.others):
                self._check(rows, pair.batch)
        except UnfitError:
            return False
        return True

    def _check(self, rows: tuple[Row, ...], batch: int) -> None:
        alone = [self.alone(row) for row in rows]
        found = self._vectors(rows, batch)
        if found is REFUSED:
            if REFUSED not in alone:
                raise BoundaryError("the table is refused, and none of its rows alone")
            return
        if REFUSED in alone:
            where = alone.index(REFUSED)
            raise BoundaryError(f"row {where} is refused alone, and taken in company")
        self.taken += 1
        if len(found) != len(rows):
            raise BoundaryError(f"{len(rows)} rows are {len(found)} in company")
        for k, (own, vector) in enumerate(zip(alone, found, strict=True)):
            if own != vector:
                raise BoundaryError(f"row {k} is another in company: {rows[k]!r}")

    def alone(self, row: Row) -> Vector | None:
        """The row read from a table of its own; None: it is refused."""
        key = repr(row)  # tells 1, True, 1.0 and 0.0, -0.0 apart
        if key not in self._alone:
            found = self._vectors((row,), 1 << 15)
            self._alone[key] = found[0] if found else REFUSED
            if len(self._alone) > _KEPT:
                self._alone.popitem(last=False)
        return self._alone[key]

    def _vectors(self, rows: tuple[Row, ...], batch: int) -> list[Vector] | None:
        source = self.form.write(self.folder, self.kind, rows)
        try:
            shard = encode_shard(source, self._schema, batch_rows=batch)
        except CohortError:
            return REFUSED
        except Exception as error:
            words = f"{type(error).__name__} is no refusal: {error}"
            raise BoundaryError(words) from error
        return vectors(shard)


def vectors(shard: Shard) -> list[Vector]:
    """Everything that a shard holds of each row."""
    parts = (shard.x, shard.y, shard.weight, shard.offset)
    return [b"".join(part[k].tobytes() for part in parts) for k in range(shard.rows)]


def _named(form: Format, kind: Kind) -> Schema:
    """Columns of arrays are called x1, x2, …."""
    if not form.name.startswith("array"):
        return kind.schema
    columns: Any = tuple(
        replace_name(column, f"x{k + 1}") for k, column in enumerate(kind.schema.columns)
    )
    return replace(kind.schema, columns=columns)


def replace_name(column: Any, name: str) -> Any:
    """The same column by another name."""
    fields = {field: getattr(column, field) for field in column.__struct_fields__}
    return type(column)(**(fields | {"name": name}))
