"""What a party signs before a reply of it leaves: see `commitments` for the order of messages.

A party's kernel and its driver load this alike: the kernel for replies that a secret made of what
it was asked (`parties.kernel.keys.session`), the driver for all others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.errors import PolicyError, ProtocolError
from protocols.exchange import signed_messages, signed_values
from protocols.exchange.body import Body
from protocols.exchange.labels import CONTRIBUTE, commit_of, repeated
from protocols.exchange.labels import KEYS as KEYS_STEP
from protocols.exchange.signed_values import SignedValue, committed_text, digest_of

if TYPE_CHECKING:
    from protocols.exchange.messages import Exchange

T = TypeVar("T")
ENDORSEMENT = "endorsement"


@dataclass(frozen=True, slots=True)
class Phase:
    """commit, open: its steps; what: of a party's is opened, for the words of errors."""

    commit: str
    open: str
    what: str


KEYS = Phase("commit-keys", KEYS_STEP, "key shares")
ROWS = Phase("commit-rows", CONTRIBUTE, "contributions")
CONFIRM = "confirm"


class View:
    """Digest of all that every party was asked alike, request by request, hexadecimal.

    Parties and coordinator have the same as long as all are told the same.
    """

    def __init__(self, seed: bytes) -> None:
        self.digest = hashlib.sha256(b"ciphercohort/view/1\0" + seed).hexdigest()

    def note(self, step: str, request: Body) -> None:
        """One more request."""
        asked = json.dumps([step, dict(request.meta), list(request.digests)], sort_keys=True)
        whole = bytes.fromhex(self.digest) + asked.encode()
        self.digest = hashlib.sha256(whole).hexdigest()

    def noting(self, exchange: Exchange[T], alike: Callable[[str], bool]) -> Exchange[T]:
        """The same exchange, its requests noted; alike: whether a step asks everyone the same."""
        replies: Any = None
        while True:
            try:
                asked = exchange.send(replies)
            except StopIteration as stop:
                found: T = stop.value
                return found
            if alike(asked.step):
                self.note(asked.step, next(iter(asked.bodies.values())))
            replies = yield asked


@dataclass(frozen=True, slots=True)
class Terms:
    """What commitments are bound to, and who makes them.

    seed: the joint seed, which holds plan and session; roster: verification keys by party; view: of
    what was asked up to the commitment, empty where the seed says it all.
    """

    phase: Phase
    seed: bytes
    roster: Mapping[str, str]
    view: str = ""

    @classmethod
    def of(cls, plan: Any, phase: Phase, seed: bytes) -> Terms:
        """Of one phase of a run."""
        return cls(phase, seed, plan.roster)

    @classmethod
    def of_round(
        cls,
        roster: Mapping[str, str],
        step: str,
        seed: bytes,
        missing: Collection[str],
        view: str,
    ) -> Terms:
        """Of one step, or of its repetition; roster: of the run; missing: who is covered for."""
        phase = Phase(commit_of(step), step, f"replies to {step!r}")
        present = {name: key for name, key in roster.items() if name not in missing}
        return cls(phase, seed, present, view)

    def text(self, kind: str, name: str, value: str) -> bytes:
        """What a party signs of its digest, or of the digest of all."""
        bound = self.seed + bytes.fromhex(self.view)
        return committed_text(kind, self.phase.open, bound, name, value)

    def digest(self, commitments: Mapping[str, SignedValue]) -> str:
        """Of all commitments, in the plan's order, hexadecimal."""
        listed = [[name, *asdict(commitments[name]).values()] for name in self.roster]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()

    def check(self, commitments: Mapping[str, SignedValue]) -> None:
        """Refuse commitments that are not one of each party, signed and its own.

        Raises:
            ProtocolError: names the parties whose commitments are alike, or the one whose was
                exchanged.
        """
        kind = f"commitment to the {self.phase.what}"
        signed_values.check(kind, partial(self.text, "commitment"), self.roster, commitments)
        first: dict[str, str] = {}
        for name in self.roster:
            other = first.setdefault(commitments[name].value, name)
            if other != name:
                raise ProtocolError(
                    f"parties {other!r} and {name!r} commit to the same {self.phase.what}: one of "
                    "them is a copy of the other; do not go on with them and this coordinator"
                )

    def check_endorsements(
        self, commitments: Mapping[str, SignedValue], endorsements: Mapping[str, SignedValue]
    ) -> None:
        """Refuse endorsements that are not of exactly these commitments, by every party.

        Raises:
            ProtocolError: names the party.
        """
        kind = f"endorsement of all {self.phase.what}"
        signed_values.check(kind, partial(self.text, ENDORSEMENT), self.roster, endorsements)
        shown = self.digest(commitments)
        for name, endorsement in endorsements.items():
            if endorsement.value != shown:
                raise ProtocolError(
                    f"party {name!r} was shown other commitments to the {self.phase.what}: the "
                    "coordinator tells the parties different things, or that party lies; do not "
                    "go on with them",
                    culprit=name,
                )


