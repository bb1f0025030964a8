"""What a party signs before a reply of it leaves: see `commitments` for the order of messages.

A party's kernel loads this, for replies that a secret made of what it was asked
(`parties.kernel.keys.session`); its driver, for all others, with what comes after the opening:
`endorsed`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import partial

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.errors import PolicyError, ProtocolError
from protocols.exchange import Body, commit_of, signed_values
from protocols.exchange.signed_values import SignedValue, committed_text, digest_of

ENDORSEMENT = "endorsement"


@dataclass(frozen=True, slots=True)
class Phase:
    """commit, open: its steps; what: of a party's is opened, for the words of errors."""

    commit: str
    open: str
    what: str


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


class Opening:
    """One message of a party: committed to, opened once.

    name: this party; signing_key: its identity.
    """

    STATE = ("_message", "_commitments")

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
        endorsement = self._sign(ENDORSEMENT, self._terms.digest(commitments))
        self._message, self._commitments = None, commitments
        return message.beside({**message.meta, ENDORSEMENT: asdict(endorsement)})

    @property
    def view(self) -> str:
        """That the commitment is bound to."""
        return self._terms.view

    def _sign(self, kind: str, value: str) -> SignedValue:
        text = partial(self._terms.text, kind)
        return SignedValue.by(self._signing_key, text, self._name, value)
