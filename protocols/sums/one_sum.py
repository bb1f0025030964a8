"""An objective that is one sum of what rows add to it, and no training.

One step of rate 1 from zero by a gradient that is minus the sum opens the sum itself: a run of
`secure-aggregation` with one round. Messages, encryption, noise, certificate, consent and ledger
are those of any such run.

A row of any party adds a vector v(x, y) / N, N the rows of all parties. Parties clip v to
`norm_bound`, so that no promise rests on what a schema says of rows.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers.exact import Exact
from parties.kernel.sums.row_function import SumFunction
from protocols.errors import ParameterError
from protocols.sums.objective import Objective

EVERYBODY = ("*",)
"""Of whose rows alone something can follow: of each party's."""

Array = NDArray[np.float64]


class OneSum(Objective):
    """One sum over rows, and no training.

    kind: name of its query; statistic: what the sum is for, in words; released: what everyone
    learns, in words; judges: whether it judges a model; view: of the rows, see `reader.views`;
    empty: the rows as for training; drops: why weights or offsets of rows, which `of_rows` does not
    see, would change the sum; several: whether it reads labels of several classes, None: it reads
    none; precision: without privacy, of the sum over the bound.
    """

    __slots__ = ()
    kind: ClassVar[str]
    statistic: ClassVar[str]
    released: ClassVar[str]
    judges: ClassVar[bool] = False
    view: ClassVar[str] = ""
    several: ClassVar[bool | None] = False
    precision: ClassVar[float] = 2.0**-30
    drops: ClassVar[Mapping[str, str]] = {
        "weight": "this sum counts every row once; leave it out",
        "offset": "this sum scores rows by their features alone; leave it out",
    }

    @property
    @abstractmethod
    def row_function(self) -> SumFunction:
        """What a row adds."""

    def function_of(self, *, rows: int, rounds: int, norm: int) -> SumFunction:
        """The same in every run."""
        _ = rows, rounds, norm
        return self.row_function

    def length(self, features: int) -> int:
        """Values of the sum, for rows of so many features, bias included.

        Raises:
            ParameterError: the sum is of other rows.
        """
        return self.row_function.length(features)

    def exact_sum(self, x: Array, y: Array, name: str) -> Exact:
        """Sum of v over rows of party `name`, in integers; x, y: as in a shard."""
        return self.row_function.exact_sum(x, y, name)

    def of_rows(self, x: Array, y: Array, name: str) -> Array:
        """The same, as float64."""
        return self.exact_sum(x, y, name).values

    def norm_bound(self, query: str) -> float:
        """Bound on |v|, Euclidean."""
        return self.row_function.most(query)

    def diameter(self, query: str) -> float:
        """Of the set of all v, Euclidean: what replacing one row moves, times 1 / N."""
        return self.row_function.moves(query)

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types with the field `kind`."""

    def remarks(self) -> tuple[str, ...]:
        """What an owner who consents should know of other runs on the same rows."""
        return ()

    @property
    def places(self) -> tuple[int, ...] | None:
        """Of the features that a row is read at, beside its outcome; None: all."""
        return None

    @property
    def alone(self) -> tuple[str, ...]:
        """Parties of which a part is opened that is no sum with others' rows; or EVERYBODY."""
        return ()

    @property
    def stream(self) -> str:
        """What sets a seed's noise of this sum apart from that of any other sum."""
        text = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return f"{self.kind}/{hashlib.sha256(text.encode()).hexdigest()}"

    def queries(self, rounds: int) -> tuple[str, ...]:
        """One, the sum.

        Raises:
            ParameterError: more rounds, which would show nothing new.
        """
        if rounds != 1:
            raise ParameterError(f"rounds={rounds}: a {self.kind} takes one round")
        return (self.kind,)
