"""A coordinator that picks whom a client meets, who contributes, or what is cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from ciphercohort.flower.plan import Privacy, SumPlan
from ciphercohort.flower.server import SecureGrid
from protocols.aggregate.quorum import Quorum
from protocols.errors import ProtocolError
from tests.flower.federation import (
    FIRST_NODE,
    Federation,
    asking,
    memory_of,
)

VICTIM = 3
OTHERS = [k for k in range(10) if k != VICTIM]


def summed(federation: Federation, messages: Iterable[Message], plan: SumPlan) -> RecordDict:
    """The mean, in a session of its own."""
    return next(iter(SecureGrid(federation, plan).send_and_receive(messages))).content


# -- whom a client meets ---------------------------------------------------------------------------


def test_half_of_a_roster_of_half_are_too_few_to_ask() -> None:
    """Three of ten that are known: two of the server's would be enough."""
    federation, plan = Federation(10), SumPlan()
    summed(federation, asking(federation, range(10)), plan)
    half = [FIRST_NODE + k for k in range(5)]
    federation.get_node_ids = lambda: half  # type: ignore[method-assign]
    with pytest.raises(ProtocolError, match="3 of 10 clients are asked: at least half"):
        summed(federation, asking(federation, range(3), 0.25), plan)
    assert summed(federation, asking(federation, range(5), 0.25), plan)


def test_half_of_those_pinned_are_asked_from_the_start(tmp_path: Path) -> None:
    configs = {k: {"secure-sum-home": str(tmp_path / str(k))} for k in range(10)}
    first = Federation(10, configs=configs)
    summed(first, asking(first, range(10)), SumPlan())
    request, _ = first.of_step("sum")[0]
    pins = tmp_path / "pins"
    pins.write_text("\n".join(memory_of(first, request).members))
    for path in tmp_path.glob("*/*.json"):
        path.unlink()
    configs = {k: {**configs[k], "secure-sum-pins": str(pins)} for k in range(5)}
    federation = Federation(5, configs=configs)
    with pytest.raises(ProtocolError, match="3 of 10 clients are asked: at least half"):
        summed(federation, asking(federation, range(3)), SumPlan())
    assert summed(federation, asking(federation, range(5)), SumPlan())


@pytest.mark.parametrize(("known", "colluders"), [(10, 1), (100, 16)])
def test_the_servers_own_that_every_choice_of_half_withstands(known: int, colluders: int) -> None:
    """SECURITY.md's figures, for sums and for their noise."""
    quorums = [Quorum.of(asked, 1 / 3) for asked in range(known // 2, known + 1)]
    assert min(quorum.colluders for quorum in quorums) == colluders
    privacy = Privacy.for_rounds(epsilon=1.0, delta=1e-5, rounds=1, clip=1.0)
    for quorum in quorums:
        honest = quorum.needed - colluders
        assert privacy.share_std(quorum) * honest**0.5 >= privacy.noise_multiplier * (1 - 1e-12)


# -- who contributes -------------------------------------------------------------------------------


def call_one_lost(federation: Federation) -> Iterable[Message]:
    federation.failing = {(VICTIM, "sum")}
    return asking(federation, range(10))


def use_the_other_name(federation: Federation) -> Iterable[Message]:
    return [
        Message(message.content, message.metadata.dst_node_id, "train.default")
        for message in asking(federation, OTHERS)
    ]


@pytest.mark.parametrize("again", [call_one_lost, use_the_other_name])
@pytest.mark.parametrize("lost", [1 / 3, 0.0])
def test_ten_and_then_nine_at_one_model_do_not_open(
    lost: float, again: Callable[[Federation], Iterable[Message]]
) -> None:
    """The difference of both sums would be one client's update."""
    federation, plan = Federation(10), SumPlan(lost=lost)
    summed(federation, asking(federation, range(10)), plan)
    with pytest.raises(ProtocolError):
        summed(federation, again(federation), plan)
    refused = sum("with this very model" in error for error in federation.errors)
    # Where none may vanish a sum of ten without one of them does not open anyway.
    assert refused == (0 if lost == 0 and again is call_one_lost else 9)
    federation.failing = set()
    assert summed(federation, asking(federation, range(10)), plan)


# -- what is cut off -------------------------------------------------------------------------------


def test_a_range_stays_what_the_first_sum_had() -> None:
    """Differences of sums that are cut off at chosen ranges would be single clients' values."""
    federation = Federation(10)
    messages = asking(federation, range(10))
    summed(federation, messages, SumPlan(weight_scale=1000.0))
    with pytest.raises(ProtocolError, match="range=0.1 is not 16, that of the run's first sum"):
        summed(federation, messages, SumPlan(range=0.1, weight_scale=1000.0))
    with pytest.raises(ProtocolError, match="weight_scale=300 is no power of 2, nor 1000"):
        summed(federation, messages, SumPlan(weight_scale=300.0))
    for scale in (250.0, 128.0):
        assert summed(federation, messages, SumPlan(weight_scale=scale))


@pytest.mark.parametrize("weight_scale", [1e308, 1e-300])
def test_scales_far_apart_are_refused_in_words(weight_scale: float) -> None:
    federation = Federation(3)
    messages = asking(federation, range(3))
    summed(federation, messages, SumPlan(weight_scale=1000.0))
    with pytest.raises(ProtocolError, match="is no power of 2, nor 1000"):
        summed(federation, messages, SumPlan(weight_scale=weight_scale))


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("value", [1e308, 1e-320])
def test_no_value_causes_a_refusal_where_numpy_raises(value: float, private: bool) -> None:
    """A client that failed would tell the server of itself alone."""

    def train(message: Message, context: Context) -> RecordDict:
        client = int(context.node_config["partition-id"])
        np.seterr(all="raise")
        arrays = ArrayRecord({"new": Array(np.full(4, value if client == VICTIM else 0.1))})
        return RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 100})})

    federation = Federation(4, train=train)
    privacy = Privacy.for_rounds(epsilon=8.0, delta=1e-5, rounds=1, clip=1.0) if private else None
    before = np.geterr()
    try:
        assert summed(federation, asking(federation, range(4)), SumPlan(privacy=privacy))
    finally:
        np.seterr(**before)
    assert not federation.errors
