"""Secure sums under Flower's strategies: the models of FedAvg in the clear, losses, restarts."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import flwr.serverapp.strategy as strategies
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedMedian, Strategy

from ciphercohort.flower import SecureSum, server
from ciphercohort.flower.memory import RECORD
from ciphercohort.flower.plan import SumPlan
from ciphercohort.flower.records import numbers_of
from ciphercohort.flower.rounds import WORDS
from ciphercohort.flower.strategies import check_sums_only
from protocols.errors import ParameterError, ProtocolError
from tests.flower.federation import FIRST_NODE, START, Federation, start, train, update

TAIL = 12


def run(federation: Federation, strategy: Any, rounds: int = 1, **options: Any) -> Any:
    return strategy.start(federation, start(), num_rounds=rounds, **options)


def bound(clients: int, plan: SumPlan | None = None, contributors: int | None = None) -> float:
    """12 deviations of the mean's error in a first round; weights are above 100."""
    return TAIL * (plan or SumPlan()).error(clients, 100) * clients / (contributors or clients)


def same(secure: ArrayRecord, plain: ArrayRecord, within: float) -> None:
    assert list(secure) == list(plain)
    for name, array in plain.items():
        found, wanted = secure[name].numpy(), array.numpy()
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert np.abs(found - wanted).max() <= within + 1e-6 * np.abs(wanted).max()


# -- strategies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "steps"), [(1 / 3, {"sum", "open"}), (0.0, {"sum"})])
def test_a_mean_of_any_arrays_and_metrics_is_that_in_the_clear(
    lost: float, steps: set[str]
) -> None:
    """Where none may vanish, by one message a round."""
    plain = run(Federation(mods=[]), FedAvg())
    federation = Federation()
    secure = run(federation, SecureSum(FedAvg(), lost=lost))
    assert {step for step, _, _ in federation.seen} == {"keys", "roster"} | steps
    same(secure.arrays, plain.arrays, bound(10))
    for found, wanted in (
        (secure.train_metrics_clientapp[1], plain.train_metrics_clientapp[1]),
        (secure.evaluate_metrics_clientapp[1], plain.evaluate_metrics_clientapp[1]),
    ):
        assert dict(found).keys() == dict(wanted).keys()
        for name, value in wanted.items():
            assert np.abs(np.subtract(found[name], value)).max() < 1e-6
    # The error is not far below what is stated, either.
    mean = np.average(
        [update(k, "vector", START["vector"]) for k in range(10)],
        axis=0,
        weights=[100 + k for k in range(10)],
    )
    runs = [secure, *(run(Federation(), SecureSum(FedAvg(), lost=lost)) for _ in range(5))]
    errors = [each.arrays["vector"].numpy() - mean for each in runs]
    # Of thirty values chi^2 is below the lower end with p < 1e-9; of five it would be, with 1e-4.
    assert 0.3 < np.std(errors) / SumPlan(wide=True).error(10, 104.5) < 3


@pytest.mark.parametrize("name", ["FedProx", "FedAdam"])
def test_other_strategies_of_the_mean_agree(name: str) -> None:
    """Three rounds; FedAdam divides by root mean squares, which widens small errors."""
    options = {"proximal_mu": 0.1} if name == "FedProx" else {}
    arrays = {"matrix": START["matrix"]}
    results = []
    for federation, wrap in ((Federation(mods=[]), lambda s: s), (Federation(), SecureSum)):
        strategy = wrap(getattr(strategies, name)(fraction_evaluate=0.0, **options))
        results.append(strategy.start(federation, start(arrays), num_rounds=3))
    same(results[1].arrays, results[0].arrays, 1e-3)


def test_later_rounds_are_as_fine_as_the_weights_allow() -> None:
    """The first takes `examples`, the others the mean weight of the one before."""
    federation = Federation()
    run(federation, SecureSum(FedAvg(fraction_evaluate=0.0)), rounds=5)
    scales = [
        SumPlan.of_json(str(request.content[RECORD]["plan"])).weight_scale
        for request, _ in federation.of_step("sum")
    ]
    assert scales[::10] == [1024.0, 128.0, 128.0, 128.0, 128.0] and len(set(scales)) == 2


