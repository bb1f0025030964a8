"""What the machine-readable files of a run folder hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from sims.model_fields import model_fields
from sims.result import AnyRun, Array, Quality

INSECURE = "toy ring without security; for tests only"


def model_document(result: AnyRun) -> dict[str, Any]:
    """What model.json holds: all that prediction needs, readable by scikit-learn users.

    features, coef, intercept: log-odds of `positive`, in the data's own units; of a regression one
    row and one number per target, see `link`; weights: the same model on scaled rows, bias last;
    schema: how rows are scaled.
    """
    summary = result.summary()
    return {
        "version": 1,
        **({"INSECURE": INSECURE} if result.insecure else {}),
        **model_fields(result.schema, result.weights, result.plan.model),
        "weights": result.weights.tolist(),
        "schema": result.schema.to_dict(),
        "session": result.plan.session,
        "plan": result.plan.digest(),
        "transcript": result.transcript_head,
        "security_bits": result.plan.security_bits,
        "privacy": summary["privacy"],
        "noise": result.noise,
    }


def metrics_lines(result: AnyRun) -> Iterator[dict[str, Any]]:
    """What metrics.jsonl holds, by the key `kind`.

    iteration: {iteration, loss, accuracy, auc, weight_norm, largest_logit} of the plaintext twin
        (see IterationMetrics; of a regression RegressionMetrics) and `seconds`, the encrypted
        iteration's wall clock.
    costs: {seconds, bytes_per_party} by phase, `traffic` by phase and party [bytes],
        iteration_seconds, total_seconds, peak_memory_mb.
    final: {decrypted, twin, optimum}: {accuracy, auc, weights} of each model (of a regression its
        errors in place of the first two), weights in scaled units, bias last;
        max_abs_diff_to_twin; test_rows; rows and clamped by party; noise;
        transcript: head of the hash chain.
    """
    costs = result.costs
    for metrics, seconds in zip(result.iterations, costs.iteration_seconds, strict=True):
        yield {"kind": "iteration", **asdict(metrics), "seconds": seconds}
    yield {
        "kind": "costs",
        "seconds": costs.seconds,
        "bytes_per_party": costs.bytes_per_party,
        "traffic": costs.traffic,
        "iteration_seconds": costs.iteration_seconds,
        "total_seconds": result.total_seconds,
        "peak_memory_mb": result.peak_memory_mb,
    }
    yield {
        "kind": "final",
        "decrypted": _scored(result.scores, result.weights),
        "twin": _scored(result.twin, result.twin_weights),
        "optimum": _scored(result.optimum, result.optimum_weights),
        "max_abs_diff_to_twin": result.max_abs_diff_to_twin,
        "test_rows": len(result.test_y),
        "rows": result.rows_by_party,
        "clamped": result.clamped,
        "noise": result.noise,
        "transcript": result.transcript_head,
    }


def _scored(scores: Quality, weights: Array) -> dict[str, Any]:
    return {**scores.to_dict(), "weights": weights.tolist()}


def to_json(value: Any, indent: int | None = 2) -> str:
    """JSON text with a final line feed; numbers that are not finite become null."""
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
