"""The training loop of the encrypted-rows protocol: gradient, update, refresh, T times.

The loop is written once. `train_encrypted` runs it on ciphertexts and yields refreshes;
`train_plain` runs it on arrays: the plaintext twin, and the oracle of every encrypted test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.ckks import REFRESH_TOWERS
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.rows import (
    REFRESH_LEVEL,
    ColumnSum,
    EncryptedGradient,
    Preconditioner,
    advance,
)
from protocols.ckks.evaluation import CkksContext
from protocols.exchange.messages import Exchange
from protocols.numerics.approximation import Polynomial
from protocols.privacy.laws import RandomSource
from protocols.rows.plan import RowsPlan
from protocols.steps.contribute import Opened, collect
from protocols.steps.precondition import precondition
from protocols.steps.refresh import Refresh
from protocols.updates.update import Update

Array = NDArray[np.float64]
# Called after each iteration with its index t.
Progress = Callable[[int], None]


class RowsCircuit:
    """Gradient training on encrypted rows: a `rows.protocol.Circuit`."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan

    def evaluator(self, context: CkksContext) -> Evaluator:
        """On the rows' layout."""
        return Evaluator(context, self._plan.layout)

    def collect(self, evaluator: Evaluator, contributions: Opened) -> Exchange[Any]:
        """Rows, and summed side columns."""
        return collect(evaluator, self._plan, contributions)

    def train(
        self, evaluator: Evaluator, encrypted: Any, refresh: Refresh, on_iteration: Progress
    ) -> Exchange[EncryptedVector]:
        """See `train_encrypted`."""
        rows, side = encrypted
        return train_encrypted(evaluator, self._plan, rows, side, refresh, on_iteration)


def train_encrypted(
    evaluator: Evaluator,
    plan: RowsPlan,
    rows: Sequence[EncryptedVector],
    side: Sequence[EncryptedVector],
    fresh: Refresh,
    on_iteration: Progress = lambda t: None,
) -> Exchange[EncryptedVector]:
    """Encrypted w / R after the plan's last iteration, R the link's radius: `Layout.heads`."""
    rule, context = plan.rule, evaluator.context
    preconditioner: Preconditioner | None = None
    if rule.curvature:
        preconditioner = yield from precondition(evaluator, rule.curvature, side[0], fresh)
    gradient = EncryptedGradient(evaluator, plan.units, rows, side, preconditioner)
    # The start is public: an encryption of zero without randomness adds no noise.
    blank = np.zeros(
        (context.params.num_towers - REFRESH_LEVEL, context.params.ring_dim), np.uint64
    )
    zero = context.ciphertext([blank, blank])
    state = rule.start(evaluator.wrap(*[zero] * plan.layout.num_parts))
    for t in range(plan.rounds):
        sums, kept = advance(evaluator, rule, t, state, gradient)
        state = (*(yield from refresh_sums(evaluator, fresh, sums)), *kept)
        on_iteration(t)
    return evaluator.total(rule.weights(state))


def train_plain(
    rule: Update,
    gradient: Callable[[Array, float], Array],
    shape: int | tuple[int, ...],
    on_iteration: Callable[[int, Array], None] = lambda t, w: None,
) -> Array:
    """Weights after the last iteration, of this shape, in float64."""
    zero: Array = np.zeros(shape)
    state = rule.start(zero)
    for t in range(rule.rounds):
        move = gradient(rule.point(state), rule.gradient_factor(t))
        state = rule.step(move, state, t)
        on_iteration(t, rule.weights(state, t))
    return rule.weights(state)


class PlainGradient:
    """step * B^-1 (X^T U (p(Xw + o) - y) / N + noise_t), round t at its t-th call; twins' oracle.

    rows: shape (N, d); labels: shape (N,), on [0, 1], or (N, c); noise: shape (rounds, d), summed
    over parties, or (rounds, d, c); link: p; preconditioner: diagonal of B^-1, shape (d,), or 1;
    weight, offset: u and o, shape (N,), or one number. Keeps the largest |Xw + o| seen in
    `largest`.
    """

    def __init__(
        self,
        rows: NDArray[np.float64],
        labels: NDArray[np.float64],
        noise: NDArray[np.float64],
        link: Polynomial | Callable[[NDArray[np.float64]], NDArray[np.float64]],
        preconditioner: NDArray[np.float64] | float = 1.0,
        *,
        weight: NDArray[np.float64] | float = 1.0,
        offset: NDArray[np.float64] | float = 0.0,
    ) -> None:
        self._rows, self._labels, self._noise = rows, labels, noise
        self._slope: Callable[[Array, Array], Array] = lambda z, y: link(z) - y
        self._preconditioner = preconditioner
        like = (-1, *(1,) * (labels.ndim - 1))
        self._weight, self._offset = np.reshape(weight, like), np.reshape(offset, like)
        self._round = 0
        self._weights_in: Callable[[int], Array | float] = lambda t: 1.0
        self.largest = 0.0

    @classmethod
    def of(
        cls,
        plan: RowsPlan,
        rows: Array,
        targets: Array,
        noise: Array,
        sources: Sequence[RandomSource] = (),
        **terms: Any,
    ) -> PlainGradient:
        """Of a plan, on rows and targets that it has encoded.

        sources: of every member, in the plan's order, where rounds take other rows; terms: weight,
        offset.
        """
        inverse = plan.curvature.preconditioner(rows) if plan.curvature else 1.0
        found = cls(rows, targets, noise, plan.link, inverse, **terms)
        found._slope = plan.slope

        def weights_in(t: int) -> Array | float:
            pairs = zip(plan.members, sources, strict=True)
            each = [(m.rows, plan.weights_in(t, m.rows, source)) for m, source in pairs]
            parts = [np.ones(count) if own is None else own for count, own in each]
            return np.concatenate(parts).reshape(-1, *(1,) * (targets.ndim - 1))

        if plan.is_stochastic:
            found._weights_in = weights_in
        return found

    def __call__(self, weights: NDArray[np.float64], step: float) -> NDArray[np.float64]:
        """One scaled noisy gradient, shape (d,)."""
        z = self._rows @ weights + self._offset
        self.largest = max(self.largest, float(np.abs(z).max(initial=0.0)))
        residual = self._weight * self._slope(z, self._labels) * self._weights_in(self._round)
        gradient = self._rows.T @ residual / len(self._rows) + self._noise[self._round]
        self._round += 1
        scaled: Array = step * self._preconditioner * gradient
        return scaled


def refresh_sums(
    evaluator: Evaluator, refresh: Refresh, sums: Sequence[ColumnSum]
) -> Exchange[tuple[EncryptedVector, ...]]:
    """Column sums, made."""
    spread = [vector.spread() for vector in sums]
    deepest = evaluator.context.params.num_towers - REFRESH_TOWERS
    if any(vector.level > deepest for vector in spread):
        raise AssertionError("an update used more levels than its rule declared")
    return (yield from refresh(spread))
