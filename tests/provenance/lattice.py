"""Shortest combination of a run's equations, by LLL."""

from __future__ import annotations

import math

from flint import fmpz_mat

from tests.provenance.equations import Reduced

# Weight of what may not be left: above every vector that is looked for.
FORBIDDEN = 1 << 40


def shortest(reduced: Reduced, *, cancel: bool) -> float:
    """Norm of the shortest vector that LLL finds among all combinations mod q.

    A vector holds what a combination leaves of errors and secrets, each error times its std: 1.4 is
    the sum of two errors of std 1, and nothing else. cancel: nothing may be left of secrets.
    """
    q, weights = reduced.q, list(reduced.weights)
    if cancel:
        weights[reduced.errors :] = [FORBIDDEN] * (len(weights) - reduced.errors)
    basis = [[c * w for c, w in zip(row, weights, strict=True)] for row in reduced.kept]
    for k in sorted(set(range(len(weights))) - set(reduced.pivots)):
        row = [0] * len(weights)
        row[k] = q * weights[k]
        basis.append(row)
    if not basis:
        return math.inf
    # Unit rows first: LLL is faster from there.
    found = fmpz_mat(basis[::-1]).lll()
    return min(math.sqrt(sum(int(c) ** 2 for c in row)) for row in found.tolist())
