"""A run's status.json: progress, phases, parties and bytes; nothing of any data.

Fields: session, state (waiting, running, finished, aborted), phase, step (the one that parties are
asked), iteration, rounds, reason, culprit, missing (parties that others stand in for), attempts,
updated (UTC), seconds and bytes_per_party by phase, parties: by name {rows, bytes}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from coordinator.coordinator import AskParties, Replies
from coordinator.costs import Costs
from protocols.exchange.cards import Card
from protocols.exchange.private_files import write_private

FILE = "status.json"


class Status:
    """Reads and replaces one session's file."""

    def __init__(self, folder: Path, cards: Mapping[str, Card]) -> None:
        self._path, self._costs = folder / FILE, Costs()
        self.fields: dict[str, Any] = read_status(folder) or {
            "session": folder.name,
            "state": "waiting",
            "phase": "",
            "step": "",
            "iteration": 0,
            "rounds": 0,
            "reason": "",
            "culprit": None,
            "missing": [],
            "attempts": 0,
            "parties": {name: {"rows": card.rows, "bytes": 0} for name, card in cards.items()},
        }

    def attempt(self, costs: Costs) -> None:
        """A process begins to drive the run; costs: filled as it goes on."""
        self._costs = costs
        self.save(state="running", attempts=self.fields["attempts"] + 1)

    def watching(self, ask: AskParties) -> AskParties:
        """The same `ask`, noting each step."""

        def asking(step: str, outgoing: Mapping[str, bytes]) -> Replies:
            self.save(step=step)
            return ask(step, outgoing)

        return asking

    @property
    def costs(self) -> Costs:
        """Of this process's attempt."""
        return self._costs

    def save(self, **changes: Any) -> None:
        """Replace the file."""
        self.fields.update(changes)
        self.fields["updated"] = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        if self._costs.traffic:
            self.fields["seconds"] = {k: round(v, 3) for k, v in self._costs.seconds.items()}
            self.fields["bytes_per_party"] = self._costs.bytes_per_party
            self.fields["waiting_seconds"] = round(self._costs.waiting_seconds, 3)
            for name, party in self.fields["parties"].items():
                traffic = self._costs.traffic.values()
                party["bytes"] = sum(by_party.get(name, 0) for by_party in traffic)
        write_private(self._path, json.dumps(self.fields, indent=1).encode())


def read_status(folder: Path) -> dict[str, Any] | None:
    """status.json of a session's folder, None where there is none."""
    try:
        fields: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return fields


def sessions(folder: Path) -> list[dict[str, Any]]:
    """Every session's status, the latest first; folder: of the sessions."""
    paths = folder.iterdir() if folder.is_dir() else iter(())
    found = [status for status in map(read_status, paths) if status is not None]
    return sorted(found, key=lambda status: str(status.get("updated")), reverse=True)
