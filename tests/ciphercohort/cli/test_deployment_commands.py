"""`cohort party`, `cohort coordinator`, the status page, Flower's options."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keyring
import msgspec
import numpy as np
import pandas as pd
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail, null
from keyring.errors import KeyringLocked
from typer.testing import CliRunner

from ciphercohort.cli import party as cli_party
from ciphercohort.cli.app import app
from ciphercohort.deploy import flower_commands
from ciphercohort.deploy.coordinator import Coordinator
from ciphercohort.deploy.deployed import plan_template
from ciphercohort.report.status_page import make_server, page
from coordinator.errors import AbortedError
from coordinator.settings import Settings as CentreSettings
from coordinator.status import LOCK
from parties.agent.doors import Doors
from parties.agent.owner import Owner
from parties.agent.server import AgentServer
from parties.agent.settings import Allowance, Settings
from parties.agent.vault import new_entry, read_entry
from parties.kernel.model import ModelSheet
from parties.kernel.model.session import Alone
from protocols.errors import ParameterError, PolicyError
from protocols.exchange.documents import load_toml, to_toml
from protocols.exchange.private_files import locked
from protocols.plan.held_out import HeldOut
from protocols.sums.plan import GradientPlan
from tests.support.helpers import agent_of

runner = CliRunner()
SECRET = 8675309.25


def cohort(*words: object) -> Any:
    return runner.invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A centre and two hospitals, as `init` leaves them."""
    home = tmp_path_factory.mktemp("home")
    frame = pd.DataFrame({"age": range(20, 60), "y": [0, 1] * 20})
    frame.to_csv(home / "rows.csv", index=False)
    (home / "passphrase").touch(mode=0o600)
    (home / "passphrase").write_text("correct horse battery staple\n")
    for words in (
        ("schema", "init", home / "rows.csv", "--label", "y", "--out", home / "schema.json"),
        (
            "coordinator",
            "init",
            home / "centre",
            "--schema",
            home / "schema.json",
            "--no-privacy",
            "--public",
            "centre.example.org:9092",
            "--update",
            "gd",
            "--iterations",
            2,
            "--profile",
            "fast-insecure",
            "--ring-dim",
            1024,
        ),
        *(init(home, name) for name in ("a", "b")),
        ("coordinator", "admit", home / "centre", home / "a/card.json", home / "b/card.json"),
        ("party", "peers", "add", home / "a", home / "a/card.json", home / "b/card.json"),
    ):
        done = cohort(*words)
        assert done.exit_code == 0, done.output
    return home


def init(home: Path, name: str, **changes: str) -> tuple[object, ...]:
    fields = {"invitation": home / "centre/invitation.json", "data": home / "rows.csv"} | changes
    options = [word for key, value in fields.items() for word in (f"--{key}", value)]
    passphrase = ("--passphrase-file", home / "passphrase")
    return (
        "party",
        "init",
        home / name,
        *options,
        *passphrase,
        "--allow-insecure",
        "--accept-no-privacy",
        "--exact-sums",
        "--no-ledger",
    )


