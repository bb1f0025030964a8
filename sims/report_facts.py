"""The report's facts about encryption and iteration, by protocol: name, value, meaning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

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


def crypto_facts(plan: RunPlan) -> Iterator[Fact]:
    """The encryption, one sentence each."""
    if isinstance(plan, CircuitPlan):
        yield from _circuit_facts(plan)
    elif isinstance(plan, GradientPlan):
        yield from _sum_facts(plan)


def model_facts(plan: RunPlan) -> Iterator[Fact]:
    """The iteration, one sentence each."""
    if isinstance(plan, RowsPlan):
        yield from _rows_facts(plan)
    elif isinstance(plan, GramPlan):
        yield from _gram_facts(plan)
    elif isinstance(plan, LffrPlan):
        yield from _lffr_facts(plan)
    elif isinstance(plan, GradientPlan):
        yield from _gradient_facts(plan)


def _circuit_facts(plan: CircuitPlan) -> Iterator[Fact]:
    """Threshold CKKS."""
    ckks = plan.ckks
    security = (
        "the best known attack takes about 2^128 operations (HomomorphicEncryption.org tables)"
        if ckks.security_bits
        else "INSECURE: no security at all; whoever sees a ciphertext may read it"
    )
    bound = ckks.max_log_qp
    modulus = (
        f"security at this ring allows {bound} bits at most"
        if bound
        else "no secure bound is tabled for a ring this small"
    )
    yield "Security", f"{ckks.security_bits} bits", security
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
    yield "log₂ QP", f"{ckks.log_qp} bits", f"size of the largest modulus; {modulus}"
    colluders = plan.key_colluders
    covered = "" if plan.cover is None else f"; any {plan.cover} could stand in for the others"
    yield (
        "Keys withstand",
        count(colluders, "colluding party"),
        f"more of them, with the coordinator, could read everybody's rows{covered}",
    )


def _rows_facts(plan: RowsPlan) -> Iterator[Fact]:
    """The iteration and its polynomial, one sentence each."""
    link, update = plan.link, plan.update
    kind = str(update["kind"])
    yield (
        "Update",
        f"{kind}, {count(plan.rounds, 'iteration')}",
        f"{REGISTRY[kind].words}{_rate_words(update)}",
    )
    if kind == "barrier":
        yield (
            "Ball radius",
            number(math.sqrt(update["theta"])),
            f"the barrier (weight {number(update['weight'])}) keeps the norm of the scaled "
            "weights below it",
        )
    yield (
        "Polynomial degree",
        str(link.degree),
        "encrypted numbers can only be added and multiplied, so a polynomial replaces the sigmoid",
    )
    yield (
        "Interval",
        f"[{number(link.low)}, {number(link.high)}]",
        "the range of scores (log-odds) on which that polynomial is meant to be used",
    )
    error = error_bound(link, "sigmoid", link.low, link.high)
    yield (
        "Largest error",
        number(error),
        "certified bound on its distance to the sigmoid on the interval, as a probability",
    )
    yield (
        "Features",
        f"{plan.num_features} per row",
        "columns after expanding categories, and a constant one for the intercept",
    )


def _gram_facts(plan: GramPlan) -> Iterator[Fact]:
    """Gradient descent on sums, each coefficient at a rate of its own."""
    rate = (
        "each coefficient at the rate that a bound on its curvature, computed under encryption, "
        "allows"
        if plan.privacy is None
        else "all coefficients at the rate that a public bound on the curvature allows"
    )
    yield (
        "Update",
        f"fixed Hessian, {count(plan.rounds, 'iteration')}",
        f"gradient descent on encrypted sums, whose cost does not depend on the rows; {rate}",
    )
    yield "Ridge", number(plan.ridge), "weight of the squared coefficients beside the mean error"
    yield (
        "Targets",
        str(plan.outputs),
        "predicted at once: all of them share every ciphertext",
    )
    if isinstance(plan.fitted, ImprovedLffr):
        yield (
            "γ (gamma)",
            number(plan.fitted.gamma),
            "targets take up this part of the sigmoid's range before their logits are fitted",
        )
    yield (
        "Features",
        f"{plan.num_features} per row",
        "columns after expanding categories, and a constant one for the intercept",
    )


def _lffr_facts(plan: LffrPlan) -> Iterator[Fact]:
    """Gradient descent on rows with a sigmoid for every target."""
    link = plan.link
    name, rate = (
        ("fixed Hessian", "each coefficient at the rate that a bound on its curvature allows")
        if plan.curvature
        else ("gd", f"learning rate {number(plan.learning_rate)}")
    )
    yield (
        "Update",
        f"{name}, {count(plan.rounds, 'iteration')}",
        f"gradient descent on encrypted rows; {rate}",
    )
    yield "Ridge", number(plan.ridge), "weight of the squared coefficients beside the mean error"
    yield "Targets", str(plan.outputs), "predicted at once: all of them share every ciphertext"
    yield (
        "Interval",
        f"[{number(link.low)}, {number(link.high)}]",
        f"of scores, on which a polynomial of degree {link.degree} replaces the sigmoid",
    )
    yield (
        "Features",
        f"{plan.num_features} per row",
        "columns after expanding categories, and a constant one for the intercept",
    )


def _sum_facts(plan: GradientPlan) -> Iterator[Fact]:
    """Secure aggregation."""
    cipher = plan.cipher
    yield (
        "Security",
        "128 bits",
        "the best known attack takes about 2^128 operations (HomomorphicEncryption.org tables)",
    )
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


def _gradient_facts(plan: GradientPlan) -> Iterator[Fact]:
    """Rounds of sums."""
    update = plan.update
    kind = str(update["kind"])
    yield (
        "Update",
        f"{kind}, {count(plan.rounds, 'iteration')}",
        f"{REGISTRY[kind].words}{_rate_words(update)}",
    )
    clip = plan.objective.get("clip")
    if isinstance(clip, (int, float)):
        yield "Clip", number(clip), "bound on the norm of every row's part of a sum"
    yield "Values per round", f"{plan.length:,}", "length of the vector that is summed"


def _rate_words(update: Mapping[str, Any]) -> str:
    rate = update.get("learning_rate")
    return "" if rate is None else f"; learning rate {number(rate)}"
