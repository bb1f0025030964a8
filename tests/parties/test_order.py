"""Rows are a multiset: where a row stands in a run follows from coins alone."""

from __future__ import annotations

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
from tests.support.helpers import through_the_codec

ROWS = 40
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
