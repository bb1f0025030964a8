"""Epsilon of all rounds composed, as if each were opened on its own.

    mu_total = sqrt(sum_t (Delta_t / sigma_t)^2), sigma_t what k colluders leave of the noise

(Dong, Roth, Su, arXiv:1905.02383, Corollary 3.3). Nothing is claimed for what is hidden: neither
rounds that stay encrypted nor secret coins. It is never below what a ledger books of the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss import epsilon_for_mu
from protocols.privacy.loss.accounting import GaussianEvent


def composed(
    events: Sequence[GaussianEvent], split: NoiseSplit, *, delta: float, paid_mu: float = 0.0
) -> tuple[float, ...]:
    """Of Gaussian releases, against k = 0 … P - 1 colluders who subtract their own noise.

    events: of the rounds that show a row, noise multipliers against t colluders; paid_mu: of a run
    before on the same rows.
    """
    total = math.sqrt(math.fsum(each.mu**2 for each in events) + paid_mu**2)
    return tuple(
        epsilon_for_mu(mu=total / split.seen_std(1.0, k), delta=delta) for k in range(split.parties)
    )
