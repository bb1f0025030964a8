"""What clients contribute to a sum: checked, and added as it arrives."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from flwr.app import Message

from ciphercohort.flower.memory import RECORD
from ciphercohort.flower.plan import SumPlan
from ciphercohort.flower.records import Bases, Layout, digests
from ciphercohort.flower.rounds import WORDS
from ciphercohort.flower.session import field
from protocols.aggregate import limbs
from protocols.aggregate.quorum import Quorum
from protocols.aggregate.words import Words
from protocols.errors import MessageError, ParameterError, ProtocolError

log = logging.getLogger("flwr.secure-sum")


def same_model(requests: list[Message]) -> bytes:
    """Digest of arrays and configuration, the same for all.

    Raises:
        ParameterError: they differ.
    """
    # Most strategies send the very same records to everybody.
    kept = {tuple(map(id, r.content.values())): r.content for r in requests}.values()
    found = {digests(content, RECORD)[0] for content in kept}
    if len(found) != 1:
        raise ParameterError("clients of one sum are sent different arrays or configurations")
    return found.pop()


@dataclass(slots=True)
class Sum:
    """Contributions of one layout: their sum, and by client what opens it (`one_time`)."""

    layout: Layout
    words: Words
    shares: dict[int, list[bytes]]


class Total:
    """The sum of what arrives."""

    def __init__(self, plan: SumPlan, quorum: Quorum, bases: Bases) -> None:
        self._plan, self._bases = plan, bases
        self._shares = quorum.clients if quorum.lost else 1
        self._sums: dict[Layout, Sum] = {}

    def largest(self, reasons: str) -> Sum:
        """Of the layout that most clients have; reasons: why others did not contribute.

        Raises:
            ProtocolError: nobody contributed.
        """
        if not self._sums:
            raise ProtocolError(f"no client contributed. {reasons}")
        if len(self._sums) > 1:
            log.warning("clients disagree on names or shapes: the sum is of those most have")
        return max(self._sums.values(), key=lambda each: len(each.shares))

    def add(self, number: int, reply: Message) -> None:
        """Take a client's contribution.

        Raises:
            MessageError: it is malformed.
        """
        layout = Layout.of_json(field(reply, "layout", str))
        shares = field(reply, "shares", list)
        try:
            array = reply.content.array_records[WORDS]["words"]
        except KeyError:
            raise MessageError("a reply without words") from None
        if len(array.data) % 4:
            raise MessageError("a reply whose words are not of four bytes each")
        words = np.frombuffer(array.data, "<u4")
        exact = 0 if self._plan.privacy else sum(p.size for p in layout.metrics) + 2
        if not self._bases.fit(layout) or len(words) != layout.length + limbs.LIMBS * exact:
            raise MessageError("a reply whose words do not fit its layout")
        if len(shares) != self._shares or not all(isinstance(s, bytes) for s in shares):
            raise MessageError("a reply without a share for each client")
        known = self._sums.get(layout)
        if known is None:
            known = self._sums[layout] = Sum(layout, words.astype(np.uint32), {})
        else:
            known.words += words
        known.shares[number] = shares
