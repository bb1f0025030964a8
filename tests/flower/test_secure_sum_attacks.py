"""What a coordinator can try against a client, and what deviating clients can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from ciphercohort.flower import SecureSum, SecureSumMod, secure_sum_mod, server
from ciphercohort.flower.members import Entry, Roster
from ciphercohort.flower.memory import RECORD, Memory, Owner
from ciphercohort.flower.plan import SumPlan
from ciphercohort.flower.rounds import WORDS
from ciphercohort.flower.server import SecureGrid
from protocols.aggregate import limbs, one_time
from protocols.errors import CohortError, MessageError, PolicyError, ProtocolError
from tests.flower.federation import (
    FIRST_NODE,
    START,
    Federation,
    start,
    step_of,
    train,
    update,
)

MEAN = SecureSum(FedAvg(fraction_evaluate=0.0))


def one_round(federation: Federation, **options: Any) -> Any:
    return MEAN.start(federation, start(), num_rounds=1, **options)


@pytest.fixture
def finished() -> Federation:
    """After one round."""
    federation = Federation(10)
    one_round(federation)
    return federation


# -- rounds and sets -------------------------------------------------------------------------------


def test_a_round_is_not_answered_twice(finished: Federation) -> None:
    """Two encryptions of one round, or of an earlier one."""
    request, _ = finished.of_step("sum")[0]
    for number in (1, 0):
        with pytest.raises(PolicyError, match="is not above 1, which was answered"):
            finished.send(request, round=number)


def test_a_second_set_of_a_round_is_not_answered(finished: Federation) -> None:
    request, _ = finished.of_step("open")[0]
    fields = request.content[RECORD]
    smaller = list(fields["set"])[1:]
    with pytest.raises(PolicyError, match="one set is answered for in a round"):
        finished.send(request, set=smaller, shares=list(fields["shares"])[1:])
    with pytest.raises(PolicyError, match="one set is answered for in a round"):
        finished.send(request)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"set": [0, 1, 2], "shares": [b""] * 3}, "a sum needs 7"),
        ({"set": [*range(9), 10]}, "was not asked"),
        ({"round": 3}, "waits for the set of round 2"),
        ({"session": "other"}, "another session"),
        ({"epoch": 9}, "another session or roster"),
        ({"shares": [b"x" * 100] * 10}, "does not open"),
        ({"set": ["0"]}, "malformed"),
        ({"set": [0] * 10}, "no rising list"),
    ],
)
def test_sets_that_are_refused(change: dict[str, Any], reason: str) -> None:
    """And then the true one is still answered, once."""
    federation = Federation(10)
    told: list[Message] = []

    def hold(step: str, message: Message) -> None:
        if step == "open":
            told.append(message)
            record = message.content[RECORD]
            message.content[RECORD] = type(record)({**record, **change})

    federation.tamper = hold
    one_round_fails(federation, rounds=2, hold_from=2, hold=hold)
    assert any(reason in error for error in federation.errors), federation.errors


def one_round_fails(federation: Federation, *, rounds: int, hold_from: int, hold: Any) -> None:
    def later(step: str, message: Message) -> None:
        if step == "open" and message.content[RECORD]["round"] >= hold_from:
            hold(step, message)

    federation.tamper = later
    MEAN.start(federation, start(), num_rounds=rounds)


def test_naming_honest_clients_missing_opens_nothing_more() -> None:
    """The coordinator has everybody's contribution, and tells half that client 0 is missing.

    Neither sum opens. Told all the same, the sum without client 0 opens and nothing else does: the
    other set is refused by everybody from then on.
    """
    federation = Federation(10)

    def name_missing(step: str, message: Message) -> None:
        node = message.metadata.dst_node_id
        if step == "open" and node % 2:
            record = message.content[RECORD]
            fields = {
                "set": list(record["set"])[1:],
                "shares": list(record["shares"])[1:],
            }
            message.content[RECORD] = type(record)({**record, **fields})

    federation.tamper = name_missing
    with pytest.raises(CohortError, match=r"shares|needed are|malformed"):
        one_round(federation)
    for request, _ in federation.of_step("open"):
        with pytest.raises(PolicyError, match="one set is answered for"):
            federation.send(request, set=list(range(10)))


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
        {"a": ConfigRecord({"lr": 0.0}), "b": ConfigRecord({"lr": 1.0}), "c": ArrayRecord()},
        {"a": ConfigRecord({"lr": 0}), "b": ConfigRecord({"lr": 1.0})},
        {"a": ConfigRecord({"lr": 0.0}), "b": ConfigRecord({"lr": 1.0}), "c": ConfigRecord()},
    ],
    ids=["order", "type of record", "empty arrays", "type of value", "empty record"],
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


# -- whom a server picks ---------------------------------------------------------------------------


def asking(federation: Federation, clients: Any, moved: float = 0.0) -> list[Message]:
    arrays = start({name: np.asarray(value + moved, value.dtype) for name, value in START.items()})
    content = {"arrays": arrays, "config": ConfigRecord({"server-round": 1})}
    return [Message(RecordDict(content), FIRST_NODE + k, "train") for k in clients]


def test_fewer_than_half_of_the_roster_are_not_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A victim beside two clients of the server's, of ten."""
    federation = Federation(10)
    grid = SecureGrid(federation)
    with pytest.raises(ProtocolError, match="3 of 10 clients are sampled"):
        grid.send_and_receive(asking(federation, (0, 8, 9)))
    monkeypatch.setattr(server, "LEAST_SHARE", 0.0)
    with pytest.raises(ProtocolError, match="3 of 10 clients are asked: at least half"):
        SecureGrid(federation).send_and_receive(asking(federation, (0, 8, 9)))
    assert SecureGrid(federation).send_and_receive(asking(federation, range(5)))


