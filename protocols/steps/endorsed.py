"""What a party's driver does beside `confirmed`: phases, and endorsements of what was opened."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protocols.errors import PolicyError, ProtocolError
from protocols.exchange import CONTRIBUTE, Body, signed_values
from protocols.exchange import KEYS as KEYS_STEP
from protocols.exchange.signed_values import SignedValue
from protocols.steps.confirmed import ENDORSEMENT, CommitTerms


class Phase(NamedTuple):
    """commit, open: its steps; what: of a party's is opened, for the words of errors."""

    commit: str
    open: str
    what: str

    def terms(self, seed: bytes, roster: Mapping[str, str]) -> CommitTerms:
        """Bound to no view: the seed says it all."""
        return CommitTerms(self.open, seed, roster, self.what)


def of_round(
    roster: Mapping[str, str], step: str, seed: bytes, missing: Collection[str], view: str
) -> CommitTerms:
    """Of one step, or of its repetition; roster: of the run; missing: who is covered for."""
    present = {name: key for name, key in roster.items() if name not in missing}
    return CommitTerms(step, seed, present, f"replies to {step!r}", view)


KEYS = Phase("commit-keys", KEYS_STEP, "key shares")
ROWS = Phase("commit-rows", CONTRIBUTE, "contributions")
CONFIRM = "confirm"


def check_endorsements(
    terms: CommitTerms,
    commitments: Mapping[str, SignedValue],
    endorsements: Mapping[str, SignedValue],
) -> None:
    """Refuse endorsements that are not of exactly these commitments, by every party.

    Raises:
        ProtocolError: names the party.
    """
    kind = f"endorsement of all {terms.what}"
    signed_values.check(kind, partial(terms.text, ENDORSEMENT), terms.roster, endorsements)
    shown = terms.digest(commitments)
    for name, endorsement in endorsements.items():
        if endorsement.value != shown:
            raise ProtocolError(
                f"party {name!r} was shown other commitments to the {terms.what}: the "
                "coordinator tells the parties different things, or that party lies; do not "
                "go on with them",
                culprit=name,
            )


class Opening:
    """One message of a party: committed to, opened once.

    name: this party; signing_key: its identity.
    """

    STATE = ("_message", "_commitments")

    def __init__(self, terms: CommitTerms, name: str, signing_key: Ed25519PrivateKey) -> None:
        self._terms, self._name, self._signing_key = terms, name, signing_key
        self._message: Body | None = None
        self._commitments: dict[str, SignedValue] = {}

    def commit(self, message: Body) -> Body:
        """Keep the message until it is opened; the reply to the step `commit-…`."""
        self._message = message
        return self._terms.commit(message, self._name, self._signing_key)

    def open(self, request: Body) -> Body:
        """The message; see `CommitTerms.open`.

        Raises:
            PolicyError: nothing is committed to, or it was opened.
        """
        if self._message is None:
            raise PolicyError(f"no {self._terms.what} are committed to and unopened")
        found = self._terms.open(self._message, request, self._name, self._signing_key)
        self._message, self._commitments = None, signed_values.of_request(request)
        return found

    @property
    def view(self) -> str:
        """That the commitment is bound to."""
        return self._terms.view


class Endorsed(Opening):
    """An opening that all confirm: nobody goes on before everyone has endorsed the same set."""

    @property
    def is_open(self) -> bool:
        """Whether it was sent."""
        return bool(self._commitments)

    @property
    def commitments(self) -> Mapping[str, SignedValue]:
        """Everyone's, once it was sent."""
        return self._commitments

    def confirm(self, request: Body) -> None:
        """Go on only if everyone endorsed the set that this party opened for.

        Raises:
            PolicyError: nothing was opened. ProtocolError: see `check_endorsements`.
            MessageError: malformed.
        """
        if not self._commitments:
            raise PolicyError(f"no {self._terms.what} were opened")
        endorsements = signed_values.of_request(request)
        check_endorsements(self._terms, self._commitments, endorsements)
