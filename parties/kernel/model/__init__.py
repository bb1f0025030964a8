"""A run of an encrypted model. Here: what it asks, in numbers, and where rows stand in slots.

Why in these slots: `protocols.ckks.circuits.periodic`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.subring import TraceMap
from protocols.errors import ParameterError

__all__ = ["Array", "Columns", "Complexes", "ModelSheet", "TraceMap"]  # records of this room, types

Array = NDArray[np.float64]
Complexes = NDArray[np.complex128]


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """B = S / k columns of k slots, pairs of features; every row has its own slots in one group.

    num_slots: S; num_features: d, bias included; num_outputs: c; period: k; columns_of_row: 2 where
    products are turned; rows_of_column: r; turns: b.

    Raises:
        ParameterError: no such layout: rows would share slots, or have none.
    """

    num_slots: int
    num_features: int
    num_outputs: int
    period: int
    columns_of_row: int = 1
    rows_of_column: int = 1
    turns: int = 1

    def __post_init__(self) -> None:
        k, r, b = self.period, self.rows_of_column, self.turns
        numbers = (self.num_slots, k, r, b, self.num_features, self.num_outputs)
        whole = all(type(n) is int and n > 0 for n in (*numbers, self.columns_of_row))
        powers = whole and not any(n & (n - 1) for n in numbers[:4])
        turned = self.columns_of_row == 2
        if not (powers and max(k * self.columns_of_row, 2) <= self.num_slots and max(r, b) <= k):
            raise ParameterError(f"{self} is no layout")
        if self.columns_of_row > 2 or (turned and (r, b) != (1, 1)):
            raise ParameterError(f"{self} is no layout")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of weights: (d,), of several outputs (d, c)."""
        return (self.num_features, self.num_outputs)[: 1 + (self.num_outputs > 1)]

    @property
    def output_parts(self) -> int:
        """m: ciphertexts of a vector of d numbers."""
        return -(-self.num_features // (2 * self.period))

    @property
    def num_parts(self) -> int:
        """Of all outputs."""
        return self.num_outputs * self.output_parts

    @property
    def block_size(self) -> int:
        """B."""
        return self.num_slots // self.period

    @property
    def rows_per_group(self) -> int:
        """r B, or half of B."""
        return self.block_size * self.rows_of_column // self.columns_of_row

    @property
    def steps(self) -> tuple[int, ...]:
        """Left rotations b, 2b, ... of sums of a group's products."""
        return () if self.columns_of_row == 2 else tuple(range(self.turns, self.period, self.turns))

    @property
    def sums(self) -> tuple[tuple[int, ...], ...]:
        """Left rotations that sum k slots of turned products: v + sum_s rot_s(v), in turn."""
        found, step = [], 1
        while self.columns_of_row == 2 and step < self.period:
            radix = min(4, self.period // step)
            found.append(tuple(step * i for i in range(1, radix)))
            step *= radix
        return tuple(found)

    @property
    def rotations(self) -> tuple[int, ...]:
        """All of them, in the order of their keys."""
        return (*range(1, self.turns), *self.steps, *chain.from_iterable(self.sums))

    def in_parts(self, vector: Array) -> Complexes:
        """x_f + i x_g of each output: shape (d,) or (d, c) to (parts, k), zero beyond the features.

        A slot of weights holds the conjugate.
        """
        outputs = vector.reshape(self.num_features, self.num_outputs).T
        return self._paired(outputs).reshape(self.num_parts, self.period)

    def _paired(self, rows: Array) -> Complexes:
        """Shape (rows, d) to (rows, m, k)."""
        k, m = self.period, self.output_parts
        padded = np.zeros((len(rows), 2 * m * k))
        padded[:, : self.num_features] = rows
        return padded.view(np.complex128).reshape(len(rows), m, k)

    def slots_of(self, rows: Array, part: int, shift: int) -> Complexes:
        """Slots of one part of a group of rows, shape (rows, d), for gradients: pair j - shift."""
        return self._gathered(self._paired(rows)[:, part], -shift)

    def slots_to_sum(self, rows: Array, part: int, turn: int, step: int) -> Complexes:
        """The same for inner products: pair j + step + turn, or in all columns of a row.

        turn: of the weights; step: of the product, which is turned by so many places.
        """
        slots = self._gathered(self._paired(rows)[:, part], turn + step)
        for column in range(1, self.columns_of_row):
            slots = slots + np.roll(slots, column * self.period)
        return np.roll(slots, step)

    def in_columns(self, values: Complexes) -> Complexes:
        """Slots of one number of each row: all of the row's, or those of its first column."""
        return self._gathered(np.repeat(values.reshape(-1, 1), self.period, axis=1), 0)

    def _gathered(self, values: Complexes, turn: int) -> Complexes:
        """Pair j + turn of k of each row, in its slots j; shape (rows, k) to (S,)."""
        found = np.zeros((self.rows_per_group, self.period), np.complex128)
        found[: len(values)] = values
        place = np.arange(self.period)
        # Row i of r of a column has the slots j = i mod r.
        own = found.reshape(-1, self.rows_of_column, self.period)
        columns = np.zeros((self.block_size, self.period), np.complex128)
        columns[:: self.columns_of_row] = own[:, place % own.shape[1], (place + turn) % len(place)]
        return columns.ravel()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSheet:
    """A whole run of an encrypted model.

    session, roster, law, honest: see `SumsSheet`; rows: of each party, in the roster's order;
    columns: how they are packed; circuit: of `clear_rows`; link: coefficients of p in z / radius;
    scale: what rows are multiplied by; rounds: T; bound: norm of an encoded row; moves: how far two
    rows' parts of a gradient are apart; bits: noise on the mean gradient is in multiples of
    2^-bits; units: standard deviation of one share of it, in these; batches: K, one row in K is
    taken in a round; lost: how many parties can be missing; terms: what a row has beside features
    and target, "weight" or "offset"; matrix: of a whitening, by rows; signed: whether rows of label
    0 are negated and labelled 1; gamma: of targets' logits, 0: they are fitted themselves; unit:
    what targets are divided by.
    """

    session: str
    roster: tuple[tuple[str, str], ...]
    rows: tuple[int, ...]
    columns: Columns
    circuit: str
    link: tuple[float, ...]
    radius: float
    scale: float
    rounds: int
    bound: float
    moves: float = 0.0
    law: str = ""
    honest: int = 1
    bits: int = 0
    units: int = 0
    batches: int = 1
    lost: int = 0
    terms: tuple[str, ...] = ()
    matrix: tuple[tuple[float, ...], ...] = ()
    signed: bool = False
    gamma: float = 0.0
    unit: float = 1.0
