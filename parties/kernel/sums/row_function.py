"""What rows are asked for in a sum, with the bounds that each of them is held to."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers.exact import Exact
from protocols.errors import ParameterError
from protocols.privacy.laws import RandomSource

Array = NDArray[np.float64]
LARGEST = 1e100
"""Of public numbers that rows are multiplied with: none overflows, for an error that depends on
rows tells of them, whatever the noise."""


def check_sizes(**sizes: float) -> None:
    """Each from 1 / LARGEST to LARGEST.

    Raises:
        ParameterError: names the field.
    """
    for name, value in sizes.items():
        if not 1 / LARGEST <= value <= LARGEST:
            raise ParameterError(f"{name}={value:g} is outside [{1 / LARGEST:g}, {LARGEST:g}]")


class Contributor(ABC):
    """One party's rows in a run; may keep state of its own between rounds."""

    @abstractmethod
    def exact(self, query: str, t: int, point: Array) -> Exact:
        """This party's part of the aggregate, without noise, shape (length,), as integers.

        A sum over rows of what each adds by itself, whatever the order and the others.
        """

    def contribution(self, query: str, t: int, point: Array) -> Array:
        """The same, as float64."""
        return self.exact(query, t, point).values


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """What a function is told of one party.

    name: of it; weight: what one of its rows counts; norm: 1 or 2, of clips; randomness: of coins.
    """

    name: str
    weight: float
    norm: int
    randomness: RandomSource


class RowFunction(ABC):
    """Public numbers of v(x, y; point), of which a run sums `weight` u_i v(x_i, y_i) over rows.

    kind: in a sheet; public_batches: K, of which each row is in one, in turn; coins: whether rows
    toss for rounds; without_noise: its bounds are a range's, and no row is held to them.
    """

    __slots__ = ()
    kind: ClassVar[str]
    public_batches: ClassVar[int] = 1
    coins: ClassVar[bool] = False
    without_noise: ClassVar[bool] = False

    @abstractmethod
    def length(self, features: int) -> int | None:
        """Values of a sum, for rows of so many features, bias included; None: its code says it.

        Raises:
            ParameterError: rows have others.
        """

    @abstractmethod
    def most(self, query: str) -> float:
        """Bound on |v|, in the norm of the clips."""

    def longest(self) -> float:
        """Norm that no row may exceed, or its part would; most functions clip it instead."""
        return math.inf

    def most_rows(self) -> float:
        """Rows of a party at most, where a bound depends on them."""
        return math.inf

    def alone(self, roster: Collection[str], colluders: int) -> Collection[str]:
        """Parties of whose rows alone something opens, or follows from what so many others know."""
        return ()

    def moves(self, query: str) -> float:
        """Bound on |v - v'| of two rows; parts that point anywhere are up to two norms apart."""
        return 2 * self.most(query)

    @abstractmethod
    def of(self, rows: Any, own: Own) -> Contributor:
        """For these rows (x, y, weight, offset and schema of `parties.reader.shard.Shard`).

        Raises:
            PolicyError: they are of another shape.
        """

    def fields(self) -> dict[str, Any]:
        """For a sheet; `row_functions.row_function` reads them."""
        return {"kind": self.kind, **{f.name: getattr(self, f.name) for f in fields(self)}}  # type: ignore[arg-type]


class SumFunction(RowFunction):
    """One that is the same at every point: a run of it is one sum, of minus v."""

    __slots__ = ()

    @abstractmethod
    def length(self, features: int) -> int:
        """See `RowFunction`."""

    @abstractmethod
    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """Sum of v over rows of party `name`, none beyond the bound, each v from its row alone."""

    def of(self, rows: Any, own: Own) -> Contributor:
        """Rows may be of any label."""
        return _OneSum(self, rows, own)


class _OneSum(Contributor):
    def __init__(self, function: SumFunction, rows: Any, own: Own) -> None:
        self._function, self._rows, self._own = function, rows, own

    def exact(self, query: str, t: int, point: Array) -> Exact:
        """-weight sum_i v_i, whatever the point."""
        rows, own = self._rows, self._own
        return -self._function.exact_sum(rows.x, rows.y, own.name).times(own.weight)


def of_sites(sites: Collection[str], roster: Collection[str], colluders: int) -> Collection[str]:
    """Whose rows are alone in a table, of a whole and some sites, which leave a sum of the others.

    As of any sum, there are two in it beside those who tell their own.
    """
    left = {*roster} - {*sites}
    return {*sites, *(left if sites and len(left) < colluders + 2 else ())}


def plain(value: Any) -> Any:
    """What JSON makes of fields, back: lists as tuples.

    Raises:
        ParameterError: a number is not finite, or what is no number, text, list or null.
    """
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if isinstance(value, float) and not np.isfinite(value):
        raise ParameterError("a row function has a number that is not finite")
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ParameterError(f"a row function has a {type(value).__name__}")
    return value


def made(kind: type[RowFunction], given: Mapping[str, Any]) -> RowFunction:
    """Of these fields, `kind` left out.

    Raises:
        ParameterError: there are others, or one is out of range or of another type.
    """
    try:
        return kind(**{name: plain(value) for name, value in given.items() if name != "kind"})
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ParameterError(f"row function {kind.kind}: {error}") from None
