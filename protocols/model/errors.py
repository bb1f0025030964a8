"""How much noise an encrypted model has where rows stay home."""

from __future__ import annotations

import math

from protocols.ckks.circuits.errors import MARGIN, drawn_std, fresh_std, scatter
from protocols.ckks.circuits.rows_at_home import Slope, quotient, rounding_gain
from protocols.ckks.flooding import FRESH_ERROR_STD, rounding_std
from protocols.model.plan import ModelPlan
from protocols.steps.decrypt import flooding_of

LARGEST_ENTRY = 2.0
"""Of an encoded row, whatever the schema's scaling."""
OWN_PATH = 2.0
"""Margin for the rule's own path, which counts as a rounding a round: momentum, and a barrier's
products, came up to 1.2 times what is counted."""


def model_error_std(plan: ModelPlan, slope: Slope = quotient) -> float:
    """Bound on the noise of an encrypted w / R, in each coefficient that is released.

    slope: of a row, times which is its gradient: see `rounding_gain`.

    Few coefficients scatter about their deviation, beyond OWN_PATH's margin.
    """
    opened = plan.layout.num_parts * plan.layout.features_per_ciphertext
    refresh, rounds = _errors(plan, slope)
    # What is decrypted has all parts side by side.
    whole = math.hypot(refresh * math.sqrt(plan.layout.num_parts), rounds)
    return max(OWN_PATH, scatter(opened)) * whole


def iterate_error_std(plan: ModelPlan, slope: Slope = quotient) -> float:
    """All n coefficients hold a refresh's errors, 2k of them what was there before."""
    refresh, rounds = _errors(plan, slope)
    return MARGIN * math.hypot(
        refresh, rounds * math.sqrt(2 * plan.layout.period / plan.ckks.ring_dim)
    )


def release_error_std(plan: ModelPlan) -> float:
    """Std of the error of each released weight: 2k coefficients of it, by cosines."""
    flooded = math.sqrt(len(plan.members) * plan.layout.period) * drawn_std(flooding_of(plan))
    return plan.decoded_gain * plan.target_unit * plan.unit * flooded / 2.0**plan.ckks.scale_bits


def _errors(plan: ModelPlan, slope: Slope) -> tuple[float, float]:
    """Of an encrypted w / R: of the last refresh, and of all before [integer units].

    A refresh leaves P fresh errors and roundings. Before it, coefficients hold: P times P fresh
    errors of the replies, std sigma P sqrt(4 n / 3); and of every group c x o q(z') / A, whose
    noise is that of q times |c x|: groups are independent (`clear_rows`), a slot has two
    features, those without a row have none, and the r products of a group that holds r B rows
    are as r groups of B, so that all groups together count as N / B;
    of m rows that count n / m each, as n^2 / (m B).
    One round moves w / R by B eta A / (c N R) of that; the rule adds rounds up (`noise_gain`),
    with a rounding in each, the noise of a key switch where w is rotated, and what the last
    refresh left of all parts, each in all n coefficients: they stand side by side.
    """
    params, parties, rule, layout = plan.ckks, len(plan.members), plan.rule, plan.layout
    refresh = math.sqrt(parties * FRESH_ERROR_STD**2 + (parties + 1) / 12)
    rounding = rounding_std(params, parties)
    largest = LARGEST_ENTRY * plan.units.row_scale
    counted = math.fsum(m.rows**2 / plan.taken(m.rows) for m in plan.members)
    row = largest * math.sqrt(2 * counted / layout.block_size)
    reply = math.hypot(
        fresh_std(params, parties), row * rounding_gain(plan.units, slope) * rounding, rounding
    )
    switches = params.num_special_towers if layout.turns > 1 else 0
    # `noise_gain` is about errors of w, one a round.
    moved = layout.block_size * abs(plan.gradient_scale) * rule.largest_learning_rate * reply
    own_path = math.hypot(rounding * math.sqrt(1 + switches), refresh * math.sqrt(layout.num_parts))
    return refresh, rule.noise_gain() * math.hypot(moved, own_path)
