"""A coordinator that picks clients, weights or replies, so that a sum says much of one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Message, RecordDict
from flwr.serverapp.strategy import FedAvg

from ciphercohort.flower import SecureSum, secure_sum_mod
from ciphercohort.flower.members import Roster
from ciphercohort.flower.memory import RECORD
from ciphercohort.flower.plan import SumPlan
from ciphercohort.flower.rounds import WORDS
from ciphercohort.flower.server import SecureGrid
from protocols.aggregate.words import of_bytes, signed
from protocols.errors import ParameterError, PolicyError, ProtocolError
from protocols.exchange.messages import public_bytes
from tests.flower.federation import (
    FIRST_NODE,
    START,
    Federation,
    asking,
    memory_of,
    one_round,
    rosters,
    start,
    update,
)


def test_fewer_than_half_of_the_roster_are_not_summed() -> None:
    """A victim beside two clients of the server's, of ten."""
    federation = Federation(10)
    grid = SecureGrid(federation)
    with pytest.raises(ProtocolError, match="3 of 10 clients are sampled"):
        grid.send_and_receive(asking(federation, (0, 8, 9)))
    with pytest.raises(ProtocolError, match="3 of 10 clients are asked: at least half"):
        SecureGrid(federation, least_share=0.0).send_and_receive(asking(federation, (0, 8, 9)))
    assert SecureGrid(federation).send_and_receive(asking(federation, range(5)))


@pytest.mark.parametrize("pins", [True, False])
@pytest.mark.parametrize("least", [0, 4])
def test_pins_and_a_least_number_allow_a_small_sample_and_only_both(
    tmp_path: Path, pins: bool, least: int
) -> None:
    """Of 12 clients 5 are asked, of which 1 may vanish; then 5 others; then 3, which is too few."""
    homes = {k: {"secure-sum-home": str(tmp_path / str(k))} for k in range(12)}
    one_round(Federation(12, configs=homes))
    listed = tmp_path / "pins"
    keys = [(tmp_path / str(k) / "identity.key").read_bytes() for k in range(12)]
    listed.write_text(
        "\n".join(public_bytes(Ed25519PrivateKey.from_private_bytes(k)) for k in keys)
    )
    own = {"secure-sum-pins": str(listed)} if pins else {}
    own |= {"secure-sum-min-clients": least} if least else {}
    federation = Federation(12, configs={k: {**home, **own} for k, home in homes.items()})
    grid = SecureGrid(federation, least_share=0.0)
    if not (pins and least):
        with pytest.raises(ProtocolError, match="5 of 12 clients are asked: at least half"):
            grid.send_and_receive(asking(federation, range(5)))
        return
    for k, few in enumerate((range(5), range(5, 10))):
        assert grid.send_and_receive(asking(federation, few, k + 1.0))
    assert grid.send_and_receive(asking(federation, range(9, 12), 3.0)) == []
    assert any("a sum of 3 of 3 clients could open" in error for error in federation.errors)


def test_a_strategy_samples_a_few_where_all_are_pinned() -> None:
    with pytest.raises(ParameterError, match="fraction_train=0.2 samples less than 0.5"):
        SecureSum(FedAvg(fraction_train=0.2))
    SecureSum(FedAvg(fraction_train=0.2), pinned=True)


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


@pytest.mark.parametrize("lost", [1 / 3, 0.0])
def test_ten_and_then_nine_at_one_model_are_not_summed(lost: float) -> None:
    """Their difference would be one client's update. At another model the sum opens: see SECURITY.

    The same ten are summed again, in a session of its own as well.
    """
    federation, plan = Federation(10), SumPlan(lost=lost)
    grid = SecureGrid(federation, plan)
    assert grid.send_and_receive(asking(federation, range(10)))
    assert grid.send_and_receive(asking(federation, range(10)))
    grid = SecureGrid(federation, plan)
    assert grid.send_and_receive(asking(federation, range(10)))
    assert grid.send_and_receive(asking(federation, range(1, 10))) == []
    assert sum("with this very model" in error for error in federation.errors) == 9
    assert SecureGrid(federation, plan).send_and_receive(asking(federation, range(1, 10), 1.0))


def test_where_none_may_vanish_one_that_is_named_missing_stays_in() -> None:
    """The coordinator has all ten contributions, and so their sum; then it asks the nine others."""
    federation = Federation(10)
    grid = SecureGrid(federation, SumPlan(lost=0.0))
    federation.failing = {(3, "sum")}
    with pytest.raises(
        ProtocolError, match=r"9 of 10 clients contributed; needed are 10.*vanished"
    ):
        grid.send_and_receive(asking(federation, range(10)))
    others = [k for k in range(10) if k != 3]
    with pytest.raises(ProtocolError, match="with this very model"):
        grid.send_and_receive(asking(federation, others))
    federation.failing = set()
    assert grid.send_and_receive(asking(federation, range(10)))


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
        data = reply.content[WORDS]["words"].data
        words = signed(of_bytes(data, wide=True)[:12])
        moved = update(client, "matrix", START["matrix"]) - START["matrix"]
        # Twelve uniform words are beyond it with p = 1e-9; those of the update itself have 1.
        assert abs(np.corrcoef(words, moved.ravel())[0, 1]) < 0.99
        text = json.dumps([v for v in reply.content[RECORD].values() if isinstance(v, str)])
        assert str(100 + client) not in text
