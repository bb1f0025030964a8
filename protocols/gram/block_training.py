"""The training loop of the Gram protocol for wide tables: the matrix stays in its blocks.

    V_{t+1} = level V_t - pull V_{t-1} + u' o (targets_t G' - H' V_t),   W = V_T / last,

H' = BLOCK_LIFT H / scale + its share of the ridge, u' = gain u / (BLOCK_LIFT slack), G' such that
u' o targets_t G' is targets_t g of `gram.training`. No block is multiplied by u: that would be R
products and refreshes in place of one for each output, and u' reaches targets and products alike,
so that its error changes the speed alone. u' is zero outside the heads
(`ckks/circuits/gram_blocks.py`).

| part | levels |
|---|---|
| inverse | 1 for each step and 4, refreshed |
| H', u' | 1, refreshed once, all R + 1 together |
| an iteration | 2; V_t and V_{t-1} are refreshed when levels run out |
| mask | 1 |
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from protocols.ckks.circuits.evaluator import EncryptedVector
from protocols.ckks.circuits.gram_blocks import BlockEvaluator
from protocols.exchange.messages import Exchange
from protocols.gram.contributions import BLOCK_LIFT, GAIN, UNIT, GramTask
from protocols.gram.loop import Loop, Vectors

STEP_LEVELS = 2
# Roundings and biases of an iteration on its own: of the product (u' of it), of its heads, and of
# the baby steps, whose key switches are not followed by a rescaling.
FRESH = 2 + 2 * (2 + 1.6)


def error_before(task: GramTask, weight: float, sharp: float) -> float:
    """Bound on the noise of W / UNIT before the last mask, in roundings of one rescaling.

    weight: on |W| of one output; sharp: of u, relative. The matrix errs by a rounding of
    BLOCK_LIFT H in every iteration alike, times u <= 1 / low: W by `Pace.travel` of gain times
    that. u' errs by BLOCK_LIFT / gain roundings relative to itself, which changes the speed alone.
    FRESH noise differs between copies m of a value: a copy keeps it as the rule keeps errors where
    K = 0, `Pace.responses`, and each step feeds it back through K, by the gain at most.
    """
    pace = task.pace
    largest = 1 / task.inverse.low if task.row_sums else 1.0
    path = pace.gain * largest / BLOCK_LIFT * (1 + pace.travel)
    speed = sharp + BLOCK_LIFT / pace.gain
    kept = 1 + pace.gain * max(pace.responses)
    return (1 + weight) * (path + speed) / UNIT + FRESH * kept * math.fsum(pace.responses)


class BlockTraining(Loop):
    """One run of the loop."""

    _evaluator: BlockEvaluator

    def run(self, sums: Vectors, on_iteration: Callable[[int], None]) -> Exchange[EncryptedVector]:
        """W / UNIT, all outputs in one ciphertext: `BlockLayout.read_heads`."""
        evaluator, pace = self._evaluator, self._pace
        matrices, targets, _ = evaluator.slots.counts
        lifted, *heads = yield from self._prepare(sums[:matrices], sums[matrices + targets :])
        blocks = evaluator.parts(lifted)
        goals = sums[matrices : matrices + targets]
        size = BLOCK_LIFT / (pace.gain * UNIT * GAIN)

        def step(factor: float, before: EncryptedVector | None) -> EncryptedVector:
            moves = [goal * (factor * size) for goal in goals]
            if before is not None:
                products = (evaluator.product(blocks, part) for part in evaluator.parts(before))
                moves = [move - each for move, each in zip(moves, products, strict=True)]
            return evaluator.join(self._preconditioned(move, heads) for move in moves)

        state: Vectors = (step(pace.targets[0], None),)
        on_iteration(0)
        for t, factor in enumerate(pace.targets[1:], 1):
            state = yield from self.with_levels(STEP_LEVELS, *state)
            kept = state[0] if pace.level == 1 else state[0] * pace.level
            moved = step(factor, state[0]) + kept
            for before in state[1:]:
                moved = moved - before * pace.pull
            state = (moved, state[0]) if pace.pull else (moved,)
            on_iteration(t)
        (weights,) = yield from self.with_levels(1, state[0], below=1)
        # Two primes are left, which is what `decrypt` takes.
        low = evaluator.drop_to(weights, self._deepest)
        return evaluator.mask_released(low, 1 / pace.last)

    def _prepare(self, matrices: Vectors, row_sums: Vectors) -> Exchange[Vectors]:
        """H', as one vector of R parts, and u', at level 0."""
        evaluator, task = self._evaluator, self._task
        slots = evaluator.slots
        ridge = slots.matrices(BLOCK_LIFT * task.shift * np.eye(task.num_features))
        lifted = [
            evaluator.add_public(part * (BLOCK_LIFT / GAIN), share)
            if share.any()
            else part * (BLOCK_LIFT / GAIN)
            for part, share in zip(matrices, ridge, strict=True)
        ]
        heads: Vectors = ()
        if row_sums:
            inverses = yield from self.invert(row_sums)
            heads = [evaluator.times_public(u, self._rate * slots.heads()) for u in inverses]
        return (yield from self._refresh([evaluator.join(lifted), *heads]))

    def _preconditioned(self, move: EncryptedVector, heads: Vectors) -> EncryptedVector:
        """u' o move, in every m."""
        evaluator = self._evaluator
        if not heads:
            return evaluator.spread_public(self._rate * evaluator.slots.heads(), move)
        return evaluator.spread(heads[0], move)

    @property
    def _rate(self) -> float:
        """u' / u."""
        return self._pace.gain / (BLOCK_LIFT * self._task.slack)
