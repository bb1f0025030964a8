"""A party's duties in the encrypted-gradient protocol: one encrypted contribution a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from parties.aggregate_share import AggregateShare
from parties.objectives import Contributor
from protocols import agree, gradients
from protocols.aggregate import setup
from protocols.errors import MessageError, PolicyError
from protocols.gradients import GradientPlan
from protocols.messages import Body
from protocols.privacy.randomness import RandomSource, SystemRandomness


class GradientDuties:
    """Holds the party's secret from `mask-keys` to the last round.

    randomness: of the privacy noise; secret and encryption errors always come from the operating
    system.
    """

    def __init__(
        self,
        plan: GradientPlan,
        name: str,
        contributor: Contributor,
        signing_key: Ed25519PrivateKey,
        randomness: RandomSource,
    ) -> None:
        self._plan = plan
        self._name = name
        self._contributor = contributor
        self._signing_key = signing_key
        self._randomness = randomness
        self._secret: AggregateShare | None = None
        self._drawn: dict[int, NDArray[np.float64]] = {}

    def answer(self, kind: str, index: int, request: Body) -> Body:
        """Reply to one step."""
        if kind == setup.MASK_KEYS:
            self._secret = self._open_secret(request)
            return setup.answer_mask_keys(self._secret)
        if self._secret is None:
            raise PolicyError("no keys are made yet")
        if kind == setup.OPENING_KEY:
            return setup.answer_opening_key(self._secret, request)
        plan = self._plan
        point = gradients.read_point(plan, request, plan.length)
        values = self._contributor.contribution(plan.queries[index], index, point)
        # Once a round: fresh noise on a second request would count as a second release.
        if index not in self._drawn:
            self._drawn = {index: plan.draw_noise(index, self._randomness)}
        noisy = plan.on_grid(index, values) + self._drawn[index]
        return gradients.answer_round(plan, self._secret, index, noisy)

    def erase(self) -> None:
        """Erase the secret, and the noise."""
        self._drawn = {}
        if self._secret:
            self._secret.erase()

    def state(self, seal: Callable[[bytes], bytes]) -> Body:
        """Empty until there is a secret; the secret itself is held in memory only."""
        if self._secret is not None:
            raise PolicyError("the secret of encrypted sums is held in memory only")
        return Body()

    def restore(self, state: Body, unseal: Callable[[bytes], bytes]) -> None:
        """Nothing to restore before the secret is made."""

    def _open_secret(self, request: Body) -> AggregateShare:
        plan, seeds = self._plan, request.meta.get("seeds")
        if not isinstance(seeds, dict):
            raise MessageError("the step `mask-keys` hands out no seeds")
        held: Any = {member.name: member.verify_key for member in plan.members}
        return AggregateShare(
            plan.cipher,
            name=self._name,
            roster=held,
            session=plan.session,
            seed=agree.joint_seed(plan, seeds),
            signing_key=self._signing_key,
            randomness=SystemRandomness(),
        )
