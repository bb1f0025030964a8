r"""Differentially private dual coordinate descent among P owners (arXiv:2006.07272, Algorithm 1).

A round: the coordinator publishes v; every owner moves the dual variables alpha of the rows of its
batch and answers delta_v = X_B^T zeta + its share of the noise; the coordinator adds the answers'
sum to v. In the federation the answers travel encrypted and only their sum is decrypted. The model
is theta = v / (lambda N). alpha never leaves its owner and carries no noise.

Privacy, replace-one, for the release of v after every round
-----------------------------------------------------------
zeta_j is a function of row j, its own alpha_j and the published v, with |zeta_j| <= C and
|x_j| <= 1, whatever v is. So is alpha_j's whole past. Hence, given all published v and which
rounds drew which rows, replacing row k leaves every other row's zeta as it is, and moves delta_v by
zeta_k x_k - zeta'_k x'_k, of norm at most **2 C**, in the rounds that draw k, and by nothing in the
others. (The source paper releases alpha as well and omits a row instead: sqrt(2) C there, and
2 sqrt(2) C for replace-one.) 2 C is reached: the same x, labels far apart, zeta = C and -C.

Laplace noise needs that bound in L1, where a row of L2 norm 1 may measure sqrt(d). So zeta_j is
clipped to C / max(1, |x_j|) in the norm of the run's mechanism: a row's step of v is at most C
there, and for L2 nothing changes.

Two ways to draw the batches have a proof:

* "cyclic": rows are dealt into K fixed batches by position, and round t takes batch t mod K. This
  is public; which row has which place is not: owners shuffle them first (`parties.kernel.order`),
  for an order that follows from the rows would let one of them move all others. A row is drawn in
  at most ceil(T / K) rounds and nothing of it shows in the others, so adaptive composition gives
  exactly mu = sqrt(ceil(T / K)) 2 C / sigma (Gaussian DP, Dong, Roth, Su, arXiv:1905.02383). No
  amplification by the secret order is claimed.
* "poisson": every row joins by a coin of its own, with probability 1 / K, which its owner tosses
  from a private source and tells nobody. Amplification then holds against the coordinator and all
  other owners, hidden alpha notwithstanding: `protocols.privacy.poisson` has the proof. It needs
  that neither an owner's answer by itself nor the batch's size is seen, hence the encrypted sum,
  and L in the step is the expected size N / K, not the drawn one.

Batches of fixed size drawn in secret without replacement, as in the paper, have no such proof: the
other rows' hidden alpha then depend on whether k was drawn. They are not offered. `paper_std` is
the paper's own figure, for comparison only.

Answers are rounded to the noise grid, which moves them by at most sqrt(d) units more; `noise_std`
pays for it, and for the difference of discrete and continuous noise (`protocols.privacy.grid`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import dp_accounting
import numpy as np
from numpy.typing import NDArray

from parties.kernel.sums.dual_steps import STEPS, Loss, dual_step
from parties.kernel.sums.integer_sums import Exact, Factors, IntegerRows
from protocols.errors import DataError, ParameterError, ProtocolError
from protocols.privacy.gdp import mu_for_epsilon
from protocols.privacy.grid import FINENESS_BITS, NoiseGrid, discretisation_delta
from protocols.privacy.poisson import poisson_noise_multiplier
from protocols.privacy.randomness import RandomSource, uniform_below
from protocols.privacy.shares import NoiseSplit, gaussian_shares

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Schedule = Literal["cyclic", "poisson"]

_UNIT = 1.0 + 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class DualPlan:
    """Public parameters of a run.

    Attributes:
        loss: "ridge", "logistic" or "svm".
        lam: lambda of (lambda / 2) |theta|^2, > 0.
        rows: N, all owners' rows together.
        batches: K, 1 .. N: a round draws one row in K.
        rounds: T >= 1.
        clip: C > 0, the bound of |zeta| |x|; infinity only without noise.
        schedule: "cyclic" or "poisson"; see the module's docstring.
        norm: of the clip, 2 for Gaussian and 1 for Laplace noise.

    Raises:
        ParameterError: a field is out of range; the message names it.
    """

    loss: Loss
    lam: float
    rows: int
    batches: int
    rounds: int
    clip: float
    schedule: Schedule = "poisson"
    norm: int = 2

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.loss not in STEPS:
            raise ParameterError(f"loss={self.loss!r} is not one of {', '.join(STEPS)}")
        if self.schedule not in ("cyclic", "poisson"):
            raise ParameterError(f"schedule={self.schedule!r} is neither 'cyclic' nor 'poisson'")
        if not (math.isfinite(self.lam) and self.lam > 0):
            raise ParameterError(f"lam={self.lam} is not a finite number > 0")
        if not self.clip > 0:
            raise ParameterError(f"clip={self.clip} is not > 0")
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
    def sensitivity(self) -> float:
        """2 C: how far one replaced row moves the sum of a round that draws it, in `norm`."""
        return 2.0 * self.clip

    @property
    def draws(self) -> int:
        """ceil(T / K): rounds that draw any one row under the cyclic schedule."""
        return -(-self.rounds // self.batches)

    def theta(self, v: Array) -> Array:
        """The model v / (lambda N), shape (d,)."""
        model: Array = v / (self.lam * self.rows)
        return model

    def noise_multiplier(self, *, epsilon: float, delta: float) -> float:
        """sigma / C for (epsilon, delta), replace-one, after all rounds."""
        if self.schedule == "cyclic":
            return 2.0 * math.sqrt(self.draws) / mu_for_epsilon(epsilon=epsilon, delta=delta)
        rate = 1.0 / self.batches
        return poisson_noise_multiplier(epsilon=epsilon, delta=delta, rate=rate, rounds=self.rounds)

    def noise_std(self, *, epsilon: float, delta: float, dim: int) -> float:
        """sigma that must remain on every round's sum; pays for the grid, see above.

        With u <= sigma 2^-30 a grid unit, C grows to C + sqrt(d) u: sigma = z (C + sqrt(d) u).
        """
        grid_delta = discretisation_delta(
            units=2.0**FINENESS_BITS, shares=1, values=self.rounds * dim, epsilon=epsilon
        )
        z = self.noise_multiplier(epsilon=epsilon, delta=delta - grid_delta)
        return z * self.clip / (1.0 - z * math.sqrt(dim) * 2.0**-FINENESS_BITS)

    def paper_std(self, *, epsilon: float, delta: float) -> float:
        """The paper's std, sqrt(2) C times the moments accountant's multiplier: NOT proved here.

        It omits a row instead of replacing it, and takes fixed-size batches for Poisson ones
        (Lemma 1 and Theorem 1). For comparison; no run may claim epsilon by it.
        """
        event = dp_accounting.SelfComposedDpEvent
        z = dp_accounting.calibrate_dp_mechanism(
            dp_accounting.rdp.RdpAccountant,
            lambda z: event(
                dp_accounting.PoissonSampledDpEvent(
                    1.0 / self.batches, dp_accounting.GaussianDpEvent(z)
                ),
                self.rounds,
            ),
            epsilon,
            delta,
        )
        return math.sqrt(2.0) * self.clip * float(z)


def cyclic_batch(rows: int, batches: int, t: int) -> Rows:
    """Numbers of one owner's rows in round t, public: part t mod K of K nearly equal parts."""
    batch: Rows = np.array_split(np.arange(rows), batches)[t % batches]
    return batch


