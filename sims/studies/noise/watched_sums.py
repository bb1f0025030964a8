"""LOOKS AT SECRETS. Secure aggregation: the error of every opened sum of one run.

What clients sent is computed a second time, from their rows and noise; what the coordinator opened,
from the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from parties.objectives import open_contributor
from protocols import gradients
from protocols.aggregate import setup
from protocols.aggregate.cipher import CoordinatorCipher
from protocols.aggregate.wire import sum_messages
from protocols.gradients import GradientPlan
from protocols.messages import Body
from sims.studies.noise import theory
from sims.studies.noise.exact import rms
from sims.studies.noise.stages import Stages

if TYPE_CHECKING:
    from protocols.plan import RunPlan
    from sims.studies.noise.watched import Clients

Floats = NDArray[np.float64]


def watch_sums(clients: Clients, plan: RunPlan) -> tuple[Floats, Stages]:
    """Released weights; error of the opening key and of every sum."""
    if not isinstance(plan, GradientPlan):
        raise AssertionError(f"protocol={plan.kind!r} is not watched")
    sources = {name: spec.noise_source() for name, spec in clients.specs.items()}
    own = {
        name: open_contributor(plan, name, spec.shard, sources[name])
        for name, spec in clients.specs.items()
    }
    unit, keys, course = 2.0**-plan.cipher.scale_bits, [], []

    def on_step(step: str, asked: Mapping[str, Body], replies: Mapping[str, Body]) -> None:
        kind, _, index = step.partition("/")
        if kind == setup.OPENING_KEY:
            keys.append(setup.unmask(plan.cipher, replies))
        elif kind == "round":
            t, names = int(index), plan.names
            point = gradients.read_point(plan, asked[names[0]], plan.length)
            sent: Floats = np.zeros(plan.length)
            for name in names:
                values = own[name].contribution(plan.queries[t], t, point)
                sent += plan.on_grid(t, values) + plan.draw_noise(t, sources[name])
            cipher = CoordinatorCipher(plan.cipher, plan.session, clients.seed, keys[0])
            opened = cipher.open(t, sum_messages(plan.cipher, replies, names, plan.length))
            course.append(rms((opened - sent) / unit))

    weights = clients.drive(on_step)
    error, derived = rms(course), theory.opened(len(plan.members))
    stages = Stages(courses={"opened": course})
    stages.note("opening_key", rms(keys[0]), derived)
    stages.note("opened", error, derived)
    stages.note("opened_value", error * unit, derived * unit)
    stages.facts = {"ring_dim": plan.cipher.ring_dim, "scale_bits": plan.cipher.scale_bits}
    return weights, stages
