"""Programs that are started again, and a SuperLink that starts anew."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciphercohort.deploy import drive, flower_commands, party, supervise
from ciphercohort.deploy.supervise import Program, child, supervised
from coordinator.settings import CARDS, Settings
from protocols.errors import ParameterError, ProtocolError
from protocols.exchange.cards import Card
from tests.support.scripts import ROOT


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
            if not is_alive(pid):
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"process {pid} is alive")


def test_a_log_that_became_long_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a program, when it starts; of an agent, at its next line. One file before is kept."""
    monkeypatch.setattr(supervise, "LONGEST_LOG", 200)
    path = tmp_path / "logs" / "x.log"
    assert supervise.rolled(path) == path and path.parent.is_dir()
    program = Program(
        name="x",
        command=["echo", "anew"],
        environment=os.environ,
        log_path=path,
        ready=("anew", ""),
    )
    for first, left in (("a" * 100, "a" * 100 + "anew\n"), ("b" * 201, "anew\n")):
        path.write_text(first)
        with supervised(program):
            for _ in range(1000):
                if path.exists() and path.read_text().endswith("anew\n"):
                    break
                time.sleep(0.02)
        assert path.read_text().startswith(left)  # it may have been started again meanwhile
    aside = supervise.aside(path)
    assert aside.read_text() == "b" * 201
    path.unlink()
    with party._logged(path) as sink:
        for _ in range(7):
            sink.write(b"a line of an agent\n")  # and its time: 39 bytes
    for _ in range(1000):
        if aside.read_text().count("agent") == 6 and path.exists() and path.stat().st_size:
            break
        time.sleep(0.02)
    assert path.read_text().count("agent") == 1 and aside.read_text().count("agent") == 6


STUBBORN = """import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"])
print(held.pid, flush=True)
time.sleep(99)"""
QUITTER = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


@pytest.mark.parametrize("program", [STUBBORN, QUITTER])
def test_a_child_ends_with_its_block_and_is_waited_for(program: str) -> None:
    """However the block ends: one that ignores SIGTERM is killed, with what it has begun."""
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with pytest.raises(KeyError), child(command, seconds=0.5, stdin=pipe, stdout=pipe) as process:
        assert process.stdout
        begun = int(process.stdout.readline())
        raise KeyError
    assert process.returncode is not None and process.stdout.closed
    for _ in range(100):
        if not is_alive(begun):
            break
        time.sleep(0.05)
    assert not is_alive(begun)


def test_processes_are_begun_in_one_place() -> None:
    """Elsewhere one could be left behind: `child` ends it, whatever its user does.

    An agent's process begins its verifier, and a ClientApp an agent that outlives it.
    """
    own = {"parties/agent/process.py", "parties/flower_site.py", "ciphercohort/deploy/supervise.py"}
    found = set()
    for folder in ("ciphercohort", "parties", "coordinator", "protocols", "sims", "tests",
                   "examples", "benchmarks", "scripts"):  # fmt: skip
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                called = getattr(node, "func", None)
                if "Popen" in (getattr(called, "attr", ""), getattr(called, "id", "")):
                    found.add(path.relative_to(ROOT).as_posix())
    assert found == own


def test_output_of_programs_is_no_text_for_sure() -> None:
    """One byte that is no UTF-8 ends nothing: bytes are looked at, or decoding is told what to do.

    The commands of an owner and of a centre watch theirs for as long as they run.
    """
    read = 0
    for folder in ("ciphercohort", "parties", "coordinator", "protocols"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    given = {each.arg for each in node.keywords}
                    is_text = bool(given & {"text", "universal_newlines"})
                    assert not is_text or "errors" in given, (path, node.lineno)
                    read += is_text
                    called = getattr(node.func, "attr", "")
                    is_log = called == "decode" and "read_bytes" in ast.unparse(node.func)
                    assert not is_log or node.args or node.keywords, (path, node.lineno)
    assert read >= 3


def is_alive(pid: int) -> bool:
    """And no zombie."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


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


def test_a_program_that_works_at_last_says_so(
    tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """After what kept it from working, once; what an earlier process said does not count."""
    monkeypatch.setattr(supervise, "LONGEST_PAUSE_SECONDS", 0.01)
    let_in, log = tmp_path / "let-in", tmp_path / "x.log"
    log.write_text("online\n")
    code = f"while test -e {let_in}; do printf '\\377\\n'; echo online; sleep 9; done; exit 75"
    program = Program(
        name="x",
        command=["/bin/sh", "-c", code],
        environment=os.environ,
        log_path=log,
        expected={75: "waits"},
        ready=("online", "is connected"),
    )
    with supervised(program):
        for said in ("x waits", "x is connected"):
            while not caplog.records or not caplog.records[-1].getMessage().startswith(said):
                time.sleep(0.05)
            let_in.touch()
        time.sleep(0.5)
    assert len(caplog.records) == 2


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
    monkeypatch.setattr(flower_commands, "_own", lambda settings, words: {"runs": runs})
    assert flower_commands.run_state(settings, 7) == "running"
    runs.clear()
    assert flower_commands.run_state(settings, 7).startswith("finished")


QUESTIONS = {
    "connected": (),
    "register": (Path("a.pub"),),
    "submit": ("5e551",),
    "run_state": (7,),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("listens", [True, False])
def test_a_superlink_that_is_not_there_is_told_at_once(
    question: str, listens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a program of Flower, which would dial on; one that hangs is told in words, too."""
    asked = list[float]()

    def hangs(command: list[str], *, timeout: float, **_: Any) -> None:
        asked.append(timeout)
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(flower_commands.subprocess, "run", hangs)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        if not listens:
            server.close()
        settings: Any = SimpleNamespace(folder=tmp_path, fleet=address, control=address)
        with pytest.raises(ProtocolError) as found:
            getattr(flower_commands, question)(settings, *QUESTIONS[question])
    words = "no answer within" if listens else f"nothing listens at {address}"
    assert words in str(found.value) and "Command" not in str(found.value)
    # Several questions have room in the wait for a SuperLink that starts.
    assert asked == [flower_commands.COMMAND_SECONDS] * listens
    assert drive.PATIENCE_SECONDS >= 2 * flower_commands.COMMAND_SECONDS


def test_whoever_asks_patiently_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], list[str]()

    def sleep(seconds: float) -> None:
        assert said
        now[0] += seconds

    monkeypatch.setattr(drive, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))

    def asks() -> None:
        raise ProtocolError("nothing listens at 127.0.0.1:9093")

    with pytest.raises(ProtocolError, match="nothing listens.*cohort coordinator start runs it"):
        drive._patiently(9999.0, said.append, asks)
    (words,) = said
    assert "nothing listens at 127.0.0.1:9093" in words and 120 < now[0] < 130


@pytest.mark.parametrize("name", ["fleet", "control", "serverappio"])
def test_an_address_that_something_else_has_is_refused(name: str) -> None:
    """Before a program is started that could only die, again and again."""
    if name != "fleet" and flower_commands.has_one_port():
        pytest.skip("this Flower binds one address")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        addresses = dict.fromkeys(("fleet", "control", "serverappio"), "127.0.0.1:0")
        addresses[name] = f"127.0.0.1:{taken.getsockname()[1]}"
        settings: Any = SimpleNamespace(**addresses)
        with pytest.raises(ParameterError, match=f"{name}={addresses[name]} cannot be bound"):
            flower_commands.check_addresses(settings)
    flower_commands.check_addresses(settings)
