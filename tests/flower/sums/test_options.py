"""Every strategy of Flower's, each option and method: as in the clear, or refused in words."""

from __future__ import annotations

import inspect
from typing import Any

import flwr.serverapp.strategy as strategies
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy

from ciphercohort.flower import Privacy, SecureGrid, SecureSum, SecureSumMod, SecureSumWorkflow
from ciphercohort.flower.strategies import SUMS, check_failures
from protocols.errors import ParameterError, ProtocolError
from tests.flower.federation import FIRST_NODE, Federation, asking, start, update

KINDS = [
    kind
    for name, kind in sorted(vars(strategies).items())
    if isinstance(kind, type) and issubclass(kind, Strategy) and kind is not Strategy
]


def means(records: list[RecordDict], weighted_by: str) -> MetricRecord:
    """A weighted mean of one metric, as an app writes it."""
    found = [record.metric_records["metrics"] for record in records]
    total = sum(metrics[weighted_by] for metrics in found)
    key = "loss" if "loss" in found[0] else "accuracy"
    return MetricRecord({"own": sum(m[weighted_by] * m[key] for m in found) / total})


# By name of an option: another value than the default one; None: refused.
OPTIONS: dict[str, Any] = {
    **{"fraction_train": 0.5, "fraction_evaluate": 0.5},
    **{"min_train_nodes": 6, "min_evaluate_nodes": 5, "min_available_nodes": 6},
    **{"weighted_by_key": "cases", "arrayrecord_key": "model", "configrecord_key": "settings"},
    **{"train_metrics_aggr_fn": means, "evaluate_metrics_aggr_fn": means},
    **{"proximal_mu": 0.25, "eta": 0.05, "eta_l": 0.2, "beta_1": 0.5, "beta_2": 0.9, "tau": 0.1},
    **{"server_learning_rate": 0.5, "server_momentum": 0.5},
}
# What a constructor has to be given.
REQUIRED: dict[str, Any] = {"strategy": FedAvg(), "noise_multiplier": 1.0, "clipping_norm": 1.0,
                            "num_sampled_clients": 100, "train_loss_key": "loss",
                            "client_learning_rate": 0.1}  # fmt: skip


def options_of(kind: type) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(kind).parameters)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in found.values()):
        found = {**found, **inspect.signature(FedAvg).parameters}
    return {name: each for name, each in found.items() if each.kind is not each.VAR_KEYWORD}


def made(kind: Any, **options: Any) -> Any:
    needed = {
        name: REQUIRED[name]
        for name, parameter in options_of(kind).items()
        if parameter.default is parameter.empty and name not in options
    }
    return kind(**needed, **options)


def moved(message: Message, context: Context) -> RecordDict:
    """Trains whatever arrays there are, as the configuration says, and tells of that."""
    client = int(context.node_config["partition-id"])
    [(_, arrays)] = message.content.array_records.items()
    [(_, config)] = message.content.config_records.items()
    scale = 1 - float(str(config.get("proximal-mu", 0.0)))
    found = {}
    for name, array in arrays.items():
        value = array.numpy()
        change = scale * (update(client, name, value) - value)
        found[name] = Array(np.asarray(value + change, value.dtype))
    weights = {"num-examples": 100 + client, "cases": 300 - client}
    number = int(str(config["server-round"]))
    metrics = {**weights, "loss": 0.25 * client, "round": number}
    return RecordDict({"arrays": ArrayRecord(found), "metrics": MetricRecord(metrics)})


FLOATS = {"matrix": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "scalar": np.array(2.0)}