class MemoryKeyring(KeyringBackend):
    """Keeps entries in a dictionary; forgets or refuses them when told."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}
        self.locked = False

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.locked:
            raise KeyringLocked("locked")
        self.entries[service, username] = password

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise KeyringLocked("locked")
        return self.entries.get((service, username))


def test_an_owner_limits_the_memory_of_encoded_rows(home: Path) -> None:
    settings = Settings.load(home / "a")
    passphrase = (home / "passphrase").read_text().strip()

    def room(own: Settings) -> Any:
        sheet = ModelSheet.__new__(ModelSheet)
        return Owner.of(own, passphrase).beside(sheet)["shared"].room

    assert room(settings) == Alone.room == 9 << 28
    little = msgspec.structs.replace(settings, encoded_rows_mb=7)
    assert room(little) == 7 << 20
    with pytest.raises(ParameterError, match="encoded_rows_mb=-1 is below 0"):
        msgspec.structs.replace(settings, encoded_rows_mb=-1)


def test_an_agents_coins_outlive_it(home: Path) -> None:
    held_out, found = HeldOut(share=0.5, draw="d1"), []
    for plans in (("ab" * 32,), ("", "ab" * 32)):
        agent = agent_of(Settings.load(home / "b"), "correct horse battery staple")
        party = agent._make_party()
        found.append(party.run.coins.chosen(held_out, party.run.rows._value, *plans).tolist())
    assert found[0] == found[1] and len(found[0]) == 20
    assert (home / "b" / "held-out.sealed").stat().st_mode & 0o777 == 0o600


def test_the_passphrase_may_stand_in_the_systems_keyring(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: backend)
    words = [word for word in init(home, "k") if word not in ("--passphrase-file",)]
    words.remove(home / "passphrase")
    words[2] = tmp_path / "k"
    both = cohort(*words, "--keyring", "--passphrase-file", home / "passphrase")
    assert both.exit_code == 2 and "leave --passphrase-file out" in both.output
    backend.locked = True
    locked = cohort(*words, "--keyring")
    assert locked.exit_code == 2 and "unlock it" in locked.output
    assert not (tmp_path / "k").exists()
    backend.locked = False
    done = cohort(*words, "--keyring")
    assert done.exit_code == 0, done.output
    settings, ((_, passphrase),) = Settings.load(tmp_path / "k"), backend.entries.items()
    assert settings.keyring and len(passphrase) >= 32
    assert passphrase not in (tmp_path / "k/party.toml").read_text() + done.output
    assert read_entry(settings.keyring) == passphrase
    settings.open_vault(passphrase)
    with pytest.raises(PolicyError, match="no entry 'another'"):
        read_entry("another")


@pytest.mark.parametrize("backend", [fail.Keyring(), null.Keyring()])
def test_a_keyring_that_keeps_nothing_is_refused(
    backend: KeyringBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "get_keyring", lambda: backend)
    with pytest.raises(ParameterError, match="no keyring that keeps secrets"):
        new_entry()


def test_a_plan_of_encrypted_sums(home: Path, tmp_path: Path) -> None:
    centre = tmp_path / "centre"
    done = cohort(
        *("coordinator", "init", centre, "--schema", home / "schema.json", "--iterations", 7),
        *(
            "--protocol",
            "secure-aggregation",
            "--update",
            "scd",
            "--batches",
            4,
            "--schedule",
            "poisson",
            "--colluders",
            0,
        ),
    )
    assert done.exit_code == 0, done.output
    cards = [home / name / "card.json" for name in ("a", "b")]
    assert cohort("coordinator", "admit", centre, *cards).exit_code == 0
    plan, _ = plan_template(CentreSettings.load(centre))
    assert isinstance(plan, GradientPlan) and plan.privacy is not None
    assert (plan.rounds, plan.update["kind"]) == (7, "scd")


def test_init_refuses_what_would_go_wrong(home: Path, tmp_path: Path) -> None:
    def refused(words: tuple[object, ...], text: str) -> None:
        done = cohort(*words)
        assert done.exit_code == 2 and text in done.output, done.output

    refused(init(home, "a"), "is not empty")
    refused(init(home, "c", invitation=str(home / "schema.json")), "is no invitation")
    refused((*init(home, "c"), "--name", "../c"), "use letters, digits")
    refused((*init(home, "c"), "--name", "coordinator"), "use letters, digits")
    pd.DataFrame({"age": [SECRET, None], "y": [0, 1]}).to_csv(tmp_path / "bad.csv")
    refused(init(home, "c", data=str(tmp_path / "bad.csv")), "missing (empty or NaN)")
    assert not (home / "c").exists()
    (tmp_path / "short").write_text("short")
    words = init(home, "c")
    refused((*words, "--passphrase-file", tmp_path / "short"), "at least 12")
    refused(("coordinator", "admit", home / "centre", home / "schema.json"), "no party's card")


def test_peers_by_command(home: Path, tmp_path: Path) -> None:
    def peers(*words: object) -> str:
        done = cohort("party", "peers", *words)
        assert done.exit_code == 0, done.output
        return str(done.output)

    def refused(text: str, *words: object) -> None:
        done = cohort("party", "peers", *words)
        assert done.exit_code == 2 and text in done.output, done.output

    folder = tmp_path / "c"
    words = list(init(home, "c"))
    words[2] = folder
    assert cohort(*words).exit_code == 0
    assert "every plan is refused" in peers("list", folder)
    path = folder / "party.toml"
    text = path.read_text().replace("[limits]\n", "[limits] # last\n")
    limits = text[text.index("# after either") : text.index("# the other parties")]
    path.write_text(f"{text.replace(limits, '')}# b: seen on Monday\n\n{limits}")
    before = path.read_text()
    cards = [home / name / "card.json" for name in ("a", "b")]
    keys = {name: Settings.load(home / name).folder / "card.json" for name in ("a", "b")}
    keys = {name: json.loads(path.read_text())["identity"] for name, path in keys.items()}
    shown = peers("add", folder, *cards, folder / "card.json")
    assert "c: your own card, left out" in shown and "compare each key" in shown
    assert f"a: {keys['a'][:4]} {keys['a'][4:8]}" in shown.replace("\n", " ")
    assert Settings.load(folder).peers == keys
    assert all(line in path.read_text().splitlines() for line in before.splitlines())
    assert path.stat().st_mode & 0o777 == 0o600
    listed = peers("list", folder).splitlines()
    assert listed[0].startswith("c (you): ") and listed[2].replace(" ", "") == f"b:{keys['b']}"
    card = json.loads(cards[0].read_text())
    other = tmp_path / "other.json"
    for change, text in (
        ({"identity": "ab" * 32}, "known with another key"),
        ({"name": "c"}, "is this party's own name"),
        ({"name": "d"}, "'a' and 'd' the same key"),
        ({"name": "../../x"}, "use letters, digits"),
    ):
        other.write_text(json.dumps({**card, **change}))
        refused(text, "add", folder, other)
    assert Settings.load(folder).peers == keys
    other.write_text(json.dumps({**card, "identity": "ab" * 32}))
    peers("add", folder, other, "--replace")
    assert Settings.load(folder).peers["a"] == "ab" * 32
    peers("remove", folder, "a")
    assert Settings.load(folder).peers == {"b": keys["b"]}
    refused("'a' is not among b", "remove", folder, "a")
    path.write_text(path.read_text().replace("[peers]\n", "[peers] # mine\n"))
    peers("add", folder, cards[0])
    peers("remove", folder, "a")
    table = f'peers = {{ b = "{keys["b"]}" }}\n' + re.sub(
        r"\[peers\].*\nb = .*", "", path.read_text()
    )
    path.write_text(table)
    refused("by hand", "add", folder, cards[0])
    assert path.read_text() == table


def test_a_known_peer_counts_at_once(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent need not be started again."""
    words = list(init(home, "a"))
    words[2] = tmp_path / "a"
    assert cohort(*words, "--consent", "policy", "--name", "a").exit_code == 0
    plan, _ = plan_template(CentreSettings.load(home / "centre"))
    own = json.loads((tmp_path / "a/card.json").read_text())["identity"]
    plan = replace(plan, members=(replace(plan.members[0], verify_key=own), plan.members[1]))
    agent = agent_of(Settings.load(tmp_path / "a"), "correct horse battery staple")
    with pytest.raises(PolicyError, match=r"does not know 'b' \(key .*cohort party peers add"):
        agent.consent.require(plan)
    assert cohort("party", "peers", "add", tmp_path / "a", home / "b/card.json").exit_code == 0
    agent.consent.require(plan)
    (tmp_path / "a/party.toml").write_text("peers = [")
    with pytest.raises(PolicyError, match="cannot be read: see its own log"):
        agent.consent.require(plan)
    assert "malformed" in caplog.text


