"""Secure sums in Flower beside plain FedAvg and Flower's SecAgg+: seconds and bytes per round.

Question: what does a Flower user pay for a server that sees means only?

    python -m ciphercohort.flower.study --values 1000000 --clients 10 [--simulation] --out DIR

Every client's "training" adds a constant vector to the model, so that what is measured is Flower
and the encryption. All arms run one after the other, each in the same way: by default in this
process, without Ray, every message through bytes; with --simulation by Flower's own simulation
engine (`pip install "flwr[simulation]"`). Seconds are those of the fastest round after the first,
because other load on the machine can only add to them; the first one has the keys and stands beside
it. Bytes are those of arrays, texts and byte strings, per client and round. The difference is the
model's largest one to that of plain, after all rounds. --no-secagg leaves Flower's SecAgg+ out,
which takes minutes from 10^6 values and 100 clients on. Writes flower.json.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from flwr.app import (
    Array,
    ArrayRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ciphercohort.flower import SecureSum, secure_sum_mod
from ciphercohort.flower.grids import WrappedGrid
from ciphercohort.flower.in_process import InProcessGrid
from protocols.errors import ParameterError
from sims.console import refusals

PLAIN, SECURE, SECAGG = "plain", "secure sums", "SecAgg+"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What every arm sums: `values` float32 of `clients` clients, over `rounds` timed rounds."""

    values: int
    clients: int
    rounds: int

    def __post_init__(self) -> None:
        for name, least in (("values", 1), ("clients", 3), ("rounds", 1)):
            if getattr(self, name) < least:
                raise ParameterError(f"{name}={getattr(self, name)} is below {least}")

    def trained(self, model: NDArray[np.float32], client: int) -> NDArray[np.float32]:
        """The model after a client's training: moved by at most 0.1, by other steps each."""
        step = np.float32(0.1 * np.cos(client))
        moved = model * np.float32(0.99)
        moved[:: client + 2] += step
        return moved

    @property
    def start(self) -> NDArray[np.float32]:
        """The first model."""
        return np.linspace(-1, 1, self.values, dtype=np.float32)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Of one arm; seconds: of the fastest round after the first; down, up: bytes, see above."""

    arm: str
    first_seconds: float
    seconds: float
    down: int
    up: int
    difference: float


# -- the apps --------------------------------------------------------------------------------------


def client_app(case: Case, arm: str) -> ClientApp:
    """The ClientApp of an arm."""
    if arm == SECAGG:
        # Flower's mod takes replies of the legacy interface.
        return ClientApp(lambda context: _Legacy(case, context).to_client(), [secaggplus_mod])
    app = ClientApp(mods=[secure_sum_mod] if arm == SECURE else [])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        model = message.content.array_records["arrays"]["model"].numpy()
        trained = ArrayRecord({"model": Array(case.trained(model, client))})
        metrics = MetricRecord({"num-examples": 100})
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    return app


class _Legacy(NumPyClient):
    def __init__(self, case: Case, context: Context) -> None:
        self._case, self._client = case, int(context.node_config["partition-id"])

    def fit(self, parameters: list[NDArray[Any]], config: Any) -> tuple[list[Any], int, Any]:
        model = np.asarray(parameters[0], np.float32)
        return [self._case.trained(model, self._client)], 100, {}


@dataclass
class Lap:
    """What one arm's server notes."""

    starts: list[float] = field(default_factory=list)
    down: int = 0
    up: int = 0
    model: NDArray[Any] | None = None

    def measured(self, case: Case, arm: str, plain: NDArray[Any] | None) -> Measured:
        """After the last round."""
        if self.model is None:
            raise ParameterError(f"{arm} gave no model: see Flower's log")
        seconds = np.diff(self.starts)
        rounds, reference = len(seconds), self.model if plain is None else plain
        return Measured(
            arm=arm,
            first_seconds=float(seconds[0]),
            seconds=float(min(seconds[1:])),
            down=self.down // (case.clients * rounds),
            up=self.up // (case.clients * rounds),
            difference=float(np.abs(self.model - reference).max()),
        )


def serve(case: Case, arm: str, grid: Grid, context: Context | None, lap: Lap) -> None:
    """The ServerApp of an arm."""
    metered = _Metered(grid, lap)
    if arm == SECAGG:
        _serve_secagg(case, metered, context, lap)
        return

    class Timed(FedAvg):
        def configure_train(self, *arguments: Any, **named: Any) -> Any:
            lap.starts.append(time.perf_counter())
            return super().configure_train(*arguments, **named)

    strategy: Any = Timed(
        fraction_evaluate=0.0, min_available_nodes=case.clients, min_train_nodes=case.clients
    )
    if arm == SECURE:
        strategy = SecureSum(strategy)
    arrays = ArrayRecord({"model": Array(case.start)})
    result = strategy.start(metered, arrays, num_rounds=case.rounds + 1)
    lap.starts.append(time.perf_counter())
    lap.model = result.arrays["model"].numpy()


