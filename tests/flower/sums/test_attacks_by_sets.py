"""A coordinator that asks twice, or names other contributors to some."""

from __future__ import annotations

from typing import Any

import pytest
from flwr.app import Message

from ciphercohort.flower.memory import RECORD
from protocols.errors import CohortError, PolicyError
from tests.flower.federation import MEAN, Federation, one_round, start


def test_a_round_is_not_answered_twice(finished: Federation) -> None:
    """Two encryptions of one round, or of an earlier one."""
    request, _ = finished.of_step("sum")[0]
    for number in (1, 0):
        with pytest.raises(PolicyError, match="is not above 1, which was answered"):
            finished.send(request, round=number)


def test_a_second_set_of_a_round_is_not_answered(finished: Federation) -> None:
    """Nor is the first one again, but by the bytes of before, whatever shares come with it."""
    request, reply = finished.of_step("open")[0]
    fields = request.content[RECORD]
    smaller = list(fields["set"])[1:]
    with pytest.raises(PolicyError, match="one set is answered for in a round"):
        finished.send(request, set=smaller, shares=list(fields["shares"])[1:])
    with pytest.raises(PolicyError, match="one set is answered for in a round"):
        finished.send(request, round=fields["round"] + 1)
    for shares in (list(fields["shares"]), [b""] * len(fields["shares"])):
        again = finished.send(request, shares=shares)
        assert again.content[RECORD]["answer"] == reply.content[RECORD]["answer"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"set": [0, 1, 2], "shares": [b""] * 3}, "a sum needs 7"),
        ({"set": [*range(9), 10]}, "was not asked"),
        ({"round": 3}, "waits for the set of round 2"),
        ({"session": "other"}, "another session"),
        ({"epoch": 9}, "another session or roster"),
        ({"shares": [b"x" * 100] * 10}, "does not open"),
        ({"set": ["0"]}, "malformed"),
        ({"set": [0] * 10}, "no rising list"),
    ],
)
def test_sets_that_are_refused(change: dict[str, Any], reason: str) -> None:
    """And then the true one is still answered, once."""
    federation = Federation(10)
    told: list[Message] = []

    def hold(step: str, message: Message) -> None:
        if step == "open":
            told.append(message)
            record = message.content[RECORD]
            message.content[RECORD] = type(record)({**record, **change})

    federation.tamper = hold
    one_round_fails(federation, rounds=2, hold_from=2, hold=hold)
    assert any(reason in error for error in federation.errors), federation.errors


def one_round_fails(federation: Federation, *, rounds: int, hold_from: int, hold: Any) -> None:
    def later(step: str, message: Message) -> None:
        if step == "open" and message.content[RECORD]["round"] >= hold_from:
            hold(step, message)

    federation.tamper = later
    MEAN.start(federation, start(), num_rounds=rounds)


def test_naming_honest_clients_missing_opens_nothing_more() -> None:
    """The coordinator has everybody's contribution, and tells half that client 0 is missing.

    Neither sum opens. Told all the same, the sum without client 0 opens and nothing else does: the
    other set is refused by everybody from then on.
    """
    federation = Federation(10)

    def name_missing(step: str, message: Message) -> None:
        node = message.metadata.dst_node_id
        if step == "open" and node % 2:
            record = message.content[RECORD]
            fields = {"set": list(record["set"])[1:], "shares": list(record["shares"])[1:]}
            message.content[RECORD] = type(record)({**record, **fields})

    federation.tamper = name_missing
    with pytest.raises(CohortError, match=r"shares|needed are|malformed"):
        one_round(federation)
    for request, reply in federation.of_step("open"):
        if list(request.content[RECORD]["set"]) == list(range(10)):
            again = federation.send(request)
            assert again.content[RECORD]["answer"] == reply.content[RECORD]["answer"]
        else:
            with pytest.raises(PolicyError, match="one set is answered for"):
                federation.send(request, set=list(range(10)))
