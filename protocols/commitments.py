"""Commit, then open: no party's message depends on another's, and all parties are told the same.

    commit-…  -> what the message needs   <- {value, signature}: digest of the message, signed
    <open>    -> {signed}: of everyone    <- the message, {endorsement}
    a later step -> {signed}: the endorsements of everyone

So go the key shares (`keygen`), each contribution, encrypted under a joint public key that its
party adds up itself (`contribute`), and the replies of every step that the protocol calls committed
(`Rounds`): those of whose sum an element is made that a secret is multiplied by later on.

    commit-refresh/3 -> {signed: endorsements of what was opened last}, the request  <- a digest
    refresh/3        -> {signed: of everyone}                        <- the reply, {endorsement}
    commit-refresh/4 -> {signed: endorsements of refresh/3}, ...

Security
- The digest is SHA-256 over the digests of the message's blobs. Each blob holds fresh errors, so
  the digest tells nothing, and one blob can be checked beside the digests of the others.
- A party opens only where there is exactly one commitment for each member of the plan, signed by
  its identity key for this session, its own among them unchanged, no two alike. So all messages are
  fixed before the first is seen: none can be a function of another's.
- With its message it signs the digest of the whole set that it was shown: its endorsement. Later
  it asks for everyone's, of the very same set, before it encrypts (key shares) and before it has
  anything refreshed or decrypted (contributions). A coordinator that tells parties different sets
  is refused there.
- The coordinator holds what is opened against the digests. Parties do so with the public key's
  shares. That it adds up the contributions that were opened is its word: see `coordinator.replay`,
  for which a colluding party's contribution is fixed before it has seen another one.
- Who commits and does not open ends the run, or is covered for (`cover`): the repetition is
  committed to as well.
- What is signed in a round holds the view: the digest of all that everyone was asked alike, from
  the key shares to this request, and with it who is covered for by whom. So nobody opens a reply,
  or answers for a missing party, before all who are left have signed that they were asked the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols import signed_messages, signed_values
from protocols.errors import MessageError, PolicyError, ProtocolError
from protocols.labels import commit_of, repeated
from protocols.messages import Body, Exchange, Fold, to_everyone
from protocols.plan import RunPlan
from protocols.serialise import from_plain
from protocols.signed_values import SignedValue
from protocols.wire import reply_of

T = TypeVar("T")
_ENDORSEMENT = "endorsement"


@dataclass(frozen=True, slots=True)
class Phase:
    """commit, open: its steps; what: of a party's is opened, for the words of errors."""

    commit: str
    open: str
    what: str


KEYS = Phase("commit-keys", "keys", "key shares")
ROWS = Phase("commit-rows", "contribute", "contributions")
CONFIRM = "confirm"


def digest_of(blobs: Sequence[str]) -> str:
    """Digest of a message from the digests of its blobs; all hexadecimal."""
    text = b"ciphercohort/message-digest/1\0" + json.dumps(list(blobs)).encode()
    return hashlib.sha256(text).hexdigest()


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
    def of(cls, plan: RunPlan, phase: Phase, seed: bytes) -> Terms:
        """Of one phase of a run."""
        return cls(phase, seed, plan.roster)

    @classmethod
    def of_round(
        cls, plan: RunPlan, step: str, seed: bytes, missing: Collection[str], view: str
    ) -> Terms:
        """Of one step, or of its repetition; missing: who is covered for."""
        phase = Phase(commit_of(step), step, f"replies to {step!r}")
        present = {name: key for name, key in plan.roster.items() if name not in missing}
        return cls(phase, seed, present, view)

    def text(self, kind: str, name: str, value: str) -> bytes:
        """What a party signs of its digest, or of the digest of all."""
        purpose = f"ciphercohort/{kind}/1\0{self.phase.open}\0".encode()
        bound = self.seed + bytes.fromhex(self.view)
        return purpose + bound + bytes.fromhex(value) + name.encode()

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
        signed_values.check(kind, partial(self.text, _ENDORSEMENT), self.roster, endorsements)
        shown = self.digest(commitments)
        for name, endorsement in endorsements.items():
            if endorsement.value != shown:
                raise ProtocolError(
                    f"party {name!r} was shown other commitments to the {self.phase.what}: the "
                    "coordinator tells the parties different things, or that party lies; do not "
                    "go on with them",
                    culprit=name,
                )


