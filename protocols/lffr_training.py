"""The training loop of LFFR on ciphertexts: W <- W - eta B^-1 (grad(W) + noise + 2 ridge W).

Every iteration takes LFFR_LEVELS, so W is refreshed after each but the last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import count
from typing import Any

import numpy as np

from protocols.ckks.circuit import Preconditioner
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.lffr_circuit import LffrGradient
from protocols.ckks.tally import CountingContext, Ghost, Tally
from protocols.lffr import LffrPlan
from protocols.lffr_inverse import sharp_precondition
from protocols.messages import Exchange

Vectors = Sequence[EncryptedVector]
# (refresh step, ciphertexts) -> the same at level 0; yields requests as `refresh.refresh` does.
RefreshAll = Callable[[int, Vectors], Generator[Any, Any, tuple[EncryptedVector, ...]]]


def train_lffr(
    evaluator: Evaluator,
    plan: LffrPlan,
    data: Vectors,
    side: Vectors,
    refresh_all: RefreshAll,
    on_iteration: Callable[[int], None] = lambda t: None,
) -> Exchange[EncryptedVector]:
    """Encrypted W / R after the plan's last iteration, R the link's radius, not refreshed.

    data, side: from `lffr.collect`.
    """
    steps = count()

    def fresh(vectors: Vectors) -> Exchange[tuple[EncryptedVector, ...]]:
        return refresh_all(next(steps), vectors)

    inverse: Preconditioner | None = None
    if plan.curvature:
        inverse = yield from sharp_precondition(evaluator, plan.curvature, side[0], fresh)
        side = ()
    gradient = LffrGradient(evaluator, plan.link, data, side, inverse, plan.ridge)
    context = evaluator.context
    # The start is public: an encryption of zero without randomness adds no noise.
    blank = np.zeros((context.params.num_towers, context.params.ring_dim), np.uint64)
    weights = evaluator.wrap(context.ciphertext([blank, blank]))
    for t in range(plan.iterations):
        weights = weights - gradient(weights, plan.learning_rate)
        if t + 1 < plan.iterations:
            (weights,) = yield from fresh((weights,))
        on_iteration(t)
    return weights


class _Counting(CountingContext):
    """The start is a ciphertext at level 0 too."""

    def ciphertext(self, polynomials: Any) -> Ghost:
        return Ghost(0)


def tally_lffr(plan: LffrPlan) -> tuple[Tally, ...]:
    """Operations by level: of the inverse and all that is done once, then of every iteration.

    What the first iteration prepares counts with it.
    """
    context: Any = _Counting(plan.ckks)
    evaluator = Evaluator(context, plan.layout)
    tallies: list[Tally] = []

    def ghosts(number: int) -> list[EncryptedVector]:
        return [evaluator.wrap(Ghost(0)) for _ in range(number)]

    def refresh_all(step: int, vectors: Vectors) -> Generator[Any, Any, tuple[Any, ...]]:
        return tuple(ghosts(len(vectors)))
        yield  # makes this a generator

    layout = plan.layout
    data, side = ghosts(layout.num_data_ciphertexts), ghosts(layout.num_side_ciphertexts)
    training = train_lffr(
        evaluator, plan, data, side, refresh_all, lambda t: tallies.append(context.take())
    )
    if next(training, None) is not None:
        raise AssertionError("counting asks nobody")
    return tuple(tallies)
