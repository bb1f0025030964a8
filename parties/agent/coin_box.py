"""Coins on disk, sealed: an agent that restarts, or is asked months later, has the same ones."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from parties.agent.vault import Vault
from parties.coins import Coin, Coins
from protocols.exchange.documents import parse_json, read
from protocols.exchange.private_files import write_private
from protocols.privacy.laws.randomness import RandomSource

LABEL = "held-out coins"


class CoinBox(Coins):
    """Coins in a file of their own, which outlives every session.

    Raises:
        PolicyError: the file does not open. ParameterError: it is malformed.
    """

    def __init__(self, path: Path, vault: Vault, randomness: RandomSource) -> None:
        kept = {}
        if path.exists():
            plain = parse_json(vault.open(path.read_bytes(), LABEL), str(path))
            kept = read(plain, dict[str, Coin], str(path))
        super().__init__(randomness, kept)
        self._path, self._vault = path, vault

    def _keep(self, draw: str, coin: Coin) -> None:
        text = json.dumps(msgspec.to_builtins({**self.kept, draw: coin}))
        write_private(self._path, self._vault.seal(text.encode(), LABEL))
        super()._keep(draw, coin)
