"""What the machine-readable files of a run folder hold."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from ciphercohort.results.result import Array, RunResult, classes_of, label_of, targets_of
from parties.reader.schema import Schema
from protocols.models.registry import model_named

LABEL_KIND, CLASS_KIND, TARGET_KIND = "logistic-regression", "classification", "regression"

TOLERANCE = 1e-9  # relative; figures are written with all their digits


class Absent(Enum):
    """In the place of a field that is not there: equal to nothing that a file can hold."""

    ABSENT = "nothing"

    def __repr__(self) -> str:
        return self.value


ABSENT = Absent.ABSENT


def model_fields(schema: Schema, weights: Array, model: str) -> dict[str, Any]:
    """kind, names, coefficients in the data's own units.

    weights: scaled units, shape (d,), of several outputs (d, c); model: its name in the plan.

    Raises:
        ParameterError: the weights do not fit the schema. SchemaError: nor does the model.
    """
    coef, intercept = coefficients(schema, weights, model)
    features, fitted = list(schema.expanded_names), model_named(model)
    link = {"meaning": fitted.link, **asdict(fitted)}  # type: ignore[call-overload]
    if fitted.several:
        classes = classes_of(schema)
        return {
            "kind": CLASS_KIND,
            "model": model,
            "label": classes.name,
            "classes": list(classes.classes),
            "features": features,
            "coef": coef.tolist(),
            "intercept": intercept.tolist(),
            "link": link,
        }
    if not fitted.numeric:
        label = label_of(schema)
        return {
            "kind": LABEL_KIND,
            "label": label.name,
            "positive": label.positive,
            "negative": label.negative,
            "features": features,
            "coef": coef[0].tolist(),
            "intercept": float(intercept[0]),
        }
    return {
        "kind": TARGET_KIND,
        "model": model,
        "targets": list(schema.label.names),
        "features": features,
        "coef": coef.tolist(),
        "intercept": intercept.tolist(),
        "link": link,
    }


def coefficients(schema: Schema, weights: Array, model: str) -> tuple[Array, Array]:
    """Of every output over `expanded_names`, shape (c, features), and its intercept, shape (c,).

    For raw feature values, in the units that the model's link speaks of.

    Raises:
        ParameterError: the weights do not fit the schema.
    """
    columns = np.asarray(weights, dtype=np.float64).T
    pairs = [schema.model_in_data_units(column) for column in np.atleast_2d(columns)]
    coef = np.array([slopes for slopes, _ in pairs]).reshape(len(pairs), -1)
    intercept = np.array([constant for _, constant in pairs])
    fitted = model_named(model)
    low: Array = np.zeros(len(coef))
    width: Array = np.ones(len(coef))
    if fitted.numeric:
        targets = targets_of(schema.label)
        low, width = targets.low, targets.width
    return fitted.in_data_units(coef, intercept, low, width)


def metrics_lines(result: RunResult) -> Iterator[dict[str, Any]]:
    """What metrics.jsonl holds, by the key `kind`.

    iteration: of the plaintext twin, see `results.result.Course`, and `seconds`, the encrypted
        iteration's wall clock.
    final: {decrypted, twin, optimum, clipped_optimum, and ended, where secure sums followed the
        training}: scores and `weights` of each model, weights
        in scaled units, of the optimum in the data's own, bias last; max_abs_diff_to_twin;
        test_rows; rows and clamped by party; noise; transcript: head of the hash chain;
        total_seconds, peak_memory_mb: of all owners and the coordinator.
    """
    costs, (weights, scores) = result.costs, result.as_trained
    for metrics, seconds in zip(result.iterations, costs.iteration_seconds, strict=True):
        yield {"kind": "iteration", **metrics, "seconds": seconds}
    yield {
        "kind": "final",
        "decrypted": {**scores, "weights": weights.tolist()},
        **({"ended": {**result.scores, "weights": result.weights.tolist()}} if result.view else {}),
        "twin": {**result.twin, "weights": result.twin_weights.tolist()},
        "optimum": {**result.optimum, "weights": result.optimum_weights.tolist()},
        "clipped_optimum": {
            **result.clipped_optimum,
            "weights": result.clipped_optimum_weights.tolist(),
        },
        "max_abs_diff_to_twin": result.max_abs_diff_to_twin,
        "test_rows": len(result.test_y),
        "rows": result.rows_by_party,
        "clamped": result.clamped,
        "noise": result.noise,
        "transcript": result.transcript_head,
        "total_seconds": result.total_seconds,
        "peak_memory_mb": result.peak_memory_mb,
    }


def to_json(value: Any, indent: int | None = 2) -> str:
    """JSON text with a final line feed; numbers that are not finite become null."""
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def write_text(path: Path, text: str) -> None:
    """Replace a file as a whole: a reader sees the old text or the new one."""
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def compare(
    file: str, field: str, found: Any, expected: Any, tolerance: float = TOLERANCE
) -> Iterator[str]:
    """Mismatches of two JSON values; floats may differ by rounding, up to a relative tolerance."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys([*expected, *found]):
            pair = found.get(key, ABSENT), expected.get(key, ABSENT)
            yield from compare(file, f"{field}.{key}", *pair, tolerance)
    elif isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(found) != len(expected):
            yield f"{file}, field {field}: found {len(found)} entries, expected {len(expected)}"
        for k, pair in enumerate(zip(found, expected, strict=False)):
            yield from compare(file, f"{field}[{k}]", *pair, tolerance)
    elif not _equal(found, expected, tolerance):
        yield f"{file}, field {field}: found {found!r}, expected {expected!r}"


def _equal(found: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, float) and not math.isfinite(expected):
        return found is None  # JSON has no such numbers
    if isinstance(expected, bool) or not isinstance(expected, (int, float)):
        return bool(found == expected and type(found) is type(expected))
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return False
    return math.isclose(found, expected, rel_tol=tolerance)
