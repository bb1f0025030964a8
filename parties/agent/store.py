"""The agent's folder: sealed state of the open session, and a line for every session that ended.

session.sealed: what a restarted agent goes on from, while a session lasts. sessions.json: by
session, when it began and ended, why, and its last reply. consent.jsonl: what the owner decided
about each plan, and when.

Plain form of the state: one line of JSON (version, fingerprint of the rows, fields, sizes of the
blobs), then the blobs. Security: the state is on disk before a reply leaves, so that a restarted
party never makes a second share for a step it answered. Whoever restores an old copy of the file by
hand breaks this promise. The key share in it is sealed once more, under a label of its own.
"""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from parties.agent.vault import Vault
from parties.party import Party
from protocols.documents import Checked, parse_json, read
from protocols.errors import ParameterError, PolicyError
from protocols.messages import Body
from protocols.private_files import erase, private_folder, sweep, write_private

log = logging.getLogger(__name__)

STATE, SESSIONS, CONSENT = "session.sealed", "sessions.json", "consent.jsonl"


VERSION = 4
LABEL = "session state"
KEY_LABEL = "key share"


def capture(party: Party, vault: Vault) -> bytes:
    """Everything of a party that its owner's files do not hold, sealed.

    Raises:
        PolicyError: its protocol keeps the secret in memory only.
    """
    state = party.state(lambda plain: vault.seal(plain, KEY_LABEL))
    head = {
        "version": VERSION,
        "rows": party.fingerprint(),
        "meta": dict(state.meta),
        "sizes": [len(blob) for blob in state.blobs],
    }
    return vault.seal(b"".join([json.dumps(head).encode(), b"\n", *state.blobs]), LABEL)


def restore(party: Party, sealed: bytes, vault: Vault) -> None:
    """Give a new party, made from the same files, the captured state.

    Raises:
        PolicyError: the state does not open, is of other rows, or another version of this program
            wrote it.
    """
    text, _, rest = vault.open(sealed, LABEL).partition(b"\n")
    try:
        head, data = json.loads(text), io.BytesIO(rest)
        if head["version"] != VERSION:
            raise ValueError(f"version {head['version']} is not {VERSION}")
        if head["rows"] != party.fingerprint():
            raise PolicyError("the rows or their schema have changed since this session began")
        state = Body(head["meta"], tuple(data.read(size) for size in head["sizes"]))
        party.restore(state, lambda secret: vault.open(secret, KEY_LABEL))
    except (ParameterError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise PolicyError(
            f"the session state was written by another version ({type(error).__name__})"
        ) from None


class Record(Checked, frozen=True):
    """One session as this party remembers it.

    began, ended: seconds since 1970, ended 0 while it is open; reason: of the end; request, reply:
    digest of the last answered request and the reply (hexadecimal), kept where it is small; seen:
    the party's head at the end, empty where it was lost.
    """

    began: float
    ended: float = 0.0
    reason: str = ""
    request: str = ""
    reply: str = ""
    seen: str = ""


class SessionStore:
    """Reads and writes the folder; the vault is None where no key share may be kept on disk."""

    def __init__(self, folder: Path, vault: Vault | None) -> None:
        sweep(private_folder(folder))
        self._folder, self._vault = folder, vault
        path = folder / SESSIONS
        found = parse_json(path.read_bytes(), str(path)) if path.exists() else {}
        self._records: dict[str, Record] = read(found, dict[str, Record], str(path))
        if self.open_session() is None:
            erase(folder / STATE)  # the process died between two writes

    @property
    def is_kept(self) -> bool:
        """Whether an open session outlives this process."""
        return self._vault is not None

    def record(self, session: str) -> Record | None:
        """What is known of a session."""
        return self._records.get(session)

    def open_session(self) -> str | None:
        """The session that has begun and not ended."""
        return next((name for name, record in self._records.items() if not record.ended), None)

    def latest(self) -> str | None:
        """The session that began last."""
        return max(self._records, key=lambda name: self._records[name].began, default=None)

    def begin(self, session: str) -> None:
        """Note a new session, whose state is on disk already."""
        self._put(session, Record(began=time.time()))

    def save(self, party: Party) -> None:
        """Write the party's state; returns when it is on disk.

        A state that cannot be kept is erased: then a restart ends the session.
        """
        if self._vault is None:
            return
        try:
            sealed = capture(party, self._vault)
        except PolicyError as error:
            log.warning("a restart from here on ends the session: %s", error)
            erase(self._folder / STATE)
        else:
            write_private(self._folder / STATE, sealed)

    def resume(self, make: Callable[[], Party]) -> Party | None:
        """The party of the open session, or None where its state was not kept.

        Raises:
            PolicyError: the state does not open.
        """
        path = self._folder / STATE
        if self._vault is None or not path.exists():
            return None
        party = make()
        restore(party, path.read_bytes(), self._vault)
        return party

    def end(
        self, session: str, reason: str, seen: str, request: str = "", reply: bytes = b""
    ) -> None:
        """Note the end and erase the state; also of a session that never began here."""
        now = time.time()
        began = self._records.get(session, Record(began=now)).began
        ended = Record(
            began=began, ended=now, reason=reason, request=request, reply=reply.hex(), seen=seen
        )
        try:
            self._put(session, ended)
        finally:
            if self.open_session() is None:
                erase(self._folder / STATE)

    def decided(self, plan: str, accepted: bool) -> None:
        """Note the owner's decision about a plan (digest)."""
        entry = {"time": time.time(), "plan": plan, "accepted": accepted}
        path = self._folder / CONSENT
        held = path.read_bytes() if path.exists() else b""
        write_private(path, held + json.dumps(entry).encode() + b"\n")

    def decisions(self) -> dict[str, bool]:
        """The latest decision by plan."""
        path = self._folder / CONSENT
        lines = path.read_bytes().splitlines() if path.exists() else []
        return {e["plan"]: bool(e["accepted"]) for e in map(json.loads, lines)}

    def _put(self, session: str, record: Record) -> None:
        self._records[session] = record
        text = json.dumps(msgspec.to_builtins(self._records), indent=1)
        write_private(self._folder / SESSIONS, text.encode())
