"""What plans of an encrypted model say of themselves beside those on encrypted rows."""

from __future__ import annotations

from collections.abc import Iterator

from protocols.model.plan import ModelPlan
from protocols.plan import circuit_words
from protocols.rows import words as rows_words
from protocols.words import Fact


def facts(plan: ModelPlan) -> Iterator[Fact]:
    """Threshold CKKS and the training."""
    return circuit_words.facts(plan, training_facts(plan))


def training_facts(plan: ModelPlan) -> Iterator[Fact]:
    """Batches as well."""
    yield from rows_words.training_facts(plan)
    if plan.is_stochastic:
        yield (
            "Batches",
            f"1 row in {plan.batches}",
            "that each owner takes in a round, by coins of its own, in full groups",
        )
