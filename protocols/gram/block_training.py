"""The training loop of the Gram protocol for wide tables: the matrix stays in its blocks.

    V_t = gain / L Z_t,   in every m,   L = BLOCK_LIFT slack,
    Z_{t+1} = L / gain (level V_t - pull V_{t-1} + targets_t g) - L K V_t,

K and g of `gram.training`, W = V_T / last. The blocks of L K are made once: u stands where
each block holds its rows, so that no rounding is multiplied by u, and u loses no digit. Z is right
in the heads alone (`ckks/circuits/gram_blocks.py`); what makes V of it copies them into all m, so
that copies never drift apart.

| part | levels |
|---|---|
| inverse | 1 for each step and 4, refreshed |
| L K, g | 2, refreshed once, all R and one for each output together |
| an iteration | 2; Z_t and V_{t-1} are refreshed when levels run out |
| copies, mask | 2 |
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from protocols.ckks.circuits.errors import fresh_std
from protocols.ckks.circuits.evaluator import EncryptedVector
from protocols.ckks.circuits.gram_blocks import BlockEvaluator
from protocols.ckks.flooding import rounding_std
from protocols.exchange.messages import Exchange
from protocols.gram.contributions import (
    BLOCK_INVERSE_ERROR,
    BLOCK_LIFT,
    INVERSE_LIFT,
    UNIT,
    GramTask,
)
from protocols.gram.loop import Loop, Vectors

STEP_LEVELS = 2
# Roundings of V: its own and a refresh's. Of what the matrix multiplies: these, and rounding and
# bias of the baby steps, whose key switches are not followed by a rescaling.
OWN, TURNED = 2, 2 + 2 + 1.6
ROUNDINGS = 4
"""Of INVERSE_LIFT u, and of what the last step corrects."""


def error_before(task: GramTask, weight: float, primes: float) -> float:
    """Bound on the noise of W / UNIT before the last mask, in roundings of one rescaling.

    weight: on |W| of one output; primes: what their distance from the scale makes of u, which
    changes the speed alone. BLOCK_LIFT K carries two roundings, the noise of what the parties
    encrypted times u <= 1 / low, and that of u, which is another in every slot: all of them in
    every iteration alike, W by `Pace.travel` of gain times that. An iteration rounds V, which K
    passes on by the gain at most.
    """
    pace, parties = task.pace, len(task.names)
    entry = 2 / BLOCK_LIFT
    if task.row_sums:
        fresh = fresh_std(task.ckks, parties) / rounding_std(task.ckks, parties)
        entry = math.hypot(entry, fresh / (task.inverse.low * task.lift))
        entry += ROUNDINGS * (1 / INVERSE_LIFT + math.sqrt(BLOCK_INVERSE_ERROR))
    path = pace.gain * entry * (1 + pace.travel)
    step = OWN * (pace.level + pace.pull) + TURNED * pace.gain
    return (1 + weight) * (path + primes) / UNIT + step * math.fsum(pace.responses)


def largest_slot(task: GramTask, length: float) -> float:
    """Of L K and of Z, for |V_t| at most length.

    Outside the heads a product is part of one row and part of the next.
    """
    pace = task.pace
    return BLOCK_LIFT * task.slack * max(1.0, ((pace.level + pace.pull) / pace.gain + 2) * length)


class BlockTraining(Loop):
    """One run of the loop."""

    _evaluator: BlockEvaluator

    def run(self, sums: Vectors, on_iteration: Callable[[int], None]) -> Exchange[EncryptedVector]:
        """W / UNIT, all outputs in one ciphertext: `BlockLayout.read_heads`."""
        evaluator, pace = self._evaluator, self._pace
        lifted, goals = yield from self._prepare(sums)
        blocks, lift = evaluator.parts(lifted), BLOCK_LIFT * self._task.slack / pace.gain
        state: Vectors = (goals * pace.targets[0],)
        on_iteration(0)
        for t, factor in enumerate(pace.targets[1:], 1):
            state = yield from self.with_levels(STEP_LEVELS, *state)
            weights = self._copied(state[0], 1 / lift)
            moved = weights * (lift * pace.level) + goals * factor
            for before in state[1:]:
                moved = moved - before * (lift * pace.pull)
            parts = evaluator.parts(weights)
            moved = moved - evaluator.join(evaluator.product(blocks, part) for part in parts)
            state = (moved, weights) if pace.pull else (moved,)
            on_iteration(t)
        (last,) = yield from self.with_levels(2, state[0], below=1)
        weights = self._copied(last, 1 / (lift * pace.last))
        # Two primes are left, which is what `decrypt` takes.
        return evaluator.mask_released(evaluator.drop_to(weights, self._deepest))

    def _prepare(self, sums: Vectors) -> Exchange[Vectors]:
        """L K, as one vector of R parts, and of g, as Z is, one of all outputs."""
        evaluator, task = self._evaluator, self._task
        slots = evaluator.slots
        count, outputs, _ = slots.counts
        ridge = slots.matrices(task.lift * task.shift * np.eye(task.num_features))
        blocks = [
            evaluator.add_public(part, share) if share.any() else part
            for part, share in zip(sums[:count], ridge, strict=True)
        ]
        heads = slots.heads() / self._pace.gain
        goals = [evaluator.times_public(part, heads) for part in sums[count : count + outputs]]
        # Powers of 2, which encode exactly. Last, as u must not multiply the rounding.
        size = BLOCK_LIFT / task.lift
        if task.row_sums:
            size /= task.inverse_lift
            inverses = yield from self.invert(sums[count + outputs :])
            blocks = [part * inverses[k // slots.babies] for k, part in enumerate(blocks)]
            goals = [part * inverses[0] for part in goals]
        lifted = evaluator.join(part * size for part in blocks)
        return (yield from self._refresh([lifted, evaluator.join(goals) * (size / UNIT)]))

    def _copied(self, vector: EncryptedVector, factor: float) -> EncryptedVector:
        """The heads times a factor, in every m; one level."""
        evaluator = self._evaluator
        heads = factor * evaluator.slots.heads()
        parts = evaluator.parts(vector)
        return evaluator.join(evaluator.spread_public(heads, part) for part in parts)
