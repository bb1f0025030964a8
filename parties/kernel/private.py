"""The boundary around rows: they open inside `Private` alone, and what fails there is not told.

A party answers each request inside its `Private`. Checks of messages and plans come first and say
what is wrong; from the first look at a row on, whatever is raised ends as `HiddenError`.

Order of the rows in one session: by their party's own coins, which nobody else knows. A table's own
order may follow from its cells, as by ORDER BY: then one other row moves all between its old and
its new place, and whatever counts positions (batches in turn, rows in columns of a ciphertext,
minibatches) sees each of them move. Epsilon is about one row, and ten batches that each lose a row
and win one spend up to ten times what is certified.

So rows are shuffled, uniformly, before anything counts them. Let D and D' differ in one row. For
each order of D there is one of D', as likely, in which every other row stands in the same place:
the orders are matched one to one, and what a run releases differs by one row of one place. The
number of rows is public (a plan states it), and the same in both: no row is dropped, for a table
with a cell that cannot be used is refused before its owner enrols. Equal numbers, one pair in 2^64,
keep the table's order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

import numpy as np

from parties.kernel import EVERY
from protocols.errors import CohortError, DataError, PolicyError
from protocols.privacy.laws import RandomSource, apart

T = TypeVar("T")
PUBLIC = ("rows", "num_features", "schema")
"""Of a shard: everybody may know them."""
COIN_BYTES = 32


def _unsigned(seeds: Mapping[str, str]) -> bytes:
    raise PolicyError("not everybody has signed the sheets of this run")


def _keyless() -> Any:
    raise PolicyError("this run has no session of keys")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What an owner agreed to, for the sessions that are made of its rows.

    protocols: that it takes part in; exact: sums without noise; alone: of its rows alone;
    insecure: toy rings; colluders: how many it fears; booked: law of the noise and `SumsSheet.cost`
    that its account counts, None: all; spend: the run counts from here on; joint_seed: of
    everybody's seeds, once all have signed the session's sheet with all others of the run; keys:
    the run's key session: under other keys than these nobody has rows encrypted.
    """

    protocols: tuple[str, ...] = EVERY
    exact: bool = True
    alone: bool = True
    insecure: bool = True
    colluders: int = 0
    booked: tuple[str, float] | None = None
    spend: Callable[[], None] = lambda: None
    joint_seed: Callable[[Mapping[str, str]], bytes] = _unsigned
    keys: Callable[[], Any] = _keyless


class HiddenError(Exception):
    """Something went wrong where rows are open; its cause is for their owner's log alone."""


class Private:
    """Opens rows, for one answer at a time; the run in `account` counts as spent if that fails.

    Privacy: after the first look at a row, and for every exception that is no `CohortError` or is a
    `DataError`, the one thing that leaves the block is `HiddenError`, whatever was raised. A
    KeyboardInterrupt is spent as well and goes on: it is the owner's, no row's.
    """

    def __init__(self, account: Any) -> None:
        self._account = account
        self.terms = Terms(
            exact=False, alone=False, insecure=False, booked=("", 0.0), spend=account.spend
        )
        self._inside = self._touched = False

    @property
    def touched(self) -> bool:
        """Whether the last answer depends on rows."""
        return self._touched

    def keep(self, value: T) -> T:
        """The value behind a `Kept`, used like the value itself; of `closed` rows their value."""
        return cast(T, Kept(value._value if isinstance(value, Kept) else value, self))

    def touch(self) -> None:
        """From now on the answer depends on rows.

        Raises:
            PolicyError: nobody has asked for any.
        """
        if not self._inside:
            raise PolicyError("rows open to answer a request, and at no other time")
        self._touched = True

    def __enter__(self) -> None:
        self._inside, self._touched = True, False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inside, touched = False, self._touched
        if error is None or _is_public(error, touched):
            return
        try:
            self._account.spend()
        finally:
            if not isinstance(error, KeyboardInterrupt):
                raise HiddenError from error


def _is_public(error: BaseException, touched: bool) -> bool:
    return isinstance(error, CohortError) and not isinstance(error, DataError) and not touched


class Kept(Generic[T]):
    """Rows, or what was made of them. PUBLIC figures can be read; all else opens (`Private`)."""

    __slots__ = ("_figures", "_private", "_value")

    def __init__(self, value: T, private: Private | None) -> None:
        self._value, self._private = value, private
        self._figures = {name: getattr(value, name) for name in PUBLIC if hasattr(value, name)}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._figures:
            return self._figures[name]
        self._touch()
        return getattr(self._value, name)

    def _touch(self) -> Private:
        if self._private is None:
            raise PolicyError("rows open to answer a request, and at no other time")
        self._private.touch()
        return self._private

    def __repr__(self) -> str:
        return "Kept(<private>)"

    def __reduce__(self) -> Any:
        raise PolicyError("rows are never serialised")

    def keep(self, value: Any) -> Any:
        """Something made of this one, behind the same boundary."""
        return Kept(value, self._private)

    def used(self, coins: bytes, chosen: Any = None) -> Any:
        """The same rows in the order of these coins; chosen: indices of those to use, None: all.

        A new order looks at no row.
        """
        rows: Any = self._value
        if chosen is not None:
            self._touch()
            rows = rows.only(chosen)
        return self.keep(shuffled(rows, coins))

    def fingerprint(self) -> str:
        """SHA-256 of the rows and their schema, hexadecimal: for their owner's files."""
        if self._private is not None and self._private._inside:
            self._private.touch()
        return str(cast(Any, self._value).fingerprint())


def closed(rows: T) -> T:
    """Rows that nobody opens before a `Private` adopts them."""
    return rows if isinstance(rows, Kept) else cast(T, Kept(rows, None))


def opened(rows: Any) -> Any:
    """The value itself, from now on; one that has no boundary is open."""
    if isinstance(rows, Kept):
        rows._touch()
        return rows._value
    return rows


def public_figure(rows: Any, name: str) -> Any:
    """One of PUBLIC, None where there is none; no row is looked at."""
    return rows._figures.get(name) if isinstance(rows, Kept) else getattr(rows, name, None)


def terms_of(rows: Any) -> Terms:
    """What their owner agreed to; rows that have no boundary are in the open."""
    return rows._private.terms if isinstance(rows, Kept) and rows._private else Terms()


# -- the order of rows ----------------------------------------------------------------------------


def order_coins(randomness: RandomSource) -> bytes:
    """Of a new session; of a seeded source, which is not private, always the same."""
    words = apart(randomness, "order").words(COIN_BYTES // 8)
    return words.astype("<u8").tobytes()


def shuffled(rows: T, coins: bytes) -> T:
    """The same rows in the order of these coins, uniform among all orders."""
    given: Any = rows
    expanded = hashlib.shake_256(b"ciphercohort/order/1\0" + coins).digest(8 * given.rows)
    order = np.argsort(np.frombuffer(expanded, dtype="<u8"), kind="stable")
    return cast(T, given.in_order(order))
