"""What a run of an encrypted model asks of a party, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from parties.kernel.model.columns import Columns
from parties.kernel.sheet import digest_of
from protocols.ckks.subring import TraceMap

__all__ = ["Columns", "ModelSheet", "TraceMap"]  # records of this room


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

    def digest(self) -> str:
        """See `digest_of`."""
        return digest_of(self)
