"""A sum that clients have contributed to: what opens it, asked for until it opens."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, RecordDict

from ciphercohort.flower.contributions import Sum, num_exact
from ciphercohort.flower.exchange import Exchange, sentences
from ciphercohort.flower.memory import RECORD
from ciphercohort.flower.plan import SumPlan
from ciphercohort.flower.records import Bases
from ciphercohort.flower.rounds import OPEN
from ciphercohort.flower.session import field as field_of
from ciphercohort.flower.session import step_record
from protocols.aggregate.one_time import Opened, open_sum
from protocols.aggregate.quorum import Quorum
from protocols.errors import ProtocolError

log = logging.getLogger("flwr.secure-sum")


@dataclass(kw_only=True, slots=True)
class Closed:
    """Of one round.

    kind, group: of its messages; number: of the round; asked: members' numbers; nodes: of the
    contributors, by number; context: see `rounds.round_context`; model: digest of the arrays that
    were sent; answers: of contributors, by number.
    """

    kind: str
    group: str
    number: int
    asked: list[int]
    nodes: dict[int, int]
    quorum: Quorum
    context: bytes
    model: bytes
    plan: SumPlan
    bases: Bases
    total: Sum
    answers: dict[int, bytes] = field(default_factory=dict)

    @property
    def members(self) -> list[int]:
        """Numbers of the contributors, rising."""
        return sorted(self.total.shares)

    def open(self, exchange: Exchange, fields: dict[str, Any]) -> Opened:
        """The sum, as soon as enough contributors have answered; fields: of the session.

        Raises:
            ProtocolError: too few did, or their answers do not fit together. May be called again:
                who has answered is not asked again, and answers the same.
        """
        if not self.quorum.lost:
            self.answers = {m: shares[0] for m, shares in self.total.shares.items()}
            return self._opened()
        found: list[Opened] = []
        tried = self.quorum.needed - 1

        def enough() -> bool:
            nonlocal tried
            if len(self.answers) > tried and not found:
                tried = len(self.answers)
                with suppress(ProtocolError):
                    found.append(self._opened())
            return bool(found)

        numbers = {node: number for number, node in self.nodes.items()}

        def take(node: int, reply: Message) -> None:
            self.answers[numbers[node]] = field_of(reply, "answer", bytes)

        contents = {
            node: self._request(number, fields)
            for number, node in self.nodes.items()
            if number not in self.answers
        }
        exchange.ask(self.kind, contents, self.group, take, enough)
        if found:
            return found[0]
        try:
            return self._opened()
        except ProtocolError as error:
            reasons = sentences(exchange.errors)
            raise ProtocolError(f"{error}. {reasons}" if reasons else str(error)) from None

    def _request(self, number: int, fields: dict[str, Any]) -> RecordDict:
        place, members = self.asked.index(number), self.members
        shares = [self.total.shares[m][place] for m in members]
        asked = {**fields, "round": self.number, "set": members, "shares": shares}
        return RecordDict({RECORD: step_record(OPEN, asked)})

    def _opened(self) -> Opened:
        places = {number: k for k, number in enumerate(self.asked)}
        return open_sum(
            self.quorum,
            self.context,
            [places[m] for m in self.members],
            {places[m]: answer for m, answer in self.answers.items()},
            self.total.words,
            num_exact(self.total.layout, self.plan),
            tell=lambda place: log.warning(
                "node %d: its answer does not fit the others', and is left out",
                self.nodes[self.asked[place]],
            ),
        )
