"""Faults that only processes have, one case each; the whole matrix: `python -m tests.faults`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import faults
from tests.faults.matrix import COORDINATOR, Bench, Case, Row, all_cases, is_right, write_csv
from tests.faults.world import NAMES

FIRST, SECOND = NAMES
# No case here waits for a time-out: it may be long, for a busy machine.
STEP_SECONDS = 30.0
CASES = (
    Case(FIRST, "kill -9 at work", "enrol"),
    Case(SECOND, "kill -9, reply lost", "decrypt"),
    Case(SECOND, "SIGSTOP, short", "relinearise"),
    Case(FIRST, "duplicate request", "decrypt"),
    Case(FIRST, "corrupted reply", "relinearise"),
    Case(FIRST, "truncated request", "contribute"),
    Case(COORDINATOR, "kill -9, a reply lost", "decrypt"),
    Case(COORDINATOR, "kill -9, its latest record corrupted", "contribute"),
    Case(COORDINATOR, "started a second time", "keys"),
)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    # The relay's socket is bound by its path, of at most 107 bytes: pytest's folders are too deep.
    with tempfile.TemporaryDirectory(prefix="faults-", dir="/tmp") as folder:
        bench = Bench(Path(folder), STEP_SECONDS)
        yield bench
        bench.world.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.role}, {case.fault}, {case.step}")
def test_a_fault_ends_as_stated(bench: Bench, case: Case) -> None:
    assert case.step in bench.steps
    row = bench.run(case)
    assert row.ok, row


def test_the_matrix_is_whole(bench: Bench, tmp_path: Path) -> None:
    cases = list(all_cases(bench.steps))
    assert len(cases) == len(set(cases)) >= 100
    assert {case.step for case in cases} == set(bench.steps)
    assert len(faults.PARTY) >= 10 and len(faults.COORDINATOR) >= 5
    good = Row(FIRST, "restart", "keys", "model", "model", "", 1.0, 0.0, 1, 1, 1.0, True, "")
    assert is_right(good)
    for change in (
        {"outcome": "hang"},
        {"outcome": "wrong model"},
        {"outcome": "abort", "who": FIRST},  # not the wanted end
        {"outcome": "abort", "wanted": "abort", "who": SECOND},  # somebody else is blamed
        {"given": 2},
        {"erased_seconds": -1.0},
    ):
        assert not is_right(replace(good, **change))  # type: ignore[arg-type]
    write_csv(tmp_path / "faults.csv", [good])
    assert len((tmp_path / "faults.csv").read_text().splitlines()) == 2
