"""The training loop of LFFR on ciphertexts: W <- W - eta B^-1 (grad(W) + noise + 2 ridge W).

Every iteration takes LFFR_LEVELS, and the refresh after it sums over columns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import count
from typing import Any

import numpy as np

from protocols.ckks.circuit import REFRESH_LEVEL, Preconditioner
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.ckks.lffr_circuit import LffrGradient
from protocols.lffr import LffrPlan
from protocols.lffr_inverse import sharp_precondition
from protocols.messages import Exchange
from protocols.train import refresh_sums

Vectors = Sequence[EncryptedVector]
# (refresh step, ciphertexts) -> what the plan's `column_maps` make of them; yields requests as
# `refresh.refresh` does.
RefreshAll = Callable[[int, Vectors], Generator[Any, Any, tuple[EncryptedVector, ...]]]


def train_lffr(
    evaluator: Evaluator,
    plan: LffrPlan,
    data: Vectors,
    side: Vectors,
    refresh_all: RefreshAll,
    on_iteration: Callable[[int], None] = lambda t: None,
) -> Exchange[EncryptedVector]:
    """Encrypted W / R after the plan's last iteration, R the link's radius: `Layout.heads`.

    data, side: from `lffr.collect`.
    """
    steps = count()

    def fresh(vectors: Vectors) -> Exchange[tuple[EncryptedVector, ...]]:
        return refresh_all(next(steps), vectors)

    inverse: Preconditioner | None = None
    if plan.curvature:
        inverse = yield from sharp_precondition(evaluator, plan.curvature, side[0], fresh)
        side = ()
    gradient = LffrGradient(evaluator, plan.units, data, side, inverse, plan.ridge)
    context, params = evaluator.context, evaluator.context.params
    # The start is public: an encryption of zero without randomness adds no noise.
    blank = np.zeros((params.num_towers - REFRESH_LEVEL, params.ring_dim), np.uint64)
    weights = evaluator.wrap(context.ciphertext([blank, blank]))
    for t in range(plan.iterations):
        moved = weights - gradient(weights, plan.learning_rate)
        (weights,) = yield from refresh_sums(evaluator, fresh, (moved,))
        on_iteration(t)
    return weights
