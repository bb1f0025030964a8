"""What a promise takes as given: a public schema, and keys that too few can put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from protocols.plan.run_plan import RunPlan
    from protocols.privacy.certificates.certificate import Certificate

SchemaFrom = Literal["given", "inferred"]
GIVEN: SchemaFrom = "given"
INFERRED: SchemaFrom = "inferred"
CONDITION = "public_schema"
"""Name of the condition, beside those of a theorem."""
NOT_MET = (
    "schema: inferred. The privacy promise does not hold for the ranges and categories of the "
    "column schema, which were read from the private rows and stand in the model; give a public "
    "schema (cohort schema init PUBLIC_SAMPLE, then --schema or schema=)"
)
READ_FROM_ROWS = (
    "schema: inferred. Ranges and categories of the column schema were read from the private rows "
    "and stand in the model; give a public schema (cohort schema init PUBLIC_SAMPLE, then --schema "
    "or schema=)"
)


class InferredSchemaWarning(UserWarning):
    """A model is trained with privacy on a schema that was read from the private rows."""


def stated(schema_from: SchemaFrom) -> dict[str, str]:
    """What model.json and certificate.json have under `inputs`."""
    return {"schema": schema_from}


def unmet(schema_from: SchemaFrom, *, private: bool) -> tuple[str, ...]:
    """Conditions of the promise that no theorem checks, and that do not hold; in words."""
    return (NOT_MET,) if private and schema_from == INFERRED else ()


def schema_notes(schema_from: SchemaFrom, *, private: bool) -> tuple[str, ...]:
    """The same for a reader, who without privacy is told, too."""
    return () if schema_from == GIVEN else (NOT_MET,) if private else (READ_FROM_ROWS,)


def with_cover(certificate: Certificate | None, plan: RunPlan) -> dict[str, Any] | None:
    """A certificate takes for granted that nobody has the keys: with cover, t parties have."""
    if certificate is None or plan.cover is None:
        return certificate.to_dict() if certificate else None
    words = (
        f"fewer than {plan.cover} parties collude: any {plan.cover} of them could stand in for "
        "all others, and so decrypt"
    )
    return {**certificate.to_dict(), "assumptions": [*certificate.assumptions, words]}


def with_inputs(
    certificate: Mapping[str, Any] | None, schema_from: SchemaFrom, *, private: bool
) -> dict[str, Any] | None:
    """A certificate that states its inputs, and is not satisfied where one does not hold."""
    if certificate is None:
        return None
    missed = unmet(schema_from, private=private)
    return {
        **certificate,
        "satisfied": certificate["satisfied"] and not missed,
        "inputs": stated(schema_from),
        "unmet": list(missed),
        **({"binding": CONDITION} if missed else {}),
    }
