"""One owner's steps of dual coordinate descent; `protocols.updates.coordinate` has the proof."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from parties.kernel.integers.exact import Exact
from parties.kernel.integers.integer_rows import IntegerRows
from parties.kernel.sums.dual_steps import STEPS, Loss, dual_step, targets_of
from parties.kernel.sums.integer_sums import Factors, overflows, scores
from parties.kernel.sums.row_function import Contributor, Own, RowFunction
from protocols.errors import DataError, ParameterError, ProtocolError
from protocols.privacy.laws import RandomSource, uniform_below

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Schedule = Literal["cyclic", "poisson"]
DUAL = "dual"
_UNIT = 1.0 + 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class DualSteps(RowFunction):
    """Public parameters of a run: a row adds zeta x / row_scale, |zeta x| / row_scale <= clip.

    Attributes:
        loss: "ridge", "logistic" or "svm".
        lam: lambda of (lambda / 2) |theta|^2, > 0.
        rows: N, all owners' rows together.
        batches: K, 1 .. N: a round draws one row in K.
        rounds: T >= 1.
        clip: C > 0, the bound of |zeta| |x|; infinity only without noise.
        schedule: "cyclic" or "poisson".
        norm: of the clip, 2 for Gaussian and 1 for Laplace noise.
        row_scale: rows are divided by it, so that their norm is at most 1.

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    kind = DUAL

    loss: Loss
    lam: float
    rows: int
    batches: int
    rounds: int
    clip: float
    schedule: Schedule = "poisson"
    norm: int = 2
    row_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.loss not in STEPS:
            raise ParameterError(f"loss={self.loss!r} is not one of {', '.join(STEPS)}")
        if self.schedule not in ("cyclic", "poisson"):
            raise ParameterError(f"schedule={self.schedule!r} is neither 'cyclic' nor 'poisson'")
        if not (math.isfinite(self.lam) and self.lam > 0):
            raise ParameterError(f"lam={self.lam} is not a finite number > 0")
        if not self.clip > 0:
            raise ParameterError(f"clip={self.clip} is not > 0")
        if not 0 < self.row_scale < math.inf:
            raise ParameterError(f"row_scale={self.row_scale} must be finite and positive")
        if self.norm not in (1, 2):
            raise ParameterError(f"norm={self.norm} is neither 1 nor 2")
        if self.rounds < 1 or not 1 <= self.batches <= self.rows:
            raise ParameterError(
                f"rounds={self.rounds}, batches={self.batches}: need rounds >= 1 and batches in "
                f"1 .. rows={self.rows}"
            )

    @property
    def curvature(self) -> float:
        """c = L / (lambda N), with L = ceil(N / K) rows per round."""
        return math.ceil(self.rows / self.batches) / (self.lam * self.rows)

    @property
    def public_batches(self) -> int:  # type: ignore[override]
        """K of batches that everybody knows; 1 where coins are secret."""
        return self.batches if self.schedule == "cyclic" else 1

    @property
    def coins(self) -> bool:  # type: ignore[override]
        """Whether rows toss for rounds."""
        return self.schedule == "poisson" and self.batches > 1

    def length(self, features: int) -> int:
        """Of v."""
        return features

    def most(self, query: str) -> float:
        """C."""
        return self.clip

    def longest(self) -> float:
        """What rows are divided by."""
        return self.row_scale

    def theta(self, v: Array) -> Array:
        """The model v / (lambda N), shape (d,)."""
        model: Array = v / (self.lam * self.rows)
        return model

    def of(self, rows: Any, own: Own) -> Contributor:
        """Rows of one label or target."""
        x, y = rows.x / self.row_scale, targets_of(self.loss, rows.y)
        return DualOwner(replace(self, norm=own.norm), x, y, own.randomness)


def cyclic_batch(rows: int, batches: int, t: int) -> Rows:
    """Numbers of one owner's rows in round t, public: part t mod K of K nearly equal parts."""
    batch: Rows = np.array_split(np.arange(rows), batches)[t % batches]
    return batch


class DualOwner(Contributor):
    """One owner: its rows, its dual variables and its coins.

    plan: public parameters; rows: x, shape (n, d), |x_j| <= 1; labels: y, shape (n,), -1 or 1
    unless the loss is ridge; randomness: of coins. The promise needs `SystemRandomness`.

    Security: one answer per round, in order. A retry resends the bytes of the first.

    Raises:
        DataError: a row is longer than 1, or a label does not fit the loss.
    """

    def __init__(
        self, plan: DualSteps, rows: Array, labels: Array, randomness: RandomSource
    ) -> None:
        """Start at alpha = 0."""
        check_rows(plan, rows, labels)
        self._plan, self._labels, self._randomness = plan, labels, randomness
        self._rows = IntegerRows(rows, _UNIT, plan.norm)
        self._alpha: Array = np.zeros(len(rows))
        self._round = 0

    def exact(self, query: str, t: int, point: Array) -> Exact:
        """Move the batch of round t = 0, 1, ... in order and answer X_B^T zeta, shape (d,).

        point: v as published after the round before, shape (d,).

        Raises:
            ProtocolError: not the next round, or v is not d finite numbers.
        """
        if t != self._round or t >= self._plan.rounds:
            raise ProtocolError(
                f"round={t} is not the next, {self._round} of {self._plan.rounds}: resend the "
                "first answer's bytes"
            )
        if point.shape != (self._rows.x.shape[1],) or not np.isfinite(point).all():
            raise ProtocolError(f"v is not {self._rows.x.shape[1]} finite numbers")
        self._round += 1
        batch = self._batch(t)
        own = self._rows.only(batch)
        return step(self._plan, own, self._labels, self._alpha, point, batch)

    def _batch(self, t: int) -> Rows:
        count = len(self._rows.x)
        if self._plan.schedule == "cyclic":
            return cyclic_batch(count, self._plan.batches, t)
        return np.flatnonzero(uniform_below(self._randomness, self._plan.batches, count) == 0)


@overflows
def step(
    plan: DualSteps, own: IntegerRows, labels: Array, alpha: Array, v: Array, batch: Rows
) -> Exact:
    """Move alpha[batch] in place; X_B^T zeta, shape (d,); own: the batch's rows."""
    zeta = dual_step(
        plan.loss,
        alpha=alpha[batch],
        margin=scores(own, plan.theta(v)[:, None])[:, 0],
        label=labels[batch],
        curvature=plan.curvature,
        clip=plan.clip / np.maximum(1.0, own.lengths * 2.0**-own.bits),
    )
    alpha[batch] += zeta
    if not math.isfinite(plan.clip):  # without noise
        return Exact.of((zeta @ own.x) * 2.0**-own.bits)
    return Factors(own, Fraction(plan.clip), plan.norm).total(lambda some: zeta[some, None])


def check_rows(plan: DualSteps, rows: Array, labels: Array) -> None:
    """Refuse rows longer than 1 and labels that do not fit the loss."""
    if rows.ndim != 2 or labels.shape != (len(rows),):
        raise DataError(f"rows of shape {rows.shape} and labels of {labels.shape} do not match")
    norms = np.linalg.norm(rows, axis=1)
    longer = int((~(norms <= _UNIT)).sum())
    if longer:
        raise DataError(f"{longer} of {len(rows)} rows are longer than 1: scale each to norm 1")
    fits = np.isfinite(labels) if plan.loss == "ridge" else np.isin(labels, (-1.0, 1.0))
    if not fits.all():
        kind = "finite" if plan.loss == "ridge" else "-1 or 1"
        raise DataError(f"{int((~fits).sum())} of {len(rows)} labels are not {kind}")
