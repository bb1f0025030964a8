"""Named sums of any statistic: exact, not weighted, numbers only; largest and smallest ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp.strategy import FedAvg

from ciphercohort.flower import Privacy, SecureGrid, SecureSum, SecureSumMod
from ciphercohort.flower.plan import SumPlan
from protocols.errors import ParameterError, PolicyError, ProtocolError
from tests.flower.federation import FIRST_NODE, Federation, asking, query, train
from tests.flower.sums.test_secure_sums import run

Reply = Callable[[Message, Context], RecordDict]


def partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


def asked(federation: Federation, clients: Any = range(6), **config: Any) -> list[Message]:
    content = RecordDict({"config": ConfigRecord({"question": 1, **config})})
    return [Message(content, FIRST_NODE + k, "query") for k in clients]


# -- queries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [1 / 3, 0.0])
def test_a_query_opens_exact_sums(lost: float) -> None:
    federation = Federation(6)
    [reply] = SecureGrid(federation, SumPlan(lost=lost)).send_and_receive(asked(federation))
    figures, tables = reply.content["figures"], reply.content["tables"]
    assert dict(figures) == {
        "counts": [15, 6, 0],
        "wide": 6 * 2**62 - 15,
        "mean": pytest.approx(15 / 7, abs=1e-15),
    }
    assert [type(v) for v in (*figures["counts"], figures["wide"])] == [int] * 4
    histogram, table = tables["histogram"].numpy(), tables["table"].numpy()
    assert histogram.dtype == np.int64 and histogram.tolist() == [6 * 2**31 + 15] * 4
    wanted = math.fsum(np.pi * 10.0**k for k in range(6))
    assert table.shape == (2, 3) and np.abs(table / wanted - 1).max() < 1e-15
    # Neither texts nor bytes are numbers.
    assert set(reply.content) == {"figures", "tables"}
    assert not reply.has_error() and reply.metadata.src_node_id == FIRST_NODE


def test_nothing_of_one_client_is_in_any_message() -> None:
    """What a client sends is uniform, and so is not what it has."""
    federation = Federation(6)
    SecureGrid(federation).send_and_receive(asked(federation))
    [first, *_] = federation.of_step("sum")
    shares = b"".join(first[1].content["secure-sum"]["shares"])
    words = np.frombuffer(shares, "<u2")
    assert abs(words.mean() / 2**16 - 0.5) < 5 / math.sqrt(12 * len(words))
    sent = b"".join(
        str(reply.content).encode() for step, _, reply in federation.seen if step != "keys"
    )
    # Long enough that no digest or share has either by chance.
    assert b"patient 4711" not in sent and str(2**62).encode() not in sent


def test_a_query_in_the_clear_is_refused() -> None:
    federation = Federation(6)
    for kind in ("query", "query.default", "evaluate", "train"):
        messages = [Message(RecordDict(), FIRST_NODE, kind)]
        [reply] = federation.send_and_receive(messages)
        assert reply.has_error() and "in the clear" in str(reply.error.reason)


def test_pushed_queries_say_what_helps() -> None:
    federation = Federation(6)
    with pytest.raises(ParameterError, match="are sent by send_and_receive"):
        SecureGrid(federation).push_messages(asked(federation))
    [reply, *_] = federation.pull_messages(federation.push_messages(asked(federation)))
    assert "the grid that it sends by in SecureGrid" in reply.error.reason


def test_a_question_has_one_set_of_contributors() -> None:
    """The difference of two sums would be one client's; another question is another sum."""
    federation = Federation(6)
    grid = SecureGrid(federation)
    assert grid.send_and_receive(asked(federation))
    federation.failing = {(3, "sum")}
    assert grid.send_and_receive(asked(federation)) == []
    assert any("other clients contribute" in text for text in federation.errors)
    assert grid.send_and_receive(asked(federation, question=2))
    federation.failing = set()
    assert grid.send_and_receive(asked(federation))


def test_a_private_run_answers_no_query() -> None:
    """Named sums carry no noise: neither asked by an honest server nor given to another one."""
    privacy = Privacy.for_rounds(epsilon=4.0, delta=1e-5, rounds=3, clip=1.0)
    federation = Federation(6)
    grid = SecureGrid(federation, SumPlan(privacy=privacy))
    assert grid.send_and_receive(asked(federation)) == [] and federation.seen == []
    assert grid.send_and_receive(asking(federation, range(6)))
    request = federation.of_step("sum")[0][0]
    with pytest.raises(PolicyError, match="has no noise, and this client .* private"):
        SecureGrid(federation)._grid.deliver(query_of(federation, request))


def query_of(federation: Federation, request: Message) -> Message:
    """A request of before as a query without noise."""
    record = ConfigRecord(
        {**request.content["secure-sum"], "plan": SumPlan().to_json(), "round": 99}
    )
    again = Message(RecordDict({"secure-sum": record}), request.metadata.dst_node_id, "query")
    again.metadata.__dict__.update(_run_id=1, _src_node_id=1, _message_id="again")
    return again


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2.0**80])
def test_a_number_that_cannot_be_summed_makes_its_sum_none_and_no_other(bad: float) -> None:
    """It refuses nothing: a refusal would tell of this client alone."""

    def odd(message: Message, context: Context) -> RecordDict:
        content = query(message, context)
        if partition(context) == 2:
            content["figures"]["mean"] = bad
            content["tables"]["table"] = Array(np.array([[bad, 1, 1], [1, 1, 1]]))
        return content

    federation = Federation(6, query=odd)
    [reply] = SecureGrid(federation).send_and_receive(asked(federation))
    table = reply.content["tables"]["table"].numpy()
    assert math.isnan(reply.content["figures"]["mean"]) and math.isnan(table[0, 0])
    assert np.isfinite(table.ravel()[1:]).all() and reply.content["figures"]["counts"] == [15, 6, 0]


