"""Privacy of single records: which of them a round asks, and what each of them adds.

    @app.train()
    def train(message, context):
        x, y = rows_of(context)
        chosen = lot(len(y))  # by secret coins
        w = message.content["arrays"]["w"].numpy()
        changes = -gradients(w, x[chosen], y[chosen])  # shape (len(chosen), *w.shape)
        arrays, metrics = ArrayRecord({"w": Array(changes)}), MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

Row i of every array is what record `chosen[i]` alone would add to the model of the message: a
function of this record and of what the server sent. These rows stay in the client: the mod scales
each record's, over all arrays, to the plan's clip, cuts them to whole units, and adds them up with
the client's noise. Each record joins with the plan's chance, by a coin of its own that nobody else
sees, which is the mechanism of `protocols.privacy.loss.poisson`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

from ciphercohort.flower.plan import Privacy
from ciphercohort.flower.records import Bases, numbers_of
from protocols.aggregate.quorum import Quorum
from protocols.errors import DataError, PolicyError
from protocols.privacy.laws import RandomSource
from protocols.privacy.laws.rational import discrete_gaussian

Integers = NDArray[np.int64]


@dataclass(slots=True)
class _Round:
    """The plan of the round that is being answered; drawn: how many records `lot` gave."""

    privacy: Privacy
    randomness: RandomSource
    drawn: int | None = None


_ROUND: ContextVar[_Round | None] = ContextVar("round", default=None)


@contextmanager
def drawing(privacy: Privacy | None, randomness: RandomSource) -> Iterator[_Round | None]:
    """While the app's own function answers a round under this plan."""
    this = _Round(privacy, randomness) if privacy and privacy.records else None
    token = _ROUND.set(this)
    try:
        yield this
    finally:
        _ROUND.reset(token)


def lot(rows: int) -> NDArray[np.intp]:
    """Numbers of the records that take part in this round, of so many that this client has.

    Raises:
        PolicyError: the round is not private per record, or asks twice.
    """
    this = _ROUND.get()
    if this is None:
        raise PolicyError(
            "lot() is for rounds that are private per record: give SecureSum "
            "Privacy.for_rounds(…, records=N), and this ClientApp the mod"
        )
    if this.drawn is not None:
        raise PolicyError("lot() was asked twice in a round: a record has one coin")
    joins = this.randomness.words(rows).astype(np.float64) < this.privacy.sampling * 2.0**64
    chosen = np.flatnonzero(joins)
    this.drawn = len(chosen)
    return chosen


@dataclass(frozen=True, slots=True)
class Changes:
    """What each drawn record adds, in the order of the reply; arrays: (records, values)."""

    arrays: tuple[NDArray[Any], ...]
    records: int

    def words(
        self, privacy: Privacy, quorum: Quorum, randomness: RandomSource
    ) -> NDArray[np.int32]:
        """Their sum in whole units, each of norm at most clip * units, with this client's noise.

        A record whose numbers are not all finite adds nothing: to refuse would tell of it.
        """
        units, std = privacy.units(quorum), privacy.share_units(quorum)
        squares = np.zeros(self.records)
        for array in self.arrays:
            wide = array.astype(np.float64)
            squares += np.einsum("ij,ij->i", wide, wide)
        norms = np.sqrt(squares)
        values = sum(array.shape[1] for array in self.arrays)
        # As `private.noisy_words`: norms are off by some roundings.
        room = 1 - (values + 16) * 2.0**-52
        finite = np.isfinite(norms)
        usual = np.where(finite & (norms > 0), norms, 1.0)
        factors = np.minimum(room, privacy.clip / usual * room)[:, None] * units
        blocks = []
        for array in self.arrays:
            scaled = np.where(finite[:, None], array.astype(np.float64), 0.0) * factors
            own: Integers = np.trunc(scaled).astype(np.int64).sum(axis=0)
            blocks.append(own + discrete_gaussian(std, len(own), randomness))
        found: NDArray[np.int32] = np.concatenate(blocks).astype(np.uint32).view(np.int32)
        return found


def split(content: RecordDict, bases: Bases, drawn: int | None) -> tuple[RecordDict, Changes]:
    """A reply without its records' axis, and what the records add.

    The arrays of the first stand for the layout alone; their values are the server's own.

    Raises:
        DataError: the reply's arrays do not fit the request's and the lot's.
    """
    if drawn is None:
        raise DataError(
            "the plan is private per record, and the app's function did not ask lot() whose turn "
            "it is: see ciphercohort.flower.lots"
        )
    arrays, records = [], {}
    for name, record in content.array_records.items():
        found = {}
        for key, array in bases.in_order(record).items():
            value = numbers_of(array)
            if value.dtype.kind != "f" or not bases.has(key, value.shape[1:]):
                raise DataError(
                    f"array {key!r}: of a record's changes, shape (records, *shape of the "
                    "request's array), in floating point, or none"
                )
            if value.shape[0] != drawn:
                raise DataError(f"array {key!r} has not one row for each of the lot's records")
            arrays.append(value.reshape(drawn, math.prod(value.shape[1:])))
            found[key] = Array(bases[key].reshape(value.shape[1:]))
        records[name] = ArrayRecord(found)
    return RecordDict({**records, **content.metric_records}), Changes(tuple(arrays), drawn)