def test_a_small_roster_is_no_way_around(finished: Federation) -> None:
    """Three of the ten that are known, with a faithful signature each."""
    request, _ = finished.of_step("roster")[0]
    roster = rosters(finished)
    own = memory_of(finished, request).own
    few = [roster.entries[(own + k) % 10] for k in range(3)]
    with pytest.raises(PolicyError, match="a roster of 3 is less than half of the 10"):
        finished.send(request, roster=Roster.of(roster.session, 5, few).to_json())


def test_least_clients_bound_the_sum_and_not_those_asked() -> None:
    """Ten are asked, of which three may vanish."""
    for least, lost, opens in ((10, 1 / 3, False), (8, 1 / 3, False), (7, 1 / 3, True)):
        federation = Federation(10, config={"secure-sum-min-clients": least})
        grid = SecureGrid(federation, SumPlan(lost=lost))
        if opens:
            assert grid.send_and_receive(asking(federation, range(10)))
            continue
        with pytest.raises(ProtocolError, match="a sum of 7 of 10 clients could open"):
            grid.send_and_receive(asking(federation, range(10)))


def test_ten_and_then_nine_at_one_model_are_not_summed() -> None:
    """Their difference would be one client's update. At another model the sum opens: see SECURITY.

    The same ten are summed again, in a session of its own as well.
    """
    federation = Federation(10)
    grid = SecureGrid(federation)
    assert grid.send_and_receive(asking(federation, range(10)))
    assert grid.send_and_receive(asking(federation, range(10)))
    grid = SecureGrid(federation)
    assert grid.send_and_receive(asking(federation, range(10)))
    assert grid.send_and_receive(asking(federation, range(1, 10))) == []
    assert sum("with this very model" in error for error in federation.errors) == 9
    assert SecureGrid(federation).send_and_receive(asking(federation, range(1, 10), 1.0))


# -- the clear -------------------------------------------------------------------------------------


def test_no_reply_leaves_in_the_clear(finished: Federation) -> None:
    plain = Message(RecordDict({"arrays": start()}), FIRST_NODE, "train")
    with pytest.raises(PolicyError, match="asks for a reply in the clear"):
        finished.send(plain)
    asked = Message(RecordDict(), FIRST_NODE, "get_parameters")
    with pytest.raises(PolicyError, match="would leave in the clear"):
        secure_sum_mod(asked, finished.contexts[FIRST_NODE], lambda *_: plain)
    with pytest.raises(PolicyError, match="reply in the clear"):
        finished.send(Message(RecordDict({"arrays": start()}), FIRST_NODE, "evaluate"))


def test_replies_hold_no_value_of_a_client(finished: Federation) -> None:
    """Their words agree with the true update's no more often than by chance."""
    for request, reply in finished.of_step("sum"):
        client = request.metadata.dst_node_id - FIRST_NODE
        assert set(reply.content) == {RECORD, WORDS}
        words = np.frombuffer(reply.content[WORDS]["words"].data, np.int32)[:12]
        moved = update(client, "matrix", START["matrix"]) - START["matrix"]
        assert abs(np.corrcoef(words, moved.ravel())[0, 1]) < 0.95
        text = json.dumps([v for v in reply.content[RECORD].values() if isinstance(v, str)])
        assert str(100 + client) not in text


# -- keys ------------------------------------------------------------------------------------------


def rosters(federation: Federation) -> Roster:
    request, _ = federation.of_step("roster")[0]
    return Roster.of_json(str(request.content[RECORD]["roster"]))