# -- party half -----------------------------------------------------------------------------------


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
        endorsement = self._sign(_ENDORSEMENT, self._terms.digest(commitments))
        self._message, self._commitments = None, commitments
        return message.beside({**message.meta, _ENDORSEMENT: asdict(endorsement)})

    @property
    def is_open(self) -> bool:
        """Whether it was sent."""
        return bool(self._commitments)

    @property
    def view(self) -> str:
        """That the commitment is bound to."""
        return self._terms.view

    def is_committed(self, name: str, blobs: Sequence[str]) -> bool:
        """Whether a party committed to a message of these blobs, given as digests."""
        commitment = self._commitments.get(name)
        return commitment is not None and commitment.value == digest_of(blobs)

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


class Rounds:
    """A party's replies that are fixed before they are sent, one step after the other.

    view: of what this party was asked; confirmed by all with each commitment.

    plan: of the run; name: this party; signing_key: its identity.
    """

    def __init__(self, plan: RunPlan, name: str, signing_key: Ed25519PrivateKey) -> None:
        self._plan, self._name, self._signing_key = plan, name, signing_key
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

    def commit(self, step: str, reply: Body, missing: Collection[str]) -> Body:
        """Keep the reply to a step until it is opened; missing: who is covered for."""
        self._take(step, missing, self.view.digest)
        assert self._last is not None  # noqa: S101 (it was just made)
        return self._last.commit(reply)

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

    def _take(self, step: str, missing: Collection[str], view: str) -> None:
        self._step, self._missing = step, tuple(missing)
        terms = Terms.of_round(self._plan, step, self._seed, missing, view)
        self._last = Opening(terms, self._name, self._signing_key)

    def state(self) -> Body:
        """For `restore`; nothing in it is secret, see `Opening.state`."""
        meta: dict[str, Any] = {"view": self.view.digest, "last": None}
        if self._last is None:
            return Body(meta)
        own = self._last.state()
        meta["last"] = [self._step, list(self._missing), self._last.view, dict(own.meta)]
        return Body(meta, own.blobs)

    def restore(self, state: Body, seed: bytes) -> None:
        """Inverse of `state`; seed: the joint one."""
        self.begin(seed)
        self.view.digest = state.meta["view"]
        if state.meta["last"]:
            step, missing, view, own = state.meta["last"]
            self._take(step, missing, view)
            assert self._last is not None  # noqa: S101 (it was just made)
            self._last.restore(Body(own, state.blobs))


# -- coordinator half -----------------------------------------------------------------------------


class Gathering:
    """What everyone commits to, opens and endorses, as the coordinator takes it in.

    terms: see `Terms`; fold: takes each message, once it is what was committed to.
    """

    def __init__(self, terms: Terms, fold: Fold) -> None:
        self._terms, self._fold = terms, fold
        self._commitments: dict[str, SignedValue] = {}
        self._endorsements: dict[str, SignedValue] = {}

    def committed(self, replies: Mapping[str, Body]) -> Body:
        """The request to open, from the replies to the step `commit-…`.

        Raises:
            ProtocolError: see `Terms.check`.
        """
        self._commitments = signed_messages.replied(replies)
        self._terms.check(self._commitments)
        return signed_messages.to_request(self._commitments)

    def take(self, name: str, body: Body) -> Body:
        """One party's message, opened.

        Raises:
            ProtocolError: names the party that opened something else.
        """
        if digest_of(body.digests) != self._commitments[name].value:
            raise ProtocolError(
                f"party {name!r} opened other {self._terms.phase.what} than it committed to",
                culprit=name,
            )
        try:
            endorsement = from_plain(SignedValue, body.meta.get(_ENDORSEMENT))
        except MessageError as error:
            raise ProtocolError(f"party {name!r}: {error}", culprit=name) from None
        folded = self._fold(name, body)
        self._endorsements[name] = endorsement
        return folded

    def endorsed(self, replies: Mapping[str, Body]) -> Body:
        """Everyone's endorsements, as the next step hands them out.

        replies: of the step, folded or not.

        Raises:
            ProtocolError: names the party that endorsed something else, or did not reply.
        """
        for name in self._terms.roster:
            if name not in self._endorsements:
                self.take(name, reply_of(replies, name))
        self._terms.check_endorsements(self._commitments, self._endorsements)
        return signed_messages.to_request({n: self._endorsements[n] for n in self._terms.roster})


def opened(terms: Terms, request: Body, fold: Fold) -> Exchange[Body]:
    """Have everyone commit, then open; everyone's endorsements, as a later step hands them out.

    request: of the step `commit-…`; fold: takes each message, once it is what was committed to.

    Raises:
        ProtocolError: names the party that opened something else, or endorsed something else.
    """
    names, phase, gathering = tuple(terms.roster), terms.phase, Gathering(terms, fold)
    whole = gathering.committed((yield to_everyone(phase.commit, names, request)))
    return gathering.endorsed((yield to_everyone(phase.open, names, whole, gathering.take)))
