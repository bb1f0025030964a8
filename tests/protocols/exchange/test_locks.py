"""A lock that one process holds, and that dies with it."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ciphercohort.deploy.supervise import child
from protocols.exchange.private_files import locked
from tests.support.scripts import ROOT

HOLD = """
import sys; from pathlib import Path; from protocols.exchange.private_files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True); sys.stdin.read()
"""


def test_another_process_waits_until_the_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with child(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(TimeoutError), locked(path, 0.05):
            pass
        holder.kill()
        holder.wait()
        with locked(path):
            assert path.stat().st_mode & 0o777 == 0o600


def test_threads_come_one_at_a_time(tmp_path: Path) -> None:
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(20):
            with locked(tmp_path / "lock"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_only_this_module_knows_the_systems_locks() -> None:
    packages = ("ciphercohort", "protocols", "parties", "coordinator", "sims")
    found = set()
    for path in (p for package in packages for p in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import) and {a.name for a in node.names} & {"fcntl", "msvcrt"}:
                found.add(path.relative_to(ROOT).as_posix())
    assert found == {"protocols/exchange/private_files.py"}
