"""What answers messages for an owner, in the process of its kernel or in another one."""

from __future__ import annotations

from typing import Any

from parties.agent.agent import Agent
from parties.agent.consent import Consent
from parties.agent.settings import Driving
from parties.verifier.foreseen import foreseen
from parties.verifier.party import Party
from protocols.exchange.messages import public_bytes


def agent_of(driving: Driving, owner: Any) -> Agent:
    """The agent; owner: `agent.owner.Owner`, or `verifier.remote.RemoteOwner`."""

    def make_party() -> Party:
        return Party(
            run=owner.begin(), coordinator_key=driving.coordinator_key, policy=driving.policy
        )

    return Agent(
        name=owner.name,
        make_party=make_party,
        signing_key=owner.signing_key,
        coordinator_key=driving.coordinator_key,
        store=owner.store,
        consent=Consent(
            owner.name,
            owner.store,
            ask=driving.ask,
            own_key=public_bytes(owner.signing_key),
            norm_bound=owner.schema.norm_bound,
            peers=owner.peers,
            wait_seconds=driving.wait_seconds,
            foresee=lambda plan: foreseen(plan, owner),
        ),
        limits=driving.limits,
        keep=owner.keep,
    )
