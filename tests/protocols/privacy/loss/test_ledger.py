"""The ledger: totals as composed, overdrafts refused, crashed runs counted, damage noticed."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from protocols.errors import ParameterError, PrivacyError
from protocols.privacy.loss import mu_for_epsilon
from protocols.privacy.loss.accounting import GaussianEvent, LaplaceEvent, compose
from protocols.privacy.loss.ledger import Ledger

DATA = "d" * 64
MU = mu_for_epsilon(epsilon=1.0, delta=1e-5)
HALF = GaussianEvent(noise_multiplier=10 * 2**0.5 / MU, count=100)
"""Two of these are (1, 1e-5)-DP together."""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(path=tmp_path / "spent.jsonl", epsilon=1.0, delta=1e-5)


def test_two_halves_fit_and_a_third_does_not(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.commit(ledger.reserve(DATA, [HALF]))
    assert ledger.spent(DATA).epsilon == pytest.approx(1.0, rel=1e-6)
    before = ledger.path.read_bytes()
    with pytest.raises(PrivacyError, match="exceeds the budget"):
        ledger.reserve(DATA, [HALF])
    assert ledger.path.read_bytes() == before
    ledger.reserve("other", [HALF])


def test_a_crashed_run_stays_spent(ledger: Ledger) -> None:
    ledger.reserve(DATA, [HALF])
    reopened = Ledger(path=ledger.path, epsilon=1.0, delta=1e-5)
    assert reopened.spent(DATA).epsilon == compose([HALF], delta=1e-5)
    reopened.reserve(DATA, [HALF])
    with pytest.raises(PrivacyError, match="exceeds"):
        reopened.reserve(DATA, [HALF])


def test_a_rolled_back_run_is_free(ledger: Ledger) -> None:
    ledger.rollback(ledger.reserve(DATA, [HALF]))
    assert ledger.spent(DATA).epsilon == 0.0
    assert ledger.spent(DATA).runs == 0


def test_a_run_closes_once(ledger: Ledger) -> None:
    run = ledger.reserve(DATA, [HALF])
    ledger.commit(run)
    for close in (ledger.commit, ledger.rollback):
        with pytest.raises(PrivacyError, match="not an open run"):
            close(run)
    with pytest.raises(PrivacyError, match="not an open run"):
        ledger.rollback("unknown")


def test_delta_adds_up_and_can_be_overdrawn(ledger: Ledger) -> None:
    small = GaussianEvent(noise_multiplier=1000.0)
    ledger.reserve(DATA, [small], additive_delta=6e-6)
    spent = ledger.spent(DATA)
    assert spent.additive_delta == 6e-6
    assert spent.epsilon == compose([small], delta=4e-6)
    with pytest.raises(PrivacyError, match="exceeds"):
        ledger.reserve(DATA, [small], additive_delta=4.1e-6)


def test_laplace_is_counted_too(ledger: Ledger) -> None:
    ledger.reserve(DATA, [LaplaceEvent(noise_multiplier=2.0)])
    assert ledger.spent(DATA).epsilon == pytest.approx(0.5, rel=1e-3)
    with pytest.raises(PrivacyError, match="exceeds"):
        ledger.reserve(DATA, [LaplaceEvent(noise_multiplier=1.9), HALF])


def test_a_torn_last_line_was_never_acknowledged(ledger: Ledger) -> None:
    ledger.reserve(DATA, [HALF])
    whole = ledger.path.read_bytes()
    with open(ledger.path, "ab") as file:
        file.write(b'{"kind": "reserve", "id": "torn\xff')
    assert ledger.spent(DATA).runs == 1
    assert ledger.path.read_bytes() == whole
    ledger.reserve(DATA, [HALF])
    assert ledger.spent(DATA).runs == 2


def test_no_older_state_of_the_file_answers_more(ledger: Ledger) -> None:
    """Cut at any byte, as a backup of any time, emptied and gone: it is refused, or all counts."""
    states: list[bytes | None] = [None, b""]
    for _ in range(2):
        ledger.commit(ledger.reserve(DATA, [HALF]))
        states.append(ledger.path.read_bytes())
    whole = ledger.path.read_bytes()
    states += [whole[:end] for end in range(0, len(whole), 7)]
    refused = 0
    for state in states:
        ledger.path.unlink()
        if state is not None:
            ledger.path.write_bytes(state)
        try:
            assert ledger.spent(DATA).runs == 2
        except PrivacyError as error:
            refused += 1
            assert "does not end where spent.jsonl.last says" in str(error)
            ledger.path.write_bytes(whole)
        with pytest.raises(PrivacyError, match="exceeds the budget"):
            ledger.reserve(DATA, [HALF])
        assert ledger.path.read_bytes() == whole
    assert len(states) / 2 < refused < len(states)
    ledger.path.with_name("spent.jsonl.last").write_text("{")
    with pytest.raises(PrivacyError, match="does not end where"):
        ledger.reserve("other", [HALF])


def test_a_line_of_which_a_crash_left_nothing_counts(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.reserve(DATA, [HALF])

    def crash(self: Ledger, line: str) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_write", crash)
        with pytest.raises(OSError, match="full"):
            ledger.reserve(DATA, [HALF])
    assert ledger.spent(DATA).runs == 2
    assert len(ledger.path.read_text().splitlines()) == 2


@pytest.mark.parametrize("damage", ["edit", "remove", "garbage", "reorder"])
def test_damage_is_noticed(ledger: Ledger, damage: str) -> None:
    for _ in range(2):
        ledger.commit(ledger.reserve(DATA, [HALF]))
    lines = ledger.path.read_text().splitlines()
    if damage == "edit":
        lines[0] = lines[0].replace('"count": 100', '"count": 1')
    elif damage == "remove":
        del lines[1]
    elif damage == "garbage":
        lines[2] = "{}"
    else:
        lines[0], lines[1] = lines[1], lines[0]
    ledger.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(PrivacyError, match="damaged"):
        ledger.reserve("other", [HALF])


def test_lines_are_json_for_people(ledger: Ledger) -> None:
    ledger.reserve(DATA, [HALF])
    entry = json.loads(ledger.path.read_text())
    assert entry["dataset"] == DATA
    assert entry["events"] == [
        {"kind": "gaussian", "noise_multiplier": HALF.noise_multiplier, "count": 100}
    ]


def _try_to_reserve(path: Path) -> None:
    try:
        Ledger(path=path, epsilon=1.0, delta=1e-5).reserve(DATA, [HALF])
    except PrivacyError:
        os._exit(3)
    os._exit(0)


def test_processes_at_once_cannot_overdraw(ledger: Ledger) -> None:
    ledger.reserve(DATA, [HALF])
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_try_to_reserve, args=(ledger.path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(process.exitcode or 0 for process in processes) == [0, 3]
    assert ledger.spent(DATA).runs == 2


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (1.0, 0.0), (float("nan"), 1e-5)])
def test_impossible_budgets_are_refused(tmp_path: Path, epsilon: float, delta: float) -> None:
    with pytest.raises(ParameterError):
        Ledger(path=tmp_path / "x", epsilon=epsilon, delta=delta)