def test_whole_numbers_that_are_floats_leave_no_client_out() -> None:
    """Nor do narrower types: what differs in nothing else is summed."""

    def odd(message: Message, context: Context) -> RecordDict:
        content = query(message, context)
        if partition(context) == 2:
            content["figures"]["counts"] = [2.0, 1.0, 0.0]
            histogram = content["tables"]["histogram"].numpy().astype(np.uint32)
            content["tables"]["histogram"] = Array(histogram)
        return content

    federation = Federation(6, query=odd)
    [reply] = SecureGrid(federation).send_and_receive(asked(federation))
    assert reply.content["figures"]["counts"] == [15.0, 6.0, 0.0]
    assert reply.content["tables"]["histogram"].numpy().tolist() == [6 * 2**31 + 15] * 4


def test_a_reply_of_bytes_alone_is_refused_by_name() -> None:
    def blobs(message: Message, context: Context) -> RecordDict:
        return RecordDict({"state": ConfigRecord({"pickle": b"4711"})})

    federation = Federation(6, query=blobs)
    with pytest.raises(ProtocolError, match="has no numbers: put them in an ArrayRecord"):
        SecureGrid(federation).send_and_receive(asked(federation))


# -- beside a training -----------------------------------------------------------------------------


def with_sums(message: Message, context: Context) -> RecordDict:
    content = train(message, context)
    k = partition(context)
    content["sums"] = MetricRecord({"events": k, "num-rows": 7})
    content["sums.tables"] = ArrayRecord({"risk": Array(np.array([0.5, k]))})
    return content


def test_named_records_of_a_training_are_sums_and_the_rest_means() -> None:
    federation = Federation(6, train=with_sums)
    [reply] = SecureGrid(federation).send_and_receive(asking(federation, range(6)))
    assert dict(reply.content["sums"]) == {"events": 15, "num-rows": 42}
    assert reply.content["sums.tables"]["risk"].numpy().tolist() == [3.0, 15.0]
    weights = [100 + k for k in range(6)]
    loss = np.average([0.25 * k for k in range(6)], weights=weights)
    assert reply.content["metrics"]["loss"] == pytest.approx(loss, abs=1e-6)


def test_a_training_of_sums_alone_needs_no_weight() -> None:
    def sums(message: Message, context: Context) -> RecordDict:
        return RecordDict({"sums": with_sums(message, context)["sums"]})

    federation = Federation(6, train=sums)
    grid = SecureGrid(federation)
    for moved in (0.0, 1.0):
        [reply] = grid.send_and_receive(asking(federation, range(6), moved))
        assert {name: dict(r) for name, r in reply.content.items()} == {
            "sums": {"events": 15, "num-rows": 42}
        }


# -- metrics that are no means ---------------------------------------------------------------------


def with_epsilon(message: Message, context: Context) -> RecordDict:
    content = train(message, context)
    k = partition(context)
    content["metrics"] = MetricRecord(
        {"num-examples": 100 + k, "epsilon": 4.0 + k / 10, "accuracy": 0.5 + k / 10, "cases": k}
    )
    return content


MOD = SecureSumMod(largest=["epsilon"], smallest=("accuracy",), totals="cases")


def test_largest_smallest_and_total_metrics_reach_a_strategy() -> None:
    """A mean of Flower's opacus app: epsilon 4.25, where 4.5 is what its rows have spent."""
    federation = Federation(6, train=with_epsilon, mods=[MOD])
    result = run(federation, SecureSum(FedAvg(fraction_evaluate=0.0)), rounds=2)
    for found in result.train_metrics_clientapp.values():
        assert dict(found) == {"epsilon": 4.5, "accuracy": 0.5, "cases": 15}


@pytest.mark.parametrize("name", ["largest", "smallest", "totals"])
def test_an_integer_beyond_all_floats_refuses_nothing(name: str) -> None:
    def huge(message: Message, context: Context) -> RecordDict:
        content = with_epsilon(message, context)
        if partition(context) == 2:
            content["metrics"]["cases"] = 10**400
        return content

    mod = SecureSumMod(**{name: "cases"})  # type: ignore[arg-type]
    federation = Federation(6, train=huge, mods=[mod])
    [mean] = SecureGrid(federation).send_and_receive(asking(federation, range(6)))
    assert federation.errors == []
    told = {"largest": "999000.0", "smallest": "0.0", "totals": "nan"}
    assert str(mean.content["metrics"]["cases"]).removeprefix("-") == told[name]


@pytest.mark.parametrize("name", ["largest", "smallest", "totals"])
def test_a_metric_has_one_statistic(name: str) -> None:
    other = "smallest" if name != "smallest" else "largest"
    with pytest.raises(ParameterError, match="'a' is named twice"):
        SecureSumMod(**{name: ["a"], other: ["a"]})  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="'num-examples' is named twice, or weighs"):
        SecureSumMod(**{name: ["num-examples"]})  # type: ignore[arg-type]


def test_in_a_private_run_they_stay_with_the_client() -> None:
    privacy = Privacy.for_rounds(epsilon=4.0, delta=1e-5, rounds=3, clip=1.0)
    federation = Federation(6, train=with_epsilon, mods=[MOD])
    result = run(federation, SecureSum(FedAvg(), privacy=privacy))
    assert dict(result.train_metrics_clientapp[1]) == {}
