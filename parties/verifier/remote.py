"""An owner's kernel in another process, with the methods that it has in this one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import protocols.errors as errors
from parties.kernel.channel import Channel, Handle
from parties.kernel.private import HiddenError, Private
from parties.kernel.serving import METHODS
from parties.policy import PublicError, ToldError
from parties.reader.schema import Schema
from protocols.ckks.shared_keys import public_context
from protocols.errors import CohortError, MessageError, PolicyError
from protocols.exchange import Body

SESSIONS = {
    "CoveredSheet": "CoveredKeys",
    "KeysSheet": "KeySession",
    "ModelSheet": "ModelSession",
    "RowsSheet": "RowsSession",
    "SumsSheet": "SumsSession",
}


class Calls:
    """One call at a time over a channel; what a kernel refuses is raised here as it was there."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._lock = channel, threading.Lock()
        self.private: Private | None = None
        self.ended: Callable[[], object] = lambda: None

    def __call__(self, name: str, *values: Any) -> Any:
        """What the kernel answers.

        Raises:
            CohortError: as the kernel raised it. HiddenError: its words are for the owner alone.
        """
        try:
            with self._lock:
                self._channel.send((name, *values))
                outcome, *found = self._channel.receive()
        except (EOFError, OSError):
            self.ended()
            raise PolicyError("this party's kernel has ended") from None
        if outcome == "hidden":
            raise HiddenError
        if outcome == "refused":
            raise _error(*found)
        value, touched = found
        if touched and self.private is not None:
            self.private.touch()
        return value


def _error(kind: str, text: str, touched: bool = False, culprit: str | None = None) -> CohortError:
    if kind == ToldError.__name__:
        return PublicError(text)
    found = getattr(errors, kind, MessageError)
    if found is errors.ProtocolError:
        return errors.ProtocolError(text, culprit)
    is_ours = isinstance(found, type) and issubclass(found, CohortError)
    return (
        found(text)
        if is_ours and not issubclass(found, errors.ProtocolError)
        else (MessageError(text))
    )


class RemoteKey:
    """An identity that signs elsewhere."""

    def __init__(self, calls: Calls, verify_key: str) -> None:
        self._calls, self._public = calls, bytes.fromhex(verify_key)

    def sign(self, text: bytes) -> bytes:
        """Ed25519."""
        return bytes(self._calls("sign", text))

    def public_key(self) -> Ed25519PublicKey:
        """Its verification key."""
        return Ed25519PublicKey.from_public_bytes(self._public)


class RemoteRows:
    """Public figures of rows that are elsewhere; of a run, once they are `used`."""

    def __init__(self, view: str, rows: int, schema: Schema, handle: Handle | None = None) -> None:
        self.view, self.rows, self.schema, self.handle = view, rows, schema, handle
        self.num_features = schema.num_features


class RemoteViews:
    """The same rows, otherwise encoded: `parties.reader.views.Views`."""

    def __init__(self, rows: int, schema: Schema) -> None:
        self._rows, self._schema = rows, schema

    def find(self, view: str, digest: str) -> RemoteRows | None:
        """Rows of a view whose schema has this digest; None: there is no such view."""
        from parties.reader.views import views_of  # loads what reads tables

        for schema in views_of(self._schema, view):
            if schema.digest() == digest:
                return RemoteRows(view, self._rows, schema)
        return None


class RemoteAccount:
    """One run's entry in the ledger: `parties.account.Account`."""

    def __init__(self, calls: Calls, is_kept: bool) -> None:
        self._calls, self.is_kept = partial(calls, "account"), is_kept

    def require(self, run: str) -> None:
        """Refuse to go on from a run that the ledger was not charged for."""
        self._calls("require", run)

    def reserve(self, cost: Any, run: str) -> None:
        """Count the run as spent."""
        self._calls("reserve", tuple(cost.events), cost.additive_delta, run)

    def spend(self) -> None:
        """From here on the run cannot be taken back; one that is over was charged there."""
        with suppress(PolicyError):
            self._calls("spend")

    def commit(self) -> None:
        """The run ended regularly."""
        self._calls("commit")


class RemoteSession:
    """A session of the kernel; kind: its class there; seed: of one that was there before."""

    def __init__(
        self, calls: Calls, kind: str, handle: Handle, seed: bytes | None, sheet: Any
    ) -> None:
        self._calls, self._kind, self._handle = calls, kind, handle
        self._seed, self._sheet = seed, sheet

    def __repr__(self) -> str:
        return f"RemoteSession({self._kind})"

    def __getattr__(self, name: str) -> Any:
        if name in METHODS[self._kind]:
            return partial(self._call, name)
        raise AttributeError(name)

    def _call(self, name: str, *values: Any, **named: Any) -> Any:
        return self._calls("call", self._handle, name, values, named)

    def begin(self, *seeds: Mapping[str, str]) -> bytes:
        """Make its secrets, once; seeds: of a session that needs them; the joint seed."""
        if self._seed is None:
            self._seed = bytes(self._call("begin", *seeds))
        return self._seed

    def erase(self) -> None:
        """Forget them."""
        try:
            self._call("erase")
        except (PolicyError, HiddenError):
            return

    def stand_in(self, request: Body) -> Callable[[], None]:
        """See `KeySession.stand_in`."""
        self._call("stand_in", Body(dict(request.meta), request.blobs))
        return partial(self._calls, "undo")

    @property
    def missing(self) -> tuple[str, ...]:
        """See `KeySession.missing`."""
        return tuple(self._call("missing"))

    @property
    def seed(self) -> bytes:
        """The joint one."""
        return bytes(self._seed or b"")

    @cached_property
    def context(self) -> Any:
        """What is public about the keys' ring."""
        return public_context(self._sheet.params, self._sheet.session)


