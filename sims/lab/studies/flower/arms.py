"""The arms of `study`: one app under plain FedAvg, secure sums, and Flower's SecAgg+."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import (
    Code,
    FitRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.common import recorddict_compat as compat
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from ciphercohort.flower import SecureSum, secure_sum_mod
from ciphercohort.flower.grids import WrappedGrid
from protocols.errors import ParameterError
from sims.lab.studies.flower.workloads import Workload

PLAIN, SECURE, ALL_STAY, SECAGG = "plain", "secure sums", "secure sums, lost=0", "SecAgg+"
_LOST = {SECURE: 1 / 3, ALL_STAY: 0.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What every arm does: `rounds` timed rounds of a workload, with `clients` clients.

    least: of which that many have to be there, all if None; timeout: of one exchange [s]; shares:
    of each client's secret in SecAgg+, clients permitting.
    """

    workload: Workload
    clients: int
    rounds: int
    least: int | None = None
    timeout: float = 3600.0
    shares: int = 11

    def __post_init__(self) -> None:
        for name, least in (("clients", 3), ("rounds", 1), ("shares", 3)):
            if getattr(self, name) < least:
                raise ParameterError(f"{name}={getattr(self, name)} is below {least}")


@dataclass
class Lap:
    """What one arm's server notes: when rounds begin, how many gave a mean, bytes, last model.

    processor: this process's seconds at the same moments.
    """

    means: int = 0
    starts: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    down: int = 0
    up: int = 0
    model: list[NDArray[Any]] | None = None

    def mark(self) -> None:
        """A round begins, or the last one has ended."""
        self.starts.append(time.perf_counter())
        self.processor.append(time.process_time())


def client_app(workload: Workload, arm: str, *first: Any) -> ClientApp:
    """The ClientApp of an arm; first: mods in front of its own."""
    mods: list[Any] = {PLAIN: [], SECAGG: [secaggplus_mod]}.get(arm, [secure_sum_mod])
    app = ClientApp(mods=[*first, *mods])
    app.train()(_legacy(workload) if arm == SECAGG else workload.train)
    return app


def _legacy(workload: Workload) -> Callable[[Message, Context], Message]:
    """Its training for Flower's mod, which takes replies of the legacy interface."""
    kinds = {key: array.dtype for key, array in workload.start().items()}

    def train(message: Message, context: Context) -> Message:
        sent = compat.recorddict_to_fitins(message.content, keep_input=True).parameters
        arrays = {
            key: Array(value.astype(kind))
            for (key, kind), value in zip(kinds.items(), parameters_to_ndarrays(sent), strict=True)
        }
        message.content = RecordDict({"arrays": ArrayRecord(arrays)})
        content = workload.train(message, context).content
        trained = ndarrays_to_parameters(content.array_records["arrays"].to_numpy_ndarrays())
        examples = int(content.metric_records["metrics"]["num-examples"])  # type: ignore[arg-type]
        result = FitRes(Status(Code.OK, ""), trained, examples, {})
        return Message(compat.fitres_to_recorddict(result, keep_input=True), reply_to=message)

    return train


def serve(case: Case, arm: str, grid: Grid, context: Context | None, lap: Lap) -> None:
    """The ServerApp of an arm."""
    metered = _Metered(grid, lap)
    if arm == SECAGG:
        _serve_secagg(case, metered, context, lap)
        return

    class Timed(FedAvg):
        def configure_train(self, *arguments: Any, **named: Any) -> Any:
            lap.mark()
            return super().configure_train(*arguments, **named)

        def aggregate_train(self, *arguments: Any, **named: Any) -> Any:
            found = super().aggregate_train(*arguments, **named)
            lap.means += found[0] is not None
            return found

    least = case.least or case.clients
    strategy: Any = Timed(fraction_evaluate=0.0, min_available_nodes=least, min_train_nodes=least)
    if arm in _LOST:
        strategy = SecureSum(strategy, lost=_LOST[arm])
    result = strategy.start(
        metered, case.workload.start(), num_rounds=case.rounds + 1, timeout=case.timeout
    )
    lap.mark()
    lap.model = result.arrays.to_numpy_ndarrays()


def _serve_secagg(case: Case, grid: Grid, context: Context | None, lap: Lap) -> None:
    empty = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})

    class Timed(LegacyFedAvg):
        def configure_fit(self, *arguments: Any, **named: Any) -> Any:
            lap.mark()
            return super().configure_fit(*arguments, **named)

        def aggregate_fit(self, *arguments: Any) -> Any:
            found = super().aggregate_fit(*arguments)
            if found[0] is not None:
                lap.means += 1
                lap.model = parameters_to_ndarrays(found[0])
            return found

    legacy = LegacyContext(
        context or empty,
        config=ServerConfig(num_rounds=case.rounds + 1, round_timeout=case.timeout),
        strategy=Timed(
            min_fit_clients=case.least or case.clients,
            min_available_clients=case.least or case.clients,
            fraction_evaluate=0.0,
            initial_parameters=ndarrays_to_parameters(case.workload.start().to_numpy_ndarrays()),
        ),
    )
    shares = min(case.shares, case.clients - 1 + case.clients % 2)
    workflow = SecAggPlusWorkflow(shares / case.clients, 7 / 11, timeout=case.timeout)
    DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
    lap.mark()


class _Metered(WrappedGrid):
    """Counts what goes through a grid."""

    def __init__(self, grid: Grid, lap: Lap) -> None:
        super().__init__(grid)
        self.is_complete = getattr(grid, "is_complete", False)
        self._lap = lap

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Counted."""
        return super().push_messages(self._sent(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Counted."""
        return self._counted(super().pull_messages(message_ids))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Counted."""
        return self._counted(super().send_and_receive(self._sent(messages), timeout=timeout))

    def _sent(self, messages: Iterable[Message]) -> list[Message]:
        listed = list(messages)
        self._lap.down += sum(num_bytes(message.content) for message in listed)
        return listed

    def _counted(self, messages: Iterable[Message]) -> list[Message]:
        listed = list(messages)
        self._lap.up += sum(num_bytes(m.content) for m in listed if m.has_content())
        return listed


def num_bytes(content: RecordDict) -> int:
    """Of arrays, texts and byte strings; 8 for every number."""
    total = 0
    for record in content.values():
        if isinstance(record, ArrayRecord):
            total += sum(len(array.data) for array in record.values())
        else:
            total += sum(map(_size, record.values()))
    return total


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value) if isinstance(value, (bytes, str)) else 8
