"""Clients that deviate: garbage, overflows, absurd numbers, malformed replies."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from ciphercohort.flower import SecureSumMod
from ciphercohort.flower.memory import RECORD
from ciphercohort.flower.plan import SumPlan
from ciphercohort.flower.records import LARGEST_METRIC
from ciphercohort.flower.rounds import WORDS
from ciphercohort.flower.server import SecureGrid
from protocols.aggregate import one_time, residues
from protocols.errors import ProtocolError
from tests.flower.federation import (
    FIRST_NODE,
    START,
    Federation,
    asking,
    memory_of,
    one_round,
    step_of,
    train,
    update,
)


class Deviant(Federation):
    """Of ten clients the first one's words are changed by `spoil`."""

    def __init__(self, spoil: Callable[[np.ndarray], None]) -> None:
        super().__init__(10)
        self._spoil = spoil

    def deliver(self, request: Message) -> Message:
        reply = super().deliver(request)
        sent = reply.content.array_records.get(WORDS)
        if sent is not None and request.metadata.dst_node_id == FIRST_NODE:
            words = np.frombuffer(sent["words"].data, np.uint8).copy()
            self._spoil(words)
            array = Array(dtype="uint8", shape=words.shape, stype="raw", data=words.tobytes())
            reply.content[WORDS] = ArrayRecord({"words": array})
        return reply


def test_garbage_of_one_client_is_noticed_and_opens_nothing() -> None:
    """Random words for its contribution: those that are 0 show it."""

    def garbage(words: np.ndarray) -> None:
        words[:] = np.frombuffer(np.random.default_rng(0).bytes(len(words)), np.uint8)

    with pytest.raises(ProtocolError, match="deviates"):
        one_round(Deviant(garbage))


def test_an_overflow_by_one_client_moves_the_mean_and_shows_nothing() -> None:
    """It adds 2^47 to a word, as if it had moved so far: the mean moves by half the range."""

    def overflow(words: np.ndarray) -> None:
        words[5] ^= 128

    honest, deviant = (
        one_round(each).arrays["matrix"].numpy() for each in (Federation(10), Deviant(overflow))
    )
    difference = np.abs(honest - deviant).ravel()
    assert difference[0] > 50 and difference[1:].max() < 1e-3


def test_weights_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """An absurd weight counts as 0, and is counted: a refusal would tell of one client."""
    for weight in (-1.0, float("nan"), 2.0**33, 10**400):

        def absurd(message: Message, context: Any, weight: float = weight) -> RecordDict:
            content = train(message, context)
            if context.node_config["partition-id"] == 0:
                content["metrics"]["num-examples"] = weight
            return content

        federation = Federation(4, train=absurd)
        caplog.clear()
        result = one_round(federation)
        assert federation.errors == [] and "1 weights (num-examples) were no" in caplog.text
        others = [update(k, "vector", START["vector"]) for k in (1, 2, 3)]
        mean = np.average(others, axis=0, weights=[101, 102, 103])
        assert np.abs(result.arrays["vector"].numpy() - mean).max() < 1e-4


def test_no_number_of_a_client_causes_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    """Losses beyond 2^40, infinite, none at all: a server would count labels by such refusals."""
    for loss in (2.0**45, -1e300, float("-inf"), float("nan")):

        def large(message: Message, context: Any, loss: float = loss) -> RecordDict:
            content = train(message, context)
            own = context.node_config["partition-id"] == 0
            content["metrics"]["loss"] = loss if own else 0.0
            return content

        federation = Federation(4, train=large)
        caplog.clear()
        found = one_round(federation).train_metrics_clientapp[1]["loss"]
        assert federation.errors == [] and "1 metrics were " in caplog.text
        cut = np.sign(loss) * LARGEST_METRIC * 100 / 406 if np.isfinite(loss) else np.nan
        assert np.isclose(found, cut, rtol=1e-12, equal_nan=True)


