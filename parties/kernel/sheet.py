"""What a run asks of a party, in numbers; the sessions believe none of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from parties.kernel.columns import Columns
from parties.kernel.sums.row_functions import row_function
from protocols.ckks.flooding import Flooding
from protocols.ckks.parameters import CkksParameters

NORMS = {"gaussian": 2, "laplace": 1, "skellam": 2}
"""Of what a row adds, by the law of the noise that hides it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SumsRound:
    """One sum, under the label `round/t`.

    query: what rows are asked; bits: noise and contribution are multiples of 2^-bits; units: scale
    of one share of the noise, in these: standard deviation or Laplace's b; 0 without noise.
    """

    query: str
    bits: int = 0
    units: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SumsSheet:
    """A whole run.

    session: its name; roster: (name, Ed25519 key in hexadecimal) of every party; ring_dim, primes,
    scale_bits: see `AggregateParameters`; length: of every sum; row_function: fields of what rows
    add, see `sums.row_functions`; weights: what one row of each party counts; norm: 1 or 2, of
    clips; law: of the noise, one of NORMS, or empty; honest: shares that together have the scale
    that is counted.
    """

    session: str
    roster: tuple[tuple[str, str], ...]
    ring_dim: int
    primes: tuple[int, ...]
    scale_bits: int
    length: int
    row_function: Mapping[str, Any]
    weights: tuple[float, ...]
    rounds: tuple[SumsRound, ...]
    norm: int = 2
    law: str = ""
    honest: int = 1

    def digest(self) -> str:
        """See `digest_of`."""
        return digest_of(self)

    def cost(self) -> float:
        """All rounds composed, at noise of the honest: mu^2, or epsilon of Laplace noise.

        sum_k (C_k / s_k)^p over the rounds of one batch, C_k with the rounding of two neighbours to
        the grid (arXiv:1905.02383, Corollary 3.3).
        """
        function, norm = row_function(self.row_function), NORMS[self.law]
        rounding = self.length ** (1 / norm) * (2 if function.coins else 1)
        shares = math.sqrt(self.honest) if norm == 2 else 1.0
        moves = {r.query: function.moves(r.query) * max(self.weights) for r in self.rounds}
        spent = [
            ((math.ldexp(moves[r.query], r.bits) + rounding) / (r.units * shares)) ** norm
            for r in self.rounds
        ]
        turns = function.public_batches
        return max(math.fsum(spent[k::turns]) for k in range(turns))


@dataclass(frozen=True, kw_only=True, slots=True)
class KeysSheet:
    """One party's keys in a run under threshold CKKS.

    session, roster: see `SumsSheet`; params: of the ring; cover: how many stand in for others,
    None: nobody; rotations: indices of keys; refreshes: ciphertexts of each step; shown: which of
    the `coordinates`, slots or coefficients, the release shows; shown_error, error: bounds on the
    noise of these, and of all, before the decryption [integer units]; decryptions: of one message.
    """

    session: str
    roster: tuple[tuple[str, str], ...]
    params: CkksParameters
    cover: int | None
    rotations: tuple[int, ...]
    refreshes: tuple[int, ...]
    shown: tuple[int, ...]
    coordinates: int
    shown_error: float
    error: float
    decryptions: int

    def digest(self) -> str:
        """See `digest_of`."""
        return digest_of(self)

    def flooding(self) -> Flooding:
        """What hides these errors to 40 bits (`ckks.flooding`)."""
        shown = np.zeros(self.coordinates, np.bool_)
        shown[list(self.shown)] = True
        n, errors = self.params.ring_dim, (self.shown_error, self.error)
        return Flooding.of(shown, n, *errors, self.decryptions)


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

    def cost(self) -> float:
        """mu^2 of all rounds composed, at noise of the honest."""
        sigma = math.ldexp(self.units, -self.bits) * math.sqrt(self.honest)
        return self.rounds * (self.moves / (sum(self.rows) * sigma)) ** 2


def digest_of(sheet: Any) -> str:
    """SHA-256, hexadecimal; a float's shortest digits tell it from every other."""
    return hashlib.sha256(json.dumps(asdict(sheet), sort_keys=True).encode()).hexdigest()
