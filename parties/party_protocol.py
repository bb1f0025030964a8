"""One party's state in a protocol, from the agreement to `finish`; the steps answer for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.data.shard import Shard
from protocols.messages import Body
from protocols.plan import RunPlan
from protocols.privacy.randomness import RandomSource
from protocols.protocol import Request
from protocols.registry import protocol_of

if TYPE_CHECKING:
    from parties.objectives import OpenContributor

# Encrypts what is secret, or decrypts it.
Seal = Callable[[bytes], bytes]


class PartyProtocol(ABC):
    """What the party halves of a protocol's steps work on."""

    def __init__(self, plan: RunPlan, name: str) -> None:
        self.plan, self.name = plan, name

    @classmethod
    @abstractmethod
    def open(
        cls,
        plan: Any,
        name: str,
        shard: Shard,
        randomness: RandomSource,
        signing_key: Ed25519PrivateKey,
        open_contributor: OpenContributor | None = None,
    ) -> PartyProtocol:
        """The state of the party `name` in a run of this plan.

        shard: its rows; randomness: of the privacy noise; open_contributor: what it adds to sums,
        by default gradients of the plan's objective.
        """
        ...

    def answer(self, step: str, request: Body) -> Body:
        """Reply to a step; the caller has checked that it is this step's turn."""
        found, asked = protocol_of(self.plan).step(step), Request.of(step, request)
        if asked.kind != found.name:
            self.stand_in(request)
        return found.answer(self, asked)

    @abstractmethod
    def stand_in(self, request: Body) -> None:
        """Answer from now on for missing parties as well."""
        ...

    @abstractmethod
    def erase(self) -> None:
        """Forget every secret."""
        ...

    @abstractmethod
    def state(self, seal: Seal) -> Body:
        """For `restore` in another process.

        Raises:
            PolicyError: the secret is held in memory only.
        """
        ...

    @abstractmethod
    def restore(self, state: Body, unseal: Seal) -> None:
        """Go on where `state` was taken."""
        ...
