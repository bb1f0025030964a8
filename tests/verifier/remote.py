"""Parties whose kernel is behind a channel, for sessions of `tests.support.sessions`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from parties.account import Account
from parties.agent.store import codec
from parties.coins import Coins
from parties.kernel.channel import Channel
from parties.kernel.private import closed
from parties.kernel.run import Run
from parties.kernel.serving import Serving
from parties.verifier.party import Party
from parties.verifier.remote import Calls, RemoteOwner
from protocols.privacy.laws import SystemRandomness

OPENED: list[socket.socket] = []
"""To be closed by whoever uses them: a kernel ends with its channel."""


class Owned:
    """An owner without files."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields, self.store = fields, self
        self.signing_key = fields["signing_key"]
        self.schema = fields["shard"].schema
        self.runs: list[Run] = []
        self.named: dict[str, str] | None = None
        self.stop: Callable[[], None] = lambda: None  # its last kernel, and wait until it has ended

    def begin(self) -> Run:
        """A new run over the rows."""
        fields = self._fields
        run = Run(
            name=fields["name"],
            rows=closed(fields["shard"]),
            signing_key=self.signing_key,
            randomness=fields["randomness"],
            account=Account(fields.get("ledger"), fields.get("dataset", "")),
            coins=Coins(SystemRandomness()),
            terms=fields["policy"].terms(),
            peers=None if self.named is None else self.peers,
        )
        self.runs.append(run)
        return run

    def count(self, run: str, calls: int) -> None:
        """Nothing is kept."""

    def peers(self) -> Mapping[str, str]:
        """Those that it named."""
        return self.named or {}

    def beside(self, sheet: Any) -> dict[str, Any]:
        """Nothing."""
        return {}

    def told(self) -> dict[str, Any]:
        """Public figures."""
        return {
            "name": self._fields["name"],
            "verify_key": self.signing_key.public_key().public_bytes_raw().hex(),
            "rows": self._fields["shard"].rows,
            "schema": self.schema.to_dict(),
            "has_ledger": False,
            "keeps_sessions": False,
        }


def served(owner: Owned) -> Calls:
    """Calls to a kernel that answers in a thread of this process."""
    ours, theirs = socket.socketpair()
    serving = Serving(owner, Channel(ours, codec()))

    def serve() -> None:
        with ours:
            serving.serve()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    OPENED.append(theirs)
    owner.stop = partial(_stop, theirs, thread)
    return Calls(Channel(theirs, codec()))


def _stop(channel: socket.socket, thread: threading.Thread) -> None:
    channel.close()
    thread.join()


def remote(**fields: Any) -> Party:
    """In place of `Party.of`."""
    owner = Owned(fields)
    elsewhere = RemoteOwner(served(owner), owner.told())
    return Party(
        run=elsewhere.begin(),  # type: ignore[arg-type]
        coordinator_key=fields["coordinator_key"],
        policy=fields["policy"],
    )
