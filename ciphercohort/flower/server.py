"""The ServerApp's side: a strategy's messages become secure sums, its replies become one: the mean.

`SecureSum(FedAvg())` has the `start` of the strategy that it wraps. Under it is `SecureGrid`, which
stands between any strategy and Flower: what the strategy sends to be trained or evaluated is sent
with a step of ours, the replies are added as they arrive, the sum is opened, and the strategy gets
a single reply that holds the mean with the weight of all.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from ciphercohort.flower import named
from ciphercohort.flower.accounting import check_accountant, event_of
from ciphercohort.flower.closed import Closed
from ciphercohort.flower.contributions import CHECK, COUNTS, Cut, Total, model_of, same_model
from ciphercohort.flower.exchange import Exchange, sentences
from ciphercohort.flower.grids import WrappedGrid
from ciphercohort.flower.memory import RECORD, own_record
from ciphercohort.flower.plan import RANGE, Privacy, SumPlan
from ciphercohort.flower.records import LARGEST_WEIGHT, Bases, build
from ciphercohort.flower.rounds import LEAST_SHARE, QUERY, SUM, round_context
from ciphercohort.flower.session import Session, step_record
from ciphercohort.flower.strategies import check_rounds, check_strategy
from protocols.aggregate import residues
from protocols.aggregate.one_time import noise_units
from protocols.aggregate.quorum import MAX_CLIENTS, MIN_CLIENTS, Quorum
from protocols.errors import MessageError, ParameterError, ProtocolError

log = logging.getLogger("flwr.secure-sum")

_KINDS = (MessageType.TRAIN, MessageType.EVALUATE, QUERY)
SETTLE_SECONDS = 1.0
TELL_SECONDS = 5.0


class SecureSum(Strategy):
    """A strategy whose server gets means in place of updates.

    strategy: of `flwr.serverapp.strategy`, one that is a function of the mean. range: bound on how
    far a value may move in a round, see `SumPlan`; examples: a client's usual number, where it is
    known: the first round then takes four bytes a value in place of six (later ones take the mean
    of the one before); lost: share of the sampled clients that may vanish; with 0 none may, and a
    round is one message in place of two; privacy: certified noise (evaluation metrics are then not
    asked for: they carry none); means_only: the strategy's own functions of metrics are weighted
    means, since they see one reply; pinned: every client has pins and a least number, and so takes
    part in samples of less than half; accountant: of Flower's (`accounting`), told of private sums.

    Raises:
        ParameterError: the strategy needs more than means, or a field is out of range.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        range: float = RANGE,
        examples: float | None = None,
        lost: float = 1 / 3,
        privacy: Privacy | None = None,
        means_only: bool = False,
        pinned: bool = False,
        accountant: Any = None,
    ) -> None:
        self._least_share = 0.0 if pinned else LEAST_SHARE
        check_strategy(strategy, privacy, means_only, self._least_share)
        check_accountant(accountant, privacy)
        self.strategy, self._accountant = strategy, accountant
        weighted_by = getattr(strategy, "weighted_by_key", "num-examples")
        self._plan = SumPlan.of(range, examples, lost, privacy, weighted_by=weighted_by)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """As the strategy's own `start`; timeout: of each exchange of a round [seconds].

        Raises:
            ParameterError: the plan's privacy is spent before the last round.
        """
        check_rounds(self.strategy, self._plan.privacy, num_rounds)
        least = getattr(self.strategy, "min_available_nodes", 0)
        return self.strategy.start(
            SecureGrid(grid, self._plan, least, self._accountant, self._least_share),
            initial_arrays,
            num_rounds,
            timeout,
            train_config,
            evaluate_config,
            evaluate_fn,
        )

    def summary(self) -> None:
        """Log both."""
        self.strategy.summary()
        log.info("secure sums: %s", self._plan)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's own: send it by `SecureGrid`."""
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The strategy's own, of the one reply that `SecureGrid` hands out."""
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's own: send it by `SecureGrid`."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The strategy's own, of the one reply that `SecureGrid` hands out."""
        return self.strategy.aggregate_evaluate(server_round, replies)


class SecureGrid(WrappedGrid):
    """Flower's grid for a strategy, or for an app's own rounds; see the module.

    least: nodes that the strategy waits for before it samples any; least_share: of all members,
    below which none of them contributes.

    Security: nothing that this class does is trusted by clients; see `client`.
    """

    def __init__(
        self,
        grid: Grid,
        plan: SumPlan | None = None,
        least: int = 0,
        accountant: Any = None,
        least_share: float = LEAST_SHARE,
    ) -> None:
        super().__init__(grid)
        self._least_share = least_share
        self._accountant = accountant
        self._least = least
        self._plan = plan or SumPlan(wide=True)
        # By kind of message: those who evaluate have other numbers of examples.
        self._plans: dict[str, SumPlan] = {}
        self._exchange = Exchange(grid)
        self._session = Session(self._exchange)
        # Sums whose contributors are bound, by kind of message: no other opens at that model.
        self._closed: dict[str, Closed] = {}
        self._round = self._opened = 0
        self._settled = bool(getattr(grid, "is_complete", False))

    def get_node_ids(self) -> Iterable[int]:
        """See `Grid`; the first time, once no node has come for a second.

        Who is there in the first round is who clients know: a strategy that samples while nodes are
        still connecting would leave the others out. Nodes that members refuse are left out, unless
        the strategy would then wait for ever.
        """
        started = told = time.monotonic()
        while not self._settled:
            count = len(list(self._grid.get_node_ids()))
            if count < MIN_CLIENTS and time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                log.warning(
                    "secure sum: %d clients are connected, and it needs %d; waiting for %.0f s",
                    count,
                    MIN_CLIENTS,
                    told - started,
                )
            time.sleep(SETTLE_SECONDS)
            self._settled = MIN_CLIENTS <= count == len(list(self._grid.get_node_ids()))
        everybody = list(self._grid.get_node_ids())
        accepted = [node for node in everybody if node not in self._session.refused]
        return everybody if len(accepted) < self._least <= len(everybody) else accepted

    # -- sums -------------------------------------------------------------------------------------

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Of other kinds only.

        Raises:
            ParameterError: their replies would be summed, and pulled one by one.
        """
        requests = list(messages)
        if any(map(_is_summed, requests)):
            raise ParameterError(
                "messages to train, evaluate and query are sent by send_and_receive: one by one "
                "their replies open nothing"
            )
        return self._grid.push_messages(requests)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """One reply, with the mean, or the named sums; none where too few stayed, or lack noise.

        timeout: of each exchange [seconds]; None: an hour.

        Raises:
            ProtocolError: the first round of all failed, or asked too few. ParameterError: fewer
                than three clients are sampled, or messages of a round differ in more than whom
                they are for.
        """
        requests = list(messages)
        if not requests:
            return []
        kind = requests[0].metadata.message_type
        if not any(map(_is_summed, requests)):
            if kind == "get_parameters":
                raise ParameterError(
                    "give the strategy initial_parameters: no client shows its own"
                )
            return self._grid.send_and_receive(requests, timeout=timeout)
        check_alike(requests)
        if len(requests) < MIN_CLIENTS:
            raise ParameterError(
                f"{len(requests)} clients are sampled, and a secure sum needs {MIN_CLIENTS}: raise "
                "the strategy's fraction or its least number of nodes"
            )
        if self._plan.privacy and kind.split(".")[0] != MessageType.TRAIN:
            log.info("no %s in a private run: its figures would carry no noise", kind)
            return []
        if self._plan.privacy and not self._round:
            warn_of_noise(self._plan.privacy, requests, self._plan.lost)
        self._exchange.seconds = 3600.0 if timeout is None else timeout
        self._exchange.ttl = requests[0].metadata.ttl
        try:
            mean = self._sum(requests, kind)
        except (ProtocolError, MessageError) as error:
            if not self._opened:
                raise
            log.warning("no sum in this round: %s", error)
            return []
        self._opened += 1
        return [mean]

    def _sum(self, requests: list[Message], kind: str) -> Message:
        closed = self._closed.pop(kind, None)
        if closed is None or closed.model != model_of(requests[0]):
            closed = self._gather(requests, kind)
        else:
            log.info("the sum of before, which did not open, is opened first")
        try:
            opened = closed.open(self._exchange, self._session.fields())
        except ProtocolError:
            # Its contributors refuse any other sum at this model.
            self._closed[kind] = closed
            raise
        found = self._mean(kind, closed, *opened)
        contributors = set(closed.nodes.values())
        first = next((r for r in requests if r.metadata.dst_node_id in contributors), requests[0])
        return Message(found, reply_to=first)

    def _gather(self, requests: list[Message], kind: str) -> Closed:
        """Have the sampled clients contribute."""
        plan = self._plans.get(kind, self._plan)
        nodes = [request.metadata.dst_node_id for request in requests]
        numbers = self._session.prepare(nodes, self._grid.get_node_ids(), kind)
        members_asked = [r for r in requests if r.metadata.dst_node_id in numbers]
        if len(members_asked) < MIN_CLIENTS:
            raise ProtocolError(
                f"{len(members_asked)} of {len(requests)} sampled clients have keys, and "
                f"{MIN_CLIENTS} are needed. {sentences(self._session.absent)}"
            )
        asked = sorted(numbers[request.metadata.dst_node_id] for request in members_asked)
        members_all = len(self._session.roster.entries)
        if len(asked) < self._least_share * members_all:
            raise ProtocolError(
                f"{len(asked)} of {members_all} clients are sampled, and each of them refuses less "
                "than half: raise the strategy's fraction (Flower rounds the number down)"
            )
        if plan.privacy and self._accountant:
            event_of(self._accountant, plan.privacy, len(asked))
        quorum = Quorum.of(len(asked), plan.lost)
        content = same_model(members_asked)
        self._round += 1
        bases = Bases(members_asked[0].content)
        arrived = Total(plan, quorum, bases)
        fields = self._fields(asked, plan)
        contents = {
            request.metadata.dst_node_id: RecordDict(
                {**request.content, RECORD: step_record(SUM, fields)}
            )
            for request in members_asked
        }
        group = requests[0].metadata.group_id

        def add(node: int, reply: Message) -> None:
            record = own_record(reply.content)
            if record is not None and record.get("stale"):
                self._session.forget(node)
                raise MessageError("its keys are gone; it is asked for new ones")
            arrived.add(numbers[node], reply)

        self._exchange.ask(kind, contents, group, add)
        reasons = sentences(self._exchange.errors)
        total = arrived.largest(reasons)
        members = sorted(total.shares)
        if len(members) < quorum.needed:
            raise ProtocolError(
                f"{len(members)} of {quorum.clients} clients contributed; needed are "
                f"{quorum.needed}. {reasons}"
            )
        context = round_context(self._session.roster, fields, kind, group, content)
        return Closed(
            kind=kind,
            group=group,
            number=self._round,
            asked=asked,
            nodes={number: node for node, number in numbers.items() if number in total.shares},
            quorum=quorum,
            context=context,
            model=model_of(requests[0]),
            plan=plan,
            bases=bases,
            total=total,
        )

    def _fields(self, asked: list[int], plan: SumPlan) -> dict[str, Any]:
        return {
            **self._session.fields(),
            "round": self._round,
            "asked": asked,
            "plan": plan.to_json(),
        }

    def _mean(
        self, kind: str, closed: Closed, words: NDArray[Any], exact: residues.Residues
    ) -> RecordDict:
        plan, quorum, bases, layout = closed.plan, closed.quorum, closed.bases, closed.total.layout
        clients, contributors = quorum.clients, len(closed.members)
        summed, extremes = np.split(words, [layout.length])
        if plan.privacy is not None:
            if self._accountant:
                self._accountant.compose(event_of(self._accountant, plan.privacy, clients))
            updates = plan.privacy.expected(quorum, contributors)
            unit = 1 / (plan.privacy.units(quorum) * updates)
            std = plan.privacy.noise_of_mean(quorum, contributors)
            log.info(
                "mean of %d clients; std of its noise: %.2g a value, %.2g over all %d; the mean "
                "itself, with noise: %.2g; one update: at most clip=%g",
                contributors,
                std,
                std * math.sqrt(len(summed)),
                len(summed),
                unit * float(np.linalg.norm(summed)),
                plan.privacy.clip,
            )
            return build(layout, bases, summed, unit, [], contributors)
        extremes, zeros = np.split(extremes, [-CHECK])
        if np.abs(zeros).max() > noise_units(clients):
            raise ProtocolError(
                "the contributions do not add up: a client deviates from the protocol, and its own "
                "cannot be told from the others'"
            )
        numbers = residues.decode(exact, contributors)
        (weight, *counts), numbers = numbers[:COUNTS], numbers[COUNTS:]
        size = sum(place.size for place in layout.metrics)
        metrics, sums = numbers[:size], named.decode(layout.sums, extremes, numbers[size:], clients)
        if not any(layout.weight):
            log.info("sums of %d clients", contributors)
            return build(layout, bases, summed, 1.0, [], 0.0, sums)
        cut = Cut(*counts)
        if not 0 < weight <= LARGEST_WEIGHT * contributors:
            raise ProtocolError(
                f"the weights ({plan.weighted_by}) of all clients are 0 ({cut.weights:.0f} of them "
                f"were no number from 0 to {LARGEST_WEIGHT:.2g}), or their sum is one that only a "
                "client which deviates from the protocol can cause"
            )
        for text in cut.warnings(plan, clients, weight / contributors):
            log.warning(text)
        unit = plan.weight_scale / (plan.units(clients) * weight)
        log.info(
            "mean of %d clients; std of its error: %.2g",
            contributors,
            plan.error(clients, weight / contributors),
        )
        self._plans[kind] = plan.weighed_like(weight / contributors)
        return build(layout, bases, summed, unit, [m / weight for m in metrics], weight, sums)


