"""Faults that the property has to find: each is put in place of the true code.

Halved noise, a label twice, exact sums without consent and quoted cells are in
`tests/test_mutants.py`; a norm bound off by one unit in `test_integer_sums.py`; a
refresh without its commitment in `tests/provenance/test_confirmed.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.kernel import private
from parties.kernel.integers.exact import Exact
from parties.kernel.private import opened, shuffled
from parties.kernel.sums.integer_sums import Factors
from parties.reader import cells
from parties.reader.shard import Shard
from parties.verifier.party import Party
from protocols.exchange.messages import Body
from tests.boundaries.explore import explore
from tests.boundaries.formats import FORMATS
from tests.boundaries.moves import Moves, moves
from tests.boundaries.reading import BoundaryError, Reading
from tests.boundaries.replies import CASES, Change, Runs, changes
from tests.boundaries.tables import KINDS, Pair, pairs
from tests.support.sessions import VICTIM

Patch = pytest.MonkeyPatch
true_enrol, true_exact = Party._enrol, Factors.total

# -- checks ----------------------------------------------------------------------------------------


def rows_are_read_alone(folder: Path) -> bool:
    form, kind = FORMATS["frame object"], next(kind for kind in KINDS if kind.name == "filled")
    check = Reading(form, kind, folder).check
    usual = (30, 1.5, "1", True, 1)
    one_and_true = Pair((usual, (30, 1.5, "1", 1, 1)), 0, usual, (0, 1), 2)
    try:
        check(one_and_true)
    except BoundaryError:
        return False
    return not explore("", check, pairs(kind, form.cells), 300, by=1).failures


def an_owner_says_the_same(folder: Path) -> bool:
    runs = Runs(CASES["sums, logistic"], folder)
    return not explore("", runs.check, changes, 2, by=1).failures


def a_row_moves_its_own_part_alone(folder: Path) -> bool:
    return not explore("", Moves(CASES["sums, noise"]).check, moves, 20, by=1).failures


def other_rows_keep_their_places(folder: Path) -> bool:
    """By the same coins, D and D' differ in one place, whatever the odd row holds."""
    session = CASES["sums, weights and offsets"].open()
    party = session.parties[VICTIM]
    for weight in (0.0, 0.5, 1.0):
        other = Change(0.5, (0.25,), 1.0, weight, 0.5, order=None)(party.run.rows._value)
        placed = []
        for shard in (party.run.rows._value, other):
            with party.run.private:
                rows: Any = opened(party.run.used(shard))  # type: ignore[arg-type]
            placed.append(np.column_stack([rows.x, rows.y, rows.weight]))
        if (placed[0] != placed[1]).any(axis=1).sum() != 1:
            return False
    return True


# -- mutants ---------------------------------------------------------------------------------------


def cache_keyed_by_value(patch: Patch) -> None:
    """1, True and 1.0 are one key: the first of them speaks for all."""

    def by_value(self: Any, column: pd.Series[Any]) -> Any:
        known: dict[Any, int] = {}
        found = []
        for cell in column.tolist():
            code = self._function(cell)
            found.append(known.setdefault(cell, code))
        return np.array(found, dtype=np.intp)

    patch.setattr(cells._Keyed, "__call__", by_value)


def a_digest_of_rows_is_told(patch: Patch) -> None:
    """As an owner's proof that the table has not changed."""

    def enrol(self: Party, request: Body) -> Body:
        reply = true_enrol(self, request)
        return Body({**reply.meta, "rows_sha256": self.run.rows.fingerprint()})

    patch.setattr(Party, "_enrol", enrol)


def a_count_of_rows_is_told(patch: Patch) -> None:
    """As an owner's remark on its quality."""

    def enrol(self: Party, request: Body) -> Body:
        reply = true_enrol(self, request)
        return Body({**reply.meta, "positive": int(self.run.rows._value.y.sum())})

    patch.setattr(Party, "_enrol", enrol)


def sums_are_rounded(patch: Patch) -> None:
    """To float64, once, at the end."""

    def total(self: Factors, *arguments: Any) -> Exact:
        found = true_exact(self, *arguments)
        coarse = 1 << 12
        return Exact(np.asarray(found.units, object) // coarse * coarse, found.bits)

    patch.setattr(Factors, "total", total)


def shuffled_before_padding(patch: Patch) -> None:
    """Rows that count for nothing are left out, and zeros put in their place at the end."""

    def shuffle(rows: Any, coins: bytes) -> Any:
        usable = np.flatnonzero(rows.weight)
        if len(usable) == rows.rows:
            return shuffled(rows, coins)
        kept: Shard = shuffled(rows.only(usable), coins)
        rest = rows.only(np.flatnonzero(rows.weight == 0))
        both = [(getattr(kept, n), getattr(rest, n)) for n in ("x", "y", "weight", "offset")]
        x, y, weight, offset = map(np.concatenate, both)
        return Shard(x=x, y=y, weight=weight, offset=offset, counts=rows.counts, schema=rows.schema)

    patch.setattr(private, "shuffled", shuffle)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (cache_keyed_by_value, rows_are_read_alone),
        (a_digest_of_rows_is_told, an_owner_says_the_same),
        (a_count_of_rows_is_told, an_owner_says_the_same),
        (sums_are_rounded, a_row_moves_its_own_part_alone),
        (shuffled_before_padding, other_rows_keep_their_places),
    ],
)
def test_a_mutant_is_caught(
    mutant: Callable[[Patch], None],
    check: Callable[[Path], bool],
    monkeypatch: Patch,
    tmp_path: Path,
) -> None:
    """The check holds for the code as it is, and fails with the mutant in place."""
    assert check(tmp_path)
    mutant(monkeypatch)
    assert not check(tmp_path), f"{check.__name__} does not notice {mutant.__name__}"
