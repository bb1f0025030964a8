"""A party of the protocol `secure-aggregation`: its secret, and one encrypted sum a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from parties.data.shard import Shard
from parties.kernel.aggregate_share import AggregateShare
from parties.kernel.private import kept_like
from parties.kernel.sums.integer_sums import Exact
from parties.objectives import Contributor, OpenContributor
from parties.objectives import open_contributor as gradients_of_rows
from parties.party_protocol import PartyProtocol, Seal
from protocols import agree, gradients, second_moment
from protocols.errors import PolicyError
from protocols.gradients import GradientPlan
from protocols.messages import Body
from protocols.objectives import MomentObjective
from protocols.privacy.randomness import RandomSource, SystemRandomness


class SecureAggregationParty(PartyProtocol):
    """Holds the secret from `mask-keys` to the last round: a `protocols.aggregate.setup.SumsHalf`.

    contributor: computes what this party adds to a sum; randomness: of the privacy noise. Secret
    and encryption errors always come from the operating system.
    """

    plan: GradientPlan

    def __init__(
        self,
        plan: GradientPlan,
        name: str,
        contributor: Contributor,
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
    ) -> None:
        super().__init__(plan, name, signing_key)
        self._contributor, self._signing_key = contributor, signing_key
        self._randomness = randomness
        self.secret: Any = None
        self._drawn: dict[int, NDArray[np.float64]] = {}
        self._remark: Mapping[str, str] = {}

    @classmethod
    def open(
        cls,
        plan: GradientPlan,
        name: str,
        shard: Shard,
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
        open_contributor: OpenContributor | None = None,
    ) -> SecureAggregationParty:
        """With what this party adds to sums."""
        opened = open_contributor or gradients_of_rows
        randomness = plan.randomness(randomness)
        contributor = kept_like(shard, opened(plan, name, shard, randomness))
        half = cls(plan, name, contributor, randomness, signing_key)
        if isinstance(plan.task, MomentObjective):
            sealed = second_moment.seal(signing_key, plan.digest(), shard.fingerprint())
            half._remark = {second_moment.SEAL: sealed}
        return half

    def begin(self, seeds: Mapping[str, str]) -> None:
        """Make the secret; seeds: everybody's."""
        plan = self.plan
        self.secret = AggregateShare(
            plan.cipher,
            name=self.name,
            roster=plan.roster,
            session=plan.session,
            seed=agree.joint_seed(plan, seeds),
            signing_key=self._signing_key,
            randomness=SystemRandomness(),
        )

    def noisy(self, t: int, request: Body) -> Exact:
        """What this party adds to the sum of round t, noise included, shape (length,)."""
        plan = self.plan
        point = gradients.read_point(plan, request, plan.length)
        exact = self._contributor.exact(plan.queries[t], t, point)
        # Once a round: fresh noise on a second request would count as a second release.
        if t not in self._drawn:
            self._drawn = {t: plan.draw_noise(t, self._randomness)}
        return plan.noisy(t, exact, self._drawn[t])

    def remark(self) -> Mapping[str, str]:
        """A seal of the rows, where a later run speaks of them."""
        return self._remark

    def stand_in(self, request: Body) -> Callable[[], None]:
        """Nobody can."""
        raise PolicyError("the plan has no cover: nobody can be covered for")

    def erase(self) -> None:
        """Erase the secret, and the noise."""
        self._drawn = {}
        if self.secret:
            self.secret.erase()

    def state(self, seal: Seal) -> Body:
        """Empty until there is a secret; the secret itself is held in memory only."""
        if self.secret is not None:
            raise PolicyError("the secret of secure aggregation is held in memory only")
        return Body()

    def restore(self, state: Body, unseal: Seal) -> None:
        """Nothing to restore before the secret is made."""
