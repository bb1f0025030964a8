"""What plans on Gram sums say of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocols.gram.plan import GramPlan
from protocols.plan import circuit_words
from protocols.words import Fact, count, target_facts


def figures(plan: GramPlan) -> dict[str, Any]:
    """The iteration, then the encryption."""
    own = {"update": "fixed-hessian", "outputs": plan.outputs, "ridge": plan.ridge}
    return {**own, **circuit_words.figures(plan)}


def facts(plan: GramPlan) -> Iterator[Fact]:
    """Threshold CKKS and the training."""
    return circuit_words.facts(plan, _training_facts(plan))


def _training_facts(plan: GramPlan) -> Iterator[Fact]:
    """The iteration and what it fits."""
    rate = (
        "each coefficient at the rate that a bound on its curvature, computed under "
        "encryption, allows"
        if plan.task.row_sums
        else "all coefficients at the rate that a public bound on the curvature allows"
    )
    kind = "accelerated (Chebyshev) descent" if plan.accelerated else "gradient descent"
    yield (
        "Update",
        f"fixed Hessian, {count(plan.rounds, 'iteration')}",
        f"{kind} on encrypted sums, whose cost does not depend on the rows; {rate}",
    )
    yield from circuit_words.whitening_facts(plan)
    yield from target_facts(plan.ridge, plan.outputs)
    yield from plan.fitted.facts()