def private(home: Path, folder: Path, *more: object) -> tuple[object, ...]:
    """`init` of a party that accepts private runs only."""
    words = [
        word
        for word in init(home, "c")
        if word not in ("--accept-no-privacy", "--exact-sums", "--no-ledger")
    ]
    words[2] = folder
    return (*words, *more)


def test_safe_defaults(home: Path, tmp_path: Path) -> None:
    assert cohort(*private(home, tmp_path / "c")).exit_code == 0
    settings = Settings.load(tmp_path / "c")
    assert settings.policy.min_colluders == 0 and settings.policy.max_epsilon == 1.0
    assert settings.keep_ledger and settings.budget == Allowance(epsilon=3.0, delta=1e-5)
    ledger = settings.open_ledger()
    assert ledger is not None and ledger.path == settings.folder / "ledger.jsonl"
    done = cohort(*private(home, tmp_path / "d", "--max-epsilon", 0.5, "--budget-epsilon", 2))
    assert done.exit_code == 0 and Settings.load(tmp_path / "d").budget.epsilon == 2
    done = cohort(*private(home, tmp_path / "e", "--no-ledger", "--min-colluders", 2))
    settings = Settings.load(tmp_path / "e")
    assert not settings.keep_ledger and settings.open_ledger() is None
    assert settings.policy.min_colluders == 2
    for more, text in (
        (("--no-ledger", "--budget-delta", 1e-6), "leave one out"),
        (("--accept-no-privacy",), "a ledger cannot count a run without noise"),
    ):
        done = cohort(*private(home, tmp_path / "f", *more))
        assert done.exit_code == 2 and text in done.output and not (tmp_path / "f").exists()


