"""The verifier as it is deployed: a process without rows or keys, which can get neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parties.verifier.sandbox import enter

ROOT = Path(__file__).parents[2]
ATTACKS = """
import json, os, signal, socket, sys
from parties.verifier.sandbox import enter
folder, parent, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
how = enter(("parties", "protocols"))
import numpy, openfhe, parties.verifier.party, protocols.plan.kinds  # what it needs is there
outcomes = {}
def attempt(name, what):
    try:
        what()
        outcomes[name] = "done"
    except OSError as error:
        outcomes[name] = type(error).__name__
attempt("rows", lambda: open(folder + "/rows.csv").read())
attempt("identity", lambda: open(folder + "/identity.sealed", "rb").read())
attempt("list", lambda: os.listdir(folder))
attempt("write", lambda: open(folder + "/ledger.jsonl", "a").write("x"))
attempt("remove", lambda: os.unlink(folder + "/ledger.jsonl"))
attempt("temporary", lambda: open("/tmp/verifier-was-here", "w").write("x"))
attempt("home", lambda: os.listdir(os.path.expanduser("~")))
attempt("memory", lambda: open(f"/proc/{parent}/mem", "rb").read(1))
attempt("maps", lambda: open(f"/proc/{parent}/maps").read())
attempt("environment", lambda: open(f"/proc/{parent}/environ").read())
attempt("signal", lambda: os.kill(parent, 0))
attempt("network", lambda: socket.create_connection(("127.0.0.1", port), 2).close())
attempt("shell", lambda: open("/etc/passwd").read())
print(json.dumps([how, outcomes]))
"""


def has_landlock() -> bool:
    words = "from parties.verifier.sandbox import enter; print(enter(()))"
    said = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, cwd=ROOT)
    return said.stdout.startswith("Landlock 6") or said.stdout.startswith("Landlock 7")


@pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock of version 6")
def test_a_taken_over_verifier_reaches_nothing(tmp_path: Path) -> None:
    """Files of the owner, memory of the process with the keys, signals to it, TCP."""
    import socket

    for name in ("rows.csv", "identity.sealed", "ledger.jsonl"):
        (tmp_path / name).write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        words = [sys.executable, "-c", ATTACKS, str(tmp_path), str(os.getpid()), str(port)]
        ran = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert ran.returncode == 0, ran.stderr
    how, outcomes = json.loads(ran.stdout)
    assert how.startswith("Landlock") and "no TCP" in how and "no signals" in how
    assert {name for name, outcome in outcomes.items() if outcome == "done"} == set()
    assert (tmp_path / "ledger.jsonl").read_text() == "secret"


def test_where_there_is_none_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert enter(()) == "none: this system has no Landlock"
