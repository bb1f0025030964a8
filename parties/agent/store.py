"""The agent's folder: sealed state of the open session, and a line for every session that ended.

session.sealed: what a restarted agent goes on from, while a session lasts. sessions.json: by
session, when it began and ended, why, and its last reply. consent.jsonl: what the owner decided
about each plan, and when.

Plain form of the state: one line of JSON (version, fingerprint of the rows, the channel's head,
sizes of the blobs), then the blobs. A large blob that is the same as at the step before, such as an
evaluation key, is written once beside it, <SHA-256>.blob, sealed too.

Security: the state is on disk before a reply leaves, so that a restarted party never makes a second
share for a step it answered. Whoever restores an old copy of the folder by hand would break this
promise: <folder>.last, beside it, says how many steps of which session were answered, and a state
of fewer is refused. <folder>.calls says how often the kernel answered, in which run: whoever drives
it cannot set it back either, nor by answers of another run.
"""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from parties.agent.vault import Vault
from parties.kernel import EVERY
from parties.kernel.channel import RECORDS, Codec
from parties.policy import Reason, told
from protocols.errors import ParameterError, PolicyError
from protocols.exchange.documents import Checked, parse_json, read
from protocols.exchange.private_files import erase, private_folder, sweep, write_private

log = logging.getLogger(__name__)

STATE, SESSIONS, CONSENT = "session.sealed", "sessions.json", "consent.jsonl"


VERSION = 15
LABEL = "session state"
BLOB_LABEL = "session blob"
BLOB = ".blob"
LARGE = 1 << 20
"""Blobs from here on may stand in files of their own [bytes]."""
BESIDE = {
    "GaussianEvent": "protocols.privacy.loss.accounting:GaussianEvent",
    "HeldOut": "protocols.plan.held_out:HeldOut",
    "Record": "parties.agent.store:Record",
}
"""Records that pass between an owner's process and its verifier, beside the kernel's."""


def capture(
    party: Kept, vault: Vault, keep: Callable[[memoryview], str] = lambda blob: ""
) -> bytes:
    """Everything of a party that its owner's files do not hold, sealed.

    keep: names a blob that is kept elsewhere; empty: it is not.

    Raises:
        PolicyError: its protocol keeps the secret in memory only.
    """
    state, blobs = codec().encode(party.state())
    places = [keep(blob) or len(blob) for blob in blobs]
    held = [b for b, place in zip(blobs, places, strict=True) if isinstance(place, int)]
    head = {
        "version": VERSION,
        "rows": party.fingerprint(),
        "state": state.decode(),
        "sizes": places,
    }
    return vault.seal(b"".join([json.dumps(head).encode(), b"\n", *held]), LABEL)


def _nothing(name: str) -> bytes:
    raise PolicyError(f"a part of the session state is missing: {name}")


def restore(
    party: Kept, sealed: bytes, vault: Vault, fetch: Callable[[str], bytes] = _nothing
) -> None:
    """Give a new party, made from the same files, the captured state.

    fetch: a blob that is kept elsewhere, by its name.

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
        places = head["sizes"]
        blobs = [data.read(p) if isinstance(p, int) else fetch(p) for p in places]
        party.restore(codec().decode(head["state"].encode(), blobs))
    except (ParameterError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise PolicyError(
            f"the session state was written by another version ({type(error).__name__})"
        ) from None


class Kept(Protocol):
    """A party whose state is kept: `parties.verifier.party.Party`, or both sides of its channel."""

    @property
    def answered(self) -> int:
        """Steps answered so far; 0 again once closed."""
        ...

    def fingerprint(self) -> str:
        """SHA-256 of its rows and their schema."""
        ...

    def state(self) -> Any:
        """Everything that the owner's files do not hold, for the codec; it is sealed."""
        ...

    def restore(self, state: Any) -> None:
        """Inverse of `state`."""
        ...


Whole = TypeVar("Whole", bound=Kept)


