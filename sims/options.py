"""Types of the options of `simulate`, `plan` and `Coordinator.init`; see `--help` for words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypedDict

FilePath = str | os.PathLike[str]


class DeployOptions(TypedDict, total=False):
    """Of `cohort coordinator init`: what settles the plan; None is as good as left out."""

    model: str | None
    protocol: str | None
    update: str | None
    iterations: int | None
    degree: int | None
    learning_rate: float | None
    radius: float | None
    ridge: float | None
    floor: float | None
    momentum: float | None
    clip: float | None
    batches: int | None
    schedule: str | None
    mechanism: str | None
    epsilon: float | None
    delta: float | None
    colluders: int | None
    no_privacy: bool
    cover: int | None
    held_out: float | None
    profile: str | None
    ring_dim: int | None


class PlanOptions(DeployOptions, total=False):
    """Of `cohort plan`; interval is another name for radius, holdout for test_share."""

    data: Any
    label: str | None
    target: str | Sequence[str] | None
    positive: str | None
    schema: FilePath | None
    test: FilePath | None
    test_share: float | None
    holdout: float | None
    exclude: str | Sequence[str] | None
    strict: bool | None
    parties: int | None
    split: str | None
    interval: float | None
    weights: str | None
    loss: str | None
    seed: int | None
    within: str | None
    bandwidth: float | None
    latency: float | None
    inference: bool | None


class SimulateOptions(PlanOptions, total=False):
    """Of `cohort simulate`."""

    processes: bool | None
    workers: int | None
    ledger: FilePath | None
    out: FilePath | None
    keep_messages: bool | None
    evaluate: bool | None
    however_noisy: bool | None