class DualParty:
    """One owner: its rows, its dual variables, its coins and its share of the noise.

    Args:
        plan: public parameters.
        rows: x, shape (n, d), |x_j| <= 1.
        labels: y, shape (n,); -1 or 1 unless the loss is ridge.
        sigma: std that must remain on a round's sum without any t owners, from `plan.noise_std`;
            0 for no noise and no grid.
        split: P and t.
        randomness: of coins and noise. The promise needs `SystemRandomness`.

    Security: one answer per round, in order; a second one would carry fresh noise on the same
    values. A retry resends the bytes of the first.

    Raises:
        DataError: a row is longer than 1, or a label does not fit the loss.
    """

    def __init__(
        self,
        plan: DualPlan,
        rows: Array,
        labels: Array,
        *,
        sigma: float,
        split: NoiseSplit,
        randomness: RandomSource,
    ) -> None:
        """Start at alpha = 0."""
        check_rows(plan, rows, labels)
        if sigma > 0 and not math.isfinite(plan.clip):
            raise ParameterError("clip=inf with noise protects nobody: give a finite clip")
        if sigma > 0 and plan.norm != 2:
            raise ParameterError(f"norm={plan.norm}: Gaussian noise needs clips in L2")
        self._plan, self._labels = plan, labels
        self._rows = IntegerRows(rows, _UNIT, plan.norm)
        self._sigma, self._split, self._randomness = sigma, split, randomness
        self._grid: NoiseGrid = split.grid(sigma)
        self._alpha: Array = np.zeros(len(rows))
        self._round = 0

    def contribution(self, t: int, v: Array) -> Array:
        """`exact`, and this owner's share of the noise where there is a sigma, as float64."""
        exact = self.exact(t, v)
        if self._sigma == 0:
            return exact.values
        noise = gaussian_shares(self._sigma, self._split, 1, v.size, self._randomness, self._grid)
        bits = self._grid.granularity_bits
        units = np.ldexp(noise[0], bits).astype(np.int64)
        return Exact(exact.on(bits) + units, bits).values

    def exact(self, t: int, v: Array) -> Exact:
        """Move the batch of round t and answer X_B^T zeta, shape (d,).

        Args:
            t: 0, 1, … in order.
            v: as published after the round before, shape (d,).

        Raises:
            ProtocolError: not the next round, or v is not d finite numbers.
        """
        if t != self._round or t >= self._plan.rounds:
            raise ProtocolError(
                f"round={t} is not the next, {self._round} of {self._plan.rounds}: resend the "
                "first answer's bytes"
            )
        if v.shape != (self._rows.x.shape[1],) or not np.isfinite(v).all():
            raise ProtocolError(f"v is not {self._rows.x.shape[1]} finite numbers")
        self._round += 1
        batch = self._batch(t)
        own = self._rows.only(batch)
        return step(self._plan, own, self._labels, self._alpha, v, batch)

    def _batch(self, t: int) -> Rows:
        count = len(self._rows.x)
        if self._plan.schedule == "cyclic":
            return cyclic_batch(count, self._plan.batches, t)
        return np.flatnonzero(uniform_below(self._randomness, self._plan.batches, count) == 0)


def move(plan: DualPlan, rows: Array, labels: Array, alpha: Array, v: Array, batch: Rows) -> Array:
    """Move alpha[batch] in place; X_B^T zeta, shape (d,)."""
    own = IntegerRows(rows[batch], _UNIT, plan.norm)
    return step(plan, own, labels, alpha, v, batch).values


def step(
    plan: DualPlan, own: IntegerRows, labels: Array, alpha: Array, v: Array, batch: Rows
) -> Exact:
    """The same, of the batch's rows as integers, to integers."""
    zeta = dual_step(
        plan.loss,
        alpha=alpha[batch],
        margin=own.scores(plan.theta(v)[:, None])[:, 0],
        label=labels[batch],
        curvature=plan.curvature,
        clip=plan.clip / np.maximum(1.0, own.lengths * 2.0**-own.bits),
    )
    alpha[batch] += zeta
    if not math.isfinite(plan.clip):  # without noise
        return Exact.of((zeta @ own.x) * 2.0**-own.bits)
    return Factors(own, Fraction(plan.clip), plan.norm).total(lambda some: zeta[some, None])


def check_rows(plan: DualPlan, rows: Array, labels: Array) -> None:
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
