"""A run on encrypted rows, or sums of their products. Here: what it asks of a party, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.ckks.column_map import ColumnMap

__all__ = ["ColumnMap", "RowsSheet"]  # records of this room


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsSheet:
    """A whole run on encrypted rows, or on encrypted sums of their products.

    session, roster, rows, law, honest, moves, bits, units: see `ModelSheet`; kind: "rows", "lffr"
    or "gram" (`packed`); num_features: d, bias included; num_outputs: c, 0 for a vector; rounds:
    that have noise of their own; bound: norm of an encoded row; scale: what rows, or sums, are
    multiplied by; side: what side columns are divided by; start: p(0), or LFFR's A; matrix, signed:
    see `ModelSheet`; curvature: constant, end and offset of its range, or nothing; gamma: of
    targets' logits, 0: they are fitted themselves; target_bound: norm of encoded targets; most: of
    2 |x_k| sum_j |x_j|; row_sums: whether these are encrypted.
    """

    session: str
    roster: tuple[tuple[str, str], ...]
    rows: tuple[int, ...]
    kind: str
    num_features: int
    num_outputs: int
    rounds: int
    bound: float
    scale: float
    side: float = 1.0
    start: float = 0.5
    matrix: tuple[tuple[float, ...], ...] = ()
    signed: bool = False
    curvature: tuple[float, ...] = ()
    gamma: float = 0.0
    target_bound: float = 1.0
    most: float = 1.0
    row_sums: bool = False
    moves: float = 0.0
    law: str = ""
    honest: int = 1
    bits: int = 0
    units: int = 0
