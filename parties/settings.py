"""A party's folder, party.toml in it, and the agent that they make.

identity.sealed: the Ed25519 identity, sealed with the passphrase. node.key, node.pub: Flower's, of
the relay. card.json: what the coordinator's administrator gets. state/: see `session_store`.
ledger.jsonl: privacy spent on each data set.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.agent import Agent, Limits
from parties.consent import Consent, Terms
from parties.party import Party
from parties.peers import check_peers
from parties.policy import Policy
from parties.schema import Schema
from parties.session_store import SessionStore
from parties.shard import encode_shard
from parties.tables import read_table
from parties.vault import Vault
from protocols.errors import ParameterError
from protocols.messages import public_bytes
from protocols.privacy.ledger import Ledger
from protocols.privacy.randomness import RandomSource, SeededRandomness, SystemRandomness
from protocols.toml import load_toml

log = logging.getLogger(__name__)

FILE, IDENTITY, SCHEMA, CA = "party.toml", "identity.sealed", "schema.json", "ca.crt"
NODE_KEY, NODE_PUBLIC, CARD, STATE = "node.key", "node.pub", "card.json", "state"
LEDGER = "ledger.jsonl"
IDENTITY_LABEL = "identity"
CONSENT_MODES = ("ask", "policy")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """party.toml.

    data: CSV or Parquet file with this party's rows. coordinator_key: the only key whose messages
    are read. superlink: address that the SuperNode dials; clientappio: address that it binds.
    socket: of the agent; relay_uid: user of the SuperNode, where it is another one. strict: refuse
    values outside the schema. keep_key_share: keep it on disk, sealed, while a run lasts, so that
    the agent may restart. insecure_noise_seed: NOT PRIVATE, for tests. consent: {mode: "ask" a
    person or leave it to the "policy", wait_seconds}. policy: fields of `Policy`. budget:
    {epsilon, delta} for all runs on `dataset`, counted in LEDGER; keep_ledger: false counts
    nothing. limits: of `agent.Limits`. peers: verification keys of the other parties by name; a
    plan with any other member is refused. keyring: entry of the operating system's keyring that
    has the passphrase; empty: it is asked for.

    Raises:
        ParameterError: a field is out of range.
    """

    folder: Path
    name: str
    data: str
    coordinator_key: str
    superlink: str
    socket: str
    clientappio: str = "127.0.0.1:9094"
    relay_uid: int | None = None
    strict: bool = False
    keep_key_share: bool = True
    keep_ledger: bool = True
    dataset: str = ""
    insecure_noise_seed: int | None = None
    keyring: str = ""
    consent: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    peers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.consent.get("mode", "ask") not in CONSENT_MODES:
            raise ParameterError(
                f"consent.mode={self.consent['mode']!r} is not one of {', '.join(CONSENT_MODES)}"
            )
        check_peers(self.peers)

    @classmethod
    def load(cls, folder: Path) -> Settings:
        """Read the folder's file.

        Raises:
            ParameterError: it is missing, or a field is unknown or out of range.
        """
        fields = load_toml(folder / FILE)
        try:
            return cls(folder=folder.resolve(), **fields)
        except TypeError as error:
            raise ParameterError(f"{folder / FILE}: {error}") from None

    def open_vault(self, passphrase: str) -> tuple[Vault, Ed25519PrivateKey]:
        """The vault and the identity in it.

        Raises:
            PolicyError: the passphrase is wrong.
        """
        sealed = (self.folder / IDENTITY).read_bytes()
        vault = Vault.for_file(passphrase, sealed)
        plain = vault.open(sealed, IDENTITY_LABEL)
        return vault, Ed25519PrivateKey.from_private_bytes(plain)

    def open_ledger(self) -> Ledger | None:
        """What earlier runs have spent; None where the owner keeps no record.

        Raises:
            ParameterError: the budget is missing, out of range, or given without a ledger.
        """
        if not self.keep_ledger and self.budget:
            raise ParameterError(
                f"{self.folder / FILE}: keep_ledger = false, but [budget] is given: remove one"
            )
        if not self.keep_ledger:
            log.warning("no ledger is kept (keep_ledger = false): nobody adds up what runs spend")
            return None
        if set(self.budget) != {"epsilon", "delta"}:
            raise ParameterError(
                f"{self.folder / FILE}: [budget] must say what all runs on this data may spend: "
                "add epsilon = 1.0 and delta = 1e-5 under it, or, to keep no ledger, "
                "keep_ledger = false above the first table"
            )
        return Ledger(path=self.folder / LEDGER, **self.budget)

    def randomness(self) -> RandomSource:
        """The noise source of one session."""
        if self.insecure_noise_seed is None:
            return SystemRandomness()
        log.warning("NOT PRIVATE: the noise is seeded (insecure_noise_seed)")
        return SeededRandomness(self.insecure_noise_seed, self.name)


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which other users can change what the owner consents to."""
    if folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ParameterError(
            f"other users can write to {folder}, so they could consent for you: look through "
            f"{FILE}, then run chmod 700 {folder}"
        )


def build_agent(settings: Settings, passphrase: str) -> Agent:
    """The agent of a folder; the rows are read and encoded here, once.

    Raises:
        CohortError: a file is missing or wrong, the data do not fit the schema, or the passphrase
            is wrong.
    """
    _check_folder(settings.folder)
    vault, signing_key = settings.open_vault(passphrase)
    schema = Schema.load(settings.folder / SCHEMA)
    shard = encode_shard(
        read_table(settings.folder / settings.data, label=schema.label.name),
        schema,
        settings.strict,
    )
    try:
        policy, limits = Policy(**settings.policy), Limits(**settings.limits)
        ledger = settings.open_ledger()
        terms = Terms(
            ask=settings.consent.get("mode", "ask") == "ask",
            wait_seconds=float(settings.consent.get("wait_seconds", 3600.0)),
            own_key=public_bytes(signing_key),
            norm_bound=schema.norm_bound,
            # Read anew for each plan: the owner may come to know a party while the agent runs.
            peers=lambda: Settings.load(settings.folder).peers,
        )
    except TypeError as error:
        raise ParameterError(f"{settings.folder / FILE}: {error}") from None
    store = SessionStore(settings.folder / STATE, vault if settings.keep_key_share else None)

    def make_party() -> Party:
        return Party(
            name=settings.name,
            shard=shard,
            signing_key=signing_key,
            coordinator_key=settings.coordinator_key,
            policy=policy,
            randomness=settings.randomness(),
            ledger=ledger,
            dataset=settings.dataset,
        )

    return Agent(
        name=settings.name,
        make_party=make_party,
        policy=policy,
        signing_key=signing_key,
        coordinator_key=settings.coordinator_key,
        store=store,
        consent=Consent(settings.name, terms, store),
        limits=limits,
    )
