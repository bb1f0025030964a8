"""The order of a party's rows in one session: by its own coins, which nobody else knows.

A table's own order may follow from its cells, as by ORDER BY: then one other row moves all between
its old and its new place, and whatever counts positions (batches in turn, rows in columns of a
ciphertext, minibatches) sees each of them move. Epsilon is about one row, and ten batches that each
lose a row and win one spend up to ten times what is certified.

So rows are shuffled, uniformly, before anything counts them. Let D and D' differ in one row. For
each order of D there is one of D', as likely, in which every other row stands in the same place:
the orders are matched one to one, and what a run releases differs by one row of one place. The
number of rows is public (a plan states it), and the same in both: no row is dropped, for a table
with a cell that cannot be used is refused before its owner enrols. Equal numbers, one pair in 2^64,
keep the table's order.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.laws.randomness import RandomSource, apart

T = TypeVar("T")
COIN_BYTES = 32


def order_coins(randomness: RandomSource) -> bytes:
    """Of a new session; of a seeded source, which is not private, always the same."""
    words = apart(randomness, "order").words(COIN_BYTES // 8)
    return words.astype("<u8").tobytes()


def order_of(rows: int, coins: bytes) -> NDArray[np.intp]:
    """Indices of a table's rows in the order of these coins, uniform among all orders."""
    expanded = hashlib.shake_256(b"ciphercohort/order/1\0" + coins).digest(8 * rows)
    return np.argsort(np.frombuffer(expanded, dtype="<u8"), kind="stable")


def shuffled(rows: T, coins: bytes) -> T:
    """The same rows in the order of these coins."""
    given: Any = rows
    return cast(T, given.in_order(order_of(given.rows, coins)))
