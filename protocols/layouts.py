"""Which packing is cheapest: features per ciphertext, by operations counted and weighed.

Small k: fewer groups of rows, each with less to sum over features. Large k: fewer parts, each with
its own update, relinearisation and refresh. The choice depends on the plan alone, not on a machine,
so that whoever makes the plan makes the same.
"""

from __future__ import annotations

from dataclasses import replace

from protocols.ckks.packing import next_power_of_two
from protocols.ckks.tally import tally_iterations
from protocols.ckks.work import work
from protocols.rows import RowsPlan

# A ciphertext's refresh through a map in key switches at level 0, 25 ms at ring 2^15: the
# coordinator's 70 ms and one party's 110 ms, for parties work side by side, on machines of their
# own. What a refresh costs once for all its ciphertexts is the same for every layout.
REFRESH_SWITCHES = 7
# Once a layout costs this much more than the best so far, those with fewer features do, too.
_HOPELESS = 1.5


def cheapest_layout(plan: RowsPlan) -> RowsPlan:
    """The plan with the features per ciphertext that make an iteration cheapest; ties: the most."""
    best, least = plan, float("inf")
    width = next_power_of_two(plan.num_features)
    while width:
        tried = replace(plan, features_per_ciphertext=width)
        cost = iteration_work(tried)
        if cost < least:
            best, least = tried, cost
        if cost > _HOPELESS * least:
            break
        width //= 2
    return best


def iteration_work(plan: RowsPlan) -> float:
    """The coordinator's in an iteration in the middle of the run, and its wait for refresh shares.

    See `work.Work.units`.
    """
    params = plan.ckks
    course = tally_iterations(params, plan.layout, plan.link, plan.rule)
    middle = course[plan.rounds // 2]
    circuit = sum(
        count * work(operation, params, level).units(params.ring_dim)
        for (operation, level), count in middle.operations.items()
    )
    switch = work("rotate", params, 0).units(params.ring_dim)
    return circuit + REFRESH_SWITCHES * switch * middle.refreshed
