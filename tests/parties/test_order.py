"""Rows are a multiset: where a row stands in a run follows from coins alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from parties.kernel.private import opened, order_coins, shuffled
from parties.policy import Policy
from parties.reader.schema import Label, NumericColumn, Schema
from parties.reader.shard import Shard, encode_shard
from parties.verifier.party import Party
from protocols.exchange.messages import new_signing_key, public_bytes
from protocols.privacy.laws import SystemRandomness
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.updates.coordinate import DualPlan, cyclic_batch, move
from tests.support.helpers import through_the_codec

ROWS, BATCHES = 40, 10
SCHEMA = Schema(
    columns=(NumericColumn("age", 0, 100),),
    label=Label("ill", "1", "0"),
    scaling="range",
    row_norm=1.0,
)


def shard(ages: NDArray[np.float64]) -> Shard:
    ill = (np.arange(len(ages)) % 2).tolist()
    return encode_shard(pd.DataFrame({"age": ages, "ill": ill}), SCHEMA)


def party(rows: Shard, seed: int | None = None) -> Party:
    key = new_signing_key()
    return Party.of(
        name="a",
        shard=rows,
        signing_key=key,
        coordinator_key=public_bytes(key),
        policy=Policy(),
        randomness=SystemRandomness() if seed is None else SeededRandomness(seed, "a"),
    )


def used(owner: Party) -> Shard:
    """The rows of a run, as its party opens them."""
    with owner.run.private:
        found: Shard = opened(owner.run.used(owner.run.rows))
    return found


def places(run: Shard, table: Shard) -> NDArray[np.intp]:
    """Of each row of the table; rows are distinct."""
    where = {row.tobytes(): k for k, row in enumerate(run.x)}
    return np.array([where[row.tobytes()] for row in table.x])


def test_the_place_of_a_row_is_uniform_whatever_its_rank() -> None:
    """A table as ORDER BY gives it; 5 standard deviations, p = 1e-3 over all 1,600 counts."""
    table, runs = shard(np.linspace(1, 99, ROWS)), 2000
    counts = np.zeros((ROWS, ROWS))
    for seed in range(runs):
        counts[np.arange(ROWS), places(used(party(table, seed)), table)] += 1
    sigma = np.sqrt(runs / ROWS * (1 - 1 / ROWS))
    assert np.abs(counts - runs / ROWS).max() < 5 * sigma


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


def test_coins_are_of_a_session_and_of_the_seed_alone() -> None:
    table = shard(np.linspace(1, 99, ROWS))
    orders = [places(used(party(table, seed)), table) for seed in (None, None, 4, 4)]
    assert (orders[0] != orders[1]).any() and (orders[2] == orders[3]).all()
    assert order_coins(SystemRandomness()) != order_coins(SystemRandomness())


def test_a_resumed_session_has_the_same_order() -> None:
    table = shard(np.linspace(1, 99, ROWS))
    old, new = party(table), party(table)
    due = used(old)
    new.restore(old.state())
    assert (used(new).x == due.x).all()
    assert through_the_codec(old.state()) == old.state()


def test_all_that_a_row_has_moves_with_it() -> None:
    table = shard(np.linspace(1, 99, ROWS))
    found = shuffled(table, bytes(32))
    where = places(found, table)
    assert (found.y[where] == table.y).all() and (found.weight[where] == table.weight).all()
    assert found.fingerprint() == table.fingerprint() == found.in_order(where).fingerprint()
    assert found.only(np.arange(ROWS)).fingerprint() != table.fingerprint()


@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_every_row_is_used_once(rows: int) -> None:
    table = shard(np.linspace(0, 100, rows))
    assert sorted(places(shuffled(table, order_coins(SystemRandomness())), table)) == [*range(rows)]
