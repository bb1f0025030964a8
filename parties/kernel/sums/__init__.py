"""Secure sums over rows. Here: what a run asks of a party, in numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parties.kernel.sums import row_functions

NORMS = {"gaussian": 2}
"""Of what a row adds, by the law of the noise that hides it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SumsRound:
    """One sum, under the label `round/t`.

    query: what rows are asked; bits: noise and contribution are multiples of 2^-bits; units: the
    standard deviation of one share of the noise, in these; 0 without noise.
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

    def cost(self) -> float:
        """All rounds composed, at noise of the honest: mu^2.

        sum_k (C_k / s_k)^2 over the rounds of one batch, C_k with the rounding of two neighbours to
        the grid (arXiv:1905.02383, Corollary 3.3).
        """
        function = row_functions.row_function(self.row_function)
        shares = math.sqrt(self.honest)
        rounding = math.sqrt(self.length) * (2 if function.coins else 1)
        moves = {r.query: function.moves(r.query) * max(self.weights) for r in self.rounds}
        spent = [
            ((math.ldexp(moves[r.query], r.bits) + rounding) / (r.units * shares)) ** 2
            for r in self.rounds
        ]
        turns = function.public_batches
        return max(math.fsum(spent[k::turns]) for k in range(turns))
