"""Clients that are late at any exchange, or that others do not know: training goes on.

On a grid that delivers late, with a clock of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg

from ciphercohort.flower import SecureSum, exchange
from ciphercohort.flower.memory import RECORD
from ciphercohort.flower.server import SecureGrid
from ciphercohort.flower.session import expelled
from tests.flower.federation import (
    FIRST_NODE,
    START,
    Federation,
    asking,
    start,
    step_of,
    update,
)

TIMEOUT = 10.0
EXCHANGES = ("keys", "roster", "sum", "open")


class Clock:
    """In place of `time` in `exchange`: nobody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class LateFederation(Federation):
    """delays: seconds until the reply to a client's k-th message of a step is there."""

    def __init__(self, clients: int, clock: Clock, **options: Any) -> None:
        super().__init__(clients, **options)
        self._clock = clock
        self.delays: dict[tuple[int, str], list[float]] = {}
        self._due: dict[str, float] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        listed = list(messages)
        identifiers = list(super().push_messages(listed))
        for identifier, message in zip(identifiers, listed, strict=True):
            who = message.metadata.dst_node_id - FIRST_NODE, step_of(message)
            delay = (self.delays.get(who) or [0.0]).pop(0)
            self._due[identifier] = self._clock.now + delay
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        # A client answers what it gets, in time or not.
        self._replies = getattr(self, "_replies", {})
        for identifier in list(self._sent):
            if self._due[identifier] <= self._clock.now:
                for reply in super().pull_messages([identifier]):
                    self._replies[identifier] = reply
        for identifier in message_ids:
            if identifier in self._replies:
                yield self._replies.pop(identifier)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    own = Clock()
    monkeypatch.setattr(exchange, "time", own)
    return own


def trained(federation: Federation, lost: float, rounds: int = 3) -> Any:
    strategy = SecureSum(
        FedAvg(fraction_evaluate=0.0, min_available_nodes=6, min_train_nodes=6), lost=lost
    )
    return strategy.start(federation, start(), num_rounds=rounds, timeout=TIMEOUT)


def is_mean(federation: Federation, result: Any, clients: list[int]) -> None:
    """Of the last round's contributors, from the model that they were sent."""
    sums = [request for request, _ in federation.of_step("sum")]
    sent = max(sums, key=lambda request: request.content[RECORD]["round"])
    weights = [100 + k for k in clients]
    for name in START:
        value = sent.content["arrays"][name].numpy()
        wanted = np.average([update(k, name, value) for k in clients], axis=0, weights=weights)
        assert np.abs(result.arrays[name].numpy() - wanted).max() < 1e-3 + (name == "whole")


@pytest.mark.parametrize("lost", [1 / 3, 0.0])
@pytest.mark.parametrize("step", EXCHANGES)
@pytest.mark.parametrize("delay", [0.9 * TIMEOUT, 1.5 * TIMEOUT])
def test_one_late_client_ends_nothing(clock: Clock, step: str, lost: float, delay: float) -> None:
    """Late once, by less or by more than the timeout: three rounds, as without secure sums.

    Where none may vanish, the round that misses a contribution opens nothing; all others do.
    """
    if step == "open" and not lost:
        pytest.skip("nothing is opened apart")
    federation = LateFederation(6, clock)
    federation.delays[2, step] = [0.0, delay] if step in ("sum", "open") else [delay]
    result = trained(federation, lost)
    missed = {2} if step == "sum" and delay > TIMEOUT and not lost else set()
    assert set(result.train_metrics_clientapp) == {1, 2, 3} - missed


@pytest.mark.parametrize("kind", ["train", "evaluate", "query"])
@pytest.mark.parametrize("step", EXCHANGES)
@pytest.mark.parametrize(
    "fault", ["late", "slow", "dead", "failing", "late twice", "memory lost", "reinstalled"]
)
def test_one_faulty_client_at_each_exchange_of_each_type_of_message(
    clock: Clock, tmp_path: Path, kind: str, step: str, fault: str
) -> None:
    """Three sums, each at another model: none is missing, whatever the message is."""
    federation = LateFederation(4, clock)
    delay = {"late": 0.9, "slow": 1.5, "dead": 1e9, "late twice": 1.5}.get(fault, 0.0) * TIMEOUT
    federation.delays[2, step] = [delay] * (9 if fault in ("dead", "late twice") else 1)
    if fault == "failing":
        federation.failing = {(2, step)}
    if fault in ("memory lost", "reinstalled"):
        federation.forgetting = {(2, step)}
    if fault == "memory lost":
        configs = federation.contexts[FIRST_NODE + 2].node_config
        configs["secure-sum-home"] = str(tmp_path / "home")
    grid = SecureGrid(federation)
    for moved in range(3):
        requests = asking(federation, range(4), float(moved), kind)
        assert grid.send_and_receive(requests, timeout=TIMEOUT), (moved, federation.errors)


class Killed(BaseException):
    """The server's process."""


