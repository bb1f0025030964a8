"""What a party's driver does beside `confirmed`: phases, and endorsements of what was opened."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from protocols.errors import PolicyError, ProtocolError
from protocols.exchange import CONTRIBUTE, Body, signed_values
from protocols.exchange import KEYS as KEYS_STEP
from protocols.exchange.signed_values import SignedValue
from protocols.steps.confirmed import ENDORSEMENT, Opening, Phase, Terms

KEYS = Phase("commit-keys", KEYS_STEP, "key shares")
ROWS = Phase("commit-rows", CONTRIBUTE, "contributions")
CONFIRM = "confirm"


def check_endorsements(
    terms: Terms,
    commitments: Mapping[str, SignedValue],
    endorsements: Mapping[str, SignedValue],
) -> None:
    """Refuse endorsements that are not of exactly these commitments, by every party.

    Raises:
        ProtocolError: names the party.
    """
    kind = f"endorsement of all {terms.phase.what}"
    signed_values.check(kind, partial(terms.text, ENDORSEMENT), terms.roster, endorsements)
    shown = terms.digest(commitments)
    for name, endorsement in endorsements.items():
        if endorsement.value != shown:
            raise ProtocolError(
                f"party {name!r} was shown other commitments to the {terms.phase.what}: the "
                "coordinator tells the parties different things, or that party lies; do not "
                "go on with them",
                culprit=name,
            )


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
            raise PolicyError(f"no {self._terms.phase.what} were opened")
        endorsements = signed_values.of_request(request)
        check_endorsements(self._terms, self._commitments, endorsements)
