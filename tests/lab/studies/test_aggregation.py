"""The study of sums: every arm's sums, the bytes of a frame, and what the files hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from coordinator.coordinator import AskParties
from protocols.errors import ParameterError, ProtocolError
from protocols.exchange.messages import Body, Envelope, encode, new_signing_key
from protocols.names import COORDINATOR
from sims.lab.studies import aggregation
from sims.lab.studies.aggregation import Case, EncryptedArm, Meter, Result, compare, promises_of
from sims.lab.studies.flower_secagg import SecAggArm, SecAggSettings
from sims.local import SERVER_NODE

CASE = Case(parties=5, features=20, rounds=3)
ARMS = ["encrypted sum", "plain sum", "Flower SecAgg+"]


@lru_cache
def _results() -> dict[str, Result]:
    return {result.arm: result for result in compare(CASE, SecAggSettings())}


def _frame(blob: int, reply: bool) -> int:
    """Bytes of the signed frame of a round with a blob of so many bytes."""
    ends = ("party-1", COORDINATOR) if reply else (COORDINATOR, "party-1")
    digest = "0" * 64 if reply else ""
    body = Body(blobs=(bytes(blob),))
    envelope = Envelope("0" * 32, "round/0", *ends, body, answers=digest, seen=digest)
    return len(encode(envelope, new_signing_key()))


def test_all_arms_open_the_same_sums() -> None:
    results = _results()
    assert list(results) == ARMS
    assert results["plain sum"].error < 1e-14
    # Not zero: the sum was encrypted, and carries the errors of five parties.
    assert 0 < results["encrypted sum"].error <= CASE.cipher.error_bound <= 1e-6
    # Five roundings, each below one quantum of 2 / 2^22.
    assert 0 < results["Flower SecAgg+"].error < 5 * 2 / 2**22


@pytest.mark.parametrize(("arm", "blob"), [(ARMS[0], CASE.cipher.num_bytes(20)), (ARMS[1], 8 * 20)])
def test_bytes_are_those_of_the_frames(arm: str, blob: int) -> None:
    for lap in _results()[arm].laps:
        assert lap.bytes_up == _frame(blob, reply=True)
        assert lap.bytes_down == _frame(8 * 20, reply=False)


def test_secagg_sends_at_least_masked_values_and_shares() -> None:
    lap = _results()["Flower SecAgg+"].laps[0]
    # Masked values as int64; for each of 4 others, shares of 21 blocks of 16 bytes at least.
    assert lap.bytes_up > 8 * 20 + 4 * 21 * 16
    assert lap.bytes_down > 8 * 20 + 4 * 21 * 16


def test_only_the_encrypted_arm_has_a_set_up() -> None:
    results = _results()
    # Two bytes for each coefficient of the masked secret.
    assert results["encrypted sum"].set_up.bytes_up > 2 * CASE.cipher.ring_dim
    assert results["plain sum"].set_up.num_bytes == 0


def test_time_is_shared_between_the_roles() -> None:
    for result in _results().values():
        assert len(result.laps) == 3
        for lap in result.laps:
            assert 0 < lap.party_seconds < lap.seconds
            assert 0 < lap.coordinator_seconds < lap.seconds - lap.party_seconds


def test_a_lap_takes_the_slowest_and_the_busiest_party() -> None:
    seen: list[int] = []
    meter = Meter(lambda: seen.append(1))
    meter.add("a", down=10, up=1, seconds=3.0)
    meter.add("b", down=4, up=8, seconds=1.0)
    meter.add("a", down=0, up=0, seconds=0.5)
    lap = meter.stop()
    assert (lap.party_seconds, lap.bytes_down, lap.bytes_up) == (3.5, 4, 8)
    assert lap.num_bytes == 12 and len(seen) == 3


@pytest.mark.parametrize(
    ("parties", "expected"), [(2, (2, 2)), (5, (5, 3)), (11, (11, 7)), (100, (11, 7))]
)
def test_flower_takes_the_stated_shares(
    parties: int, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SecAggSettings()
    assert settings.of(parties) == expected
    arm = SecAggArm(Case(parties=parties, features=2, rounds=1), settings, lambda: None)
    states = []

    def stop(grid: object, context: object, state: object) -> bool:
        states.append(state)
        return False

    monkeypatch.setattr(arm._workflow, "share_keys_stage", stop)
    with pytest.raises(ProtocolError, match="halted"):
        arm.round(0)
    assert (states[0].num_shares, states[0].threshold) == expected


def test_settings_that_cannot_hold_are_refused() -> None:
    with pytest.raises(ParameterError, match="threshold=11"):
        SecAggSettings(threshold=11)
    with pytest.raises(ParameterError, match="shares=10"):
        SecAggSettings(shares=10)
    with pytest.raises(ParameterError, match="overflow 32 bits"):
        SecAggSettings().workflow(1024)
    with pytest.raises(ParameterError, match="parties=1"):
        Case(parties=1, features=2, rounds=1)


@pytest.mark.parametrize(("missing", "opens"), [(2, True), (3, False)])
def test_secagg_survives_as_many_missing_parties_as_stated(
    missing: int, opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SecAggSettings(shares=5, threshold=3)
    assert promises_of(settings.of(5), 5)[ARMS[2]].dropouts == "up to 2 of every 5 share holders"
    arm = SecAggArm(CASE, settings, lambda: None)
    pull, stages = arm._grid.pull_messages, []

    def deliver(message_ids: Iterable[str]) -> Iterable[Any]:
        """All stages but the first two lose the replies of the last parties."""
        replies = list(pull(message_ids))
        stages.append(len(replies))
        last = {SERVER_NODE + 5 - k for k in range(missing)}
        return [r for r in replies if len(stages) < 3 or r.metadata.src_node_id not in last]

    monkeypatch.setattr(arm._grid, "pull_messages", deliver)
    if not opens:
        with pytest.raises(ProtocolError, match="halted"):
            arm.round(0)
        return
    # `round` multiplies the mean of those that answered by five.
    mean = arm.round(0)[0] / 5
    exact = CASE.vectors[0, : 5 - missing].mean(axis=0)
    assert np.abs(mean - exact).max() < 2 / 2**22


def test_an_encrypted_sum_needs_every_party(monkeypatch: pytest.MonkeyPatch) -> None:
    arm = EncryptedArm(CASE, lambda: None)
    deliver = aggregation._asker

    def asker(*fields: Any) -> AskParties:
        ask = deliver(*fields)

        def lossy(step: str, outgoing: Mapping[str, bytes]) -> dict[str, bytes]:
            lost = "party-4" if step == "round/1" else ""
            return {name: data for name, data in ask(step, outgoing).items() if name != lost}

        return lossy

    monkeypatch.setattr(aggregation, "_asker", asker)
    with pytest.raises(ProtocolError, match="no reply from party 'party-4'"):
        arm.run(lambda t: None)
    assert len(arm.laps) == 1