def forged(entry: Entry, **changes: str) -> Entry:
    fields = ("name", "identity", "key", "signature")
    return Entry(**{name: changes.get(name, getattr(entry, name)) for name in fields})


def test_forged_keys_are_refused(finished: Federation) -> None:
    """A key of the coordinator's own in a member's name, twice the same, or a member left out."""
    request, _ = finished.of_step("roster")[0]
    roster = rosters(finished)
    own = memory_of(finished, request).own
    other = (int(own) + 1) % 10
    fresh = "11" * 32
    entries = list(roster.entries)

    def told(entries: list[Entry], epoch: int = 5) -> str:
        return Roster.of(roster.session, epoch, entries).to_json()

    swapped = [forged(e, key=fresh) if k == other else e for k, e in enumerate(entries)]
    with pytest.raises(ProtocolError, match="not signed by its identity"):
        finished.send(request, roster=told(swapped))
    without = [entry for k, entry in enumerate(entries) if k != own]
    with pytest.raises(PolicyError, match="not in the roster"):
        finished.send(request, roster=told(without))
    with pytest.raises(PolicyError, match="older than the one held"):
        finished.send(request, roster=told(entries, epoch=1))
    with pytest.raises(PolicyError, match="too few"):
        finished.send(request, roster=told([entries[int(own)], entries[other]]))
    with pytest.raises(MessageError, match="no roster"):
        finished.send(request, roster="{}")
    with pytest.raises(MessageError, match="not distinct"):
        rows = json.loads(roster.to_json())
        rows[2].append(rows[2][-1])
        finished.send(request, roster=json.dumps(rows))


