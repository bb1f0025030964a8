"""What plans of secure sums say of themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from protocols.sums.one_sum import OneSum
from protocols.sums.plan import GradientPlan, asked_words
from protocols.words import ATTACK, Fact, number, size


def released(plan: GradientPlan) -> str:
    """Every sum."""
    if isinstance(plan.task, OneSum):
        return plan.task.released
    noisy = "noisy " if plan.privacy else ""
    return f"the {noisy}sum of every round, and so the coefficients after every iteration"


def remarks(plan: GradientPlan) -> Iterator[str]:
    """What parties count, what follows, and whose part is opened alone."""
    task = plan.task
    if plan.exact_follows:
        unproven = " and accept_unbounded" if plan.unproven_follows else ""
        yield (
            "a training without noise is to follow on rows that it whitens, for which you are "
            f"asked again: it needs exact_sums{unproven} in [policy]"
        )
    elif isinstance(task, OneSum):
        yield from task.remarks()
    else:
        what = "the same, whatever their rows" if plan.weights else "as their rows"
        yield f"in every sum, parties count {what}"
    if plan.of_training:
        yield f"it is of the training by plan {plan.of_training[:16]}"
    if plan.of_series:
        yield f"it is of the rows of the sum by plan {plan.of_series[:16]}, the first of several"
    if plan.asked:
        yield f"it begins what was asked for so: {asked_words(plan.asked)}"
    if plan.alone:
        yield f"what opens can tell of the rows of each of {', '.join(plan.alone)} alone"


def figures(plan: GradientPlan) -> dict[str, Any]:
    """Rule and encryption."""
    return {
        "update": plan.update["kind"],
        "ring_dim": plan.cipher.ring_dim,
        "scale_bits": plan.cipher.scale_bits,
        "log_q": round(math.log2(plan.cipher.modulus), 2),
    }


def facts(plan: GradientPlan) -> Iterator[Fact]:
    """Secure aggregation and the rule."""
    cipher, clip = plan.cipher, plan.objective.get("clip")
    yield "Security", f"{plan.security_bits} bits", ATTACK
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
    yield from plan.rule.facts()
