"""The training loop of the Gram protocol, on ciphertexts: its cost does not depend on the rows.

    u = 1 / (b / scale slack),   K = u o (H / scale + shift I),   g = u o G / scale,
    M = level I - gain K,   V_{t+1} = M V_t - pull V_{t-1} + targets_t g,   W = V_T / last,

the numbers from `gram.pace`. M and g are made once, M times LIFT, which the mask of every second
iteration takes out. V_{t-1} stands in the orientation of V_{t+1} and has levels to spare. The fixed
point solves (H + 2 ridge I) W = G whatever u is, so the error of the inverse, at most 2^-10
(`protocols.numerics.inverse`), changes the speed alone; `slack` keeps K below 1 with it.

| part | levels |
|---|---|
| inverse | 1 for each step and 4, refreshed |
| M, g | 2, refreshed once |
| two iterations | 3; V_t and V_{t-1} are refreshed when levels run out |
| mask | 1 |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.gram import (
    CONTRACT_INNER_LEVELS,
    CONTRACT_OUTER_LEVELS,
    GramEvaluator,
)
from protocols.ckks.circuits.gram_blocks import BlockEvaluator, BlockLayout
from protocols.ckks.circuits.tally import CountingContext, Shadow, Tally
from protocols.ckks.evaluation import CkksContext
from protocols.exchange.messages import Exchange
from protocols.gram.block_training import BlockTraining
from protocols.gram.contributions import LIFT, UNIT, GramTask, collect
from protocols.gram.loop import Loop, Vectors
from protocols.steps.contribute import Opened
from protocols.steps.refresh import Refresh

if TYPE_CHECKING:
    from protocols.gram.plan import GramPlan

Array = NDArray[np.float64]
# Levels between two refreshes: a good choice, which makes it four iterations, of blocks three.
LEVELS = 6


class GramCircuit:
    """Least squares on Gram sums: a `rows.protocol.Circuit`."""

    def __init__(self, plan: GramPlan) -> None:
        self._plan = plan

    def evaluator(self, context: CkksContext) -> Evaluator:
        """On the matrix layout."""
        return gram_evaluator(context, self._plan.task)

    def collect(self, evaluator: Evaluator, contributions: Opened) -> Exchange[Any]:
        """The summed ciphertexts."""
        return collect(evaluator, self._plan.task, contributions)

    def train(
        self,
        evaluator: Any,
        encrypted: Any,
        refresh: Refresh,
        on_iteration: Callable[[int], None],
    ) -> Exchange[EncryptedVector]:
        """See `train_gram`."""
        return train_gram(evaluator, self._plan.task, encrypted, refresh, on_iteration)


def gram_evaluator(context: CkksContext, task: GramTask) -> GramEvaluator | BlockEvaluator:
    """On the task's layout."""
    layout = task.layout
    if isinstance(layout, BlockLayout):
        return BlockEvaluator(context, layout)
    return GramEvaluator(context, layout)


def train_gram(
    evaluator: GramEvaluator | BlockEvaluator,
    task: GramTask,
    sums: Vectors,
    refresh: Refresh,
    on_iteration: Callable[[int], None] = lambda t: None,
) -> Exchange[EncryptedVector]:
    """W / UNIT after the task's rounds, once, zero elsewhere: see `read_heads` of the layout."""
    loop = BlockTraining if isinstance(evaluator, BlockEvaluator) else _Training
    return loop(evaluator, task, refresh).run(sums, on_iteration)


def refresh_schedule(task: GramTask) -> tuple[int, ...]:
    """How many ciphertexts each refresh step carries: the loop itself, run on counters."""
    return _count(task)[0]


class _Training(Loop):
    """One run of the loop."""

    _evaluator: GramEvaluator

    def run(self, sums: Vectors, on_iteration: Callable[[int], None]) -> Exchange[EncryptedVector]:
        matrices, targets = yield from self._precondition(sums)
        pace = self._pace
        # The last product is summed over k: `inner`, which the release reads.
        is_outer = len(pace.targets) % 2 == 0
        state: Vectors = (_times(targets[is_outer], pace.targets[0]),)
        on_iteration(0)
        for t, factor in enumerate(pace.targets[1:], 1):
            levels = CONTRACT_OUTER_LEVELS if is_outer else CONTRACT_INNER_LEVELS
            state = yield from self.with_levels(levels, *state)
            is_outer = not is_outer
            moved = self._product(matrices[is_outer], state[0], is_outer)
            moved = moved + _times(targets[is_outer], factor)
            for before in state[1:]:
                moved = moved - before * pace.pull
            state = (moved, state[0]) if pace.pull else (moved,)
            on_iteration(t)
        (weights,) = yield from self.with_levels(1, state[0], below=1)
        # Two primes are left, which is what `decrypt` takes.
        low = self._evaluator.drop_to(weights, self._deepest)
        return self._evaluator.mask_released(low, 1 / pace.last)

    def _product(
        self, matrix: EncryptedVector, weights: EncryptedVector, is_outer: bool
    ) -> EncryptedVector:
        """M W, `outer` or not, which W is not; to an inner result belongs u inner."""
        product = matrix * weights
        if is_outer:
            return self._evaluator.contract_inner(product, LIFT**-2)
        return self._evaluator.contract_outer(product)

    def _precondition(self, sums: Vectors) -> Exchange[tuple[Vectors, Vectors]]:
        """LIFT M with u inner, outer; g inner, and over LIFT outer; at level 0."""
        evaluator, layout, task = self._evaluator, self._evaluator.slots, self._task
        identity = layout.matrix(np.eye(task.num_features))
        descent = evaluator.add_public(sums[0], (task.shift * task.lift) * identity)
        descents, targets = [descent, descent], list(sums[1:3])
        if task.row_sums:
            inverses = yield from self.invert(sums[3:])
            descents = [descent * u for u in inverses]
            targets = [part * u for part, u in zip(targets, inverses, strict=True)]
        # Dividing by the lift last keeps u from multiplying the rounding.
        pace, size = self._pace, task.lift * task.slack
        matrices = [
            evaluator.add_public(part * (-LIFT * pace.gain / size), LIFT * pace.level * identity)
            for part in descents
        ]
        units = (UNIT, LIFT * UNIT)
        targets = [part * (1 / (size * u)) for part, u in zip(targets, units, strict=True)]
        fresh = yield from self._refresh([*matrices, *targets])
        return fresh[:2], fresh[2:]


def _times(vector: EncryptedVector, factor: float) -> EncryptedVector:
    """A product, unless it is the vector itself."""
    return vector if factor == 1 else vector * factor


@lru_cache(maxsize=64)
def _count(task: GramTask) -> tuple[tuple[int, ...], Tally]:
    context: Any = CountingContext(task.ckks)
    evaluator = gram_evaluator(context, task)
    carried: list[int] = []

    def refresh(vectors: Vectors) -> Exchange[tuple[EncryptedVector, ...]]:
        carried.append(sum(len(vector.cts) for vector in vectors))
        return tuple(evaluator.wrap(*[Shadow(0)] * len(vector.cts)) for vector in vectors)
        yield  # makes this a generator

    sums = [evaluator.wrap(Shadow(0)) for _ in range(task.num_ciphertexts)]
    training = train_gram(evaluator, task, sums, refresh)
    if next(training, None) is not None:
        raise AssertionError("counting asks nobody")
    return tuple(carried), context.take()
