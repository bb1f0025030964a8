"""LOOKS AT SECRETS. Secure aggregation: the error of every opened sum of one run."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from protocols import gradients
from protocols.aggregate.cipher import CoordinatorCipher
from protocols.gradients import GradientPlan
from sims.studies.noise import theory
from sims.studies.noise.stages import Stages

if TYPE_CHECKING:
    from protocols.plan import RunPlan
    from sims.studies.noise.watched import Clients

Floats = NDArray[np.float64]


def watch_sums(clients: Clients, plan: RunPlan) -> tuple[Floats, Stages]:
    """Released weights; error of the opening key and of every sum."""
    if not isinstance(plan, GradientPlan):
        raise AssertionError(f"protocol={plan.protocol!r} is not watched")
    sent: dict[int, Any] = defaultdict(float)
    opened: dict[int, Floats] = {}
    keys: list[Floats] = []
    answer = gradients.answer_round

    def noted(plan: GradientPlan, secret: Any, t: int, values: Floats) -> Any:
        sent[t] = sent[t] + values
        return answer(plan, secret, t, values)

    class Watched(CoordinatorCipher):
        def __init__(self, params: Any, session: str, seed: bytes, opening_key: Any) -> None:
            keys.append(np.asarray(opening_key, dtype=float))
            super().__init__(params, session, seed, opening_key)

        def open(self, t: int, summed: Any) -> Floats:
            opened[t] = super().open(t, summed)
            return opened[t]

    with ExitStack() as hooks:
        hooks.enter_context(patch.object(gradients, "answer_round", noted))
        hooks.enter_context(patch("coordinator.conduct.CoordinatorCipher", Watched))
        weights = clients.drive(lambda step, asked, replies: None)
    unit = 2.0**-plan.cipher.scale_bits
    errors = {t: (opened[t] - sent[t]) / unit for t in sorted(opened)}
    course = [float(np.sqrt(np.mean(error**2))) for error in errors.values()]
    error, derived = float(np.sqrt(np.mean(np.square(course)))), theory.opened(len(plan.members))
    stages = Stages(courses={"opened": course})
    stages.note("opening_key", float(np.sqrt(np.mean(keys[0] ** 2))), derived)
    stages.note("opened", error, derived)
    stages.note("opened_value", error * unit, derived * unit)
    stages.facts = {"ring_dim": plan.cipher.ring_dim, "scale_bits": plan.cipher.scale_bits}
    return weights, stages
