"""Types of the options of `simulate` and `plan`, for whoever calls them; see `--help` for words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypedDict

FilePath = str | os.PathLike[str]


class PlanOptions(TypedDict, total=False):
    """Of `cohort plan`; None is as good as left out, interval another name for radius."""

    data: Any
    label: str | None
    target: str | Sequence[str] | None
    positive: str | None
    schema: FilePath | None
    test: FilePath | None
    holdout: float | None
    exclude: str | Sequence[str] | None
    strict: bool | None
    parties: int | None
    split: str | None
    model: str | None
    protocol: str | None
    update: str | None
    iterations: int | None
    degree: int | None
    learning_rate: float | None
    radius: float | None
    interval: float | None
    ridge: float | None
    floor: float | None
    momentum: float | None
    clip: float | None
    weights: str | None
    loss: str | None
    batches: int | None
    schedule: str | None
    mechanism: str | None
    seed: int | None
    within: str | None
    bandwidth: float | None
    latency: float | None
    epsilon: float | None
    delta: float | None
    colluders: int | None
    no_privacy: bool
    cover: int | None
    profile: str | None
    ring_dim: int | None


class SimulateOptions(PlanOptions, total=False):
    """Of `cohort simulate`."""

    processes: bool | None
    ledger: FilePath | None
    out: FilePath | None
    keep_messages: bool | None
    inference: bool | None
