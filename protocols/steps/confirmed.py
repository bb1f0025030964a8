"""What a party signs before a reply of it leaves: see `commitments` for the order of messages.

A party's kernel loads this, for replies that a secret made of what it was asked
(`parties.kernel.keys.session`); its driver, for all others, with what comes after the opening:
`endorsed`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.errors import ProtocolError
from protocols.exchange import Body, signed_values
from protocols.exchange.signed_values import SignedValue, committed_text, digest_of

ENDORSEMENT = "endorsement"


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
class CommitTerms:
    """What commitments are bound to, and who makes them.

    step: in which what they are of opens; seed: the joint seed, which holds plan and session;
    roster: verification keys by party; what: of a party's is opened, for the words of errors; view:
    of what was asked up to the commitment, empty where the seed says it all.
    """

    step: str
    seed: bytes
    roster: Mapping[str, str]
    what: str
    view: str = ""

    def text(self, kind: str, name: str, value: str) -> bytes:
        """What a party signs of its digest, or of the digest of all."""
        bound = self.seed + bytes.fromhex(self.view)
        return committed_text(kind, self.step, bound, name, value)

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
        kind = f"commitment to the {self.what}"
        signed_values.check(kind, partial(self.text, "commitment"), self.roster, commitments)
        first: dict[str, str] = {}
        for name in self.roster:
            other = first.setdefault(commitments[name].value, name)
            if other != name:
                raise ProtocolError(
                    f"parties {other!r} and {name!r} commit to the same {self.what}: one of "
                    "them is a copy of the other; do not go on with them and this coordinator"
                )

    def commit(self, message: Body, name: str, key: Ed25519PrivateKey) -> Body:
        """Reply to the step `commit-…` of the party that keeps the message; key: its identity."""
        return self._signed("commitment", digest_of(message.digests), name, key).to_body()

    def open(self, message: Body, request: Body, name: str, key: Ed25519PrivateKey) -> Body:
        """The message, with its party's endorsement of what everyone commits to.

        Raises:
            MessageError: malformed. ProtocolError: see `check`, or this party's own commitment was
                exchanged.
        """
        commitments = signed_values.of_request(request)
        self.check(commitments)
        if commitments[name].value != digest_of(message.digests):
            raise ProtocolError(f"the commitment of {name!r} is not the one that it sent")
        endorsement = self._signed(ENDORSEMENT, self.digest(commitments), name, key)
        return message.beside({**message.meta, ENDORSEMENT: asdict(endorsement)})

    def _signed(self, kind: str, value: str, name: str, key: Ed25519PrivateKey) -> SignedValue:
        return SignedValue.by(key, partial(self.text, kind), name, value)
