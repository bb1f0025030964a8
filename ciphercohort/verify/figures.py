"""Checks of plan.json, model.json, metrics.jsonl and summary.json against one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ciphercohort.job.layout import (
    CERTIFICATE,
    FACTS,
    FIRST,
    INFERENCE,
    METRICS,
    MODEL,
    PLAN,
    SUMMARY,
    TRANSCRIPT,
)
from ciphercohort.results.documents import ABSENT, compare, model_fields
from ciphercohort.results.exact_sums import MARK
from ciphercohort.results.plan_figures import plan_figures, privacy_figures
from ciphercohort.results.predict import ReleasedModel, raw_rows
from ciphercohort.results.promise import WHOLE
from ciphercohort.results.result import encoding_of
from ciphercohort.verify.messages import bytes_per_party
from parties.reader.schema import Schema
from parties.reader.table import Table, read_table
from protocols.errors import CohortError
from protocols.exchange.documents import canonical_digest
from protocols.plan.published import published
from protocols.plan.run_plan import RunPlan
from protocols.privacy.search.rescale import Scaling
from protocols.words import EXACT_SUMS

Files = Mapping[str, Any]
COMPARED = ("decrypted", "ended", "twin", "optimum", "clipped_optimum")
"""Models whose scores metrics.jsonl has; see `documents.metrics_lines`."""
CLOSE = 0.05
"""Of slope and intercept of a rescaling, from one machine to another."""


def metrics_by_kind(files: Files) -> dict[str, list[dict[str, Any]]]:
    """Lines of metrics.jsonl by `kind`."""
    kinds: dict[str, list[dict[str, Any]]] = {"iteration": [], "final": []}
    for line in files[METRICS]:
        kinds[line["kind"]].append(line)
    return kinds


def recorded_heads(files: Files) -> dict[str, str]:
    """The transcript's head, wherever it is recorded."""
    heads = {f"{MODEL}, field transcript": files[MODEL].get("transcript")}
    if METRICS in files:
        finals = [line for line in files[METRICS] if line.get("kind") == "final"]
        head = finals[-1].get("transcript") if finals else None
        heads[f"{METRICS}, field transcript"] = head
    return heads


def plan_digest_problems(files: Files) -> Iterator[str]:
    """SHA-256 of the canonical JSON, as RunPlan.digest, from the file as it is."""
    plan = {k: v for k, v in files[PLAN].items() if k != "digest"}
    digest = canonical_digest(plan)
    yield from compare(PLAN, "digest", files[PLAN].get("digest"), digest)
    yield from compare(MODEL, "plan", files[MODEL].get("plan"), digest)


def model_problems(model: Mapping[str, Any], plan: RunPlan) -> Iterator[str]:
    """model.json against its own schema and weights, and against the plan."""
    name = MODEL
    view, given = model.get("view", ""), np.array(model["weights"], dtype=np.float64)
    try:
        schema = Schema.from_dict(model["schema"])
        own = model_fields(encoding_of(schema, view), given, plan.model)
    except CohortError as error:
        yield f"{name}: {error}"
        return
    released = np.array(model["released"], np.float64)
    yield from _scaling_problems(model, plan, released, schema.bias)
    stated = model["scaling"]
    weights = Scaling(**stated).of(released, schema.bias) if stated else released
    weights = given if view else weights  # of its table, see `table_problems`
    expected = {
        **own,
        "weights": weights.tolist(),
        "session": plan.session,
        "security_bits": plan.security_bits,
        "privacy": privacy_figures(plan),
    }
    for field, value in expected.items():
        yield from compare(name, field, model.get(field), value)
    yield from compare(PLAN, "schema.digest", plan.schema.get("digest"), schema.digest())
    yield from compare(name, "schema", len(schema.feature_names) + 1, plan.num_features)
    yield from _insecure(name, model, plan)
    if plan.opens_exact_sums and model.get(MARK) != EXACT_SUMS:
        yield f"{name}, field {MARK}: missing or changed, although sums were opened without noise"