@pytest.mark.parametrize("kind", ["train", "evaluate", "query"])
@pytest.mark.parametrize("step", EXCHANGES)
def test_a_server_that_is_killed_at_each_exchange_begins_anew(kind: str, step: str) -> None:
    """The same run, without what the first server knew: at the same model, and at others."""
    federation = Federation(4)

    def kill(name: str, message: Message) -> None:
        if name == step:
            raise Killed

    federation.tamper = kill
    with pytest.raises(Killed):
        SecureGrid(federation).send_and_receive(asking(federation, range(4), 0.0, kind))
    federation.tamper = lambda name, message: None
    grid = SecureGrid(federation)
    for moved in range(2):
        assert grid.send_and_receive(asking(federation, range(4), float(moved), kind))


@pytest.mark.parametrize("slow", [1, 2])
def test_clients_that_are_late_at_every_exchange_of_a_round(clock: Clock, slow: int) -> None:
    """One deadline for all exchanges left nothing for the last one."""
    federation = LateFederation(6, clock)
    for k in range(slow):
        for step in EXCHANGES:
            federation.delays[k, step] = [0.6 * TIMEOUT] * 9
    result = trained(federation, 1 / 3)
    assert set(result.train_metrics_clientapp) == {1, 2, 3}
    is_mean(federation, result, list(range(6)))


def test_a_sum_that_did_not_open_is_opened_before_another(clock: Clock) -> None:
    """Three of six answer late: too few. Their set is bound, and opens in the next round."""
    federation = LateFederation(6, clock)
    for k in (1, 2, 3):
        federation.delays[k, "open"] = [0.0, 1.5 * TIMEOUT]
    result = trained(federation, 1 / 3)
    assert set(result.train_metrics_clientapp) == {1, 3}
    sums = {request.content[RECORD]["round"] for request, _ in federation.of_step("sum")}
    opens = [request.content[RECORD]["round"] for request, _ in federation.of_step("open")]
    assert sums == {1, 2} and opens.count(2) == 6
    is_mean(federation, result, list(range(6)))


def test_opening_waits_for_as_many_as_it_needs(clock: Clock) -> None:
    federation = LateFederation(6, clock)
    federation.delays[5, "open"] = [0.9 * TIMEOUT] * 9
    before = clock.now
    assert set(trained(federation, 1 / 3).train_metrics_clientapp) == {1, 2, 3}
    assert clock.now - before < 0.1 * TIMEOUT


# -- whom members do not know ----------------------------------------------------------------------


def homes(tmp_path: Path, clients: int = 6) -> dict[int, dict[str, str]]:
    return {k: {"secure-sum-home": str(tmp_path / str(k))} for k in range(clients)}


def of_run(federation: Federation, run: int) -> Federation:
    for context in federation.contexts.values():
        context.run_id = run
    return federation


@pytest.mark.parametrize("kind", ["reinstalled", "unknown", "unpinned", "forgetful"])
def test_one_that_others_do_not_know_goes_alone(tmp_path: Path, kind: str) -> None:
    """The others train on, among themselves, and say whom they refuse and why."""
    configs = homes(tmp_path)
    first = of_run(Federation(5 if kind == "unknown" else 6, configs=configs), 1)
    strategy = SecureSum(FedAvg(fraction_evaluate=0.0))
    assert strategy.start(first, start(), num_rounds=1).arrays is not None
    if kind == "reinstalled":
        (tmp_path / "5" / "identity.key").unlink()
    if kind == "forgetful":
        # It knows another six: it refuses everybody, and nobody refuses it.
        names = {str(FIRST_NODE + k): f"{k:064x}" for k in range(5)}
        (tmp_path / "5" / "known.json").write_text(str(names).replace("'", '"'))
    if kind == "unpinned":
        pins = tmp_path / "pins"
        known = [tmp_path / str(k) / "known.json" for k in range(5)]
        text = known[0].read_text()
        identities = [part.split('"')[3] for part in text.split(",")]
        names = [part.split('"')[1] for part in text.split(",")]
        pins.write_text("\n".join(i for i, n in zip(identities, names, strict=True) if n != "1005"))
        configs = {k: {**c, "secure-sum-pins": str(pins)} for k, c in configs.items()}
    federation = of_run(Federation(6, configs=configs), 2)
    result = strategy.start(federation, start(), num_rounds=2)
    assert set(result.train_metrics_clientapp) == {1, 2}
    is_mean(federation, result, list(range(5)))
    asked = {request.metadata.dst_node_id for request, _ in federation.of_step("sum")}
    assert FIRST_NODE + 5 not in asked
    reasons = [
        text
        for _, reply in federation.of_step("roster")
        for text in (reply.content[RECORD].get("reasons") or [])
    ]
    words = {
        "reinstalled": "another identity than before",
        "unknown": "is new since the first round",
        "unpinned": "is not pinned here",
        "forgetful": "another identity than before",
    }
    assert any(words[kind] in text for text in reasons)


def test_who_leaves() -> None:
    everybody = set(range(6))
    assert expelled({}, set()) == set()
    assert expelled({k: [5] for k in range(5)}, set()) == {5}
    assert expelled({5: range(5)}, set()) == {5}
    assert expelled({0: [1]}, set()) == {1}
    assert expelled({0: [1]}, {0}) == {0}
    # Two that all others refuse, and one of the others that refuses two.
    refusals = {**{k: [4, 5] for k in range(4)}, 0: [1, 2, 4, 5]}
    left = expelled(refusals, set())
    assert {4, 5} < left and len(everybody - left) == 3
