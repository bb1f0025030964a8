"""The cheapest layout of a plan, by counts alone: whoever makes the plan makes the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TypeVar

from protocols.ckks import residues as rns
from protocols.ckks.circuits.packing import next_power_of_two
from protocols.ckks.circuits.periodic import widest
from protocols.ckks.circuits.work import Work, work
from protocols.ckks.parameters import REFRESH_TOWERS
from protocols.costs.counts import CACHE, encoded_again, iterations, party_tally, units
from protocols.model.plan import ModelPlan
from protocols.rows.plan import RowsPlan

Rows = TypeVar("Rows", bound=RowsPlan)
Model = TypeVar("Model", bound=ModelPlan)
BANDWIDTH = 1e9
"""Of an owner's line, where nobody says otherwise [bit / s]."""
UNIT_SECONDS = 1.4e-9
"""One of `work.Work.units`: at ring 2^15 a rotation at level 0, 18 million units, takes 25 ms."""

# What a ciphertext's refresh counts in key switches at level 0. Share and join take three of them,
# 48 and 37 ms of one thread at ring 2^15; it counts as seven, because each also moves 3.7 MB per
# party, and who is far away waits for these longer than for the arithmetic.
REFRESH_SWITCHES = 7
NEARLY = 1.1
"""A tenth of an iteration's time for up to half of its bytes."""
# Once a layout costs this much more than the best so far, those with fewer features do, too.
_HOPELESS = 1.5


def cheapest_layout(plan: Rows, bandwidth: float = BANDWIDTH) -> Rows:
    """The plan with the features per ciphertext that make an iteration cheapest, or nearly so.

    Small k: fewer groups of rows, each with less to sum over features. Large k: fewer parts, each
    with its own update, relinearisation and refresh, hence fewer bytes: of layouts that cost the
    same to within NEARLY, the largest k. bandwidth: of an owner's line [bit / s], which counts
    where bytes differ much: of an encrypted model. The choice depends on the plan alone, not on a
    machine, so that whoever makes the plan makes the same.
    """
    if isinstance(plan, ModelPlan):
        return _of_model(plan, bandwidth)
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


def iteration_work(plan: RowsPlan) -> float:
    """The coordinator's in an iteration in the middle of the run, and its wait for refresh shares.

    See `work.Work.units`.
    """
    params, middle = plan.ckks, iterations(plan)[plan.rounds // 2]
    switch = work("rotate", params, 0).units(params.ring_dim)
    return units(middle.operations, params) + REFRESH_SWITCHES * switch * middle.refreshed


# -- of an encrypted model ------------------------------------------------------------------------

# In transforms of one prime, measured at ring 2^15: a refreshed ciphertext at a party and at the
# coordinator, and one row of a random element; a part's reply. A product of the subring's, of
# Python integers; signing, checking and adding up a byte [units].
_SHARE, _JOIN, _ELEMENT, _REPLY = 35, 20, 1.4, 25
_OBJECT, _BYTE = 26, 0.4
_ALIKE = 1.02


def _of_model(plan: Model, bandwidth: float) -> Model:
    """The plan with the features per ciphertext that make an iteration shortest.

    Large k: fewer parts to send, to refresh and to keep. Small k: fewer rotations. Of layouts alike
    to _ALIKE, the one with fewest parts. The choice depends on the plan alone, not on a machine, so
    that whoever makes the plan makes the same.
    """
    most = min(widest(plan.num_features), plan.ckks.num_slots)
    widths = [2 << i for i in range(most.bit_length() - 1)]
    tried = [replace(plan, features_per_ciphertext=width) for width in reversed(widths)]
    costs = [iteration_cost(each, bandwidth) for each in tried]
    good = (each for each, cost in zip(tried, costs, strict=True) if cost <= _ALIKE * min(costs))
    return next(good)


def iteration_cost(plan: ModelPlan, bandwidth: float = BANDWIDTH) -> float:
    """Seconds of the slowest party, the coordinator and the party's line, one after the other.

    On a machine of UNIT_SECONDS; in the middle of the run.
    """
    params, layout, middle = plan.ckks, plan.layout, plan.rounds // 2
    n, parts, fresh = params.ring_dim, layout.num_parts, plan.refreshes[middle]
    rows = max(member.rows for member in plan.members)
    again = encoded_again(plan, rows, CACHE // len(plan.members))
    theirs = party_tally(plan).of(layout.groups_of(plan.taken(rows)))
    operations = Counter(iterations(plan)[middle].operations)
    operations.update({key: n for key, n in theirs.items() if key[0] != "encode"})
    encoding = {key: n for key, n in theirs.items() if key[0] == "encode"}
    found = units(operations, params) + again * units(encoding, params)
    transform = Work(1, 0).units(n)
    found += transform * (fresh * (_SHARE + _JOIN + 2 * _ELEMENT * params.num_towers))
    found += transform * parts * _REPLY
    towers, square = params.num_towers + REFRESH_TOWERS, (2 * layout.period) ** 2 - 4
    # Products of a transform on the subring, for one prime, beyond those for k = 1.
    found += (2 * fresh * towers + parts * REFRESH_TOWERS) * _OBJECT * square
    low, top = (rns.packed_size((0,) * k, n) for k in (REFRESH_TOWERS, params.num_towers))
    asked, replied = parts * top + fresh * low, 2 * parts * low + fresh * (low + top)
    found += _BYTE * (asked + (1 + len(plan.members)) * replied)
    seconds: float = UNIT_SECONDS * found + 8 * (asked + replied) / bandwidth
    return seconds