def test_a_person_at_a_terminal_is_asked(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_party, "is_terminal", lambda: True)
    words = [str(word) for word in private(home, tmp_path / "c")]
    done = runner.invoke(app, words, input="2\n\n1e-6\n")
    assert done.exit_code == 0, done.output
    for question in ("other owners may pool", "epsilon of all runs", "delta of all runs", "[3.0]"):
        assert question in done.output
    settings = Settings.load(tmp_path / "c")
    assert settings.policy.min_colluders == 2
    assert settings.budget == Allowance(epsilon=3.0, delta=1e-6)


def test_a_party_of_an_earlier_version_is_told_what_to_add(home: Path, tmp_path: Path) -> None:
    assert cohort(*private(home, tmp_path / "c")).exit_code == 0
    path = tmp_path / "c/party.toml"
    text = path.read_text().replace("keep_ledger = true\n", "")
    path.write_text(text)
    assert agent_of(Settings.load(tmp_path / "c"), "correct horse battery staple")
    path.write_text(text.replace("epsilon = 3.0\ndelta = 1e-05\n", ""))
    with pytest.raises(
        ParameterError, match=r"add epsilon = 1.0 and delta = 1e-5 .*keep_ledger = f"
    ):
        agent_of(Settings.load(tmp_path / "c"), "correct horse battery staple")
    path.write_text("keep_ledger = false\n" + text)
    with pytest.raises(ParameterError, match=r"keep_ledger = false, but \[budget\] is given"):
        agent_of(Settings.load(tmp_path / "c"), "correct horse battery staple")


def test_a_policy_by_hand_has_no_run_that_its_ledger_cannot_count(
    home: Path, tmp_path: Path
) -> None:
    assert cohort(*private(home, tmp_path / "c")).exit_code == 0
    path = tmp_path / "c/party.toml"
    text = re.sub(r"max_epsilon = .*\n", "", path.read_text())
    path.write_text(text.replace("exact_sums = false", "exact_sums = true"))
    with pytest.raises(ParameterError, match="exact_sums = true, but a ledger cannot count"):
        agent_of(Settings.load(tmp_path / "c"), "correct horse battery staple")


