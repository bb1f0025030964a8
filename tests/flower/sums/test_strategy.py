"""`SecureSum` is a strategy of Flower's: it can stand wherever one is wanted."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from flwr.app import ConfigRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg, Strategy

from ciphercohort.flower import Privacy, SecureGrid, SecureSum
from protocols.errors import ParameterError
from tests.flower.federation import Federation, start


def test_it_has_the_signatures_of_a_strategy() -> None:
    strategy = SecureSum(FedAvg())
    assert isinstance(strategy, Strategy)
    for name in (
        "start",
        "summary",
        "configure_train",
        "aggregate_train",
        "configure_evaluate",
        "aggregate_evaluate",
    ):
        own, flowers = (inspect.signature(getattr(kind, name)) for kind in (SecureSum, Strategy))
        assert list(own.parameters) == list(flowers.parameters), name
        for parameter, wanted in zip(
            own.parameters.values(), flowers.parameters.values(), strict=True
        ):
            assert (parameter.default, parameter.kind) == (wanted.default, wanted.kind), name


def private_run(accountant: Any, rounds: int = 3) -> Any:
    privacy = Privacy.for_rounds(epsilon=4.0, delta=1e-5, rounds=3, clip=1.0)
    strategy = SecureSum(FedAvg(), privacy=privacy, accountant=accountant)
    return strategy.start(Federation(6), start(), num_rounds=rounds)


def test_flowers_accountant_is_told_of_every_private_sum() -> None:
    """From Flower 1.42 on: its epsilon is a bound by Renyi orders on the plan's exact one."""
    serverapp = pytest.importorskip("flwr.serverapp")
    if not hasattr(serverapp, "RdpAccountant"):
        pytest.skip("needs Flower 1.42")

    def new(limit: float | None, method: str = "NO_AMPLIFICATION") -> Any:
        return serverapp.RdpAccountant(
            serverapp.PrivacyConfig(
                target_delta=0.9e-5,
                population_size=6,
                neighboring_relation=serverapp.NeighboringRelation.ADD_OR_REMOVE_ONE,
                sampling_method=getattr(serverapp.SamplingMethod, method),
                max_epsilon=limit,
            )
        )

    accountant = new(None)
    private_run(accountant)
    assert accountant.num_releases == 3
    assert 4.0 <= accountant.get_epsilon(0.9e-5) < 4.6
    limited = new(3.5)
    with pytest.raises(ParameterError, match="max_epsilon=3.5 of the accountant would be exceeded"):
        private_run(limited)
    assert limited.num_releases < 3
    with pytest.raises(ParameterError, match="NO_AMPLIFICATION"):
        private_run(new(None, "POISSON"))


def test_an_accountant_is_for_private_sums() -> None:
    with pytest.raises(ParameterError, match="give SecureSum privacy"):
        SecureSum(FedAvg(), accountant=object())


def test_its_summary_has_that_of_what_it_wraps(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="flwr"):
        SecureSum(FedAvg(fraction_train=0.75), range=8.0).summary()
    assert "(0.75)" in caplog.text and "range=8.0" in caplog.text


def test_all_arguments_of_start_arrive() -> None:
    seen: list[Any] = []

    class Watched(FedAvg):
        def configure_train(self, server_round: int, *rest: Any, **named: Any) -> Any:
            seen.append(("train", server_round, rest[1]["a"]))
            return super().configure_train(server_round, *rest, **named)

        def configure_evaluate(self, server_round: int, *rest: Any, **named: Any) -> Any:
            seen.append(("evaluate", server_round, rest[1]["b"]))
            return super().configure_evaluate(server_round, *rest, **named)

    result = SecureSum(Watched()).start(
        grid=Federation(3),
        initial_arrays=start(),
        num_rounds=2,
        timeout=60.0,
        train_config=ConfigRecord({"a": 1}),
        evaluate_config=ConfigRecord({"b": 2}),
        evaluate_fn=lambda number, arrays: MetricRecord({"round": number}),
    )
    assert seen == [("train", 1, 1), ("evaluate", 1, 2), ("train", 2, 1), ("evaluate", 2, 2)]
    assert [r["round"] for r in result.evaluate_metrics_serverapp.values()] == [0, 1, 2]


def test_flowers_own_start_runs_it_over_our_grid() -> None:
    """As a wrapper of the app's own does, which calls its methods one by one."""
    federation = Federation(3)
    strategy = SecureSum(FedAvg())
    result = Strategy.start(strategy, SecureGrid(federation), start(), num_rounds=2)
    assert set(result.train_metrics_clientapp) == set(result.evaluate_metrics_clientapp) == {1, 2}
    assert federation.errors == []
