"""What plans under threshold CKKS say of themselves: ring, keys, whitening."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from protocols.plan.circuit_plan import CircuitPlan
from protocols.words import ATTACK, Fact, count, number


def released(plan: CircuitPlan) -> str:
    """The model alone."""
    asked = "; exact sums at them may follow, each of which is asked for by itself"
    return f"the trained coefficients, nothing else{asked if plan.privacy is None else ''}"


def remarks(plan: CircuitPlan) -> Iterator[str]:
    """What came before."""
    if plan.whitening is None:
        return
    what = f"the second moment that plan {plan.moment_plan[:16]} released"
    if plan.moment_privacy is not None:
        yield (
            f"rows are whitened by {what} at epsilon={plan.moment_privacy.epsilon:g}, which has "
            "counted in each ledger that is kept; this training itself has no noise"
        )
    else:
        yield f"this includes {what}; that part has counted in each ledger that is kept"


def figures(plan: CircuitPlan) -> dict[str, Any]:
    """Of the encryption."""
    names = ("ring_dim", "depth", "scale_bits", "log_qp")
    return {name: getattr(plan.ckks, name) for name in names}


def facts(plan: CircuitPlan, training: Iterable[Fact]) -> Iterator[Fact]:
    """Threshold CKKS, with the training's own."""
    ckks = plan.ckks
    broken = "INSECURE: no security at all; whoever sees a ciphertext may read it"
    yield "Security", f"{ckks.security_bits} bits", ATTACK if ckks.security_bits else broken
    yield (
        "Ring dimension n",
        f"{ckks.ring_dim:,}",
        f"a ciphertext packs n/2 = {ckks.num_slots:,} numbers; larger is safer and slower",
    )
    yield (
        "Depth",
        f"{ckks.depth} levels",
        "multiplications in a row before an encrypted number has to be refreshed",
    )
    digits = math.floor(ckks.scale_bits * math.log10(2))
    yield (
        "Scale",
        f"2^{ckks.scale_bits}",
        f"numbers are stored as multiples of 2^-{ckks.scale_bits}, some {digits} decimal places",
    )
    bound = f"security at this ring allows {ckks.max_log_qp} bits at most"
    bound = bound if ckks.max_log_qp else "no secure bound is tabled for a ring this small"
    yield "log₂ QP", f"{ckks.log_qp} bits", f"size of the largest modulus; {bound}"
    covered = "" if plan.cover is None else f"; any {plan.cover} could stand in for the others"
    yield (
        "Keys withstand",
        count(plan.key_colluders, "colluding party"),
        f"more of them, with the coordinator, could read everybody's rows{covered}",
    )
    yield from training
    yield (
        "Features",
        f"{plan.num_features} per row",
        "columns after expanding categories, and a constant one for the intercept",
    )


def whitening_facts(plan: CircuitPlan) -> Iterator[Fact]:
    """Of rows that are whitened."""
    if plan.whitening is None:
        return
    yield (
        "Whitening",
        f"Λ = {number(plan.whitening.spectrum)}",
        "bound on the rows' second moment along any axis, after a public change of "
        "coordinates: steps may be several times 1 / Λ",
    )
    if plan.moment_privacy is not None:
        moment = plan.moment_privacy
        yield (
            "Second moment",
            f"ε = {moment.epsilon:g}, δ = {moment.delta:g}",
            "promise of the noisy sum that rows are whitened by, even if "
            f"the coordinator and {count(moment.colluders, 'party')} pool all they see; "
            "training itself has no noise, and this takes nothing from the model",
        )