class RemoteRun:
    """`parties.kernel.run.Run`, elsewhere."""

    def __init__(
        self, calls: Calls, name: str, verify_key: str, rows: int, schema: Schema, is_kept: bool
    ) -> None:
        self.name, self._calls = name, calls
        self.rows, self.views = RemoteRows("", rows, schema), RemoteViews(rows, schema)
        self.signing_key = RemoteKey(calls, verify_key)
        self.account = RemoteAccount(calls, is_kept)
        self.private = calls.private = Private(self.account)

    def used(self, rows: RemoteRows, held_out: Any = None, *plans: str) -> RemoteRows:
        """See `Run.used`."""
        handle = self._calls("used", rows.view, rows.schema.digest(), held_out, *plans)
        return RemoteRows(rows.view, rows.rows, rows.schema, handle)

    def open(self, sheet: Any, rows: RemoteRows, stream: str = "", **beside: Any) -> RemoteSession:
        """See `Run.open`; beside: what a process shares, which the kernel's has itself."""
        handle, seed = self._calls("open", sheet, rows.handle, stream)
        return RemoteSession(self._calls, SESSIONS[type(sheet).__name__], handle, seed, sheet)

    @property
    def commitment(self) -> str:
        """See `Run.commitment`."""
        return str(self._calls("commitment"))

    def agree(self, plan: str, commitments: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
        """See `Run.agree`."""
        sheets, signature = self._calls("agree", plan, commitments)
        return sheets, signature

    def reveal(self, signatures: Mapping[str, str]) -> bytes:
        """See `Run.reveal`."""
        return bytes(self._calls("reveal", signatures))

    def take_back(self) -> None:
        """See `Run.take_back`; of a run that is over there it is done."""
        with suppress(PolicyError):
            self._calls("take_back")

    def row_seal(self, rows: RemoteRows, plan: str) -> str:
        """See `Run.row_seal`."""
        return str(self._calls("row_seal", rows.handle, plan))

    def state(self) -> None:
        """Nothing: it stays where it is."""

    def restore(self, state: None) -> None:
        """Nothing to do."""


class RemoteStore:
    """The agent's folder: `parties.agent.store.SessionStore`."""

    def __init__(self, calls: Calls, is_kept: bool) -> None:
        self._calls, self.is_kept, self.has_resumed = calls, is_kept, False

    def __getattr__(self, name: str) -> Any:
        return partial(self._calls, "store", name)

    def save(self, party: Any) -> None:
        """Returns when both sides' state is on disk."""
        self._calls("save", party.state(), party.answered)

    def resume(self, make: Callable[[], Any]) -> Any:
        """The party of the open session, or None where its state was not kept."""
        found = self._calls("resume")
        if found is None:
            return None
        self.has_resumed = True
        party = make()
        party.restore(found)
        return party


class RemoteOwner:
    """`parties.agent.owner.Owner`, elsewhere.

    told: its name, verify_key, rows, schema, and what of its files is kept.
    """

    def __init__(self, calls: Calls, told: Mapping[str, Any]) -> None:
        self._calls, self.schema = calls, Schema.from_dict(told["schema"])
        self._values = (
            *(told["name"], told["verify_key"], told["rows"]),
            *(self.schema, told["has_ledger"]),
        )
        self.name = str(told["name"])
        self.signing_key = RemoteKey(calls, told["verify_key"])
        self.store = RemoteStore(calls, told["keeps_sessions"])

    def begin(self) -> RemoteRun:
        """A new run, or the one that the kernel has just resumed."""
        if self.store.has_resumed:
            self.store.has_resumed = False
        else:
            self._calls("begin")
        return RemoteRun(self._calls, *self._values)

    def peers(self) -> Mapping[str, str]:
        """Verification keys of the other parties, as they are now."""
        found: Mapping[str, str] = self._calls("peers")
        return found

    def keep(self, session: str, plan: str, outcome: str) -> None:
        """Note what a finished session released."""
        self._calls("keep", session, plan, outcome)

    def had_these_rows(self, plan: str) -> bool | None:
        """Whether a finished session was of the rows as they are now; None: no record."""
        found: bool | None = self._calls("had_these_rows", plan)
        return found

    def asked_of(self, plan: str) -> dict[str, Any]:
        """What the study that a plan began was asked for; empty: no record."""
        found: dict[str, Any] = self._calls("asked_of", plan)
        return found

    def foresee(
        self, events: Sequence[Any], additive_delta: float, run: str
    ) -> dict[str, Any] | None:
        """The owner's budget, before and after a run."""
        found: dict[str, Any] | None = self._calls("foresee", tuple(events), additive_delta, run)
        return found