class Opening:
    """One message of a party: committed to, opened once, confirmed by all.

    name: this party; signing_key: its identity.
    """

    def __init__(self, terms: Terms, name: str, signing_key: Ed25519PrivateKey) -> None:
        self._terms, self._name, self._signing_key = terms, name, signing_key
        self._message: Body | None = None
        self._commitments: dict[str, SignedValue] = {}

    def commit(self, message: Body) -> Body:
        """Keep the message until it is opened; the reply to the step `commit-…`."""
        self._message = message
        return self._sign("commitment", digest_of(message.digests)).to_body()

    def open(self, request: Body) -> Body:
        """The message, with this party's endorsement of what everyone commits to.

        Raises:
            PolicyError: nothing is committed to, or it was opened. MessageError: malformed.
            ProtocolError: see `Terms.check`, or this party's own commitment was exchanged.
        """
        message = self._message
        if message is None:
            raise PolicyError(f"no {self._terms.phase.what} are committed to and unopened")
        commitments = signed_messages.of_request(request)
        self._terms.check(commitments)
        if commitments[self._name].value != digest_of(message.digests):
            raise ProtocolError(f"the commitment of {self._name!r} is not the one that it sent")
        endorsement = self._sign(ENDORSEMENT, self._terms.digest(commitments))
        self._message, self._commitments = None, commitments
        return message.beside({**message.meta, ENDORSEMENT: asdict(endorsement)})

    @property
    def is_open(self) -> bool:
        """Whether it was sent."""
        return bool(self._commitments)

    @property
    def commitments(self) -> Mapping[str, SignedValue]:
        """Everyone's, once it was sent."""
        return self._commitments

    @property
    def view(self) -> str:
        """That the commitment is bound to."""
        return self._terms.view

    def confirm(self, request: Body) -> None:
        """Go on only if everyone endorsed the set that this party opened for.

        Raises:
            PolicyError: nothing was opened. ProtocolError: see `Terms.check_endorsements`.
            MessageError: malformed.
        """
        if not self._commitments:
            raise PolicyError(f"no {self._terms.phase.what} were opened")
        endorsements = signed_messages.of_request(request)
        self._terms.check_endorsements(self._commitments, endorsements)

    def _sign(self, kind: str, value: str) -> SignedValue:
        text = partial(self._terms.text, kind)
        return SignedValue.by(self._signing_key, text, self._name, value)

    def state(self) -> Body:
        """For `restore`; nothing in it is secret: it was sent, or will be."""
        message = self._message
        meta = {
            "message": None if message is None else dict(message.meta),
            "commitments": {name: asdict(value) for name, value in self._commitments.items()},
        }
        return Body(meta, message.blobs if message else ())

    def restore(self, state: Body) -> None:
        """Inverse of `state`."""
        meta: Any = state.meta
        self._message = None if meta["message"] is None else Body(meta["message"], state.blobs)
        self._commitments = {
            name: SignedValue(**fields) for name, fields in meta["commitments"].items()
        }


class Kernel(Protocol):
    """What keeps a reply: `parties.kernel.keys.session.KeySession`."""

    def open_reply(self, request: Body) -> Body:
        """See `Opening.open`."""
        ...


