"""The secure-aggregation protocol in plaintext: the parties' contributions and noise, summed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from parties.kernel.sums.row_function import Contributor
from protocols.exchange.messages import Exchange
from protocols.privacy.laws import RandomSource
from protocols.sums.plan import GradientPlan, Vector, run_rule


def run_in_plain(
    plan: GradientPlan,
    owners: Mapping[str, Contributor],
    sources: Mapping[str, RandomSource],
    start: Vector,
    on_iteration: Callable[[int, Vector], None] = lambda t, w: None,
) -> Vector:
    """The weights at the end, shape (length,), in float64.

    owners: contributors by party; sources: of their coins and noise, fresh.
    """
    queries = plan.queries

    def ask(t: int, point: Vector) -> Exchange[Vector]:
        total = np.zeros(plan.length)
        for name, owner in owners.items():
            own = owner.exact(queries[t], t, point)
            total += plan.noisy(t, own, plan.draw_noise(t, sources[name])).values
        return total
        yield  # a source of aggregates is a generator; this one asks nobody

    try:
        next(run_rule(plan, ask, start, on_iteration))
    except StopIteration as stop:
        weights: Vector = stop.value
        return weights
    raise AssertionError("the twin asked a party")