def _serve_secagg(case: Case, grid: Grid, context: Context | None, lap: Lap) -> None:
    empty = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})

    class Timed(LegacyFedAvg):
        def configure_fit(self, *arguments: Any, **named: Any) -> Any:
            lap.starts.append(time.perf_counter())
            return super().configure_fit(*arguments, **named)

        def aggregate_fit(self, *arguments: Any) -> Any:
            found = super().aggregate_fit(*arguments)
            if found[0] is not None:
                (lap.model,) = parameters_to_ndarrays(found[0])
            return found

    legacy = LegacyContext(
        context or empty,
        config=ServerConfig(num_rounds=case.rounds + 1),
        strategy=Timed(
            min_fit_clients=case.clients,
            min_available_clients=case.clients,
            fraction_evaluate=0.0,
            initial_parameters=ndarrays_to_parameters([case.start]),
        ),
    )
    shares = min(11, case.clients - 1 + case.clients % 2)
    workflow = SecAggPlusWorkflow(
        shares / case.clients,
        7 / 11,
        max_weight=100,
        clipping_range=2.0,
        quantization_range=1 << 20,
    )
    DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
    lap.starts.append(time.perf_counter())


class _Metered(WrappedGrid):
    """Counts what goes through a grid."""

    def __init__(self, grid: Grid, lap: Lap) -> None:
        super().__init__(grid)
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


# -- how they run ----------------------------------------------------------------------------------


def in_process(case: Case, arm: str, lap: Lap) -> None:
    """Without Ray."""
    nodes: Mapping[int, Mapping[str, Any]] = {
        1000 + k: {"partition-id": k} for k in range(case.clients)
    }
    serve(case, arm, InProcessGrid(client_app(case, arm), nodes), None, lap)


def in_simulation(case: Case, arm: str, lap: Lap) -> None:
    """By Flower's simulation engine."""
    from flwr.simulation import run_simulation

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        serve(case, arm, grid, context, lap)

    run_simulation(
        server_app=app,
        client_app=client_app(case, arm),
        num_supernodes=case.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


def measure(
    case: Case, arms: Iterable[str], run: Callable[[Case, str, Lap], None]
) -> list[Measured]:
    """All arms; the first one is the reference of the others."""
    found: list[Measured] = []
    reference = None
    for arm in arms:
        lap = Lap()
        run(case, arm, lap)
        found.append(lap.measured(case, arm, reference))
        reference = lap.model if reference is None else reference
    return found


def main(
    out: Annotated[Path, typer.Option(help="Folder for flower.json.")],
    values: Annotated[int, typer.Option(help="Values in the model.")] = 100_000,
    clients: Annotated[int, typer.Option(help="Clients, all asked in each round.")] = 10,
    rounds: Annotated[int, typer.Option(help="Timed rounds.")] = 3,
    simulation: Annotated[bool, typer.Option(help="By Flower's simulation engine.")] = False,
    secagg: Annotated[bool, typer.Option(help="Flower's SecAgg+ as well.")] = True,
) -> None:
    """Measure all arms."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with refusals():
        case = Case(values=values, clients=clients, rounds=rounds)
        arms = (PLAIN, SECURE, SECAGG) if secagg else (PLAIN, SECURE)
        found = measure(case, arms, in_simulation if simulation else in_process)
    out.mkdir(parents=True, exist_ok=True)
    engine = "simulation" if simulation else "one process"
    report = {"engine": engine, **asdict(case), "arms": [asdict(m) for m in found]}
    (out / "flower.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    table = Table(title=f"{values:,} values, {clients} clients, {engine}")
    for name in ("arm", "first round [s]", "round [s]", "down [B]", "up [B]", "difference"):
        table.add_column(name, justify="right")
    for m in found:
        plain = found[0].seconds
        times = f"{m.seconds:.3f} (+{m.seconds - plain:.3f}, {m.seconds / plain:.2f} x)"
        up = f"{m.up:,} ({(m.up + m.down) / (found[0].up + found[0].down):.2f} x)"
        first = f"{m.first_seconds:.2f}"
        table.add_row(m.arm, first, times, f"{m.down:,}", up, f"{m.difference:.1e}")
    Console(width=110).print(table)


if __name__ == "__main__":
    typer.run(main)
