"""Whatever cells a schema allows, a session of an accepted sheet answers; toy rings (INSECURE).

A refusal that depends on cells tells of one: here rows, weights and offsets are of every size that
float64 has, alone in a column or a group, among others of another size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.kernel import test_model_session as model

EXACT = replace(model.SHEET, law="", moves=0.0, honest=1, bits=0, units=0)
SIZES = [0.0, 5e-324, 1e-200, 1e-40, 1e-25, *(10.0**-k for k in range(21, 14, -1)), 1e-6, 1.0]
ROWS = 129  # the last stands alone in its group


def answers(sheet: Any, shard: Any, **terms: Any) -> bool:
    """A whole round, and one more at a point that is encrypted."""
    party = model.Watched(sheet, shard=shard, booked=None, **terms)
    party.begin()
    party.round(0)
    party.round(1, party.point())
    return True


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("exact", [False, True])
def test_rows_of_every_size(size: float, exact: bool) -> None:
    x = model.X[:ROWS].copy()
    for cells in (np.s_[-1, :], np.s_[:, 1], np.s_[:, :]):
        changed = x.copy()
        changed[cells] *= size
        sheet = replace(EXACT if exact else model.SHEET, rows=(ROWS, 3, 3, 3))
        assert answers(sheet, model.shard_of(changed, model.Y[:ROWS]), exact=exact)


@pytest.mark.parametrize("size", SIZES)
def test_weights_and_offsets_of_every_size(size: float) -> None:
    weight = np.ones(ROWS)
    weight[-1] = size
    shard = model.shard_of(model.X[:ROWS], model.Y[:ROWS], weight)
    assert answers(replace(model.SHEET, rows=(ROWS, 3, 3, 3), terms=("weight",)), shard)
    shard = model.shard_of(model.X[:ROWS], model.Y[:ROWS])
    shard.offset[-1] = size
    sheet = replace(EXACT, rows=(ROWS, 3, 3, 3), terms=("offset",))
    assert answers(sheet, shard, exact=True)


@pytest.mark.parametrize("power", [-30, -20, -17, -3])
def test_a_public_matrix_with_a_small_column(power: int) -> None:
    """As a coordinator could choose it, to be told of one cell by a refusal."""
    matrix = np.eye(model.X.shape[1])
    matrix[:, 1] *= 10.0**power
    sheet = replace(EXACT, rows=(ROWS, 3, 3, 3), matrix=tuple(map(tuple, matrix.tolist())))
    shard = model.shard_of(model.X[:ROWS], model.Y[:ROWS])
    assert answers(sheet, shard, exact=True)
