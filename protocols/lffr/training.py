"""The training loop of LFFR on ciphertexts: W <- W - eta B^-1 (grad(W) + noise + 2 ridge W).

Every iteration takes LFFR_LEVELS, and the refresh after it sums over columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.lffr import LffrGradient
from protocols.ckks.circuits.rows import REFRESH_LEVEL, Preconditioner
from protocols.exchange.messages import Exchange
from protocols.lffr.plan import LffrPlan
from protocols.rows.training import Progress, RowsCircuit, refresh_sums
from protocols.steps.precondition import precondition
from protocols.steps.refresh import Refresh

Vectors = Sequence[EncryptedVector]
Array = NDArray[np.float64]


class LffrCircuit(RowsCircuit):
    """LFFR on encrypted rows, on the outputs' layout."""

    def train(
        self, evaluator: Evaluator, encrypted: Any, refresh: Refresh, on_iteration: Progress
    ) -> Exchange[EncryptedVector]:
        """See `train_lffr`."""
        data, side = encrypted
        return train_lffr(evaluator, self._plan, data, side, refresh, on_iteration)


def train_lffr(
    evaluator: Evaluator,
    plan: LffrPlan,
    data: Vectors,
    side: Vectors,
    fresh: Refresh,
    on_iteration: Progress = lambda t: None,
) -> Exchange[EncryptedVector]:
    """Encrypted W / R after the plan's last iteration, R the link's radius: `Layout.heads`.

    data, side: from `contribute.collect`.
    """
    inverse: Preconditioner | None = None
    if plan.curvature:
        inverse = yield from precondition(evaluator, plan.curvature, side[0], fresh)
        side = ()
    gradient = LffrGradient(evaluator, plan.units, data, side, inverse, plan.ridge)
    context, params = evaluator.context, evaluator.context.params
    # The start is public: an encryption of zero without randomness adds no noise.
    blank = np.zeros((params.num_towers - REFRESH_LEVEL, params.ring_dim), np.uint64)
    weights = evaluator.wrap(context.ciphertext([blank, blank]))
    for t in range(plan.rounds):
        moved = weights - gradient(weights, plan.learning_rate)
        (weights,) = yield from refresh_sums(evaluator, fresh, (moved,))
        on_iteration(t)
    return weights