def test_a_server_does_not_choose_what_weighs() -> None:
    """Weighed by a metric with a sign, clients would refuse by it; all of them do, at any value."""
    federation = Federation(4)
    with pytest.raises(ProtocolError, match="the plan weighs by 'loss' and this client by"):
        SecureGrid(federation, SumPlan(weighted_by="loss")).send_and_receive(
            asking(federation, range(4))
        )
    assert len(federation.errors) == 4
    federation = Federation(4, mods=[SecureSumMod(weighted_by="loss")])
    grid = SecureGrid(federation, SumPlan(weighted_by="loss"))
    assert grid.send_and_receive(asking(federation, range(4)))


def altered(reply: Message, **fields: Any) -> None:
    reply.content[RECORD] = ConfigRecord({**reply.content[RECORD], **fields})


def unhashable_weight(reply: Message) -> None:
    rows, _ = json.loads(reply.content[RECORD]["layout"])
    altered(reply, layout=json.dumps([rows, [["a"], "b"]]))


def sizes_of_text(reply: Message) -> None:
    rows, weight = json.loads(reply.content[RECORD]["layout"])
    altered(reply, layout=json.dumps([[[*r[:4], ["a"], r[5]] for r in rows], weight]))


def three_bytes(reply: Message) -> None:
    array = Array(dtype="uint32", shape=(1,), stype="raw", data=b"abc")
    reply.content[WORDS] = ArrayRecord({"words": array})


@pytest.mark.parametrize(
    ("step", "spoil"),
    [
        ("sum", unhashable_weight),
        ("sum", sizes_of_text),
        ("sum", three_bytes),
        ("open", lambda reply: altered(reply, answer=b"x")),
        ("keys", lambda reply: altered(reply, entry='[["a"], "b", "c", "d"]')),
    ],
)
def test_a_malformed_reply_leaves_its_client_out(step: str, spoil: Any) -> None:
    """In the first round already, where a failed sum ends the run."""

    class Malformed(Federation):
        def deliver(self, request: Message) -> Message:
            reply = super().deliver(request)
            if step_of(request) == step and request.metadata.dst_node_id == FIRST_NODE + 9:
                spoil(reply)
            return reply

    federation = Malformed(10)
    [mean] = SecureGrid(federation).send_and_receive(asking(federation, range(10)))
    here = 10 if step == "open" else 9
    assert mean.content["metrics"]["num-examples"] == sum(range(100, 100 + here))


def test_an_answer_of_another_length_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealed as it should be, with a byte too many."""
    real, seal = one_time.answer, one_time._seal

    def longer(place: Any, *arguments: Any) -> bytes:
        if place.own == 9:
            monkeypatch.setattr(one_time, "_seal", lambda key, plain: seal(key, plain + b"\0"))
        try:
            return real(place, *arguments)
        finally:
            monkeypatch.setattr(one_time, "_seal", seal)

    monkeypatch.setattr(one_time, "answer", longer)
    assert one_round(Federation(10)).arrays is not None


def test_a_client_cannot_take_a_members_name() -> None:
    """In the first round or late: it stays out, and the others go on."""
    config = {9: {"secure-sum-name": str(FIRST_NODE)}}
    for late in (False, True):
        federation = Federation(10, config={"secure-sum-admit": "true"}, configs=config)
        grid = SecureGrid(federation)
        if late:
            stranger = federation.contexts.pop(FIRST_NODE + 9)
            assert grid.send_and_receive(asking(federation, range(9)))
            federation.contexts[FIRST_NODE + 9] = stranger
        for _ in range(2):
            [mean] = grid.send_and_receive(asking(federation, range(10)))
            assert mean.content["metrics"]["num-examples"] == sum(range(100, 109))


@pytest.mark.parametrize("weight", [-1e9, 2.0**36, 2.0**41])
def test_a_sum_of_weights_that_no_honest_clients_have_is_refused(
    weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client contributes another weight than its messages can have."""
    real = residues.encode

    def heavier(numbers: Any, randomness: Any) -> Any:
        return real([weight, *numbers[1:]] if numbers[0] == 109 else numbers, randomness)

    monkeypatch.setattr(residues, "encode", heavier)
    with pytest.raises(ProtocolError, match="all clients are 0 .*, or their sum"):
        one_round(Federation(10))


def test_memory_is_never_printed(finished: Federation) -> None:
    memory = memory_of(finished, finished.of_step("sum")[0][0])
    assert repr(memory) == "Memory(<secret>)" and memory.private
