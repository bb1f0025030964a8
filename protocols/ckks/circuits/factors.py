"""Products of a polynomial's factors with something else, and how deep they are."""

from __future__ import annotations

from typing import Any

from protocols.ckks.factored import FactoredPolynomial


def degree(factors: FactoredPolynomial) -> int:
    """Of the polynomial."""
    return len(factors.roots) + 2 * len(factors.quadratics)


def last_operands(factors: FactoredPolynomial, u: Any, vector: Any) -> tuple[Any, ...]:
    """Two operands (one at degree 0) whose product is vector * r(u) / leading.

    vector and u are ready at the same level. The last multiplication is left to the caller, who may
    sum over several products before relinearising.
    """
    queue = [(0, vector), *factors.operands(u)]
    while len(queue) > 2:
        queue.sort(key=lambda item: item[0])
        (_, first), (level, second) = queue[:2]
        queue = [(level + 1, first * second), *queue[2:]]
    return tuple(value for _, value in queue)


def depth(factors: FactoredPolynomial) -> int:
    """Levels from (vector, u) to vector * r(u)."""
    queue = sorted([0] * (1 + len(factors.roots)) + [1] * len(factors.quadratics))
    while len(queue) > 1:
        queue = sorted([queue[1] + 1, *queue[2:]])
    return queue[0]
