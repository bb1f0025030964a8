"""A coordinator that tells one client something else than the rest."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from ciphercohort.flower import records
from ciphercohort.flower.memory import RECORD
from protocols.errors import CohortError, ProtocolError
from tests.flower.federation import FIRST_NODE, START, Federation, federation_first, one_round


@pytest.mark.parametrize("which", ["asked", "plan"])
def test_who_is_told_otherwise_shares_no_keys_with_the_rest(which: str) -> None:
    """One client is told of nine clients in place of ten, or of another plan.

    The others cannot open what it sealed: a set with it opens nothing.
    """

    def differ(step: str, message: Message) -> None:
        if step == "sum" and message.metadata.dst_node_id == federation_first(federation):
            record = message.content[RECORD]
            plan = json.loads(str(record["plan"])) | {"range": 17.0}
            fields = {"asked": list(range(9)), "plan": json.dumps(plan, sort_keys=True)}
            message.content[RECORD] = type(record)({**record, which: fields[which]})

    class Padding(Federation):
        """Where nine shares came back, a tenth is made up."""

        def deliver(self, request: Message) -> Message:
            reply = super().deliver(request)
            record = reply.content.config_records.get(RECORD)
            if record is not None and len(record.get("shares", [])) == 9:
                record["shares"] = [*record["shares"], record["shares"][0]]
            return reply

    federation = Padding(10)
    federation.tamper = differ
    with pytest.raises(CohortError):
        one_round(federation)
    assert sum("does not open" in error for error in federation.errors) >= 9


def test_a_model_of_its_own_for_one_client_gives_no_sum() -> None:
    """Pasquini et al.: a model under which the others' updates vanish would single one out."""
    federation = Federation(10)

    def single_out(step: str, message: Message) -> None:
        if step == "sum" and message.metadata.dst_node_id != FIRST_NODE:
            arrays = {name: Array(np.zeros_like(value)) for name, value in START.items()}
            message.content["arrays"] = ArrayRecord(arrays)

    def stand_still(step: str, message: Message) -> None:
        """The same by configuration: all but one are told not to train."""
        if step == "sum" and message.metadata.dst_node_id != FIRST_NODE:
            message.content["config"] = ConfigRecord({"server-round": 1, "lr": 0.0})

    federation.tamper = stand_still
    with pytest.raises(CohortError):
        one_round(federation)
    assert any("another round, model" in error for error in federation.errors)
    federation = Federation(10)
    federation.tamper = single_out
    with pytest.raises(CohortError):
        one_round(federation)
    assert any("another round, model" in error for error in federation.errors)


def wrong_for_one(federation: Federation, change: Any) -> None:
    """Nobody's sum opens where one client is told otherwise."""
    federation.tamper = change
    with pytest.raises(CohortError):
        one_round(federation)
    assert any("another round, model" in error for error in federation.errors)


@pytest.mark.parametrize(
    "others",
    [
        {"b": ConfigRecord({"lr": 1.0}), "a": ConfigRecord({"lr": 0.0})},
        {"a": MetricRecord({"lr": 0.0}), "b": ConfigRecord({"lr": 1.0})},
        {"a": ConfigRecord({"lr": 0}), "b": ConfigRecord({"lr": 1.0})},
        {"a": ConfigRecord({"lr": 0.0}), "b": ConfigRecord({"lr": 1.0}), "c": ConfigRecord()},
    ],
    ids=["order", "type of record", "type of value", "empty record"],
)
def test_all_that_a_message_holds_is_bound_in_its_order(others: dict[str, Any]) -> None:
    usual = {"a": ConfigRecord({"lr": 0.0}), "b": ConfigRecord({"lr": 1.0})}
    federation = Federation(10)

    def differ(step: str, message: Message) -> None:
        if step == "sum":
            told = usual if message.metadata.dst_node_id != FIRST_NODE else others
            rest = dict(message.content.items())
            message.content = RecordDict({**told, **rest})

    wrong_for_one(federation, differ)


def test_a_digest_that_is_kept_is_that_of_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model, its last bit changed, the model again, longer, and beyond what is kept."""
    monkeypatch.setattr(records, "_MOST_KEPT", 48)
    for data in (b"ab" * 8, b"ab" * 7 + b"ac", b"ab" * 8, b"ab" * 9, b"a" * 49, b"ab" * 8, b""):
        for key in ("w", "v", "u"):
            content = RecordDict({"arrays": ArrayRecord({key: Array("uint8", (1,), "raw", data)})})
            said = json.dumps(
                ["ArrayRecord", "arrays", 1, [key, "uint8", [1], "raw", sha256(data).hexdigest()]]
            )
            expected = sha256(b"%d\0%s" % (len(said), said.encode())).digest()
            assert records.digests(content, "") == (expected, expected)
            assert sum(len(kept) for kept, _ in records._KEPT.values()) <= 48


def test_an_array_stands_once_in_a_request() -> None:
    """Two of one key, in an order of the server's: one would be the base, and which is trained?"""
    federation = Federation(10)

    def twice(step: str, message: Message) -> None:
        if step == "sum":
            message.content["far"] = ArrayRecord({"vector": Array(np.full(5, -1e30))})

    federation.tamper = twice
    with pytest.raises(ProtocolError, match="two ArrayRecords of the request hold"):
        one_round(federation)


def test_a_run_configuration_of_its_own_for_one_client_gives_no_sum() -> None:
    """All but one are told lr = 0 by their run's configuration, which a server sets per node."""
    federation = Federation(10)
    for node, context in federation.contexts.items():
        context.run_config = {"lr": 1.0 if node == FIRST_NODE else 0.0, "x": "y"}
    wrong_for_one(federation, lambda step, message: None)
    federation = Federation(10)
    for node, context in federation.contexts.items():
        context.run_config = {"x": 1, "y": 2} if node == FIRST_NODE else {"y": 2, "x": 1}
    assert one_round(federation).arrays is not None


def test_a_group_of_its_own_for_one_client_gives_no_sum() -> None:
    federation = Federation(10)

    def regroup(step: str, message: Message) -> None:
        if step == "sum" and message.metadata.dst_node_id == FIRST_NODE:
            message.metadata.__dict__["_group_id"] = "other"

    wrong_for_one(federation, regroup)
