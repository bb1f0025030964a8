"""A small Flower app in one process, whose server may be watched, and may cheat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from ciphercohort.flower import SecureSum, secure_sum_mod
from ciphercohort.flower.in_process import InProcessGrid
from ciphercohort.flower.members import Roster
from ciphercohort.flower.memory import RECORD, Memory, Owner

FIRST_NODE = 1000
START = {
    "matrix": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "vector": np.linspace(0, 3, 5),
    "scalar": np.array(2.0),
    "whole": np.arange(3, dtype=np.int64),
}


def update(client: int, name: str, value: np.ndarray) -> np.ndarray:
    """What a client makes of an array."""
    rng = np.random.default_rng([client, *name.encode()])
    moved = value + rng.normal(0, 0.5, value.shape)
    return np.asarray(np.rint(moved) if value.dtype.kind == "i" else moved).astype(value.dtype)


def train(message: Message, context: Context) -> RecordDict:
    client = int(context.node_config["partition-id"])
    arrays = {
        name: Array(update(client, name, array.numpy()))
        for name, array in message.content["arrays"].items()
    }
    metrics = {"num-examples": 100 + client, "loss": 0.25 * client, "many": [1.0 * client, 2.0]}
    return RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord(metrics)})


def evaluate(message: Message, context: Context) -> RecordDict:
    client = int(context.node_config["partition-id"])
    metrics = {"num-examples": 10 + client, "accuracy": client / 10}
    return RecordDict({"metrics": MetricRecord(metrics)})


def query(message: Message, context: Context) -> RecordDict:
    """Counts, an exact wide integer, real numbers, a table; and what must not leave."""
    client = int(context.node_config["partition-id"])
    figures = {"counts": [client, 1, 0], "wide": 2**62 - client, "mean": client / 7}
    table = Array(np.full((2, 3), np.pi * 10.0**client))
    histogram = Array(np.full((4,), 2**31 + client, np.int64))
    return RecordDict(
        {
            "figures": MetricRecord(figures),
            "tables": ArrayRecord({"table": table, "histogram": histogram}),
            "texts": ConfigRecord({"note": "patient 4711", "blob": b"patient 4711"}),
        }
    )


def make_app(
    mods: list[Any],
    train: Callable[[Message, Context], RecordDict] = train,
    query: Callable[[Message, Context], RecordDict] = query,
) -> ClientApp:
    app = ClientApp(mods=mods)

    @app.train()
    def on_train(message: Message, context: Context) -> Message:
        return Message(train(message, context), reply_to=message)

    @app.evaluate()
    def on_evaluate(message: Message, context: Context) -> Message:
        return Message(evaluate(message, context), reply_to=message)

    @app.query()
    def on_query(message: Message, context: Context) -> Message:
        return Message(query(message, context), reply_to=message)

    return app


def start(arrays: Mapping[str, np.ndarray] = START) -> ArrayRecord:
    return ArrayRecord({name: Array(value) for name, value in arrays.items()})


class Federation(InProcessGrid):
    """Keeps all requests and replies; `tamper` changes requests on their way."""

    def __init__(
        self,
        clients: int = 10,
        *,
        mods: list[Any] | None = None,
        train: Callable[[Message, Context], RecordDict] = train,
        query: Callable[[Message, Context], RecordDict] = query,
        config: Mapping[str, Any] | None = None,
        configs: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        app = make_app([secure_sum_mod] if mods is None else mods, train, query)
        nodes = {
            FIRST_NODE + k: {"partition-id": k, **(config or {}), **(configs or {}).get(k, {})}
            for k in range(clients)
        }
        super().__init__(app, nodes)
        self.seen: list[tuple[str, Message, Message]] = []
        self.failing: set[tuple[int, str]] = set()
        self.forgetting: set[tuple[int, str]] = set()
        self.tamper: Callable[[str, Message], None] = lambda step, message: None
        self.errors: list[str] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        listed = list(messages)
        for message in listed:
            self.tamper(step_of(message), message)
        return super().push_messages(listed)

    def deliver(self, request: Message) -> Message:
        step, node = step_of(request), request.metadata.dst_node_id
        if (node - FIRST_NODE, step) in self.failing:
            raise RuntimeError("vanished")
        if (node - FIRST_NODE, step) in self.forgetting:
            self.forget(node)
        try:
            reply = super().deliver(request)
        except Exception as error:
            self.errors.append(str(error))
            raise
        self.seen.append((step, request, reply))
        return reply

    def forget(self, node: int) -> None:
        """Once: what the run's state, or its file in a home folder, has of a run."""
        self.forgetting.clear()
        self.contexts[node].state.clear()
        home = self.contexts[node].node_config.get("secure-sum-home")
        for path in Path(str(home)).glob("run-*.json") if home else ():
            path.unlink()

    def of_step(self, step: str) -> list[tuple[Message, Message]]:
        """Requests and replies."""
        return [(request, reply) for name, request, reply in self.seen if name == step]

    def send(self, request: Message, **fields: Any) -> Message:
        """A request of before again, with other fields."""
        record = request.content.config_records.get(RECORD)
        content = RecordDict(dict(request.content.items()))
        if record is not None:
            content[RECORD] = ConfigRecord({**record, **fields})
        node, kind = request.metadata.dst_node_id, request.metadata.message_type
        again = Message(content, node, kind)
        again.metadata.__dict__.update(_run_id=1, _src_node_id=1, _message_id="again")
        return InProcessGrid.deliver(self, again)


def step_of(message: Message) -> str:
    record = message.content.config_records.get(RECORD)
    return str(record["step"]) if record is not None else ""


# -- what attacks start from -----------------------------------------------------------------------

MEAN = SecureSum(FedAvg(fraction_evaluate=0.0))


def one_round(federation: Federation, **options: Any) -> Any:
    return MEAN.start(federation, start(), num_rounds=1, **options)


def memory_of(federation: Federation, request: Message) -> Memory:
    """Of the client that got a request."""
    context = federation.contexts[request.metadata.dst_node_id]
    return Memory.load(context, Owner.of(context))


def federation_first(federation: Federation) -> int:
    """Node of the first member."""
    request, _ = next(
        (q, r) for q, r in federation.of_step("roster") if memory_of(federation, q).own == 0
    )
    return int(request.metadata.dst_node_id)


def asking(
    federation: Federation, clients: Any, moved: float = 0.0, kind: str = "train"
) -> list[Message]:
    arrays = start({name: np.asarray(value + moved, value.dtype) for name, value in START.items()})
    content = {"arrays": arrays, "config": ConfigRecord({"server-round": 1})}
    return [Message(RecordDict(content), FIRST_NODE + k, kind) for k in clients]


def rosters(federation: Federation) -> Roster:
    request, _ = federation.of_step("roster")[0]
    return Roster.of_json(str(request.content[RECORD]["roster"]))
