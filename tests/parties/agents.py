"""Parties of a test session behind agents, which can be restarted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parties.agent.agent import Agent, Limits
from parties.agent.consent import Consent
from parties.agent.owner import CoinBox
from parties.agent.store import SessionStore
from parties.agent.vault import Vault
from parties.verifier.party import Party
from protocols.exchange.messages import Body, Envelope, encode, public_bytes
from protocols.privacy.laws.seeded import SeededRandomness
from tests.support.helpers import Session, make_session

PASSPHRASE = "correct horse battery staple"
COINS = "held-out.box"
SMALL: dict[str, Any] = {"ring_dim": 512, "degree": 3, "update": "gd", "rows": 4, "rounds": 2}


class Agents:
    """Agents of a session's parties; `restart` makes a party's agent anew from its folder."""

    def __init__(
        self,
        folder: Path,
        vault: Vault | None,
        limits: Limits | None = None,
        session: Session | None = None,
        **terms: Any,
    ) -> None:
        self.session: Session = session or make_session(**SMALL)
        self.folder, self.vault, self.limits, self.terms = folder, vault, limits, terms
        self.agents: dict[str, Agent] = {}
        for name in self.session.parties:
            self.restart(name)

    def make_party(self, name: str) -> Party:
        old = self.session.parties[name]
        return type(old).of(
            name=name,
            shard=old.run.rows._value,
            signing_key=old.run.signing_key,
            coordinator_key=old._coordinator_key,
            policy=old._policy,
            randomness=SeededRandomness(self.session.rng_seed, name),
            coins=self.coins(name),
        )

    def coins(self, name: str) -> CoinBox | None:
        """As they are on disk now."""
        if self.vault is None:
            return None
        source = SeededRandomness(self.session.rng_seed, name)
        return CoinBox(self.folder / name / COINS, self.vault, source)

    def restart(self, name: str) -> Agent:
        """As after kill -9: nothing but the folder is left."""
        party, store = self.session.parties[name], SessionStore(self.folder / name, self.vault)
        keys = {n: public_bytes(p.run.signing_key) for n, p in self.session.parties.items()}
        default: dict[str, Any] = {
            "ask": False,
            "own_key": keys[name],
            "norm_bound": 2.0,
            "peers": lambda: keys,
        }
        self.agents[name] = Agent(
            name=name,
            make_party=lambda: self.make_party(name),
            signing_key=party.run.signing_key,
            coordinator_key=party._coordinator_key,
            store=store,
            consent=Consent(name, store, **(default | self.terms)),
            limits=self.limits,
        )
        return self.agents[name]

    def ask(self, step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
        """Deliver and record."""
        replies = {name: self.agents[name].handle(data) for name, data in outgoing.items()}
        self.session.recorded += [(step, n, outgoing[n], replies[n]) for n in replies]
        return replies

    def request(self, step: str, name: str, session: str = "", **meta: Any) -> bytes:
        """A message that the coordinator signed."""
        session = session or self.session.coordinator.session
        envelope = Envelope(session, step, "coordinator", name, Body(meta))
        return encode(envelope, self.session.coordinator_key)

    def sent(self, step: str, name: str) -> tuple[bytes, bytes]:
        """Request and reply as recorded."""
        return next((q, r) for s, n, q, r in self.session.recorded if (s, n) == (step, name))