class Held(Opening):
    """A reply that a party's kernel made, and keeps until it is opened."""

    def __init__(self, terms: Terms, name: str, kernel: Kernel) -> None:
        self._terms, self._name, self._kernel = terms, name, kernel
        self._message, self._commitments = None, {}

    def open(self, request: Body) -> Body:
        """See `Opening.open`."""
        opened = self._kernel.open_reply(request)
        self._commitments = signed_messages.of_request(request)
        return opened


@dataclass(frozen=True, slots=True)
class Hold:
    """A reply to a committed step that the kernel makes and keeps: in place of the message.

    make(step, before, asked): the digest that it signs; before: view before the request `asked`.
    """

    kernel: Kernel
    make: Callable[[str, str, Body], Body]


class Rounds:
    """A party's replies that are fixed before they are sent, one step after the other.

    view: of what this party was asked; confirmed by all with each commitment.

    roster: of the run; name: this party; signing_key: its identity.
    """

    def __init__(
        self, roster: Mapping[str, str], name: str, signing_key: Ed25519PrivateKey
    ) -> None:
        self._roster, self._name, self._signing_key = roster, name, signing_key
        self._step, self._missing = "", tuple[str, ...]()
        self.begin(b"")

    def begin(self, seed: bytes) -> None:
        """From now on; seed: the joint one."""
        self._seed, self.view = seed, View(seed)
        self._last: Opening | None = None

    @property
    def bound_to(self) -> str:
        """View that the last commitment is bound to; empty without one."""
        return self._last.view if self._last else ""

    def commit(
        self,
        step: str,
        reply: Body | Hold,
        missing: Collection[str],
        before: str = "",
        asked: Body | None = None,
    ) -> Body:
        """Keep the reply to a step until it is opened; missing: who is covered for.

        before: view before the request `asked`, for a kernel that holds the reply.
        """
        terms = self._take(step, missing, self.view.digest)
        if isinstance(reply, Body):
            return self._last_one.commit(reply)
        self._last = Held(terms, self._name, reply.kernel)
        return reply.make(step, before, asked or Body())

    def open(self, request: Body) -> Body:
        """The reply that was committed to; see `Opening.open`."""
        if self._last is None:
            raise PolicyError("no reply is committed to")
        return self._last.open(request)

    def confirm(self, step: str, request: Body) -> None:
        """Go on only if everyone endorsed what this party opened last.

        step: that is asked; where it repeats the last one, that one comes to nothing.

        Raises:
            ProtocolError, MessageError: see `Opening.confirm`.
        """
        if self._last is None or not self._last.is_open or repeated(step) == self._step:
            return
        self._last.confirm(request)
        self._last = None

    def forget(self) -> None:
        """Nobody endorses what was opened last: that all have signed for it is enough."""
        self._last = None

    @property
    def _last_one(self) -> Opening:
        assert self._last is not None  # noqa: S101 (it was just made)
        return self._last

    def _take(self, step: str, missing: Collection[str], view: str) -> Terms:
        self._step, self._missing = step, tuple(missing)
        terms = Terms.of_round(self._roster, step, self._seed, missing, view)
        self._last = Opening(terms, self._name, self._signing_key)
        return terms

    def state(self) -> Body:
        """For `restore`; nothing in it is secret, see `Opening.state`."""
        meta: dict[str, Any] = {"view": self.view.digest, "last": None}
        if self._last is None:
            return Body(meta)
        own, held = self._last.state(), isinstance(self._last, Held)
        meta["last"] = [self._step, list(self._missing), self._last.view, held, dict(own.meta)]
        return Body(meta, own.blobs)

    def restore(self, state: Body, seed: bytes, kernel: Kernel | None = None) -> None:
        """Inverse of `state`; seed: the joint one; kernel: that holds a reply."""
        self.begin(seed)
        self.view.digest = state.meta["view"]
        if state.meta["last"]:
            step, missing, view, held, own = state.meta["last"]
            terms = self._take(step, missing, view)
            if held and kernel is not None:
                self._last = Held(terms, self._name, kernel)
            self._last_one.restore(Body(own, state.blobs))
