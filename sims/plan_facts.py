"""The report's facts about encryption and iteration, by what a plan has: name, value, meaning."""

from __future__ import annotations

import math
from collections.abc import Iterator

from protocols.approximation import error_bound
from protocols.circuit_plan import CircuitPlan
from protocols.gradients import GradientPlan
from protocols.gram_plan import GramPlan
from protocols.lffr import LffrPlan
from protocols.models.improved_lffr import ImprovedLffr
from protocols.plan import RunPlan
from protocols.rows import RowsPlan
from protocols.updates.catalogue import REGISTRY
from sims.words import count, number, size

Fact = tuple[str, str, str]  # name, value, meaning

ATTACK = "the best known attack takes about 2^128 operations (HomomorphicEncryption.org tables)"


def gathered(plan: RunPlan) -> str:
    """What leaves an owner, encrypted."""
    return "copies" if isinstance(plan, (RowsPlan, LffrPlan)) else "sums"


def plan_facts(plan: RunPlan) -> Iterator[Fact]:
    """The encryption and the iteration, one sentence each."""
    if isinstance(plan, CircuitPlan):
        yield from _circuit_facts(plan)
    if isinstance(plan, GradientPlan):
        yield from _aggregation_facts(plan)
    yield ("Update", *_update(plan))
    if isinstance(plan, (GramPlan, LffrPlan)):
        meaning = "weight of the squared coefficients beside the mean error"
        yield "Ridge", number(plan.ridge), meaning
        meaning = "predicted at once: all of them share every ciphertext"
        yield "Targets", str(plan.outputs), meaning
    if isinstance(plan, GramPlan) and isinstance(plan.fitted, ImprovedLffr):
        yield (
            "γ (gamma)",
            number(plan.fitted.gamma),
            "targets take up this part of the sigmoid's range before their logits are fitted",
        )
    if isinstance(plan, RowsPlan) and plan.update["kind"] == "barrier":
        yield (
            "Ball radius",
            number(math.sqrt(plan.update["theta"])),
            f"the barrier (weight {number(plan.update['weight'])}) keeps the norm of the scaled "
            "weights below it",
        )
    if isinstance(plan, (RowsPlan, LffrPlan)):
        link = plan.link
        yield (
            "Polynomial degree",
            str(link.degree),
            "encrypted numbers can only be added and multiplied, so a polynomial replaces the "
            "sigmoid",
        )
        yield (
            "Interval",
            f"[{number(link.low)}, {number(link.high)}]",
            "the range of scores (log-odds) on which that polynomial is meant to be used",
        )
        yield (
            "Largest error",
            number(error_bound(link, "sigmoid", link.low, link.high)),
            "certified bound on its distance to the sigmoid on the interval, as a probability",
        )
    if isinstance(plan, CircuitPlan):
        yield (
            "Features",
            f"{plan.num_features} per row",
            "columns after expanding categories, and a constant one for the intercept",
        )


def _update(plan: RunPlan) -> tuple[str, str]:
    """(kind and iterations, meaning)."""
    times = count(plan.rounds, "iteration")
    if isinstance(plan, (RowsPlan, GradientPlan)):
        kind, rate = str(plan.update["kind"]), plan.update.get("learning_rate")
        words = "" if rate is None else f"; learning rate {number(rate)}"
        return f"{kind}, {times}", f"{REGISTRY[kind].words}{words}"
    if isinstance(plan, LffrPlan):
        kind = "fixed Hessian" if plan.curvature else "gd"
        rate = "each coefficient at the rate that a bound on its curvature allows"
        rate = rate if plan.curvature else f"learning rate {number(plan.learning_rate)}"
        return f"{kind}, {times}", f"gradient descent on encrypted rows; {rate}"
    rate = (
        "each coefficient at the rate that a bound on its curvature, computed under encryption, "
        "allows"
        if plan.privacy is None
        else "all coefficients at the rate that a public bound on the curvature allows"
    )
    return (
        f"fixed Hessian, {times}",
        f"gradient descent on encrypted sums, whose cost does not depend on the rows; {rate}",
    )


def _circuit_facts(plan: CircuitPlan) -> Iterator[Fact]:
    """Threshold CKKS."""
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


def _aggregation_facts(plan: GradientPlan) -> Iterator[Fact]:
    """Secure aggregation."""
    cipher, clip = plan.cipher, plan.objective.get("clip")
    yield "Security", "128 bits", ATTACK
    yield "Ring dimension n", f"{cipher.ring_dim:,}", "values that one ring element carries"
    yield (
        "log₂ Q",
        f"{math.log2(cipher.modulus):.1f} bits",
        "size of the modulus: range of a sum, its precision and the encryption noise",
    )
    yield (
        "Error of a sum",
        number(cipher.error_bound),
        "bound on what encryption changes, per coordinate of an opened sum",
    )
    yield (
        "Message",
        size(cipher.num_bytes(plan.length)),
        "what one party sends in a round, beside its frame",
    )
    if isinstance(clip, (int, float)):
        yield "Clip", number(clip), "bound on the norm of every row's part of a sum"
    yield "Values per round", f"{plan.length:,}", "length of the vector that is summed"
