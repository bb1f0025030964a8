"""What a coordinator hears where a refusal follows from what an owner alone knows: one sentence.

Files, spending, other sessions and its answers are an owner's own: what else is said of them is in
its log. All other refusals follow from the request, the plan in it and the owner's policy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from protocols.errors import CohortError, PolicyError
from protocols.names import MAX_NAME

log = logging.getLogger(__name__)

REFUSED = "this party refuses: see its own log"
"""All that a coordinator hears of a refusal for the sake of rows."""


class Reason(Enum):
    """The sentences; what stands in them is the request's, the plan's, or one of END."""

    ROWS = REFUSED
    FAILED = "the request is malformed, or the agent failed: see its own log"
    BUDGET = "the privacy budget is refused: see the log of this party"
    AHEAD = "with {what} that this sum announces, the privacy budget is refused: see its own log"
    PROMISE = "what the plan promises, or announces, cannot be computed: see its own log"
    MOMENT = (
        "this party's ledger has no entry of plan {plan}, whose second moment is to whiten rows: "
        "sum it again with this ledger"
    )
    PEERS = "this party's [peers] cannot be read: see its own log"
    KEY = (
        "party {party} of the plan has the key {key}, but this owner knows it by another: ask its "
        "owner by telephone; if the new key is right, run cohort party peers add --replace FOLDER "
        "CARD"
    )
    STRANGERS = (
        "this owner does not know {party} of the plan: get the card of each, compare its key with "
        "its owner by telephone, and run cohort party peers add FOLDER CARD"
    )
    TWINS = "{party} of the plan have the same key"
    CONSENT = "the owner refuses plan {plan}"
    SILENCE = "the owner did not answer to plan {plan} in time"
    AGAIN = "plan {plan} came again, and waits for its owner anew"
    NAME = f"session={{session}}: letters and digits, at most {MAX_NAME}"
    ADDRESS = "the message is for {party}, not for this party"
    UNKNOWN = "session {session} has not begun here"
    BUSY = "this party is busy with another session; its owner can end that one: cohort party abort"
    OVER = "session {session} is over: {end}"


class End(Enum):
    """Of a session, as far as it is told."""

    FINISHED = "finished"
    ABORTED = "aborted by the coordinator"
    REFUSED = "this party refused"
    GIVEN_UP = "its owner gave it up"
    SILENT = "no message for too long"
    LATE = "not finished in time"
    STOPPED = "the agent was stopped, and its key share was in memory only"
    RESTARTED = "the agent was restarted, and its key share was in memory only"
    LOST = "see its own log"

    @classmethod
    def of(cls, reason: str) -> End:
        """What is told of an owner's record, which begins with it."""
        return next((end for end in cls if reason.startswith(end.value)), cls.LOST)


class ToldError(PolicyError):
    """A refusal in words that a coordinator hears."""

    def __init__(self, reason: Reason, **of: str) -> None:
        super().__init__(reason.value.format(**of))


@contextmanager
def told(reason: Reason, **of: str) -> Iterator[None]:
    """Whatever goes wrong inside is told as this, and in full in the owner's log.

    Raises:
        ToldError: whatever it was.
    """
    try:
        yield
    except ToldError:
        raise
    except CohortError as error:
        log.warning("%s", error)
    except Exception:
        log.exception("what was refused, and why:")
    else:
        return
    raise ToldError(reason, **of)
