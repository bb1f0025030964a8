"""The legacy interface: `SecureSumWorkflow` in the place of Flower's `DefaultWorkflow`."""

from __future__ import annotations

from typing import Any

import flwr.server.strategy as strategies
import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, ServerConfig
from flwr.server.workflow import DefaultWorkflow

from ciphercohort.flower import SecureSumWorkflow, secure_sum_mod
from ciphercohort.flower.in_process import InProcessGrid
from ciphercohort.flower.strategies import check_sums_only
from protocols.errors import ParameterError

START = [np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.zeros(4)]


class Client(NumPyClient):
    """Moves the model by its number."""

    def __init__(self, client: int) -> None:
        self._client = client

    def fit(self, parameters: Any, config: Any) -> Any:
        k = self._client
        moved = [x + np.asarray(0.1 * k, x.dtype) for x in parameters]
        return moved, 100 + k, {"loss": 0.5 * k}

    def evaluate(self, parameters: Any, config: Any) -> Any:
        k = self._client
        return float(np.abs(parameters[0]).sum()) + k, 10 + k, {"accuracy": k / 10}


def mean_of(metrics: Any) -> Any:
    """What users write: a mean of metrics weighted by examples."""
    total = sum(n for n, _ in metrics)
    return {name: sum(n * m[name] for n, m in metrics) / total for name in metrics[0][1]}


def run(workflow: Any, mods: list[Any], strategy: str = "FedAvg", **options: Any) -> Any:
    def client_fn(context: Context) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    app = ClientApp(client_fn=client_fn, mods=mods)
    grid = InProcessGrid(app, {1000 + k: {"partition-id": k} for k in range(5)})
    models: list[Any] = []

    class Watched(getattr(strategies, strategy)):  # type: ignore[misc]
        def aggregate_fit(self, *arguments: Any) -> Any:
            found = super().aggregate_fit(*arguments)
            models.append(parameters_to_ndarrays(found[0]))
            return found

    made = Watched(
        min_fit_clients=5,
        min_evaluate_clients=5,
        min_available_clients=5,
        fit_metrics_aggregation_fn=mean_of,
        evaluate_metrics_aggregation_fn=mean_of,
        **{"initial_parameters": ndarrays_to_parameters(START), **options},
    )
    empty = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    context = LegacyContext(empty, config=ServerConfig(num_rounds=2), strategy=made)
    workflow(grid, context)
    return models[-1], context.history


def test_functions_of_single_metrics_are_refused() -> None:
    with pytest.raises(ParameterError, match="fit_metrics_aggregation_fn='mean_of' would see one"):
        run(SecureSumWorkflow(), [secure_sum_mod])


@pytest.mark.parametrize("strategy", ["FedAvg", "FedAdam"])
def test_the_same_model_history_and_metrics(strategy: str) -> None:
    plain, plain_history = run(DefaultWorkflow(), [], strategy)
    secure, history = run(SecureSumWorkflow(means_only=True), [secure_sum_mod], strategy)
    for found, wanted in zip(secure, plain, strict=True):
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() < (1e-3 if strategy == "FedAdam" else 1e-5)
    for name in ("losses_distributed", "metrics_distributed", "metrics_distributed_fit"):
        left, right = getattr(history, name), getattr(plain_history, name)
        flat = [np.ravel(list(v.values()) if isinstance(v, dict) else v) for v in (left, right)]
        assert flat[0].size and np.allclose(flat[0], flat[1], atol=1e-4)


def test_initial_parameters_of_a_client_are_not_asked_for() -> None:
    with pytest.raises(ParameterError, match="give the strategy initial_parameters"):
        run(SecureSumWorkflow(means_only=True), [secure_sum_mod], initial_parameters=None)


STRATEGIES = [
    kind
    for kind in vars(strategies).values()
    if isinstance(kind, type)
    and issubclass(kind, strategies.Strategy)
    and kind is not strategies.Strategy
]


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.__name__)
def test_every_legacy_strategy_is_taken_or_refused_with_its_own_reason(kind: type) -> None:
    sums = {"FedAvg", "FedProx", "FedAvgM", "FedOpt", "FedAdam", "FedAdagrad", "FedYogi"}
    if kind.__name__ in sums:
        check_sums_only(object.__new__(kind))
        return
    with pytest.raises(ParameterError, match=f"{kind.__name__} cannot take") as found:
        check_sums_only(object.__new__(kind))
    assert "nobody has checked it" not in str(found.value)