def table_problems(model: Mapping[str, Any], table: Mapping[str, Any] | None) -> Iterator[str]:
    """One model: coefficients of model.json are those of its table, digit by digit.

    Columns that others determine have none in the table, and count 0.
    """
    if table is None:
        if "view" in model:
            yield f"{INFERENCE} is missing, although the model is that of its table"
        return
    coef, intercept = np.atleast_2d(model["coef"]), np.atleast_1d(model["intercept"])
    names = [*model["features"], "intercept"]
    rows = table["rows"]
    for k, row in enumerate(rows):
        output, place = divmod(k, len(rows) // len(intercept))
        j = names.index(row["name"])
        own = float(intercept[output] if row["name"] == "intercept" else coef[output, j])
        yield from compare(MODEL, f"{row['name']} [{place}]", own, row["coef"] or 0.0)


def _scaling_problems(
    model: Mapping[str, Any], plan: RunPlan, released: NDArray[np.float64], bias: float
) -> Iterator[str]:
    """What is stated against what this machine computes, to within CLOSE: see `rescale`."""
    _, own = published(plan, released, bias)
    stated = model["scaling"]
    if (own is None) != (stated is None):
        yield f"{MODEL}, field scaling: found {stated}, expected {own and asdict(own)}"
    for field, value in asdict(own).items() if own and stated else ():
        if not abs(stated[field] - value) <= CLOSE * max(1.0, abs(value)):
            yield f"{MODEL}, field scaling.{field}: found {stated[field]}, expected {value}"


def _insecure(file: str, content: Mapping[str, Any], plan: RunPlan) -> Iterator[str]:
    says, must = "INSECURE" in content, plan.security_bits < 128
    if says != must:
        yield f"{file}, field INSECURE: found {says}, expected {must}"


def cost_problems(files: Files, plan: RunPlan) -> Iterator[str]:
    """Bytes against the transcript's, by phase, and an entry of seconds for every iteration."""
    facts = files[FACTS]
    expected = bytes_per_party([*files[FIRST], *files[TRANSCRIPT]])
    yield from compare(FACTS, "bytes_per_party", facts.get("bytes_per_party"), expected)
    busiest = {phase: max(facts["traffic"].get(phase, {0: 0}).values()) for phase in expected}
    yield from compare(FACTS, "traffic", busiest, expected)
    for name in ("iteration_seconds", "whole_seconds", "path_seconds"):
        yield from compare(FACTS, f"number of {name}", len(facts[name]), plan.rounds)


def promise_problems(files: Files, plan: RunPlan) -> Iterator[str]:
    """What the whole run cost, alike in every file, and no less than its training."""
    whole = files[FACTS]["promise"]
    for name in (MODEL, CERTIFICATE, SUMMARY):
        if name in files:
            yield from compare(name, WHOLE, files[name].get(WHOLE), whole)
    if whole is None or plan.privacy is None:
        return
    own = [plan.privacy.epsilon, plan.privacy.delta]
    yield from compare(FACTS, "promise.training", whole["training"], own)
    least = max(whole["after"] or 0.0, own[0])
    # Rounding of a composition.
    if not whole["epsilon"] * (1 + 1e-6) >= least or not whole["delta"] >= own[1]:
        yield f"{FACTS}, field promise: the whole run is below its parts, epsilon {least:g}"


def summary_figures(files: Files, plan: RunPlan) -> dict[str, Any]:
    """Every figure of summary.json that plan, model, metrics and transcript determine."""
    costs, final = files[FACTS], metrics_by_kind(files)["final"][0]
    weights, twin = final["decrypted"]["weights"], final["twin"]["weights"]
    return {
        **plan_figures(plan),
        **_scores(final.get("ended", final["decrypted"])),
        "twin": _scores(final["twin"]),
        "optimum": _scores(final["optimum"]),
        "clipped_optimum": _scores(final["clipped_optimum"]),
        "max_abs_diff_to_twin": float(np.abs(np.subtract(weights, twin)).max()),
        "seconds_per_iteration": float(np.median(costs["iteration_seconds"])),
        "seconds": {phase: round(seconds, 4) for phase, seconds in costs["seconds"].items()},
        "bytes_per_party": costs["bytes_per_party"],
        "peak_memory_mb": round(final["peak_memory_mb"], 1),
        "total_seconds": round(final["total_seconds"], 3),
        "noise": files[MODEL]["noise"],
    }


def summary_problems(files: Files, plan: RunPlan) -> Iterator[str]:
    """Where summary.json differs from `summary_figures`."""
    kinds = metrics_by_kind(files)
    for kind, number in (("iteration", plan.rounds), ("final", 1)):
        if len(kinds[kind]) != number:
            yield f"{METRICS}: found {len(kinds[kind])} lines {kind!r}, expected {number}"
            return
    summary, expected = files[SUMMARY], summary_figures(files, plan)
    for field, value in expected.items():
        yield from compare(SUMMARY, field, summary.get(field, ABSENT), value)
    yield from _insecure(SUMMARY, summary, plan)
    yield from _metrics_problems(kinds, files, plan, expected)


def _scores(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: figure for name, figure in line.items() if name != "weights"}


def _metrics_problems(
    kinds: Mapping[str, list[dict[str, Any]]],
    files: Files,
    plan: RunPlan,
    figures: Mapping[str, Any],
) -> Iterator[str]:
    final, last = kinds["final"][0], kinds["iteration"][-1]
    expected: list[tuple[str, Any, Any]] = [
        (
            "weights",
            final.get("ended", final["decrypted"])["weights"],
            files[MODEL]["weights"],
        ),
        ("max_abs_diff_to_twin", final["max_abs_diff_to_twin"], figures["max_abs_diff_to_twin"]),
        ("noise", final["noise"], figures["noise"]),
        ("rows", final["rows"], {member.name: member.rows for member in plan.members}),
        *_last_iteration(last, final, files[MODEL].get("scaling")),
        (
            "seconds",
            [line["seconds"] for line in kinds["iteration"]],
            files[FACTS]["iteration_seconds"],
        ),
        (
            "iteration",
            [line["iteration"] for line in kinds["iteration"]],
            list(range(1, plan.rounds + 1)),
        ),
    ]
    for field, found, value in expected:
        yield from compare(METRICS, field, found, value)


def _last_iteration(
    last: Mapping[str, Any], final: Mapping[str, Any], scaling: object
) -> Iterator[tuple[str, Any, Any]]:
    """The twin's last iterate is its model, where nothing was done to it afterwards."""
    if scaling is not None:
        return
    twin = final["twin"]
    shared = {name: last[name] for name in twin if name in last}
    yield "twin (last iteration)", shared, {name: twin[name] for name in shared}
    yield "weight_norm", last["weight_norm"], float(np.linalg.norm(twin["weights"]))


def score_problems(files: Files, model: ReleasedModel, data: Table) -> Iterator[str]:
    """Scores of the four models on the run's test rows.

    Raises:
        SchemaError, DataError: the rows do not fit the schema.
    """
    final = metrics_by_kind(files)["final"][0]
    frame = read_table(data, label=model.schema.label.name)
    if len(frame) != final["test_rows"]:
        yield (
            f"{METRICS}, field test_rows: found {final['test_rows']}, expected {len(frame)}, "
            "the rows of the data given: give exactly the rows that the run was tested on"
        )
        return
    for name in (key for key in COMPARED if key in final):
        weights = np.array(final[name]["weights"])
        view = model.view if name == "ended" else ""
        kind = model.fitted.reference if "optimum" in name else model.model
        rows = raw_rows(frame, model.schema) if name == "optimum" else None
        expected = replace(model, model=kind, weights=weights, view=view).score(frame, rows)
        yield from compare(METRICS, name, _scores(final[name]), expected)