def finished(strategy: Any, mods: list[Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("random.sample", lambda population, count: sorted(population)[:count])
    return strategy.start(Federation(6, mods=mods, train=moved), start(FLOATS), num_rounds=2)


def name_of(each: type | list[str]) -> str:
    """Of a case."""
    return each.__name__ if isinstance(each, type) else "-".join(each)


USUAL = list(options_of(FedAvg))
# One by one; what other strategies have beside them, together.
TAKEN: list[tuple[type, list[str]]] = [(FedAvg, [name]) for name in USUAL]
TAKEN += [
    (kind, [name for name in options_of(kind) if name not in USUAL])
    for kind in KINDS
    if kind.__name__ in SUMS - {"FedAvg"}
]


@pytest.mark.parametrize(
    ("kind", "names"),
    TAKEN,
    ids=name_of,
)
def test_every_option_of_a_strategy_does_what_it_does_in_the_clear(
    kind: type, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that is new in Flower fails here until it stands in the table."""
    options = {name: OPTIONS[name] for name in names}
    weighted = str(options.get("weighted_by_key", "num-examples"))
    if weighted != "num-examples":
        # Evaluation of this app has the usual weight alone.
        options["fraction_evaluate"] = 0.0
    plain = finished(made(kind, **options), [], monkeypatch)
    strategy = SecureSum(made(kind, **options), means_only=True)
    secure = finished(strategy, [SecureSumMod(weighted_by=weighted)], monkeypatch)
    # FedYogi and its like divide by small numbers.
    within = 2e-3 if "eta" in names else 1e-5
    for key, array in plain.arrays.items():
        assert np.abs(secure.arrays[key].numpy() - array.numpy()).max() < within, key
    for which in ("train_metrics_clientapp", "evaluate_metrics_clientapp"):
        one, two = (getattr(result, which) for result in (plain, secure))
        assert set(one) == set(two)
        for number, metrics in one.items():
            assert set(metrics) == set(two[number])
            for key, value in metrics.items():
                assert np.allclose(two[number][key], value, atol=1e-6), (which, key)


def test_another_weight_than_the_mods_is_refused() -> None:
    federation = Federation(6, train=moved)
    with pytest.raises(ProtocolError, match="the plan weighs by 'cases' and this client by"):
        SecureSum(FedAvg(weighted_by_key="cases")).start(federation, start(FLOATS), num_rounds=1)


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k.__name__ not in SUMS], ids=lambda kind: kind.__name__
)
def test_every_other_strategy_is_refused_with_its_own_reason(kind: type) -> None:
    with pytest.raises(ParameterError, match=f"strategy={kind.__name__} cannot take") as found:
        SecureSum(made(kind))
    assert "nobody has checked it" not in str(found.value)


def test_every_method_of_a_strategy_is_the_wrapped_ones() -> None:
    """And what a strategy has beside them is not there by chance under a name of its own."""
    public = {n for n, m in vars(Strategy).items() if callable(m) and not n.startswith("_")}
    assert public <= set(vars(SecureSum)), public - set(vars(SecureSum))
    grid = {n for n, m in vars(Grid).items() if not n.startswith("_")}
    handed_on = {name for kind in SecureGrid.__mro__[:2] for name in vars(kind)}
    assert grid <= handed_on, grid - handed_on
    for name in ("fraction_train", "aggregate", "weighted_by_key"):
        assert not hasattr(SecureSum(FedAvg()), name)


# -- what a strategy of an app's own may send ------------------------------------------------------


def test_messages_keep_their_time_to_live() -> None:
    federation = Federation(6)
    requests = [
        Message(each.content, each.metadata.dst_node_id, "train", ttl=77.0, group_id="g")
        for each in asking(federation, range(6))
    ]
    assert SecureGrid(federation).send_and_receive(requests)
    assert {request.metadata.ttl for _, request, _ in federation.seen} == {77.0}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"message_type": "train.other"}, "message_type='train' and 'train.other'"),
        ({"message_type": "evaluate"}, "message_type='evaluate' and 'train'"),
        ({"message_type": "reconnect"}, "message_type='reconnect' and 'train'"),
        ({"group_id": "2"}, "group_id='' and '2'"),
        ({"ttl": 60.0}, "ttl="),
        ({"dst_node_id": FIRST_NODE}, "two messages of one sum"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_messages_of_one_sum_that_differ_are_refused(change: dict[str, Any], named: str) -> None:
    federation = Federation(6)
    requests = asking(federation, range(6))
    old = {name: getattr(requests[3].metadata, name) for name in ("dst_node_id", "message_type")}
    requests[3] = Message(requests[3].content, **{**old, **change})
    with pytest.raises(ParameterError, match=named):
        SecureGrid(federation).send_and_receive(requests)
    assert federation.seen == []


def test_other_kinds_of_messages_go_through() -> None:
    federation = Federation(3)
    grid = SecureGrid(federation)
    other = Message(RecordDict({"c": ConfigRecord()}), FIRST_NODE, "reconnect")
    assert len(list(grid.push_messages([other]))) == 1


# -- our own options -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"range": 8.0}, {"examples": 100.0}])
@pytest.mark.parametrize("kind", [SecureSum, SecureSumWorkflow])
def test_what_noise_does_without_is_refused_beside_it(kind: Any, options: Any) -> None:
    privacy = Privacy.for_rounds(epsilon=4.0, delta=1e-5, rounds=3, clip=1.0)
    wrapped = [FedAvg()] if kind is SecureSum else []
    with pytest.raises(ParameterError, match="=[0-9]+ is for sums without noise"):
        kind(*wrapped, privacy=privacy, **options)


def test_a_legacy_strategy_that_accepts_no_failure_wants_that_nobody_vanishes() -> None:
    import flwr.server.strategy as legacy

    strict = legacy.FedAvg(accept_failures=False)
    with pytest.raises(ParameterError, match="accept_failures=False with lost=0.333"):
        check_failures(strict, 1 / 3)
    check_failures(strict, 0.0)
    check_failures(legacy.FedAvg(), 1 / 3)
