"""Batches of dual coordinates by a table's own order, and by its owner's secret one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.kernel.private import order_coins, shuffled
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.updates.coordinate import DualPlan, cyclic_batch, move
from tests.parties.test_order import ROWS, places, shard

BATCHES = 10


def epoch(x: NDArray[np.float64], labels: NDArray[np.float64], plan: DualPlan) -> NDArray[Any]:
    """What the K rounds of one pass release without noise, at v = 0, shape (K, d)."""
    v, alpha = np.zeros(x.shape[1]), np.zeros(len(x))
    batches = (cyclic_batch(len(x), plan.batches, t) for t in range(plan.batches))
    return np.array([move(plan, x, labels, alpha, v, batch) for batch in batches])


def test_one_row_moves_one_batch_of_a_sorted_table_by_the_certified_bound() -> None:
    """The attack on a table's own order: a row that moves from the first place to the last."""
    k, size = np.arange(ROWS + 1), ROWS // BATCHES
    signs = np.where((k % size == 0) & (k // size % 2 == 1), -1.0, 1.0)
    signs[-1] = -1.0
    x = np.tile([0.6, 0.8], (ROWS, 1))
    first, second = signs[:-1], signs[1:]  # the row 0, or a row 40 in its stead
    plan = DualPlan(loss="ridge", lam=1.0, rows=ROWS, batches=BATCHES, rounds=BATCHES, clip=0.1)
    by_place = np.linalg.norm(epoch(x, first, plan) - epoch(x, second, plan))
    assert by_place > 2.9 * plan.sensitivity  # sqrt(K - 1), in units of which epsilon is made
    # The order of the one table, and its match of the other: all other rows stay where they are.
    table = shard(np.linspace(1, 99, ROWS))
    order = np.argsort(places(shuffled(table, order_coins(SeededRandomness(3, "a"))), table))
    match = (order - 1) % ROWS
    moved = epoch(x, first[order], plan) - epoch(x, second[match], plan)
    assert np.count_nonzero(np.linalg.norm(moved, axis=1) > 0) == 1
    assert np.linalg.norm(moved) <= plan.sensitivity
