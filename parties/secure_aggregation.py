"""A party of the protocol `secure-aggregation`: a session of the kernel, and plan and messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.data.shard import Shard
from parties.kernel.sums.row_function import Contributor
from parties.kernel.sums_session import SumsSession
from parties.objectives import OpenContributor, check_rows
from parties.party_protocol import PartyProtocol, Seal
from parties.sheets import sums_sheet
from protocols import agree, second_moment
from protocols.errors import PolicyError
from protocols.gradients import GradientPlan
from protocols.messages import Body
from protocols.objectives import MomentObjective
from protocols.privacy.randomness import RandomSource


class SecureAggregationParty(PartyProtocol):
    """Checks messages against the plan; what leaves is its session's: `aggregate.setup.SumsHalf`.

    session: holds rows, secret and noise; remark: what goes with each contribution.
    """

    plan: GradientPlan

    def __init__(
        self,
        plan: GradientPlan,
        name: str,
        session: SumsSession,
        signing_key: Ed25519PrivateKey,
        remark: Mapping[str, str],
    ) -> None:
        super().__init__(plan, name, signing_key)
        self.session, self._remark = session, remark

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
        source, own = plan.randomness(randomness), open_contributor
        if own is None:
            check_rows(plan, shard)

        def code(rows: Any) -> Contributor:
            assert own is not None  # noqa: S101 (else not called)
            return own(plan, name, rows, source)

        session = SumsSession(sums_sheet(plan), name, shard, source, signing_key, own and code)
        remark = {}
        if isinstance(plan.task, MomentObjective):
            sealed = second_moment.seal(signing_key, plan.digest(), shard.fingerprint())
            remark = {second_moment.SEAL: sealed}
        return cls(plan, name, session, signing_key, remark)

    def begin(self, seeds: Mapping[str, str]) -> None:
        """Make the secret; seeds: everybody's."""
        self.session.begin(agree.joint_seed(self.plan, seeds))

    def remark(self) -> Mapping[str, str]:
        """A seal of the rows, where a later run speaks of them."""
        return self._remark

    def stand_in(self, request: Body) -> Callable[[], None]:
        """Nobody can."""
        raise PolicyError("the plan has no cover: nobody can be covered for")

    def erase(self) -> None:
        """Erase the secret."""
        self.session.erase()

    def state(self, seal: Seal) -> Body:
        """Empty until there is a secret; the secret itself is held in memory only."""
        if self.session.begun:
            raise PolicyError("the secret of secure aggregation is held in memory only")
        return Body()

    def restore(self, state: Body, unseal: Seal) -> None:
        """Nothing to restore before the secret is made."""
