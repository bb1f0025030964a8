"""One party's state in a protocol, from the agreement to `finish`; the steps answer for it."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.kernel.run import Run
from protocols.exchange.messages import Body
from protocols.names import ENCRYPTED_MODEL, ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.plan.run_plan import RunPlan
from protocols.steps.rounds import Rounds

if TYPE_CHECKING:
    from parties.reader.shard import Shard
    from parties.verifier.objectives import OpenContributor

_HALVES: Mapping[str, str] = {
    ENCRYPTED_ROWS: "parties.verifier.encrypted_rows:EncryptedRowsParty",
    ENCRYPTED_MODEL: "parties.verifier.encrypted_model:EncryptedModelParty",
    SECURE_AGGREGATION: "parties.verifier.secure_aggregation:SecureAggregationParty",
}
"""By protocol; loaded when a plan names it."""


class PartyProtocol(ABC):
    """What the party halves of a protocol's steps work on.

    rounds: what this party was asked, and the reply that it has committed to; missing: parties that
    are covered for.
    """

    def __init__(self, plan: RunPlan, name: str, signing_key: Ed25519PrivateKey) -> None:
        self.plan, self.name = plan, name
        self.rounds = Rounds(plan.roster, name, signing_key)

    @property
    def missing(self) -> tuple[str, ...]:
        """Nobody, but where the protocol has cover."""
        return ()

    @classmethod
    @abstractmethod
    def open(
        cls,
        plan: Any,
        shard: Shard,
        run: Run,
        open_contributor: OpenContributor | None = None,
    ) -> PartyProtocol:
        """The state of a party in a run of this plan.

        shard: of its rows, those that the run uses; run: opens the sessions of them;
        open_contributor: what it adds to sums, by default gradients of the plan's objective.
        """
        ...

    @abstractmethod
    def stand_in(self, request: Body) -> Callable[[], None]:
        """Answer from now on for missing parties as well; what is returned takes it back."""
        ...

    @abstractmethod
    def erase(self) -> None:
        """Forget every secret."""
        ...

    @abstractmethod
    def state(self) -> Any:
        """For `restore` in another process; what sessions of the kernel have stays there."""
        ...

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Go on where `state` was taken."""
        ...


def half_of(plan: RunPlan) -> type[PartyProtocol]:
    """A party's half of the plan's protocol: `open` makes the state of one party."""
    found: type[PartyProtocol] = pkgutil.resolve_name(_HALVES[plan.protocol])
    return found
