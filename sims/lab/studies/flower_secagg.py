"""Sums by Flower's own SecAgg+ (Bell et al., CCS 2020), in one process and without Ray.

Server half `SecAggPlusWorkflow`, client half `secaggplus_mod`, both as shipped; every message is
serialised both ways. Flower runs all four stages, keys and shares included, in every round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common import recorddict_compat as compat
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.server.client_manager import SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key

from protocols.errors import ParameterError, ProtocolError
from sims.lab.studies.summed import BOUND, Array, Case, Lap, Meter
from sims.local import SERVER_NODE, LocalGrid


@dataclass(frozen=True, kw_only=True)
class SecAggSettings:
    """Flower's parameters; fewer parties than `shares` share among all.

    shares: k of every party's key, its own included, odd; threshold: t shares that reveal it;
    quantization_bits: log2 of the levels in the clipping range; modulus_bits: of the masked sums.

    Raises:
        ParameterError: a field is out of range.
    """

    shares: int = 11
    threshold: int = 7
    clipping_range: float = BOUND
    quantization_bits: int = 22
    modulus_bits: int = 32

    def __post_init__(self) -> None:
        if not 2 <= self.threshold < self.shares or self.shares % 2 == 0:
            raise ParameterError(
                f"threshold={self.threshold} of shares={self.shares}: need an odd number of "
                "shares and 2 <= threshold < shares"
            )

    def of(self, parties: int) -> tuple[int, int]:
        """Shares and threshold for so many parties: the same ratio of fewer shares."""
        if parties >= self.shares:
            return self.shares, self.threshold
        return parties, max(2, round(self.threshold / self.shares * parties))

    def workflow(self, parties: int) -> SecAggPlusWorkflow:
        """Flower's server half; equal weights of 1.

        Raises:
            ParameterError: the sum of so many quantised values could wrap around.
        """
        room = self.modulus_bits - self.quantization_bits
        if parties >= 1 << room:
            raise ParameterError(
                f"parties={parties} quantised values of {self.quantization_bits} bits overflow "
                f"{self.modulus_bits} bits; take fewer quantization bits"
            )
        # As fractions: whole numbers below 3 are refused, however few the parties.
        shares, threshold = self.of(parties)
        return SecAggPlusWorkflow(
            shares / parties,
            threshold / shares,
            max_weight=1.0,
            clipping_range=self.clipping_range,
            quantization_range=1 << self.quantization_bits,
            modulus_range=1 << self.modulus_bits,
        )


class _MeteredGrid(LocalGrid):
    """Calls the client half for each message; counts the bytes of its content."""

    def __init__(self, names: Mapping[int, str], answer: Callable[..., Any], meter: Meter) -> None:
        super().__init__(names)
        self._names, self._answer, self._meter = names, answer, meter

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Deliver, collect the replies, serialise them as well."""
        replies = []
        for identifier in message_ids:
            data = self._sent.pop(identifier)
            since = time.perf_counter()
            proto = MessageProto.FromString(data)
            request = message_from_proto(proto)
            node = request.metadata.dst_node_id
            reply = message_to_proto(secaggplus_mod(request, self._contexts[node], self._answer))
            encoded = reply.SerializeToString()
            self._meter.add(
                self._names[node],
                down=proto.content.ByteSize(),
                up=reply.content.ByteSize(),
                seconds=time.perf_counter() - since,
            )
            replies.append(message_from_proto(MessageProto.FromString(encoded)))
        return replies


class SecAggArm:
    """Flower's SecAgg+ over the case's vectors."""

    def __init__(
        self, case: Case, settings: SecAggSettings, on_message: Callable[[], None]
    ) -> None:
        self._case, self._meter, self._t = case, Meter(on_message), 0
        names = {SERVER_NODE + 1 + k: name for k, name in enumerate(case.names)}
        self._grid = _MeteredGrid(names, self._fit, self._meter)
        self._workflow = settings.workflow(case.parties)
        manager = SimpleClientManager()
        for node in names:
            manager.register(GridClientProxy(node_id=node, grid=self._grid, run_id=1))
        start = ndarrays_to_parameters([np.zeros(case.features)])
        self._context = LegacyContext(
            Context(
                run_id=1, node_id=SERVER_NODE, node_config={}, state=RecordDict(), run_config={}
            ),
            strategy=FedAvg(
                fraction_fit=1.0, min_fit_clients=case.parties, min_available_clients=case.parties
            ),
            client_manager=manager,
        )
        state = self._context.state
        state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(start, True)

    def round(self, t: int) -> tuple[Array, Lap]:
        """The sum of round t, shape (features,), and its costs.

        Raises:
            ProtocolError: Flower stopped the round.
        """
        self._t = t
        state = self._context.state
        before = state.array_records[MAIN_PARAMS_RECORD]
        self._meter.start()
        state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: t + 1})
        self._workflow(self._grid, self._context)
        lap = self._meter.stop()
        after = state.array_records[MAIN_PARAMS_RECORD]
        if after is before:
            raise ProtocolError("Flower halted the secure aggregation; see its log")
        (mean,) = parameters_to_ndarrays(compat.arrayrecord_to_parameters(after, True))
        return self._case.parties * np.asarray(mean, np.float64), lap

    def _fit(self, message: Message, context: Context) -> Message:
        """What a client's training returns: its vector, with weight 1."""
        k = message.metadata.dst_node_id - SERVER_NODE - 1
        parameters = ndarrays_to_parameters([self._case.vectors[self._t, k]])
        result = FitRes(Status(Code.OK, ""), parameters, num_examples=1, metrics={})
        return Message(compat.fitres_to_recorddict(result, False), reply_to=message)
