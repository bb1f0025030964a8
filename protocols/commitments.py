"""Commit, then open: no party's message depends on another's, and all parties are told the same.

    commit-…  -> what the message needs   <- {value, signature}: digest of the message, signed
    <open>    -> {signed}: of everyone    <- the message, {endorsement}
    a later step -> {signed}: the endorsements of everyone

Two messages of each party go this way: its key shares (`keygen`), and its contribution, encrypted
under a joint public key that it adds up itself (`contribute`).

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
- Who commits and does not open ends the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols import signed_values
from protocols.errors import MessageError, PolicyError, ProtocolError
from protocols.messages import Body, Exchange, Fold, to_everyone
from protocols.plan import RunPlan
from protocols.serialise import from_plain
from protocols.signed_values import SignedValue
from protocols.wire import reply_of

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


@dataclass(frozen=True, slots=True)
class Terms:
    """What commitments are bound to, and who makes them.

    seed: the joint seed, which holds plan and session; roster: verification keys by party.
    """

    phase: Phase
    seed: bytes
    roster: Mapping[str, str]

    @classmethod
    def of(cls, plan: RunPlan, phase: Phase, seed: bytes) -> Terms:
        """Of one phase of a run."""
        return cls(phase, seed, plan.roster)

    def text(self, kind: str, name: str, value: str) -> bytes:
        """What a party signs of its digest, or of the digest of all."""
        purpose = f"ciphercohort/{kind}/1\0{self.phase.open}\0".encode()
        return purpose + self.seed + bytes.fromhex(value) + name.encode()

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
        commitments = signed_values.of_request(request)
        self._terms.check(commitments)
        if commitments[self._name].value != digest_of(message.digests):
            raise ProtocolError(f"the commitment of {self._name!r} is not the one that it sent")
        endorsement = self._sign(_ENDORSEMENT, self._terms.digest(commitments))
        self._message, self._commitments = None, commitments
        return Body({**message.meta, _ENDORSEMENT: asdict(endorsement)}, message.blobs)

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
        endorsements = signed_values.of_request(request)
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


# -- coordinator half -----------------------------------------------------------------------------


def opened(terms: Terms, request: Body, fold: Fold) -> Exchange[Body]:
    """Have everyone commit, then open; everyone's endorsements, as a later step hands them out.

    request: of the step `commit-…`; fold: takes each message, once it is what was committed to.

    Raises:
        ProtocolError: names the party that opened something else, or endorsed something else.
    """
    names, phase = tuple(terms.roster), terms.phase
    commitments = signed_values.replied((yield to_everyone(phase.commit, names, request)))
    terms.check(commitments)
    endorsements: dict[str, SignedValue] = {}

    def take(name: str, body: Body) -> Body:
        if digest_of(body.digests) != commitments[name].value:
            raise ProtocolError(
                f"party {name!r} opened other {phase.what} than it committed to", culprit=name
            )
        try:
            endorsements[name] = from_plain(SignedValue, body.meta.get(_ENDORSEMENT))
        except MessageError as error:
            raise ProtocolError(f"party {name!r}: {error}", culprit=name) from None
        return fold(name, body)

    replies = yield to_everyone(phase.open, names, signed_values.to_request(commitments), take)
    for name in names:
        if name not in endorsements:
            take(name, reply_of(replies, name))
    terms.check_endorsements(commitments, endorsements)
    return signed_values.to_request({name: endorsements[name] for name in names})
