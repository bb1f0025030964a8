"""What a party does once it has agreed to a plan: one class per protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.circuit_duties import CircuitDuties
from parties.data.shard import Shard
from parties.gradient_duties import GradientDuties
from parties.objectives import OpenContributor
from protocols.circuit_plan import CircuitPlan
from protocols.errors import PolicyError
from protocols.gradients import GradientPlan
from protocols.messages import Body
from protocols.plan import RunPlan
from protocols.privacy.randomness import RandomSource

# Encrypts what is secret, or decrypts it.
Seal = Callable[[bytes], bytes]


class Duties(Protocol):
    """Answers of the steps between the agreement and `finish`."""

    def answer(self, kind: str, index: int, request: Body) -> Body:
        """Reply to the step kind/index; the caller has checked that it is this step's turn."""
        ...

    def erase(self) -> None:
        """Forget every secret."""
        ...

    def state(self, seal: Seal) -> Body:
        """For `restore` in another process.

        Raises:
            PolicyError: the secret is held in memory only.
        """
        ...

    def restore(self, state: Body, unseal: Seal) -> None:
        """Go on where `state` was taken."""
        ...


def open_duties(
    plan: RunPlan,
    name: str,
    shard: Shard,
    randomness: RandomSource,
    signing_key: Ed25519PrivateKey,
    open_contributor: OpenContributor,
) -> Duties:
    """The duties that a plan asks of the party `name`."""
    if isinstance(plan, GradientPlan):
        contributor = open_contributor(plan, name, shard, randomness)
        return GradientDuties(plan, name, contributor, signing_key, randomness)
    if isinstance(plan, CircuitPlan) and isinstance(shard, Shard):
        return CircuitDuties(plan, name, shard, randomness, signing_key)
    raise PolicyError(f"protocol={plan.protocol!r} does not fit this party's rows")
