"""A run's status.json: progress, phases, parties and bytes; nothing of any data.

Fields: session, purpose (in words), of a series of sums also series (its first session) and number
(its place there, from 0), state (waiting, running, finished, aborted), phase, step (the one that
parties are asked), iteration, rounds, reason, culprit, missing (parties that others stand in for),
attempts, updated (UTC), seconds and bytes_per_party by phase, parties: by name {rows, bytes};
offline: by party, since when it is waited for before the first step; untold: parties that have not
heard that it is over. `sessions` adds awaited, which follows from the messages on disk, and says
interrupted of a session that nobody drives or watches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from coordinator.coordinator import AskParties, Replies
from coordinator.costs import Costs
from coordinator.log import FOLDER, unanswered
from protocols.exchange.cards import Card
from protocols.exchange.private_files import locked, write_private
from protocols.words import printable

FILE, LOCK, WATCHED = "status.json", "lock", "watched"
ABORTED = "aborted"
OVER = ("finished", ABORTED)
"""States of a session that nobody goes on with."""
INTERRUPTED = "interrupted"
"""In the place of a state: neither over, nor does a process drive it, or wait for its parties."""
CONNECT = "connect"
"""In the place of a step: a party's node is not connected."""


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
            "offline": {},
            "untold": [],
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
        self.fields["reason"] = printable(self.fields["reason"])
        self.fields["updated"] = _utc()
        if self._costs.traffic:
            self.fields["seconds"] = {k: round(v, 3) for k, v in self._costs.seconds.items()}
            self.fields["bytes_per_party"] = self._costs.bytes_per_party
            self.fields["waiting_seconds"] = round(self._costs.waiting_seconds, 3)
            for name, party in self.fields["parties"].items():
                traffic = self._costs.traffic.values()
                party["bytes"] = sum(by_party.get(name, 0) for by_party in traffic)
        write_private(self._path, json.dumps(self.fields, indent=1).encode())


def read_status(folder: Path) -> dict[str, Any] | None:
    """status.json of a session's folder, None where there is none that can be read."""
    try:
        fields = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return fields if isinstance(fields, dict) else None


def is_over(folder: Path) -> bool:
    """Whether nobody goes on with the session of a folder."""
    return (read_status(folder) or {}).get("state") in OVER


def awaited(folder: Path) -> dict[str, dict[str, Any]]:
    """Who has not answered, in a run that goes on: by party the step, and since when (UTC).

    folder: of the session. Nobody: the coordinator itself computes, or parties are not connected
    yet, which the field `offline` says.
    """
    status = read_status(folder) or {}
    if status.get("state") == "waiting":
        held = status.get("offline") or {}
        return {name: {"step": CONNECT, "since": since} for name, since in held.items()}
    if status.get("state") != "running":
        return {}
    step, names = unanswered(folder / FOLDER)
    return {n: {"step": step, "since": _utc(since)} for n, since in names.items()}


def is_held(path: Path) -> bool:
    """Whether a process has the lock of a file."""
    try:
        with locked(path, 0.0):
            return False
    except TimeoutError:
        return True


def state_of(folder: Path, status: Mapping[str, Any]) -> str:
    """Of a session, `INTERRUPTED` included."""
    stands = status["state"] in OVER or any(is_held(folder / name) for name in (LOCK, WATCHED))
    return str(status["state"]) if stands else INTERRUPTED


def _utc(seconds: float | None = None) -> str:
    when = (
        datetime.now(timezone.utc)
        if seconds is None
        else datetime.fromtimestamp(seconds, timezone.utc)
    )
    return when.isoformat(timespec="milliseconds")


def clock(when: str) -> str:
    """A time as of these fields, in words: 14:38:07 UTC today, else with its day."""
    found = datetime.fromisoformat(when).astimezone(timezone.utc)
    is_today = found.date() == datetime.now(timezone.utc).date()
    return f"{found:%H:%M:%S} UTC" if is_today else f"{found:%Y-%m-%d %H:%M} UTC"


def sessions(folder: Path) -> list[dict[str, Any]]:
    """Every session's status, the latest first; folder: of the sessions."""
    found = list[dict[str, Any]]()
    for path in folder.iterdir() if folder.is_dir() else ():
        status = read_status(path)
        if status is not None:
            state = state_of(path, status)
            late = awaited(path) if state != INTERRUPTED else {}
            found.append({**status, "state": state, "awaited": late})
    return sorted(found, key=lambda status: str(status.get("updated")), reverse=True)
