"""The party agent: one party over many sessions, idempotent, with consent and with an end.

Flower's node relays messages and keeps nothing. The agent is what stays: it holds the key share,
answers a repeated request with the same bytes, also after a restart, and erases everything secret
when a session ends, falls silent or takes too long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parties.agent.consent import Consent
from parties.agent.settings import Limits
from parties.agent.store import SessionStore
from parties.policy import End, Reason, ToldError
from parties.verifier.party import Party
from protocols.errors import CohortError, PolicyError
from protocols.exchange.messages import (
    DEFAULT_SIZE_CAP,
    UNHEARD,
    Body,
    Envelope,
    decode,
    digest,
    encode,
)
from protocols.exchange.relayed import parted
from protocols.names import COORDINATOR, is_session
from protocols.plan.protocol import ABORT
from protocols.plan.statement import make_statement
from protocols.words import printable

log = logging.getLogger(__name__)


class Agent:
    """Answers messages of one session at a time.

    make_party: a party for a new session, from the owner's files; keep: takes session, digest of
    the plan and outcome, as of `Party.outcome`, of one that has finished.

    Security: the state is durable before a reply leaves (`SessionStore.save`); a session that
    ended, or whose key share was lost, is never begun again. What a coordinator hears is the
    party's reply, or one of the sentences of `parties.policy`: all else is in the owner's log.
    """

    _lock = threading.Lock()  # of all agents of a process: OpenFHE's maps of keys are global

    def __init__(
        self,
        *,
        name: str,
        make_party: Callable[[], Party],
        signing_key: Ed25519PrivateKey,
        coordinator_key: str,
        store: SessionStore,
        consent: Consent,
        limits: Limits | None = None,
        size_cap: int = DEFAULT_SIZE_CAP,
        keep: Callable[[str, str, str], object] = lambda session, plan, outcome: None,
    ) -> None:
        self._keep = keep
        self.name, self.consent, self.size_cap = name, consent, size_cap
        self._make_party, self._store = make_party, store
        self._signing_key, self._coordinator_key = signing_key, coordinator_key
        self._limits = limits or Limits()
        self._party: Party | None = None
        self._step, self._busy, self._heard = "", 0, time.monotonic()
        self._saved = 0, UNHEARD  # steps answered, head
        self._session = store.open_session()
        if self._session is not None:
            self._resume(self._session)

    # -- messages ---------------------------------------------------------------------------------

    def handle(self, data: bytes) -> bytes:
        """Answer one message; a refusal is a signed reply as well.

        Raises:
            MessageError: the message is not from the coordinator (nothing is answered).
        """
        whole, (data, relayed) = data, parted(data)
        request = decode(data, self._coordinator_key, size_cap=self.size_cap)
        try:
            with self._lock:
                known = self._known(request, data)
                if known is not None:
                    return known
                self._busy += 1
            try:
                if request.step == "agree":
                    self._require_consent(request, relayed)
                with self._lock:
                    return self._answer(request, whole)
            finally:
                with self._lock:
                    self._busy -= 1
                    self._heard = time.monotonic()
        except ToldError as error:
            log.warning("%s refuses %s: %s", self.name, request.step, error)
            reason = str(error)
        except CohortError as error:
            log.warning("%s fails at %s: %s", self.name, request.step, error)
            reason = Reason.FAILED.value
        except Exception:
            log.exception("%s fails at %s:", self.name, request.step)
            reason = Reason.FAILED.value
        with self._lock:
            return self._refuse(request, data, reason)

    def _known(self, request: Envelope, data: bytes) -> bytes | None:
        """A reply that needs no party; else the session is open afterwards."""
        if not is_session(request.session):
            raise ToldError(Reason.NAME, session=repr(request.session))
        record = self._store.record(request.session)
        if record and record.ended:
            if record.request == digest(data):
                return bytes.fromhex(record.reply)
            raise _over(request, End.of(record.reason))
        if request.recipient != self.name or request.sender != COORDINATOR:
            raise ToldError(Reason.ADDRESS, party=repr(request.recipient))
        if request.step == ABORT:
            return self._abort(request, data)
        if self._session is None:
            if request.step != "enrol":
                raise ToldError(Reason.UNKNOWN, session=repr(request.session))
            self._begin(request.session)
        elif request.session != self._session:
            log.warning("%s is busy with session %s", self.name, self._session)
            raise ToldError(Reason.BUSY)
        return None

    def _abort(self, request: Envelope, data: bytes) -> bytes:
        said = printable(str(request.body.meta.get("reason", ""))[:500])
        reason = f"{End.ABORTED.value}: {said}"
        reply = self._sign(request, data, Body())
        if self._store.record(request.session):
            self._end(reason, digest(data), reply)
        else:  # a late `enrol` may still be on its way
            self._store.end(request.session, reason, "", digest(data), reply)
        return reply

    def _require_consent(self, request: Envelope, relayed: tuple[bytes, ...] | None) -> None:
        """Ask the owner about a plan that the party would agree to, and about no other."""
        try:
            with self._lock:
                party = self._party if request.session == self._session else None
                plan = party.examine(request, relayed) if party else None
        except Exception:
            return  # the party says what is wrong
        if party is not None and plan is not None:
            self.consent.require(plan)
            party.consented = plan.digest()

    def _answer(self, request: Envelope, data: bytes) -> bytes:
        party = self._party
        if party is None or request.session != self._session:
            raise _over(request, End.LOST)
        reply = party.handle(data)
        if party.answered == 0:
            self._end(End.REFUSED.value, digest(data), reply)
        elif party.answered > self._saved[0] and request.step == "finish":
            self._keep(request.session, *party.outcome(request.body))
            self._end(End.FINISHED.value, digest(data), reply)
        else:
            self._save(party, request.step)
        return reply

    def _refuse(self, request: Envelope, data: bytes, reason: str) -> bytes:
        party, own = self._party, request.recipient == self.name
        if party is None or request.session != self._session or not own:
            return self._sign(request, data, Body({"error": reason}))
        try:
            reply = party.refuse(request, digest(data), reason)
            self._save(party, request.step)
        except (CohortError, OSError) as error:  # nothing that it heard is durable, nor signed
            log.warning("%s keeps no state: %s", self.name, error)
            return self._sign(request, data, Body({"error": reason}))
        return reply

    def _save(self, party: Party, step: str) -> None:
        """Before a reply leaves: keep what the request has changed."""
        if (party.answered, party.seen) == self._saved:
            return
        if party.answered > self._saved[0]:
            self._step = step
        self._store.save(party)
        self._saved = party.answered, party.seen

    def _sign(self, request: Envelope, data: bytes, body: Body) -> bytes:
        envelope = Envelope(
            request.session, request.step, self.name, COORDINATOR, body, answers=digest(data)
        )
        return encode(envelope, self._signing_key)

    # -- sessions ---------------------------------------------------------------------------------

    def _begin(self, session: str) -> None:
        self._party, self._saved = self._make_party(), (0, UNHEARD)
        self._party.consented = ""
        self._store.save(self._party)
        self._store.begin(session)
        self._session, self._heard = session, time.monotonic()
        log.warning("%s: session %s begins", self.name, session)

    def _resume(self, session: str) -> None:
        try:
            self._party = self._store.resume(self._make_party)
            reason = End.RESTARTED.value
        except (CohortError, OSError) as error:
            reason = str(error)
        if self._party is None:
            self._end(reason)
        else:
            self._party.consented = ""
            self._saved = self._party.answered, self._party.seen
            log.warning("%s: session %s goes on", self.name, session)

    def _end(self, reason: str, request: str = "", reply: bytes = b"") -> None:
        if self._party is not None:
            self._party.close()
        if self._session is not None:
            seen = self._party.seen if self._party else ""
            self._store.end(self._session, reason, seen, request, reply)
            self.consent.end(self._session)
            log.warning("%s: session %s is over: %s", self.name, self._session, reason)
        self._party, self._session, self._step = None, None, ""

    def tick(self) -> None:
        """End a session that is over its limits; call it every second or so."""
        with self._lock:
            record = self._store.record(self._session) if self._session else None
            if record is None or self._busy:
                return
            silent = time.monotonic() - self._heard
            if silent > self._limits.idle_seconds:
                self._end(f"{End.SILENT.value} ({self._limits.idle_seconds:g} s)")
            elif time.time() - record.began > self._limits.session_seconds:
                self._end(f"{End.LATE.value} ({self._limits.session_seconds:g} s)")

    def give_up(self) -> str | None:
        """End the session because its owner says so; returns its name."""
        with self._lock:
            session = self._session
            self._end(End.GIVEN_UP.value)
            return session

    def statement(self, session: str | None = None) -> bytes:
        """This party's signed word on what it was asked; session: the latest where None.

        Raises:
            PolicyError: the session is unknown or goes on, or its record was lost.
        """
        with self._lock:
            session = session or self._store.latest()
            record = self._store.record(session) if session else None
        if session is None or record is None:
            raise PolicyError(f"session {session!r} is unknown here")
        if not record.ended:
            raise PolicyError(
                f"session {session!r} goes on, so that a statement would not be the last word: "
                "cohort party abort ends it"
            )
        if not record.seen:
            raise PolicyError(f"what was asked in session {session!r} was lost with its state")
        return make_statement(session, self.name, record.seen, self._signing_key)

    def status(self) -> dict[str, Any]:
        """What its owner may see: no data, no key; last: the latest session, if it is over."""
        last = self._store.latest()
        record = self._store.record(last) if last else None
        return {
            "party": self.name,
            "session": self._session,
            "step": self._step,
            "silent_seconds": round(time.monotonic() - self._heard, 1),
            "pending": self.consent.pending(),
            "last": {"session": last, "reason": record.reason} if record and record.ended else None,
        }

    def close(self) -> None:
        """The process ends: a session that is not kept on disk ends with it."""
        with self._lock:
            if not self._store.is_kept:
                self._end(End.STOPPED.value)
            self._party = None


def _over(request: Envelope, end: End) -> ToldError:
    return ToldError(Reason.OVER, session=repr(request.session), end=end.value)
