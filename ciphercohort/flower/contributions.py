"""What clients contribute to a sum: checked, and added as it arrives; what they cut off."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields

from flwr.app import ArrayRecord, Message

from ciphercohort.flower import named
from ciphercohort.flower.memory import RECORD
from ciphercohort.flower.plan import SumPlan
from ciphercohort.flower.records import (
    EXTREMES,
    LARGEST_METRIC,
    LARGEST_WEIGHT,
    Bases,
    Layout,
    digests,
    records_of,
)
from ciphercohort.flower.rounds import WORDS, bound
from ciphercohort.flower.session import field
from protocols.aggregate import one_time
from protocols.aggregate import words as ring
from protocols.aggregate.quorum import Quorum
from protocols.aggregate.words import Words
from protocols.errors import MessageError, ParameterError, ProtocolError

log = logging.getLogger("flwr.secure-sum")


@dataclass(slots=True)
class Cut:
    """How many numbers of a client were out of range; of all clients, once they are summed.

    No number is refused: a refusal would tell the server of one client alone. values: of arrays,
    beyond the plan's range; odd: of arrays, NaN or infinite; odd_metrics: such metrics; metrics:
    beyond LARGEST_METRIC; weights: that are no number from 0 to LARGEST_WEIGHT.
    """

    values: float = 0.0
    odd: float = 0.0
    odd_metrics: float = 0.0
    metrics: float = 0.0
    weights: float = 0.0

    def numbers(self) -> list[float]:
        """In the order of the fields."""
        return list(astuple(self))

    def warnings(self, plan: SumPlan, clients: int, mean_weight: float) -> Iterator[str]:
        """What was done to them, and what helps; mean_weight: of the clients."""
        if self.values:
            scale, range = plan.weight_scale, plan.most(clients) / plan.units(clients)
            yield (
                f"{self.values:.0f} values moved by more than "
                f"{range * scale / mean_weight:.3g} and were cut off. That is the bound for a "
                f"client with the mean number of examples: {range:g} times "
                f"{scale:g} / {mean_weight:.6g}. Give SecureSum a larger range"
                + (f", or examples={mean_weight:.0f}" if mean_weight > 2 * scale else "")
            )
        if self.odd:
            yield f"{self.odd:.0f} values were NaN or infinite: each counts as no change"
        if self.odd_metrics:
            yield f"{self.odd_metrics:.0f} metrics were NaN or infinite: their means are NaN"
        if self.metrics:
            yield f"{self.metrics:.0f} metrics were beyond {LARGEST_METRIC:.2g} and were cut off"
        if self.weights:
            yield (
                f"{self.weights:.0f} weights ({plan.weighted_by}) were no number from 0 to "
                f"{LARGEST_WEIGHT:.2g}: each counts as 0"
            )


# Numbers that are summed exactly beside the metrics: the weight, and what was cut off.
COUNTS = 1 + len(fields(Cut))
CHECK = 8
"""Words that are 0 at every honest client: a contribution that is garbage shows in them."""


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


def num_words(layout: Layout, plan: SumPlan) -> int:
    """Of one client's contribution: arrays, largest and smallest numbers, and CHECK times 0."""
    return layout.length + (0 if plan.privacy else named.width(layout.sums) + CHECK)


def num_exact(layout: Layout, plan: SumPlan) -> int:
    """Exact numbers beside the words: weight and counts, metrics, named sums."""
    if plan.privacy:
        return 0
    return COUNTS + sum(p.size for p in (*layout.metrics, *layout.sums) if p.kind not in EXTREMES)


def model_of(request: Message) -> bytes:
    """Digest of what clients bind contributors to: see `rounds.bound`."""
    return bound(request.metadata.message_type, *digests(request.content, RECORD))


@dataclass(slots=True)
class Sum:
    """Contributions of one layout: their sum, and by client what opens it (`one_time`); nodes."""

    layout: Layout
    words: Words
    shares: dict[int, list[bytes]]
    nodes: list[int]


class Total:
    """The sum of what arrives."""

    def __init__(self, plan: SumPlan, quorum: Quorum, bases: Bases) -> None:
        self._plan, self._quorum, self._bases = plan, quorum, bases
        self._shares = quorum.clients if quorum.lost else 1
        self._sums: dict[Layout, Sum] = {}

    def largest(self, reasons: str) -> Sum:
        """Of the layout that most clients have; reasons: why others did not contribute.

        Raises:
            ProtocolError: nobody contributed.
        """
        if not self._sums:
            raise ProtocolError(f"no client contributed. {reasons}")
        most = max(self._sums.values(), key=lambda each: len(each.shares))
        for other in self._sums.values():
            if other is not most:
                log.warning(
                    "nodes %s are left out: %s, as most clients have it",
                    other.nodes,
                    other.layout.beside(most.layout),
                )
        return most

    def add(self, number: int, reply: Message) -> None:
        """Take a client's contribution.

        Raises:
            MessageError: it is malformed.
        """
        layout = Layout.of_json(field(reply, "layout", str))
        shares = field(reply, "shares", list)
        try:
            array = dict(records_of(reply.content, ArrayRecord))[WORDS]["words"]
        except KeyError:
            raise MessageError("a reply without words") from None
        try:
            words = ring.of_bytes(array.data, wide=self._plan.wide)
        except ValueError:
            raise MessageError("a reply whose words are not of a whole number of bytes") from None
        if not self._bases.fit(layout) or len(words) != num_words(layout, self._plan):
            raise MessageError("a reply whose words do not fit its layout")
        size = one_time.share_bytes(self._quorum, len(words), num_exact(layout, self._plan))
        if len(shares) != self._shares or not all(
            isinstance(share, bytes) and len(share) == size for share in shares
        ):
            raise MessageError("a reply without a share for each client")
        known = self._sums.get(layout)
        if known is None:
            known = self._sums[layout] = Sum(layout, words.copy(), {}, [])
        else:
            known.words += words
        known.shares[number] = shares
        known.nodes.append(reply.metadata.src_node_id)