class Record(Checked, frozen=True):
    """One session as this party remembers it.

    began, ended: seconds since 1970, began 0 if it never did, ended 0 while it is open; reason: of
    the end; request, reply: digest of the last answered request and the reply (hexadecimal), kept
    where it is small; seen: the party's head at the end, empty where it was lost.
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
        self._last = folder.with_name(f"{folder.name}.last")
        self._calls = folder.with_name(f"{folder.name}.calls")
        path = folder / SESSIONS
        found = parse_json(path.read_bytes(), str(path)) if path.exists() else {}
        self._records: dict[str, Record] = read(found, dict[str, Record], str(path))
        self._large: set[str] = set()  # blobs of the last state, by digest
        self._told = False  # that the open session cannot be kept
        if self.open_session() is None:
            self._erase_state()  # the process died between two writes

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
        began = {name: record.began for name, record in self._records.items() if record.began}
        return max(began, key=began.__getitem__, default=None)

    def begin(self, session: str) -> None:
        """Note a new session, whose state is on disk already."""
        self._put(session, Record(began=time.time()))

    def save(self, party: Kept) -> bool:
        """Write the party's state; returns when it is on disk, and whether it is.

        A state that cannot be kept is erased, and none of the session is kept later: a restart
        ends it.
        """
        if self._vault is None or self._told:
            return False
        try:
            large: set[str] = set()
            sealed = capture(party, self._vault, lambda blob: self._kept(blob, large))
        except PolicyError as error:
            log.warning("until this session is over, do not restart the agent: %s", error)
            self._told = True
            self._erase_state()
            write_private(self._calls, b"[]")  # no copy of an earlier state is the latest
            return False
        else:
            write_private(self._folder / STATE, sealed)
            if party.answered > self._answered():
                said = json.dumps([self.open_session(), party.answered])
                write_private(self._last, said.encode())
            self._erase_blobs(large)
            self._large = large
            return True

    def resume(self, make: Callable[[], Whole]) -> Whole | None:
        """The party of the open session, or None where its state was not kept.

        Raises:
            PolicyError: the state does not open, or is older than the last one.
        """
        path = self._folder / STATE
        if self._vault is None or not path.exists():
            return None
        party = make()
        restore(party, path.read_bytes(), self._vault, self._blob)
        # 0: closed.
        if 0 < party.answered < self._answered():
            raise PolicyError(
                f"the session state is of {party.answered} answered steps, and {self._answered()} "
                "were answered: it was set back, and the next answers could show rows"
            )
        return party

    def count(self, run: str, calls: int) -> None:
        """Note, durably, how many calls of a run are answered; run: its number, see `Serving`."""
        if self._vault is not None and not self._told:
            with told(Reason.FAILED):
                write_private(self._calls, json.dumps([run, calls]).encode())

    def counted(self) -> tuple[str, int]:
        """The run that was counted last, and how far: no other state is gone on from."""
        path = self._calls
        held = parse_json(path.read_bytes(), str(path)) if path.exists() else []
        run, calls = held or ("", 0)
        return str(run), int(calls)

    def _answered(self) -> int:
        """Steps of the open session, as noted beside the folder."""
        held = parse_json(self._last.read_bytes(), str(self._last)) if self._last.exists() else []
        session, answered = held or ("", 0)
        return int(answered) if session == self.open_session() else 0

    # -- blobs that stay the same -----------------------------------------------------------------

    def _kept(self, blob: memoryview, large: set[str]) -> str:
        """The name of a blob in a file of its own, which it gets the second time; else empty."""
        if len(blob) < LARGE or self._vault is None:
            return ""
        digest = sha256(blob).hexdigest()
        large.add(digest)
        path = self._folder / f"{digest}{BLOB}"
        if path.exists():
            return digest
        if digest not in self._large:
            return ""
        write_private(path, self._vault.seal(bytes(blob), BLOB_LABEL))
        return digest

    def _blob(self, name: str) -> bytes:
        path = self._folder / f"{name}{BLOB}"
        if self._vault is None or not path.exists():
            return _nothing(name)
        blob = self._vault.open(path.read_bytes(), BLOB_LABEL)
        if sha256(blob).hexdigest() != name:
            raise PolicyError(f"a part of the session state is another one: {name}")
        return blob

    def _erase_blobs(self, but: Collection[str] = ()) -> None:
        for path in self._folder.glob(f"*{BLOB}"):
            if path.name.removesuffix(BLOB) not in but:
                erase(path)

    def _erase_state(self) -> None:
        erase(self._folder / STATE)
        self._erase_blobs()

    # -- sessions ---------------------------------------------------------------------------------

    def end(
        self, session: str, reason: str, seen: str, request: str = "", reply: bytes = b""
    ) -> None:
        """Note the end and erase the state; also of a session that never began here."""
        now, self._told = time.time(), False
        began = self._records.get(session, Record(began=0.0)).began
        ended = Record(
            began=began, ended=now, reason=reason, request=request, reply=reply.hex(), seen=seen
        )
        try:
            self._put(session, ended)
        finally:
            if self.open_session() is None:
                self._erase_state()

    def decided(self, plan: str, words: str, accepted: bool) -> None:
        """Note the owner's decision about a plan, by its digest and that of the words shown."""
        entry = {"time": time.time(), "plan": plan, "words": words, "accepted": accepted}
        path = self._folder / CONSENT
        held = path.read_bytes() if path.exists() else b""
        write_private(path, held + json.dumps(entry).encode() + b"\n")

    def decisions(self) -> dict[tuple[str, str], bool]:
        """The latest by plan and words; what cannot be read is asked again."""
        path, found = self._folder / CONSENT, dict[tuple[str, str], bool]()
        for line in path.read_bytes().splitlines() if path.exists() else []:
            try:
                noted = json.loads(line)
                found[str(noted["plan"]), str(noted["words"])] = noted["accepted"] is True
            except (LookupError, TypeError, ValueError):
                log.warning("%s: a line is of no decision about words, and left out", path)
        return found

    def _put(self, session: str, record: Record) -> None:
        self._records[session] = record
        text = json.dumps(msgspec.to_builtins(self._records), indent=1)
        write_private(self._folder / SESSIONS, text.encode())


def codec(protocols: Sequence[str] = EVERY) -> Codec:
    """Of both ends of an owner's channel; protocols: of the owner at this one."""
    return Codec({**RECORDS, **BESIDE}, protocols)
