"""Who lets the others wait is told within a minute; certificates that are over, before a start."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from inspect import signature
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.table import Table
from typer.testing import CliRunner

from ciphercohort.cli import coordinator as commands
from ciphercohort.cli.app import app
from ciphercohort.cli.console import Screen, stdout
from ciphercohort.deploy import drive, flower_commands
from ciphercohort.deploy.coordinator import Coordinator
from ciphercohort.deploy.flower_job import OWN
from ciphercohort.deploy.party import Party
from ciphercohort.deploy.supervise import child
from ciphercohort.report.status_page import page, status_tables
from coordinator import certificates
from coordinator.certificates import CA, SERVER, SERVER_KEY, hosts_of, make_certificates
from coordinator.log import FOLDER, unanswered
from coordinator.settings import SESSIONS, Settings
from coordinator.setup import INVITATION, init_coordinator
from coordinator.status import WATCHED, Status, awaited, clock, read_status, sessions
from parties import flower_node, launch
from parties.agent.settings import ConsentMode, Driving, Limits
from parties.agent.settings import Settings as PartySettings
from parties.agent.vault import Vault
from protocols.errors import ParameterError, ProtocolError
from protocols.exchange import validity
from protocols.exchange.documents import read
from protocols.exchange.private_files import locked
from protocols.names import spoken
from tests.coordinator.test_deployment import ADDRESSES, NAMES, Centre
from tests.parties.agents import PASSPHRASE

HOUR = "2026-01-01T10:00:00+00:00"
HALF_AN_HOUR = 0.5 / 24 / 365  # years


def cohort(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


# -- who is awaited -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Centre, str, list[Any]]]:
    """A run whose second party answers each step late, and what was told meanwhile, by step."""
    centre = Centre(tmp_path_factory.mktemp("run"), Vault(PASSPHRASE))
    (session, folder), told = centre.begin(), list[Any]()

    def ask(step: str, outgoing: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        told.append((step, (), tuple(awaited(folder))))
        for number, name in enumerate(outgoing):
            yield name, centre.ask(step, {name: outgoing[name]})[name]
            found = awaited(folder)
            assert {each["step"] for each in found.values()} <= {step}
            told.append((step, NAMES[: number + 1], tuple(found)))

    centre.serve(session, ask)
    yield centre, session, told


def test_at_every_message_it_says_whose_reply_is_not_there(
    run_of: tuple[Centre, str, list[Any]],
) -> None:
    centre, session, told = run_of
    assert {"enrol", "agree", "reveal", "keys", "refresh/0", "decrypt", "finish"} <= {
        step for step, _, _ in told
    }
    for step, answered, found in told:
        assert found == tuple(n for n in NAMES if n not in answered), step
    folder = centre.settings.session_folder(session)
    assert awaited(folder) == {} and unanswered(folder / FOLDER)[1] == {}  # it is over
    assert unanswered(folder / "nothing") == ("", {})


def test_it_is_told_at_once_who_is_late_and_since_when(
    run_of: tuple[Centre, str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In training and before it: consent, a node that is not there, one that is."""
    centre, before, _ = run_of
    whole = centre.settings.session_folder(before) / FOLDER
    session, folder = centre.begin()
    (folder / FOLDER).mkdir()
    for name in ("000000.msg", "000001.msg", "000002.msg"):  # `enrol`, one reply
        (folder / FOLDER / name).write_bytes((whole / name).read_bytes())
    then = datetime.now(timezone.utc) - timedelta(seconds=50)
    os.utime(folder / FOLDER / "000001.msg", (then.timestamp(),) * 2)
    Status(folder, {}).save(state="running", phase="agree")
    state, said = {"node": "offline"}, list[str]()
    monkeypatch.setattr(drive, "RUN_POLL_SECONDS", 0.0)
    monkeypatch.setattr(drive.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(
        drive, "register_missing", lambda settings: dict.fromkeys(NAMES, state["node"])
    )
    looks = iter(["running", "running", "running", "finished:failed"])

    def run_state(settings: Settings, run: int) -> str:
        if len(said) == 2:
            state["node"] = "online"
        return next(looks)

    monkeypatch.setattr(flower_commands, "run_state", run_state)
    drive._watch(centre.settings, folder, 1, time.monotonic() + 9, said.append)
    assert said[0].startswith("agree 0/")
    late = f"waiting for {NAMES[1]} since {then:%H:%M:%S} UTC (enrol): "
    until = then + timedelta(seconds=centre.settings.step_seconds)
    assert said[1] == late + (
        "its node is not connected: its administrator looks whether cohort party start runs, and "
        "what it says; "
        f"waits until {clock(until.isoformat())} at most"
    )
    assert said[2].startswith(late + "it computes") and len(said) == 3
    words = drive.late_words("a", "online", {"step": "agree", "since": then.isoformat()})
    assert words.endswith("(agree): its owner has not consented yet: cohort party consent")
    with locked(folder / WATCHED):
        (shown,) = (each for each in sessions(folder.parent) if each["session"] == session)
    assert f"{NAMES[1]} is awaited since {then:%H:%M:%S} UTC (enrol)" in page([shown])


def test_nodes_that_are_not_there_stand_in_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    centre = tmp_path / "centre"
    init_coordinator(centre, {"label": {"name": "y"}}, ADDRESSES, {})
    settings = Settings.load(centre)
    folder = settings.session_folder("5e551")
    folder.mkdir(parents=True)
    Status(folder, {}).save(rounds=4)
    states = iter([{"a": "online", "b": "registered"}, {"a": "online", "b": "online"}])
    said, seen = list[str](), list[Any]()
    monkeypatch.setattr(drive, "register_missing", lambda settings: next(states))
    monkeypatch.setattr(drive.time, "sleep", lambda seconds: seen.append(awaited(folder)))
    drive._wait_for_nodes(settings, "5e551", time.monotonic() + 9, said.append)
    assert len(said) == 1 and said[0].startswith("waiting for b since ")
    assert [(*found, found["b"]["step"]) for found in seen] == [("b", "connect")]
    assert awaited(folder) == {} and (read_status(folder) or {})["offline"] == {}


def test_a_party_that_has_not_renewed_is_told_of(
    run_of: tuple[Centre, str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its card is older than the centre's certificates; of one that is connected nothing is."""
    settings, hint = run_of[0].settings, "cohort party renew"
    session, _ = run_of[0].begin()
    states, said = [dict.fromkeys(NAMES, "offline")], list[str]()

    def shown() -> list[str]:
        looks = iter([*states, dict.fromkeys(NAMES, "online")])
        monkeypatch.setattr(drive, "register_missing", lambda settings: next(looks))
        said.clear()
        drive._wait_for_nodes(settings, session, time.monotonic() + 9, said.append)
        return [name for name in NAMES if f"waiting for {name} " in said[0]]

    monkeypatch.setattr(drive.time, "sleep", lambda seconds: None)
    made = (settings.folder / CA).stat().st_mtime
    for name in NAMES:
        os.utime(settings.card_path(name), (made + 1,) * 2)
    assert shown() == list(NAMES) and hint not in said[0]
    os.utime(settings.folder / CA, (made + 2,) * 2)  # as `renew` writes it
    os.utime(settings.card_path(NAMES[0]), (made + 3,) * 2)  # admitted since
    assert shown() == list(NAMES)
    parts = said[0].split("; waiting")
    assert [hint in part for part in parts] == [False, *(True for _ in NAMES[1:])]
    assert hint not in drive.late_words("a", "online", {"step": "agree", "since": HOUR}, True)
    os.utime(settings.folder / CA, (made,) * 2)


def test_whoever_is_waited_for_is_told_of_again_with_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, said = [0.0], list[str]()
    monkeypatch.setattr(drive, "time", SimpleNamespace(monotonic=lambda: now[0]))
    remind, since = drive._Reminder(said.append), ["2026-01-01T10:00:00+00:00"]
    for _ in range(300):  # five minutes
        remind(["waiting for b"], since, 3600.0)
        now[0] += 1.0
    assert said == ["waiting for b; waits until 2026-01-01 11:00 UTC at most"] * 5
    for words in (["waiting for c"], [], ["waiting for c"]):
        remind(words, since, 3600.0)
    assert len(said) == 7


# -- tables ---------------------------------------------------------------------------------------


ROOT = Path(__file__).resolve().parents[3]


def lines_of(*shown: Any) -> list[str]:
    screen = Screen(width=80, file=StringIO(), record=True)
    for each in shown:
        screen.print(each)
    return screen.export_text().splitlines()


def test_status_fits_80_columns_and_shows_whole_names(
    run_of: tuple[Centre, str, list[Any]],
) -> None:
    centre = run_of[0]
    (*_, done) = sessions(centre.settings.folder / SESSIONS)
    long = {**done, "state": "aborted", "phase": "decrypt", "iteration": 1000, "rounds": 1000}
    long |= {
        "reason": "party 'hospital-b' refuses " * 9,
        "parties": {"b" * 30: done["parties"][NAMES[0]]},
    }
    long |= {"awaited": {"b" * 30: {"step": "commit-refresh/999", "since": done["updated"]}}}
    lines = lines_of(*status_tables([long, done]))
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for words in (done["session"], "decrypt", "1000/1000", "b" * 30, "aborted", "finished"):
        assert words in text
    assert "no run yet" in lines_of(*status_tables([]))[0]


@pytest.mark.parametrize("cells", [
    ("a", "word " * 40, "x" * 30, "1.5"),
    ("privacy_cross_check", "a sentence of many words " * 3, "<=", "secure-aggregation"),
    ("y" * 40, "z" * 40, "", ""),
])  # fmt: skip
def test_a_table_breaks_between_words_where_they_fit(cells: tuple[str, ...]) -> None:
    table = Table()
    for name in ("", "Check", "What was found", "n"):
        table.add_column(name)
    table.add_row(*cells)
    lines = lines_of(table)
    text = "".join(lines)
    assert max(map(len, lines)) <= 80 and "…" not in text
    words = [max(map(len, cell.split()), default=0) for cell in cells]
    if sum(words) <= 80 - 13:
        assert all(word in text for cell in cells for word in cell.split())


def test_every_table_at_80_columns_is_whole() -> None:
    """Whatever it holds: of up to seven columns, whose words have room together or not."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        columns = int(rng.integers(1, 8))
        most = int(rng.choice([3, 9, 40, 120]))
        cells = [
            [" ".join("x" * int(n) for n in rng.integers(1, most, rng.integers(0, 9)))]
            for _ in range(columns)
        ]
        title = " ".join("t" * int(n) for n in rng.integers(1, 60, 3))
        table = Table(title=title)
        for k in range(columns):
            table.add_column(f"head-{k}")
        table.add_row(*(cell for (cell,) in cells))
        lines = lines_of(table)
        text = "\n".join(lines)
        assert max(map(len, lines)) <= 80 and "…" not in text
        assert text.count("x") == sum(cell.count("x") for (cell,) in cells), "something is cut off"
        assert all(word in text for word in title.split())


def test_every_table_of_a_command_goes_to_that_screen() -> None:
    """No other console is made than the two of `console`."""
    found = {
        str(path.relative_to(ROOT))
        for package in ("ciphercohort", "coordinator", "parties", "protocols", "sims")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"\bConsole\(", path.read_text(encoding="utf-8"))
        and "studies" not in path.parts
    }
    assert found == {"ciphercohort/cli/console.py"}
    assert isinstance(stdout(), Screen)


# -- certificates ---------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A centre and a party, as `init` leaves them."""
    (tmp_path / "rows.csv").write_text(
        "age,y\n" + "".join(f"{20 + k},{k % 2}\n" for k in range(40))
    )
    (tmp_path / "passphrase").touch(mode=0o600)
    (tmp_path / "passphrase").write_text(PASSPHRASE)
    schema = ("--label", "y", "--out", tmp_path / "schema.json")
    for words in (
        ("schema", "init", tmp_path / "rows.csv", *schema),
        ("coordinator", "init", tmp_path / "centre", "--schema", tmp_path / "schema.json"),
    ):
        assert cohort(*words).exit_code == 0
    Party.init(
        tmp_path / "a",
        invitation=tmp_path / "centre" / INVITATION,
        data=tmp_path / "rows.csv",
        passphrase=PASSPHRASE,
    )
    return tmp_path


def expire(folder: Path, monkeypatch: pytest.MonkeyPatch, years: float = -HALF_AN_HOUR) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(certificates, "YEARS", years)
        make_certificates(folder, ["127.0.0.1"])


def test_no_command_of_the_centre_begins_with_a_certificate_that_is_over(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    centre, model = home / "centre", home / "centre" / "schema.json"
    hosts, key = hosts_of(centre), (centre / "identity.key").read_bytes()
    good = {name: (centre / name).read_bytes() for name in (CA, SERVER)}
    expire(centre, monkeypatch)
    bad = {name: (centre / name).read_bytes() for name in (CA, SERVER)}
    today = f"{datetime.now(timezone.utc):%Y}"
    for name in (CA, SERVER):
        for each in (CA, SERVER):
            (centre / each).write_bytes((bad if each == name else good)[each])
        for words in (("start",), ("run",), ("evaluate", "--model", model),
                      ("infer", "--model", model), ("check",)):  # fmt: skip
            done = cohort("coordinator", words[0], centre, *words[1:])
            assert done.exit_code == 2, words
            assert f"{name} expired on {today}" in done.output.replace("\n", "")
            assert "cohort coordinator renew" in done.output.replace("\n", " ")
        assert f"{name} expired on {today}" in cohort("coordinator", "status", centre).output
    assert not (centre / SESSIONS).exists()
    (centre / SERVER).write_bytes(good[CA])  # no server's: it names no host
    done = cohort("coordinator", "renew", centre)
    assert done.exit_code == 2 and "names no host" in done.output.replace("\n", " ")
    (centre / SERVER).write_bytes(good[SERVER])  # whose hosts it goes on with
    assert cohort("coordinator", "renew", centre).exit_code == 0
    assert hosts_of(centre) == hosts and (centre / "identity.key").read_bytes() == key
    shown = cohort("coordinator", "status", centre).output
    assert f"{int(today) + certificates.YEARS}" in shown
    done = cohort("party", "renew", home / "a", "--invitation", centre / INVITATION)
    assert done.exit_code == 0 and (home / "a" / CA).read_bytes() == (centre / CA).read_bytes()


def test_no_party_starts_with_a_certificate_that_is_over(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own copy of the authority's, or the one that the centre's server shows; nor its relay."""
    authority, good = home / "a" / CA, (home / "a" / CA).read_bytes()
    expire(home / "centre", monkeypatch)
    for only in ((), ("--only", "agent"), ("--only", "node")):
        authority.write_bytes((home / "centre" / CA).read_bytes())
        done = cohort("party", "start", home / "a", *only, "--passphrase-file", home / "passphrase")
        assert done.exit_code == 2 and "expired on" in done.output.replace("\n", " ")
        assert "cohort party renew" in done.output.replace("\n", " ")
    done = cohort("party", "renew", home / "a", "--invitation", home / "centre" / INVITATION)
    assert done.exit_code == 0  # the invitation has the first one still
    assert authority.read_bytes() == good
    with server_of(home / "centre") as address:
        config = home / "a" / "party.toml"
        config.write_text(config.read_text().replace("127.0.0.1:9092", address))
        with pytest.raises(ParameterError, match=f"certificate at {address} expired on"):
            Party(home / "a").start(PASSPHRASE)
        words = flower_commands.supernode(Party(home / "a").settings)
        words = words[words.index("--root-certificates") - 1 :]
        with caplog.at_level(logging.ERROR):
            assert flower_node.main(words) == os.EX_CONFIG
        assert f"the certificate at {address} expired on" in caplog.text
        authority.write_bytes((home / "centre" / CA).read_bytes())
        assert flower_node.main(words) == os.EX_CONFIG


class server_of:  # noqa: N801 - a context
    """A TLS server with the certificate of a folder, until the block ends; gives its address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> str:
        import socket

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / SERVER, self._folder / SERVER_KEY)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._served = context.wrap_socket(self._socket, server_side=True)
        threading.Thread(target=self._serve, daemon=True).start()
        return f"127.0.0.1:{self._served.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                self._served.accept()[0].close()
            except ssl.SSLError:
                continue
            except OSError:
                return

    def __exit__(self, *_: object) -> None:
        self._served.close()


def test_an_invitation_of_another_centre_renews_nothing(home: Path) -> None:
    init_coordinator(home / "other", {"label": {"name": "y"}}, ADDRESSES, {})
    before = (home / "a" / CA).read_bytes()
    other = json.loads((home / "other" / INVITATION).read_text())["coordinator_key"]
    with pytest.raises(ParameterError, match=f"key {spoken(other)}, not of this party's"):
        Party(home / "a").renew(home / "other" / INVITATION)
    assert (home / "a" / CA).read_bytes() == before


def test_a_certificate_is_not_valid_before_its_time_nor_no_certificate(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["localhost"])
    pem = (tmp_path / SERVER).read_bytes()
    now = datetime.now(timezone.utc)
    end = validity.check(pem, "x", "cure")
    assert abs(end - now - timedelta(days=365 * certificates.YEARS)) < timedelta(minutes=5)
    with pytest.raises(ParameterError, match="x is valid from .* set this machine's clock"):
        validity.check(pem, "x", "cure", now - timedelta(days=1))
    with pytest.raises(ParameterError, match="x expired on .*: cure"):
        validity.check(pem, "x", "cure", end)
    assert validity.until(end, "cure", now) == f"until {validity.day(end)}"
    assert validity.until(end, "cure", end) == f"expired on {validity.day(end)}: cure"
    with pytest.raises(ParameterError, match="x is no certificate"):
        validity.ends(b"none", "x")
    assert validity.shown_at("127.0.0.1:1") is None and validity.shown_at("nonsense") is None


# -- what outlives nobody -------------------------------------------------------------------------

BEGINS = """import subprocess, sys, time
from parties import launch
held = subprocess.Popen(launch.tied([sys.executable, "-c", "import time; time.sleep(999)"]))
print(held.pid, flush=True)
time.sleep(999)"""


def test_a_relay_ends_with_the_command_that_was_killed() -> None:
    command = [sys.executable, "-c", BEGINS]
    with child(command, stdout=subprocess.PIPE, env=launch.environment()) as process:
        assert process.stdout
        begun = Path(f"/proc/{int(process.stdout.readline())}/stat")
        time.sleep(0.5)  # it replaces itself
        assert begun.exists()
        process.send_signal(signal.SIGKILL)
        for _ in range(1200):
            if not begun.exists() or begun.read_text().rpartition(")")[2].split()[0] == "Z":
                return
            time.sleep(0.05)
    raise AssertionError("it goes on")


def test_whoever_has_answered_waits_for_the_slowest() -> None:
    """By what is shipped, of owners, centres and Flower jobs; an owner's own limits, too."""
    waits = [ConsentMode().wait_seconds, Driving(coordinator_key="").wait_seconds]
    waits += [Settings(folder=Path()).step_seconds, OWN["step-seconds"]]
    for command in (Coordinator.init, commands.init):
        waits.append(signature(command).parameters["step_seconds"].default)
    assert max(waits) < Limits().idle_seconds
    fields = {"folder": Path(), "name": "a", "data": "a.csv", "coordinator_key": "00" * 32}
    fields |= {"superlink": "a:1", "socket": "a.sock", "consent": {"wait_seconds": 60.0}}
    assert read({**fields, "limits": {"idle_seconds": 61.0}}, PartySettings, "party.toml")
    with pytest.raises(ParameterError, match="idle_seconds=60 under .limits. is not above"):
        read({**fields, "limits": {"idle_seconds": 60.0}}, PartySettings, "party.toml")


def test_a_superlink_that_is_not_started_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and not again while it is asked; at the end its own words."""
    said, asked, now = list[str](), list[int](), [0.0]
    monkeypatch.setattr(drive.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(drive.time, "monotonic", lambda: now[0])

    def ask() -> str:
        asked.append(len(said))
        now[0] += 50.0
        raise ProtocolError("connection refused")

    with pytest.raises(ProtocolError, match="does not answer: connection refused"):
        drive._patiently(1000.0, said.append, ask)
    assert asked == [0, 1, 1] and "cohort coordinator start" in said[0] and len(said) == 1