def test_nobody_else_may_write_or_read_a_partys_folder(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir(mode=0o755)
    assert cohort(*private(home, folder)).exit_code == 0
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in ("party.toml", "identity.sealed", "node.key"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    (tmp_path / "passphrase").write_text("correct horse battery staple\n")
    done = cohort(*private(home, tmp_path / "d", "--passphrase-file", tmp_path / "passphrase"))
    assert done.exit_code == 0 and "other users can read the passphrase" in done.output
    folder.chmod(0o770)
    with pytest.raises(ParameterError, match="other users can write to .* chmod 700"):
        agent_of(Settings.load(folder), "correct horse battery staple")


def test_party_status_and_consent_by_command(home: Path) -> None:
    agent = agent_of(Settings.load(home / "a"), "correct horse battery staple")
    server = AgentServer(agent, Doors(home / "a" / "agent.sock"))
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        assert "a: no session" in cohort("party", "status", home / "a").output
        assert json.loads(cohort("party", "status", home / "a", "--json").output)["pending"] == {}
        waiting = threading.Thread(target=ask, args=(agent, home))
        waiting.start()
        while not agent.consent.pending():
            time.sleep(0.01)
        shown = cohort("party", "consent", home / "a").output
        digest = shown.split()[1]
        assert "NO NOISE" in shown and "a (you): 40 rows" in shown.replace("\n", " ")
        code = shown.split()[-1]
        for other in (digest, digest[:8], f"{code}0", code[:7]):
            assert cohort("party", "consent", home / "a", "--accept", other).exit_code == 2
        done = cohort("party", "consent", home / "a", "--accept", code)
        assert f"accepted: plan {digest}" in done.output.replace("\n", " ")
        waiting.join(10)
        assert not waiting.is_alive()
    finally:
        server.stop()
        thread.join(10)
    done = cohort("party", "status", home / "a")
    assert done.exit_code == 2 and "no party agent answers" in done.output


def ask(agent: Any, home: Path) -> None:
    agent.consent.require(plan_template(CentreSettings.load(home / "centre"))[0])


def test_toml_is_read_as_it_was_written(tmp_path: Path) -> None:
    fields = {"a": 'x"\\y', "b": 1.5, "c": True, "d": {"e": "f", "g": None}, "h": {}}
    (tmp_path / "x.toml").write_text(to_toml(fields, {"a": "why"}))
    assert load_toml(tmp_path / "x.toml") == {**fields, "d": {"e": "f"}}


# -- status -------------------------------------------------------------------------------------

RUN = {
    "session": "5e551", "state": "running", "phase": "train", "step": "refresh/1", "iteration": 1,
    "rounds": 4, "reason": "<script>alert(1)</script>", "culprit": None, "attempts": 1,
    "updated": "2026-11-21T12:00:00+00:00", "seconds": {"keys": 12.5},
    "bytes_per_party": {"keys": 6_000_000}, "parties": {"a&b": {"rows": 1234, "bytes": 7_000_000}},
}  # fmt: skip


@pytest.fixture
def served(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "5e551").mkdir()
    (tmp_path / "5e551" / "status.json").write_text(json.dumps(RUN))
    with locked(tmp_path / "5e551" / LOCK), make_server(tmp_path, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def fetch(port: int, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(method, path, headers={"Host": f"{host}:{port}"})
    answer = connection.getresponse()
    # No script runs, whatever stands in the page.
    assert answer.status != 200 or "default-src 'none'" in answer.headers["Content-Security-Policy"]
    return answer.status, answer.read().decode()


def test_the_page_shows_progress_and_escapes(served: int) -> None:
    code, text = fetch(served, "/")
    assert code == 200
    for words in ('value="1" max="4"', "a&amp;b", "1,234", "7.0 MB", "12.5", "&lt;script&gt;"):
        assert words in text
    assert "<script>" not in text
    assert json.loads(fetch(served, "/status.json")[1]) == [{**RUN, "awaited": {}}]
    assert "There is no run yet" in page([])


def test_the_page_is_read_only_and_local(served: int) -> None:
    assert fetch(served, "/../../etc/passwd")[0] == 404
    assert fetch(served, "/", method="POST")[0] == 501
    assert fetch(served, "/", host="evil.example.org")[0] == 403


def test_status_in_the_terminal(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_commands, "submit", lambda settings, session: 1)
    folder = home / "centre" / "sessions" / "5e551"
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps(RUN))
    with locked(folder / LOCK):  # somebody drives it
        shown = cohort("coordinator", "status", home / "centre").output
        assert "running" in shown and "1/4" in shown and "7.0 MB" in shown
        told = json.loads(cohort("coordinator", "status", home / "centre", "--json").output)
    assert told == [{**RUN, "awaited": {}}]
    shown = " ".join(cohort("coordinator", "status", home / "centre").output.split())
    assert "running" not in shown and "go on with it by its command, with --session 5e551" in shown
    ended = cohort("coordinator", "abort", home / "centre", "--session", "5e551")
    assert ended.output.strip().endswith("session 5e551 is over")
    assert json.loads((folder / "status.json").read_text())["state"] == "aborted"
    assert cohort("coordinator", "abort", home / "centre").exit_code == 2

    def ends(*_: Any, **__: Any) -> None:
        raise AbortedError("party 'a' refuses", "5e551", "a")

    monkeypatch.setattr(Coordinator, "run", ends)
    refused = cohort("coordinator", "run", home / "centre")
    assert refused.exit_code == 1 and "aborted: party 'a' refuses" in refused.output
    assert "When what ended it is mended, give the same command again" in refused.output


# -- Flower's programs --------------------------------------------------------------------------


def test_a_whitened_pair_is_chosen_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second plan follows from what the first was asked for, and there is one of each.

    Both are on the rows that the same coins leave.
    """
    from ciphercohort.deploy import deployed
    from coordinator.deployment import create_session
    from protocols.exchange.serialise import to_plain

    centre = tmp_path / "centre"
    words = ("--schema", home / "schema.json", "--update", "quadratic-gd", "--epsilon", 5)
    words = (*words, "--held-out", 0.25, "--colluders", 0)
    assert cohort("coordinator", "init", centre, *words).exit_code == 0
    cards = [home / name / "card.json" for name in ("a", "b")]
    assert cohort("coordinator", "admit", centre, *cards).exit_code == 0
    settings = CentreSettings.load(centre)
    plan, wanted = plan_template(settings)
    first = create_session(settings, plan, to_plain(wanted))
    assert deployed.is_first(settings, first) and deployed.whitened_after(settings, first) is None
    moment = np.diag([0.5, 0.25])
    shown = SimpleNamespace(plan=plan, opened=lambda: (moment, {}))
    monkeypatch.setattr(deployed, "read_evidence", lambda folder: shown)
    monkeypatch.setattr(deployed, "calibrate", lambda *asked: pytest.fail("chosen again"))
    second, again = plan_template(settings, first)
    assert again == wanted
    assert second.moment_plan == plan.digest()  # type: ignore[attr-defined]
    assert plan.held_out is not None and plan.held_out == second.held_out
    assert {m.rows for each in (plan, second) for m in each.members} == {30}
    following = create_session(settings, second, to_plain(again), first)
    assert deployed.whitened_after(settings, first) == following
    assert not deployed.is_first(settings, following)