STRATEGIES = [
    kind
    for kind in vars(strategies).values()
    if isinstance(kind, type) and issubclass(kind, Strategy) and kind is not Strategy
]


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.__name__)
def test_every_strategy_is_taken_or_refused_with_its_own_reason(kind: type) -> None:
    strategy = object.__new__(kind)
    sums = {"FedAvg", "FedProx", "FedAvgM", "FedOpt", "FedAdam", "FedAdagrad", "FedYogi"}
    if kind.__name__ in sums:
        check_sums_only(strategy)
    else:
        with pytest.raises(ParameterError, match=f"{kind.__name__} cannot take") as found:
            check_sums_only(strategy)
        assert "nobody has checked it" not in str(found.value)


def test_a_median_is_refused_and_an_extended_mean_is_not() -> None:
    class Mine(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            self.seen = list(replies)
            return super().aggregate_train(server_round, self.seen)

    with pytest.raises(ParameterError, match="a median is no sum"):
        SecureSum(FedMedian())
    mine = Mine(fraction_evaluate=0.0)
    run(Federation(), SecureSum(mine))
    assert len(mine.seen) == 1
    assert mine.seen[0].content["metrics"]["num-examples"] == sum(range(100, 110))


# -- losses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["sum", "open"])
def test_three_of_ten_vanish(step: str) -> None:
    """Before they contribute: the others' mean. After it: everybody's, opened by the others."""
    federation = Federation()
    federation.failing = {(k, step) for k in (2, 5, 9)}
    secure = run(federation, SecureSum(FedAvg(fraction_evaluate=0.0)))
    here = [k for k in range(10) if step == "open" or k not in (2, 5, 9)]
    weights = [100 + k for k in here]
    for name, value in START.items():
        mean = np.average([update(k, name, value) for k in here], axis=0, weights=weights)
        found = secure.arrays[name].numpy()
        assert np.abs(found - mean).max() <= bound(10, contributors=len(here)) + 1e-6
    metrics = dict(secure.train_metrics_clientapp[1])
    wanted = np.average([0.25 * k for k in here], weights=weights)
    assert abs(float(metrics["loss"]) - wanted) < 1e-6


@pytest.mark.parametrize("kind", ["<f4", ">f8", "<i8", "?", "<U3"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (4, 5)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_are_read_as_flower_reads_them(
    kind: str, shape: tuple[int, ...], order: Any
) -> None:
    """Twice each: what is known of the first header may not be taken for the second's."""
    value = np.arange(np.prod(shape), dtype="f8").reshape(shape).astype(kind).copy(order)
    for each in (value, value[..., None].copy(order)):
        found, wanted = numbers_of(Array(each)), Array(each).numpy()
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert (found == wanted).all()


def test_clients_that_stay_silent_are_waited_for_and_left_out() -> None:
    federation = Federation(4)
    strategy = SecureSum(FedAvg(fraction_evaluate=0.0, min_available_nodes=4))
    federation.failing = {(3, "sum")}
    secure = run(federation, strategy, timeout=5)
    federation.silent = {FIRST_NODE + 3}
    federation.failing = set()
    again = strategy.start(federation, secure.arrays, num_rounds=1, timeout=0.3)
    assert again.arrays is not None and secure.arrays is not None


def test_four_of_ten_are_too_many_and_the_next_round_goes_on() -> None:
    """A later round; in the first one the run ends, with the reasons."""
    strategy = SecureSum(FedAvg(fraction_evaluate=0.0))
    federation = Federation()
    federation.failing = {(k, "sum") for k in range(4)}
    with pytest.raises(ProtocolError, match=r"6 of 10 clients contributed; needed are 7.*vanished"):
        run(federation, strategy)

    def lose_in_the_second(step: str, message: Message) -> None:
        if step == "sum":
            lost = message.content[RECORD]["round"] == 2
            federation.failing = {(k, "sum") for k in range(4)} if lost else set()

    federation = Federation()
    federation.tamper = lose_in_the_second
    result = run(federation, strategy, rounds=3)
    assert set(result.train_metrics_clientapp) == {1, 3}


def test_half_of_the_clients_are_sampled() -> None:
    """The keys are those of everybody, set up once; only the sampled ones are asked."""
    federation = Federation()
    run(federation, SecureSum(FedAvg(fraction_train=0.5, fraction_evaluate=0.0)), rounds=4)
    assert len(federation.of_step("keys")) == len(federation.of_step("roster")) == 10
    assert len(federation.of_step("sum")) == 20
    asked = {tuple(r.content[RECORD]["asked"]) for r, _ in federation.of_step("sum")}
    assert all(len(each) == 5 for each in asked) and len(asked) > 1


def test_two_clients_are_too_few() -> None:
    with pytest.raises(ParameterError, match="2 clients are sampled, and a secure sum needs 3"):
        run(Federation(2), SecureSum(FedAvg()))
    federation = Federation(3)
    federation.failing = {(0, "keys")}
    with pytest.raises(ProtocolError, match="2 of 2 clients with keys take part"):
        run(federation, SecureSum(FedAvg(min_train_nodes=3)))


def test_nodes_that_are_still_connecting_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is there in the first round is who clients know."""
    federation = Federation(6)
    federation.is_complete = False
    nodes = list(federation.contexts)
    counts = iter([0, 1, 2, 2, 3, 5])
    monkeypatch.setattr(
        federation, "get_node_ids", lambda: nodes[: next(counts, len(nodes))], raising=True
    )
    monkeypatch.setattr(server, "SETTLE_SECONDS", 0.0)
    run(federation, SecureSum(FedAvg(fraction_evaluate=0.0)))
    assert len(federation.of_step("sum")) == 6


# -- restarts, late clients ------------------------------------------------------------------------


def restart(federation: Federation, client: int) -> None:
    federation.contexts[FIRST_NODE + client].state = RecordDict()


@pytest.mark.parametrize("home", [False, True])
def test_a_restarted_client_comes_back_with_its_identity_only(home: bool, tmp_path: Path) -> None:
    homes = {k: {"secure-sum-home": str(tmp_path / str(k))} for k in range(5)} if home else {}
    federation = Federation(5, configs=homes)

    def restarted(step: str, message: Message) -> None:
        if step == "sum" and message.content[RECORD]["round"] == 2:
            restart(federation, 4)

    federation.tamper = restarted
    run(federation, SecureSum(FedAvg(fraction_evaluate=0.0)), rounds=4)
    answered = {
        number: {
            request.metadata.dst_node_id - FIRST_NODE
            for request, reply in federation.of_step("sum")
            if request.content[RECORD]["round"] == number and "stale" not in reply.content[RECORD]
        }
        for number in (1, 2, 3, 4)
    }
    others = {0, 1, 2, 3}
    if home:  # its memory is there as well
        assert all(who == others | {4} for who in answered.values())
    else:
        assert answered[1] == others | {4}
        assert answered[2] == answered[3] == answered[4] == others


def test_a_client_whose_memory_is_lost_is_given_keys_again(tmp_path: Path) -> None:
    """With its identity: the others know it. Its keys are new, and those of before are no use."""
    homes = {k: {"secure-sum-home": str(tmp_path / str(k))} for k in range(5)}
    federation = Federation(5, configs=homes)

    def lose(step: str, message: Message) -> None:
        if step == "sum" and message.content[RECORD]["round"] == 2:
            (tmp_path / "4" / "run-1.json").unlink(missing_ok=True)

    federation.tamper = lose
    run(federation, SecureSum(FedAvg(fraction_evaluate=0.0)), rounds=4)
    fresh = [q for q, r in federation.of_step("sum") if "stale" not in r.content[RECORD]]
    counts = [sum(q.content[RECORD]["round"] == k for q in fresh) for k in (1, 2, 3, 4)]
    assert counts == [5, 4, 5, 5]


@pytest.mark.parametrize("admit", [False, True])
def test_a_late_client_joins_where_the_others_admit_it(admit: bool) -> None:
    federation = Federation(5, config={"secure-sum-admit": admit})
    late = federation.contexts.pop(FIRST_NODE + 4)

    def join(step: str, message: Message) -> None:
        if step == "sum":
            federation.contexts[FIRST_NODE + 4] = late

    federation.tamper = join
    run(federation, SecureSum(FedAvg(fraction_evaluate=0.0, min_available_nodes=4)), rounds=3)
    contributed = [r.metadata.dst_node_id for r, _ in federation.of_step("sum")]
    assert contributed.count(FIRST_NODE + 4) == (2 if admit else 0)
    assert len(contributed) == (14 if admit else 12)
    assert federation.errors == [] or not admit


# -- what clients say of themselves ----------------------------------------------------------------


def test_errors_of_the_app_stay_with_the_client() -> None:
    """Their text may hold data."""

    def secretive(message: Message, context: Context) -> RecordDict:
        raise ValueError("patient 4711 has the value 0.815")

    federation = Federation(3, train=secretive)
    with pytest.raises(ProtocolError, match="the app's own function failed") as found:
        run(federation, SecureSum(FedAvg()))
    assert "4711" not in str(found.value) + "".join(federation.errors)


def test_values_beyond_the_range_are_cut_off_and_counted_in_the_sum(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A refusal would tell of one client: a server could find its largest change by bisection."""

    def odd(message: Message, context: Context) -> RecordDict:
        content = train(message, context)
        if context.node_config["partition-id"] == 1:
            vector = np.array([4711.0, -4711.0, np.nan, np.inf, 1.0])
            content["arrays"]["vector"] = Array(vector)
        return content

    federation = Federation(4, train=odd)
    strategy = SecureSum(FedAvg(fraction_evaluate=0.0), examples=102)
    cut = run(federation, strategy).arrays["vector"].numpy()
    others = sum((100 + k) * update(k, "vector", START["vector"]) for k in (0, 2, 3))
    own = START["vector"] * 101 + 16 * 102 * np.array([1, -1, 0, 0, 0])
    own[4] = 101
    assert np.abs(cut - (others + own) / 406).max() < 1e-4
    assert federation.errors == [] and "2 values moved by more than 16.1" in caplog.text
    assert "2 values were NaN or infinite" in caplog.text
    # As it says: a larger range takes what is finite.
    caplog.clear()
    run(Federation(4, train=odd), SecureSum(FedAvg(fraction_evaluate=0.0), range=1e4))
    assert "moved by" not in caplog.text and "2 values were NaN or infinite" in caplog.text


@pytest.mark.parametrize("number", [10, 10**2, 10**5, 10**6])
def test_the_first_round_is_as_fine_as_later_ones(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the clients' number of rows: nothing is cut off, and nobody trains twice."""

    def some(message: Message, context: Context) -> RecordDict:
        content = train(message, context)
        content["metrics"] = MetricRecord({"num-examples": number})
        return content

    federation = Federation(5, train=some)
    with caplog.at_level("INFO", logger="flwr"):
        found = run(federation, SecureSum(FedAvg(fraction_evaluate=0.0)), rounds=2)
    stds = [float(line.split()[0]) for line in caplog.text.split("std of its error: ")[1:]]
    # Beyond 2^-24 a float32 knows no difference.
    assert stds[0] < max(2.1 * stds[1], 2**-24)
    assert "moved by" not in caplog.text and len(federation.of_step("sum")) == 10
    plain = run(Federation(5, train=some, mods=[]), FedAvg(fraction_evaluate=0.0), rounds=2)
    same(found.arrays, plain.arrays, 1e-6)
    first, second = (federation.of_step("sum")[k][1].content[WORDS]["words"] for k in (0, 9))
    assert 2 * len(first.data) == 3 * len(second.data)


def test_a_number_of_examples_that_is_told_spares_wide_words() -> None:
    federation = Federation(5)
    run(federation, SecureSum(FedAvg(fraction_evaluate=0.0), examples=100), rounds=2)
    assert len({r.content[WORDS]["words"].shape for _, r in federation.of_step("sum")}) == 1


def test_metrics_of_any_size_are_exact() -> None:
    def dear(message: Message, context: Context) -> RecordDict:
        content = train(message, context)
        own = int(context.node_config["partition-id"])
        loss = float("nan") if own == 1 else 0.0
        metrics = {"num-examples": 2000, "cost": 20000.0 + own, "all": 1e12, "loss": loss}
        content["metrics"] = MetricRecord(metrics)
        return content

    found = run(Federation(5, train=dear), SecureSum(FedAvg(fraction_evaluate=0.0)))
    metrics = found.train_metrics_clientapp[1]
    assert (metrics["cost"], metrics["all"]) == (20002.0, 1e12) and np.isnan(metrics["loss"])


def test_a_counter_is_exact_however_far_it_moves() -> None:
    """As BatchNorm's `num_batches_tracked`; the order of keys is the request's."""
    begun = {"before": np.zeros(2), "batches": np.array(0), "after": np.zeros(2, np.float32)}

    def counting(message: Message, context: Context) -> RecordDict:
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        arrays["batches"] = np.array(int(arrays["batches"]) + 40)
        own = ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})
        return RecordDict({"arrays": own, "metrics": MetricRecord({"num-examples": 7})})

    strategy = SecureSum(FedAvg(fraction_evaluate=0.0))
    result = strategy.start(Federation(3, train=counting), start(begun), num_rounds=2)
    assert list(result.arrays) == list(begun)
    assert result.arrays["batches"].numpy() == np.array(80.0)


def test_harmless_differences_of_a_client_do_not_leave_it_out() -> None:
    def odd(message: Message, context: Context) -> RecordDict:
        content = train(message, context)
        if context.node_config["partition-id"] == 1:
            arrays = {k: Array(a.numpy().astype(float)) for k, a in content["arrays"].items()}
            content["arrays"] = ArrayRecord(dict(reversed(arrays.items())))
            metrics = {**content["metrics"], "loss": 1}
            content["metrics"] = MetricRecord(dict(reversed(metrics.items())))
        return content

    found = run(Federation(4, train=odd), SecureSum(FedAvg(fraction_evaluate=0.0)))
    loss = np.average([0, 1, 0.5, 0.75], weights=range(100, 104))
    assert abs(found.train_metrics_clientapp[1]["loss"] - loss) < 1e-6
    assert list(found.arrays) == list(START) and found.arrays["matrix"].dtype == "float32"


def test_clients_of_another_layout_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def odd(message: Message, context: Context) -> RecordDict:
        content = train(message, context)
        if context.node_config["partition-id"] == 1:
            del content["metrics"]["loss"]
        return content

    federation = Federation(4, train=odd)
    federation.failing = {(0, "evaluate")}
    result = run(federation, SecureSum(FedAvg(fraction_evaluate=0.0)))
    assert result.arrays is not None
    left = f"nodes [{FIRST_NODE + 1}] are left out: 'loss' in 'metrics' is nothing, not number[]"
    assert left in caplog.text


def test_a_run_leaves_no_cycle_around_the_grid() -> None:
    """Its connection would be closed by the last collection, when the interpreter is ending."""
    federation = Federation(4)
    gc.collect()
    gc.disable()
    try:
        run(federation, SecureSum(FedAvg(fraction_evaluate=0.0)))
        held = weakref.ref(federation)
        del federation
        assert held() is None
    finally:
        gc.enable()
