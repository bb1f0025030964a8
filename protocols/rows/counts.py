"""What a run on encrypted rows costs, and the packing that costs least."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from protocols.ckks.circuits.packing import next_power_of_two
from protocols.ckks.circuits.tally import IterationTally, tally_iterations
from protocols.costs.counts import iteration_work
from protocols.rows.plan import RowsPlan

Rows = TypeVar("Rows", bound=RowsPlan)
NEARLY = 1.1
"""A tenth of an iteration's time for up to half of its bytes."""
# Once a layout costs this much more than the best so far, those with fewer features do, too.
_HOPELESS = 1.5


def iterations(plan: RowsPlan) -> tuple[IterationTally, ...]:
    """What comes before the first is not part of it."""
    return tally_iterations(plan.ckks, plan.layout, plan.link, plan.rule)


def num_ciphertexts(plan: Any) -> int:
    """Rows and side columns."""
    layout = plan.layout
    return int(layout.num_data_ciphertexts + layout.num_side_ciphertexts)


def described(plan: RowsPlan) -> dict[str, Any]:
    """Polynomial and packing."""
    layout = plan.layout
    packing = {
        "features_per_ciphertext": layout.num_blocks,
        "data_ciphertexts": layout.num_data_ciphertexts,
        "side_ciphertexts": layout.num_side_ciphertexts,
    }
    return {"degree": plan.link.degree, "interval": plan.link.radius, "ckks": packing}


def cheapest_layout(plan: Rows, bandwidth: float) -> Rows:
    """Small k: fewer groups of rows, each with less to sum over features.

    Large k: fewer parts, each with its own update, relinearisation and refresh, hence fewer bytes:
    of layouts that cost the same to within NEARLY, the largest k.
    """
    _ = bandwidth
    costs = list[tuple[float, Rows]]()
    least, width = float("inf"), next_power_of_two(plan.num_features)
    while width:
        tried = replace(plan, features_per_ciphertext=width)
        cost = iteration_work(tried)
        costs.append((cost, tried))
        least = min(least, cost)
        if cost > _HOPELESS * least:
            break
        width //= 2
    return next(tried for cost, tried in costs if cost <= NEARLY * least)
