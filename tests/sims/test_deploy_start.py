"""Programs that are started again, and a SuperLink that starts anew."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from coordinator.settings import CARDS, Settings
from protocols.cards import Card
from protocols.errors import ProtocolError
from sims import drive, flower_commands, supervise
from sims.supervise import Program, supervised


def test_a_program_is_started_again_and_ends_with_its_children(tmp_path: Path) -> None:
    code = "import os,subprocess,sys,time;print(os.getpid(),flush=True);" + (
        "c=subprocess.Popen([sys.executable,'-c','import time;time.sleep(99)']);"
        "print(c.pid,flush=True);time.sleep(99)"
    )
    program = Program(
        name="x",
        command=[sys.executable, "-c", code],
        environment=os.environ,
        log_path=tmp_path / "x.log",
    )

    def pids(count: int) -> list[int]:
        for _ in range(200):
            found = program.log_path.read_text().split() if program.log_path.exists() else []
            if len(found) >= count:
                return list(map(int, found))
            time.sleep(0.05)
        raise AssertionError(found)

    with supervised(program):
        os.kill(pids(2)[0], signal.SIGKILL)
        seen = pids(4)
    for pid in seen:
        for _ in range(100):
            if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text():
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"process {pid} is alive")


@pytest.mark.parametrize(("code", "words"), [(75, "waits"), (3, "ended with code 3")])
def test_a_program_that_ends_again_and_again_is_told_of_once(
    tmp_path: Path, code: int, words: str, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervise, "LONGEST_PAUSE_SECONDS", 0.01)
    program = Program(
        name="x",
        command=["/bin/sh", "-c", f"echo begins; exit {code}"],
        environment=os.environ,
        log_path=tmp_path / "x.log",
        expected={75: "waits"},
    )
    with supervised(program):
        while not program.log_path.exists() or len(program.log_path.read_text().split()) < 3:
            time.sleep(0.05)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"x {words}") and str(program.log_path) in record.message


# -- a SuperLink that keeps nothing on disk -------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A centre that has admitted two parties."""
    (tmp_path / CARDS).mkdir()
    found = Settings(folder=tmp_path)
    for name in ("a", "b"):
        card = Card(
            name=name, identity="ab" * 32, node_key=name, rows=1, num_features=1, schema="00" * 32
        )
        found.card_path(name).write_text(card.to_json())
    return found


def not_up(settings: Settings) -> Any:
    raise ProtocolError("the SuperLink is not up")


def test_a_superlink_that_starts_anew_is_told_every_node_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks at the same time: no node is registered twice, none is forgotten."""
    known, numbers = dict[int, str](), count(100)

    def register(settings: Settings, public: Path) -> int:
        assert str(public) not in known.values()  # Flower refuses
        time.sleep(0.02)
        node = next(numbers)
        known[node] = str(public)
        return node

    monkeypatch.setattr(flower_commands, "connected", lambda settings: dict(known))
    monkeypatch.setattr(flower_commands, "register", register)
    for _ in range(2):
        known.clear()
        asking = [threading.Thread(target=drive.registered, args=(settings,)) for _ in range(3)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        names = {name: str(settings.card_path(name, "pub")) for name in ("a", "b")}
        assert {name: known[node] for name, node in settings.nodes().items()} == names
    monkeypatch.setattr(flower_commands, "connected", not_up)
    assert drive.registered(settings) == set()


def test_a_run_of_a_superlink_that_died_is_lost(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [{"run-id": "7", "status": "running"}]
    monkeypatch.setattr(flower_commands, "flwr", lambda folder, words: {"runs": runs})
    assert flower_commands.run_state(settings, 7) == "running"
    runs.clear()
    assert flower_commands.run_state(settings, 7).startswith("finished")