def _is_summed(request: Message) -> bool:
    return request.metadata.message_type.split(".")[0] in _KINDS


def check_alike(requests: list[Message]) -> None:
    """Refuse messages of one sum that differ in type, group or time to live, or go to a node twice.

    Raises:
        ParameterError: names what differs.
    """
    for name in ("message_type", "group_id", "ttl"):
        found = {getattr(request.metadata, name) for request in requests}
        if len(found) > 1:
            raise ParameterError(
                f"messages of one sum have {name}={' and '.join(sorted(map(repr, found))[:3])}: "
                "send each by a send_and_receive of its own"
            )
    if len({request.metadata.dst_node_id for request in requests}) < len(requests):
        raise ParameterError("a node is sent two messages of one sum: a client counts once")


def warn_of_noise(privacy: Privacy, requests: list[Message], lost: float) -> None:
    """Say so before a first round where noise will be longer than any mean of updates can be."""
    records = requests[0].content.array_records.values()
    values = sum(math.prod(array.shape) for record in records for array in record.values())

    def ratio(clients: int) -> float:
        noise = privacy.noise_of_mean(Quorum.of(clients, lost), clients)
        return noise * math.sqrt(values) / privacy.clip

    here = len(requests)
    if ratio(here) <= 1:
        return
    enough = next((n for n in range(here, MAX_CLIENTS + 1) if ratio(n) <= 0.5), None)
    log.warning(
        "privacy: the noise on a mean of %d clients over %d values is %.2g times as long as the "
        "longest update (clip=%g), so that a model learns little: %s a larger epsilon, fewer "
        "rounds or fewer values",
        here,
        values,
        ratio(here),
        privacy.clip,
        f"take {enough} clients, or" if enough else f"{MAX_CLIENTS} clients are too few, so take",
    )
