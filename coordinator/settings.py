"""The coordinator's folder and its configuration file, coordinator.toml.

ca.crt, server.pem and their keys: see `certificates`. identity.key: its signing key (mode 0600).
schema.json: the public column schema. parties/NAME.json: a card of each party. app/: what Flower
ships to the parties, which holds no code. sessions/ID/: one run, see `deployment`. workers/: what
proves who belongs to the cluster of workers, see `dask_workers`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.errors import ParameterError
from protocols.exchange.cards import Card
from protocols.exchange.documents import Checked, load_toml, parse_json, read
from protocols.names import MAX_NAME, file_stem, is_session
from protocols.words import count, printable

FILE, IDENTITY, SCHEMA, CARDS, APP = (
    "coordinator.toml",
    "identity.key",
    "schema.json",
    "parties",
    "app",
)
NODES, SESSIONS, FLOWER = "nodes.json", "sessions", "flwr"
HOME_VARIABLE = "CIPHERCOHORT_COORDINATOR"
"""Where the folder is, for the process that the SuperLink starts."""


class Settings(Checked, frozen=True):
    """coordinator.toml.

    fleet, control, serverappio: addresses that the SuperLink binds; public: what parties dial.
    step_seconds: longest wait for one step; session_seconds: for a run, restarts included.
    relay: owners with a replica are sent the others' replies, those with witnesses their words;
    nobody else is, and without such owners nothing goes ahead.
    workers: for groups of encrypted rows: how many processes of this machine, or tls://HOST:PORT of
    a scheduler; training: options of `cohort simulate` that settle the plan.
    """

    folder: Path
    fleet: str = "127.0.0.1:9092"
    control: str = "127.0.0.1:9093"
    serverappio: str = "127.0.0.1:9091"
    public: str = "127.0.0.1:9092"
    step_seconds: float = 3600.0
    session_seconds: float = 24 * 3600.0
    relay: bool = True
    workers: int | str = 0
    training: dict[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Settings:
        """Read the folder's file. Raises ParameterError: it is missing or has unknown fields."""
        found: Settings = load_toml(folder / FILE, cls, folder=folder.resolve())
        return found

    def signing_key(self) -> Ed25519PrivateKey:
        """The coordinator's identity."""
        text = (self.folder / IDENTITY).read_text(encoding="ascii")
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text.strip()))

    def cards(self) -> dict[str, Card]:
        """Admitted parties, by name."""
        paths = sorted((self.folder / CARDS).glob("*.json"))
        return {card.name: card for card in map(Card.load, paths)}

    def owners(self) -> dict[str, Card]:
        """Cards of the admitted parties, of which a session needs two or more.

        Raises:
            ParameterError: there are fewer than two.
        """
        cards = self.cards()
        if len(cards) < 2:
            raise ParameterError(
                f"{count(len(cards), 'party')} admitted, and a session needs 2 or more: cohort "
                "coordinator admit FOLDER CARD"
            )
        return cards

    def card_path(self, name: str, ending: str = "json") -> Path:
        """Where the card of a party stands, or its node key (ending "pub")."""
        return self.folder / CARDS / f"{file_stem(name)}.{ending}"

    def nodes(self) -> dict[str, int]:
        """Flower node id by party, for those that the SuperLink knows."""
        path = self.folder / NODES
        found = parse_json(path.read_bytes(), str(path)) if path.exists() else {}
        nodes: dict[str, int] = read(found, dict[str, int], str(path))
        return nodes

    def session_folder(self, session: str) -> Path:
        """Of one run. Raises ParameterError: the name is not one of ours."""
        if not is_session(session):
            raise ParameterError(
                f"session={printable(session)!r}: letters and digits, at most {MAX_NAME}"
            )
        return self.folder / SESSIONS / session
