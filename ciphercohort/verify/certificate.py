"""Checks of certificate.json: it is what the plan's own mechanism says, and the promise follows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ciphercohort.job.inputs import unmet
from ciphercohort.job.layout import CERTIFICATE, MODEL, PLAN
from ciphercohort.results.documents import compare, to_json
from parties.reader.schema import Schema
from protocols.errors import CohortError
from protocols.plan.run_plan import RunPlan
from protocols.privacy.certificates.mechanism import Mechanism

COMPOSED = ("epsilon_composed", "epsilon_holds")


def input_problems(
    certificate: Mapping[str, Any] | None, model: Mapping[str, Any], plan: RunPlan
) -> Iterator[str]:
    """Conditions that no theorem checks: a schema that was read from the private rows."""
    private, inputs = plan.privacy is not None, model["inputs"]
    missed = list(unmet(inputs["schema"], private=private))
    yield from compare(MODEL, "unmet", model["unmet"], missed)
    if certificate is not None:
        yield from compare(CERTIFICATE, "inputs", certificate["inputs"], inputs)
        yield from compare(CERTIFICATE, "unmet", certificate["unmet"], missed)
    yield from missed


def certificate_problems(
    certificate: Mapping[str, Any] | None, plan: RunPlan, schema: Schema
) -> Iterator[str]:
    """What does not hold, is about another run, or comes out differently when computed again."""
    if certificate is None:
        yield f"{CERTIFICATE} is missing, although the plan promises privacy"
        return
    try:
        mechanism = Mechanism.from_plan(plan, schema.norm_bound)
    except CohortError as error:
        yield f"{PLAN}: {error}"
        return
    computed = json.loads(to_json(mechanism.certificate.to_dict()))
    computed["satisfied"] &= not certificate.get("unmet")
    for field in ("method", "setting", "satisfied", "conditions", "epsilon", *COMPOSED):
        yield from compare(CERTIFICATE, field, certificate.get(field), computed[field])
    for name, value in computed["figures"].items():
        yield from compare(CERTIFICATE, f"figures.{name}", certificate["figures"].get(name), value)
    for condition in mechanism.violated:
        yield (
            f"{CERTIFICATE}, field conditions.{condition.name}: found {condition.left!r}, expected "
            f"{condition.relation} {condition.right!r}"
        )
    yield from (f"{PLAN}, field privacy: {problem}" for problem in mechanism.misstated())
