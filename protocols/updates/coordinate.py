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
  is public; which row has which place is not: owners shuffle them first (`parties.kernel.private`),
  for an order that follows from the rows would let one of them move all others. A row is drawn in
  at most ceil(T / K) rounds and nothing of it shows in the others, so adaptive composition gives
  exactly mu = sqrt(ceil(T / K)) 2 C / sigma (Gaussian DP, Dong, Roth, Su, arXiv:1905.02383). No
  amplification by the secret order is claimed.
* "poisson": every row joins by a coin of its own, with probability 1 / K, which its owner tosses
  from a private source and tells nobody. Amplification then holds against the coordinator and all
  other owners, hidden alpha notwithstanding: `privacy.loss.poisson` has the proof. It needs
  that neither an owner's answer by itself nor the batch's size is seen, hence the encrypted sum,
  and L in the step is the expected size N / K, not the drawn one.

Batches of fixed size drawn in secret without replacement, as in the paper, have no such proof: the
other rows' hidden alpha then depend on whether k was drawn. They are not offered. `paper_std` is
the paper's own figure, for comparison only.

Answers are rounded to the noise grid, which moves them by at most sqrt(d) units more; `noise_std`
pays for it, and for the difference of discrete and continuous noise (`privacy.laws.grid`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import dp_accounting
import numpy as np

from parties.kernel.integers.exact import Exact
from parties.kernel.integers.integer_rows import IntegerRows
from parties.kernel.sums.dual import (
    Array,
    DualOwner,
    DualSteps,
    Rows,
    Schedule,
    check_rows,
    cyclic_batch,
    step,
)
from parties.kernel.sums.dual_steps import Loss
from protocols.errors import ParameterError
from protocols.privacy.laws import RandomSource
from protocols.privacy.laws.grid import FINENESS_BITS, NoiseGrid, discretisation_delta
from protocols.privacy.laws.shares import NoiseSplit, gaussian_shares
from protocols.privacy.loss import mu_for_epsilon
from protocols.privacy.loss.poisson import poisson_noise_multiplier

__all__ = [
    "DualParty", "DualPlan", "DualSteps", "Loss", "Rows", "Schedule", "check_rows",
    "cyclic_batch", "move", "step",
]  # fmt: skip
_UNIT = 1.0 + 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class DualPlan(DualSteps):
    """The same parameters, and the noise that they need."""

    @property
    def sensitivity(self) -> float:
        """2 C: how far one replaced row moves the sum of a round that draws it, in `norm`."""
        return 2.0 * self.clip

    @property
    def draws(self) -> int:
        """ceil(T / K): rounds that draw any one row under the cyclic schedule."""
        return -(-self.rounds // self.batches)

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


class DualParty(DualOwner):
    """One owner, and its share of the noise.

    plan, rows, labels: see `DualOwner`; sigma: std that must remain on a round's sum without any t
    owners, from `DualPlan.noise_std`, 0 for no noise and no grid; split: P and t; randomness: of
    coins and noise.
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
        super().__init__(plan, rows, labels, randomness)
        if sigma > 0 and not math.isfinite(plan.clip):
            raise ParameterError("clip=inf with noise protects nobody: give a finite clip")
        if sigma > 0 and plan.norm != 2:
            raise ParameterError(f"norm={plan.norm}: Gaussian noise needs clips in L2")
        self._sigma, self._split = sigma, split
        self._grid: NoiseGrid = split.grid(sigma)

    def answer(self, t: int, v: Array) -> Array:
        """`exact`, and this owner's share of the noise where there is a sigma, as float64."""
        exact = self.exact("", t, v)
        if self._sigma == 0:
            return exact.values
        noise = gaussian_shares(self._sigma, self._split, 1, v.size, self._randomness, self._grid)
        bits = self._grid.granularity_bits
        units = np.ldexp(noise[0], bits).astype(np.int64)
        return Exact(exact.on(bits) + units, bits).values


def move(plan: DualPlan, rows: Array, labels: Array, alpha: Array, v: Array, batch: Rows) -> Array:
    """Move alpha[batch] in place; X_B^T zeta, shape (d,)."""
    own = IntegerRows(rows[batch], _UNIT, plan.norm)
    return step(plan, own, labels, alpha, v, batch).values
