"""The app that `flwr run .` starts in this repository: logistic regression over secure sums.

Each client takes its part of scikit-learn's breast-cancer data, makes some gradient steps from the
model that it gets, and sends the change as part of a secure sum. Options are those of
`[tool.flwr.app.config]` in pyproject.toml; epsilon above 0 adds certified noise, the client being
what is protected.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from ciphercohort.flower.mod import secure_sum_mod
from ciphercohort.flower.plan import Privacy
from ciphercohort.flower.server import SecureSum

log = logging.getLogger("flwr.secure-sum")
client = ClientApp(mods=[secure_sum_mod])
server = ServerApp()

Values = NDArray[np.float64]
_FEATURES = 30


def _rows(context: Context) -> tuple[Values, Values]:
    """This client's part: features over their public maxima, with a bias; labels -1 and 1."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    x = np.c_[x / x.max(axis=0), np.ones(len(x))]
    own = slice(int(context.node_config["partition-id"]), None, _partitions(context))
    return x[own], 2.0 * y[own] - 1


def _partitions(context: Context) -> int:
    return int(context.node_config["num-partitions"])


def _loss(w: Values, x: Values, y: Values) -> float:
    return float(np.logaddexp(0, -y * (x @ w)).mean())


@client.train()
def train(message: Message, context: Context) -> Message:
    """Gradient steps on this client's rows."""
    x, y = _rows(context)
    w = message.content.array_records["arrays"]["w"].numpy().copy()
    for _ in range(int(context.run_config["local-steps"])):
        slope = -y / (1 + np.exp(y * (x @ w)))
        w -= float(context.run_config["learning-rate"]) * (slope @ x) / len(y)
    metrics = MetricRecord({"num-examples": len(y), "loss": _loss(w, x, y)})
    return _reply(message, metrics, ArrayRecord({"w": Array(w)}))


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Loss and accuracy on this client's rows."""
    x, y = _rows(context)
    w = message.content.array_records["arrays"]["w"].numpy()
    accuracy = float((np.sign(x @ w) == y).mean())
    loss = _loss(w, x, y)
    metrics = MetricRecord({"num-examples": len(y), "loss": loss, "accuracy": accuracy})
    return _reply(message, metrics)


def _reply(message: Message, metrics: MetricRecord, arrays: ArrayRecord | None = None) -> Message:
    content = RecordDict({"metrics": metrics})
    if arrays is not None:
        content["arrays"] = arrays
    return Message(content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Federated averaging over secure sums."""
    config: Any = context.run_config
    rounds, epsilon = int(config["num-server-rounds"]), float(config["epsilon"])
    privacy = None
    if epsilon > 0:
        privacy = Privacy.for_rounds(
            epsilon=epsilon, delta=float(config["delta"]), rounds=rounds, clip=float(config["clip"])
        )
    strategy = SecureSum(FedAvg(min_available_nodes=3), privacy=privacy)
    result = strategy.start(
        grid, ArrayRecord({"w": Array(np.zeros(_FEATURES + 1))}), num_rounds=rounds
    )
    log.info("weights: %s", np.round(result.arrays["w"].numpy(), 3).tolist())
    if config["out"]:
        np.savez(str(config["out"]), result.arrays["w"].numpy())
