"""What plans of LFFR say of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from protocols.lffr.home_plan import LffrModelPlan
from protocols.lffr.plan import LffrPlan
from protocols.model import words as model_words
from protocols.plan import circuit_words
from protocols.rows import words as rows_words
from protocols.words import Fact, count, link_facts, number, target_facts


def figures(plan: LffrPlan) -> dict[str, Any]:
    """The iteration, then the encryption."""
    return {
        "update": "fixed-hessian" if plan.curvature else "gd",
        "degree": plan.link.degree,
        "outputs": plan.outputs,
        "ridge": plan.ridge,
        **circuit_words.figures(plan),
    }


def facts(plan: LffrPlan) -> Iterator[Fact]:
    """Threshold CKKS and the training."""
    return circuit_words.facts(plan, _training_facts(plan))


def _training_facts(plan: LffrPlan) -> Iterator[Fact]:
    """The iteration and what it fits."""
    kind, rate = "gd", f"learning rate {number(plan.learning_rate)}"
    if plan.curvature:
        kind = "fixed Hessian"
        rate = "each coefficient at the rate that a bound on its curvature allows"
    update = f"{kind}, {count(plan.rounds, 'iteration')}"
    yield "Update", update, f"gradient descent on encrypted rows; {rate}"
    yield from target_facts(plan.ridge, plan.outputs)
    yield from link_facts(plan.link, plan.fitted.link_error(plan.link), *plan.fitted.stand_in)


# -- where rows stay home -------------------------------------------------------------------------


def home_figures(plan: LffrModelPlan) -> dict[str, Any]:
    """Outputs and ridge as well."""
    return {**rows_words.figures(plan), "outputs": plan.targets, "ridge": plan.ridge}


def home_facts(plan: LffrModelPlan) -> Iterator[Fact]:
    """Those of an encrypted model, and what it fits."""
    training = model_words.training_facts(plan), target_facts(plan.ridge, plan.targets)
    return circuit_words.facts(plan, chain(*training))
