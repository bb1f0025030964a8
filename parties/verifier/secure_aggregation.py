"""A party of the protocol `secure-aggregation`: a session of the kernel, and plan and messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.kernel.run import Run
from parties.kernel.sums.session import SumsSession
from parties.verifier.objectives import OpenContributor, check_rows
from parties.verifier.party_protocol import PartyProtocol
from parties.verifier.sheets import sums_sheet
from protocols.errors import PolicyError
from protocols.exchange.messages import Body
from protocols.steps import second_moment
from protocols.sums.plan import GradientPlan

if TYPE_CHECKING:  # what owns rows has it
    from parties.reader.shard import Shard


class SecureAggregationParty(PartyProtocol):
    """Checks messages against the plan; what leaves is its session's: `aggregate.setup.SumsHalf`.

    session: holds rows, secret and noise; seal: of its rows.
    """

    plan: GradientPlan

    def __init__(
        self,
        plan: GradientPlan,
        name: str,
        session: SumsSession,
        signing_key: Ed25519PrivateKey,
        seal: Callable[[], str],
    ) -> None:
        super().__init__(plan, name, signing_key)
        self.session, self._seal = session, seal

    @classmethod
    def open(
        cls,
        plan: GradientPlan,
        shard: Shard,
        run: Run,
        open_contributor: OpenContributor | None = None,
    ) -> SecureAggregationParty:
        """With what this party adds to sums."""
        beside: dict[str, Any] = {}
        if open_contributor is None:
            check_rows(plan, shard)
        else:
            beside["own_code"] = partial(open_contributor, plan, run.name)
        session = run.open(sums_sheet(plan), shard, plan.stream, **beside)
        seal = partial(run.row_seal, shard, plan.digest())
        return cls(plan, run.name, session, run.signing_key, seal)

    def begin(self, seeds: Mapping[str, str]) -> None:
        """Make the secret; seeds: everybody's."""
        self.session.begin(seeds)

    def remark(self) -> Mapping[str, str]:
        """A seal of the rows, where a later run speaks of them."""
        return {second_moment.SEAL: self._seal()} if self.plan.sums_moment else {}

    def stand_in(self, request: Body) -> Callable[[], None]:
        """Nobody can."""
        raise PolicyError("the plan has no cover: nobody can be covered for")

    def erase(self) -> None:
        """Erase the secret."""
        self.session.erase()

    def state(self) -> None:
        """None: there is no secret yet, or its session refuses."""

    def restore(self, state: None) -> None:
        """Nothing to restore before the secret is made."""
