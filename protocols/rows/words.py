"""What plans on encrypted rows say of themselves, and those of an encrypted model with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocols.numerics.approximation import link_error
from protocols.plan import circuit_words
from protocols.rows.plan import RowsPlan
from protocols.words import Fact, link_facts, number


def figures(plan: RowsPlan) -> dict[str, Any]:
    """Rule and polynomial, then the encryption."""
    own = {"update": plan.update["kind"], "degree": plan.link.degree}
    return {**own, **circuit_words.figures(plan)}


def facts(plan: RowsPlan) -> Iterator[Fact]:
    """Threshold CKKS and the training."""
    return circuit_words.facts(plan, training_facts(plan))


def training_facts(plan: RowsPlan) -> Iterator[Fact]:
    """Rule and polynomial."""
    yield from circuit_words.whitening_facts(plan)
    yield from plan.rule.facts()
    yield from plan.fitted.facts()
    if plan.signed:
        yield (
            "Saturation",
            number(1 - plan.link.coefficients[0]),
            "about the most that the label of one row says, however wrong the model is about "
            "it: less noise hides less",
        )
        error = link_error(plan.link, plan.link.radius)
        yield from link_facts(plan.link, error, "sigmoid above 0 and 1/2 below", "probability")
        return
    if plan.link.degree > 1:
        error = plan.fitted.link_error(plan.link)
        yield from link_facts(plan.link, error, *plan.fitted.stand_in)
