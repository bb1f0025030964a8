"""What drives an owner's kernel: consent, limits and messages, in this process or another one."""

from __future__ import annotations

from parties.agent.settings import Limits, Settings
from parties.policy import Policy
from protocols.exchange.documents import Checked


class Driving(Checked, frozen=True):
    """What an owner says of it.

    coordinator_key: the only key whose messages are read; ask, wait_seconds: whether a person
    accepts each plan, and how long one waits for it; card: file that is gone once the run is over,
    empty: it serves many.
    """

    coordinator_key: str
    policy: Policy = Policy()
    ask: bool = False
    wait_seconds: float = 3600.0
    limits: Limits = Limits()
    card: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Driving:
        """As a folder's party.toml says."""
        return cls(
            coordinator_key=settings.coordinator_key,
            policy=settings.policy,
            ask=settings.consent.mode == "ask",
            wait_seconds=settings.consent.wait_seconds,
            limits=settings.limits,
        )
