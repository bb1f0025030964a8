"""A client's update with clipping and noise, and what it has spent.

Accounting is the client's own and counts the rounds in which it takes part, whoever chose them.
Without coins: k rounds of a sum that one client moves by at most 2 C, noise of std z C, are exactly
mu-Gaussian-DP with mu = 2 sqrt(k) / z. With secret coins: `privacy.loss.poisson`. The noise is
discrete, of 2^20 units and more a share: what that costs stands beside delta (`laws.grid`).
The encryption's own noise counts for nothing.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ciphercohort.flower.memory import LEDGER, Owner
from ciphercohort.flower.plan import NOISE_SHARE, Privacy
from ciphercohort.flower.records import Bases, Reply, differences
from protocols.aggregate.quorum import Quorum
from protocols.errors import PrivacyError
from protocols.privacy.laws import RandomSource
from protocols.privacy.laws.grid import discretisation_delta
from protocols.privacy.laws.rational import discrete_gaussian
from protocols.privacy.loss import epsilon_for_mu
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.privacy.loss.ledger import Ledger
from protocols.privacy.loss.poisson import poisson_epsilon

DATASET = "client"


def noisy_words(
    privacy: Privacy, quorum: Quorum, reply: Reply, bases: Bases, randomness: RandomSource
) -> NDArray[np.int32]:
    """Integers of norm at most clip * units, with this client's noise, shape (length,).

    Scaled by min(1, clip / norm) and cut towards zero, so that rounding adds nothing to the norm. A
    client whose coin says no adds noise alone, and so does one whose update is not finite: to
    refuse would tell of it.
    """
    units, std = privacy.units(quorum), privacy.share_units(quorum)
    try:
        norm = math.sqrt(math.fsum(float(block @ block) for _, block in differences(reply, bases)))
    except OverflowError:
        norm = math.inf
    joins = float(randomness.words(1)[0]) < privacy.sampling * 2.0**64
    # The product with the norm may not exceed the clip: a sum of n squares in float64 is off by n
    # roundings of 2^-53 at most, whatever their order.
    room = 1 - (reply.layout.length + 16) * 2.0**-52
    finite = math.isfinite(norm)
    factor = joins * min(room, privacy.clip / norm * room if norm and finite else room) * units
    words = np.empty(reply.layout.length, np.int32)
    for start, block in differences(reply, bases):
        noise = discrete_gaussian(std, len(block), randomness)
        # Beyond 32 bits the sum wraps around, which is no matter of privacy.
        own = np.trunc(block * factor) if finite else np.zeros(len(block))
        cut = own.astype(np.int64) + noise
        words[start : start + len(block)] = cut.astype(np.uint32).view(np.int32)
    return words


class Account:
    """What the rounds of one run have cost a client, so far.

    spent: {"plan": fields of the `Privacy` that was checked, "rounds": …, "beside": delta that the
    grid has cost}, kept in its memory.
    """

    def __init__(self, spent: dict[str, Any]) -> None:
        self.spent = spent

    @property
    def rounds(self) -> int:
        """In which it took part."""
        return int(self.spent.get("rounds", 0))

    @property
    def epsilon(self) -> float:
        """Of the rounds so far, at the plan's delta."""
        return epsilon_of(Privacy(**self.spent["plan"]), self.rounds) if self.rounds else 0.0

    def charge(
        self, privacy: Privacy, quorum: Quorum, values: int, owner: Owner, identifier: str
    ) -> None:
        """Count one round more, before anything leaves the client.

        Raises:
            PrivacyError: the plan's epsilon is not that of its noise, its rounds are over, it is
                not that of earlier rounds, or the owner's budget is.
        """
        plan = asdict(privacy)
        if self.spent.get("plan", plan) != plan:
            raise PrivacyError("the plan's privacy differs from that of this run's earlier rounds")
        if self.rounds >= privacy.rounds:
            raise PrivacyError(f"all rounds={privacy.rounds} of the plan are spent: no further one")
        first = "plan" not in self.spent
        # With coins a figure takes half a second: all rounds, once.
        if first or privacy.sampling == 1:
            epsilon = epsilon_of(privacy, privacy.rounds if first else self.rounds + 1)
            if epsilon > privacy.epsilon * (1 + 1e-6):
                raise PrivacyError(
                    f"noise_multiplier={privacy.noise_multiplier:.6g} over {privacy.rounds} rounds "
                    f"gives epsilon={epsilon:.6g} at delta={privacy.delta:.3g}, not "
                    f"{privacy.epsilon:.6g}: take Privacy.for_rounds"
                )

        def grid_at(epsilon: float) -> float:
            units = privacy.share_units(quorum)
            return discretisation_delta(units=units, shares=1, values=values, epsilon=epsilon)

        grid = grid_at(privacy.epsilon)
        beside = self.spent.get("beside", 0.0) + grid
        if beside > (1 - NOISE_SHARE) * privacy.delta:
            raise PrivacyError(
                f"the grid of the noise costs delta={beside:.3g}, more than the part of "
                f"{privacy.delta:.3g} that is kept for it: take a larger delta or fewer rounds"
            )
        # Grows with epsilon, and the ledger's is its budget.
        largest = grid_at(max(privacy.epsilon, owner.epsilon or 0.0))
        self._reserve(privacy, largest, owner, identifier)
        self.spent.update(plan=plan, rounds=self.rounds + 1, beside=beside)

    @staticmethod
    def _reserve(privacy: Privacy, grid: float, owner: Owner, identifier: str) -> None:
        """In the owner's ledger, as if without coins: amplified rounds do not add up there."""
        if owner.epsilon is None or owner.delta is None or owner.home is None:
            return
        ledger = Ledger(path=owner.home / LEDGER, epsilon=owner.epsilon, delta=owner.delta)
        event = GaussianEvent(noise_multiplier=privacy.noise_multiplier / 2)
        ledger.reserve(DATASET, [event], additive_delta=grid, identifier=identifier)
        ledger.commit(identifier)


def epsilon_of(privacy: Privacy, rounds: int) -> float:
    """Of so many rounds, at the noise's share of delta; rounded up."""
    multiplier, delta = privacy.noise_multiplier, NOISE_SHARE * privacy.delta
    if privacy.sampling == 1:
        return epsilon_for_mu(mu=2 * math.sqrt(rounds) / multiplier, delta=delta)
    return poisson_epsilon(
        noise_multiplier=multiplier, rate=privacy.sampling, rounds=rounds, delta=delta
    )