def test_sybil_clients_are_refused_after_the_first_round(finished: Federation) -> None:
    """A coordinator that registers clients of its own, later, or exchanges an identity."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    request, _ = finished.of_step("roster")[0]
    roster = rosters(finished)
    sybils = [
        Entry.by(Ed25519PrivateKey.generate(), name, X25519PrivateKey.generate(), roster.session)
        for name in ("sybil-1", roster.entries[3].name)
    ]
    late = Roster.of(roster.session, 5, [*roster.entries, sybils[0]])
    with pytest.raises(PolicyError, match="is new since the first round"):
        finished.send(request, roster=late.to_json())
    own = memory_of(finished, request).own
    if own != 3:
        rest = [entry for k, entry in enumerate(roster.entries) if k != 3]
        swapped = Roster.of(roster.session, 5, [*rest, sybils[1]])
        with pytest.raises(PolicyError, match="another identity than before"):
            finished.send(request, roster=swapped.to_json())


def test_pinned_identities_keep_sybils_out_from_the_start(tmp_path: Path) -> None:
    """Nine of ten clients are pinned; the tenth gets in nowhere."""
    homes = {k: {"secure-sum-home": str(tmp_path / str(k))} for k in range(10)}
    federation = Federation(10, configs=homes)
    one_round(federation)
    identities = {e.name: e.identity for e in rosters(federation).entries}
    stranger = identities.pop(str(FIRST_NODE + 9))
    pins = tmp_path / "pins"
    pins.write_text("\n".join(identities.values()))
    pinned = {k: {**config, "secure-sum-pins": str(pins)} for k, config in homes.items()}
    federation = Federation(10, configs=pinned)
    with pytest.raises(ProtocolError, match="clients have keys"):
        one_round(federation)
    assert any("is not pinned here" in error for error in federation.errors)
    pins.write_text("\n".join([*identities.values(), stranger]))
    federation = Federation(10, configs=pinned)
    assert one_round(federation).arrays is not None
    # The identities are those of the first run.
    assert {e.identity for e in rosters(federation).entries} == {*identities.values(), stranger}


def test_keys_of_one_run_are_not_those_of_another(tmp_path: Path) -> None:
    homes = {k: {"secure-sum-home": str(tmp_path / str(k))} for k in range(4)}
    found = []
    for _ in range(2):
        federation = Federation(4, configs=homes)
        one_round(federation)
        found.append(rosters(federation))
    assert {e.identity for e in found[0].entries} == {e.identity for e in found[1].entries}
    assert not {e.key for e in found[0].entries} & {e.key for e in found[1].entries}


# -- deviating clients -----------------------------------------------------------------------------


def test_garbage_of_one_client_is_noticed_and_opens_nothing() -> None:
    """Random words for its contribution: the exact part of the sum shows it."""

    class Deviant(Federation):
        def deliver(self, request: Message) -> Message:
            reply = super().deliver(request)
            words = reply.content.array_records.get(WORDS)
            if words is not None and request.metadata.dst_node_id == FIRST_NODE:
                length = words["words"].shape[0]
                data = np.random.default_rng(0).bytes(4 * length)
                array = Array(dtype="uint32", shape=(length,), stype="raw", data=data)
                reply.content[WORDS] = ArrayRecord({"words": array})
            return reply

    with pytest.raises(ProtocolError, match="deviates"):
        one_round(Deviant(10))


def test_an_overflow_by_one_client_moves_the_mean_and_shows_nothing() -> None:
    """It adds 2^31 to a word, as if it had moved that far: the mean moves by half the range."""

    class Deviant(Federation):
        def deliver(self, request: Message) -> Message:
            reply = super().deliver(request)
            words = reply.content.array_records.get(WORDS)
            if words is not None and request.metadata.dst_node_id == FIRST_NODE:
                moved = np.frombuffer(words["words"].data, np.uint32).copy()
                moved[:1] += np.uint32(1 << 31)
                data = moved.tobytes()
                array = Array(dtype="uint32", shape=moved.shape, stype="raw", data=data)
                reply.content[WORDS] = ArrayRecord({"words": array})
            return reply

    honest, deviant = (
        one_round(kind(10)).arrays["matrix"].numpy() for kind in (Federation, Deviant)
    )
    difference = np.abs(honest - deviant).ravel()
    assert difference[0] > 50 and difference[1:].max() < 1e-3


def test_weights_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """An absurd weight counts as 0, and is counted: a refusal would tell of one client."""
    for weight in (-1.0, float("nan"), 2.0**26, 10**400):

        def absurd(message: Message, context: Any, weight: float = weight) -> RecordDict:
            content = train(message, context)
            if context.node_config["partition-id"] == 0:
                content["metrics"]["num-examples"] = weight
            return content

        federation = Federation(4, train=absurd)
        caplog.clear()
        result = one_round(federation)
        assert federation.errors == [] and "1 values moved beyond" in caplog.text
        others = [update(k, "vector", START["vector"]) for k in (1, 2, 3)]
        mean = np.average(others, axis=0, weights=[101, 102, 103])
        assert np.abs(result.arrays["vector"].numpy() - mean).max() < 1e-4


def test_no_number_of_a_client_causes_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    """Losses beyond 2^25, infinite, none at all: a server would count labels by such refusals."""
    for loss in (2.0**30, float("-inf"), float("nan"), 1e300):

        def large(message: Message, context: Any, loss: float = loss) -> RecordDict:
            content = train(message, context)
            own = context.node_config["partition-id"] == 0
            content["metrics"]["loss"] = loss if own else 0.0
            return content

        federation = Federation(4, train=large)
        caplog.clear()
        found = one_round(federation).train_metrics_clientapp[1]["loss"]
        assert federation.errors == [] and "1 values moved beyond" in caplog.text
        sign = 0 if loss != loss else 1 if loss > 0 else -1
        assert abs(found - sign * (limbs.LARGEST - 1) / 406) < 1e-3


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

    class Deviant(Federation):
        def deliver(self, request: Message) -> Message:
            reply = super().deliver(request)
            if step_of(request) == step and request.metadata.dst_node_id == FIRST_NODE + 9:
                spoil(reply)
            return reply

    federation = Deviant(10)
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


@pytest.mark.parametrize("weight", [2.0**29, 2.0**34])
def test_a_sum_of_weights_that_no_honest_clients_have_is_refused(weight: float) -> None:
    """One client adds to its weight's limbs."""

    class Deviant(Federation):
        def deliver(self, request: Message) -> Message:
            reply = super().deliver(request)
            words = reply.content.array_records.get(WORDS)
            if words is not None and request.metadata.dst_node_id == FIRST_NODE:
                moved = np.frombuffer(words["words"].data, np.uint32).copy()
                first = sum(value.size for value in START.values())
                rest = round(weight * 2**limbs.FRACTION_BITS)
                for k in range(limbs.LIMBS):
                    moved[first + k] += np.uint32((rest >> 8 * k & 0xFF) << limbs._gap(10))
                array = Array(dtype="uint32", shape=moved.shape, stype="raw", data=moved.tobytes())
                reply.content[WORDS] = ArrayRecord({"words": array})
            return reply

    with pytest.raises(ProtocolError, match="the weights of all clients are 0, or their sum"):
        one_round(Deviant(10))


def test_memory_is_never_printed(finished: Federation) -> None:
    memory = memory_of(finished, finished.of_step("sum")[0][0])
    assert repr(memory) == "Memory(<secret>)" and memory.private
