"""A data owner of a run across machines, from Python; `cohort party …` calls what is here."""

from __future__ import annotations

import io
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Literal

import msgspec
import numpy as np

from ciphercohort.deploy import flower_commands
from ciphercohort.deploy.supervise import Background, Program, aside, child, rolled, supervised
from ciphercohort.job.layout import check_role
from ciphercohort.job.options import FilePath, names_in
from parties import launch
from parties.agent import settings as files
from parties.agent.frames import CONSENT, GIVE_UP, STATEMENT, STATUS, AgentClient
from parties.agent.setup import MAX_DELTA, MAX_EPSILON, SEVERAL, init_party
from parties.agent.vault import new_entry, read_entry
from parties.kernel import EVERY
from parties.launch import OFFLINE, ONLINE
from parties.reader.schema import Classes, Label, Schema, Targets
from parties.reader.shard import encode_shard
from protocols import errors
from protocols.errors import ParameterError
from protocols.exchange import validity
from protocols.exchange.cards import Card, Invitation
from protocols.exchange.private_files import private_opener, write_private
from protocols.names import DEFAULT_COLLUDERS, spoken

log = logging.getLogger(__name__)

RENEWED = (
    "cohort party renew takes the centre's newest invitation; if that is over, too, the centre's "
    "administrator runs cohort coordinator renew, and sends it again"
)
MOST_SAID = 6
"""Lines of a log that a status shows."""
# From the request to the end of an agent's process.
_STOP_SECONDS = 15.0


class Party(Background):
    """One data owner's folder, on this owner's machine.

        hospital = Party.init(
            "hospital-a", invitation="invitation.json", data="rows.csv", passphrase=getpass()
        )
        hospital.know("card-b.json", "card-c.json")  # compare their keys by telephone
        hospital.start(getpass())                    # in the background, until stop()
        for code, words in hospital.pending().items():
            print(words, code)
        hospital.accept("3f2a91c0")

    `Party("hospital-a")` opens a folder that is there. `start`, `stop` and `with` as of a
    `Coordinator`. Whatever asks the agent (`status`, `pending`, `accept`, …) may be called from
    another process of the same user.

    Raises:
        ParameterError: the folder has no party.toml, or a field of it is out of range.
    """

    def __init__(self, folder: FilePath) -> None:
        super().__init__(f"party {str(folder)!r}")
        check_role(Path(folder), "party")
        self.folder = files.Settings.load(Path(folder)).folder
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        """Tells `until_stopped` of an agent that has ended by itself."""

    @classmethod
    def init(
        cls,
        folder: FilePath,
        *,
        invitation: FilePath,
        data: FilePath,
        passphrase: str | None = None,
        keyring: bool = False,
        name: str | None = None,
        consent: Literal["ask", "policy"] = "ask",
        max_epsilon: float | None = MAX_EPSILON,
        max_delta: float = MAX_DELTA,
        min_colluders: int = DEFAULT_COLLUDERS,
        protocols: Sequence[str] | None = None,
        exact_sums: bool = False,
        allow_insecure: bool = False,
        accept_unbounded: bool = False,
        site_tables: bool = False,
        replica: str | Sequence[str] = "none",
        budget_epsilon: float | None = None,
        budget_delta: float | None = None,
        keep_ledger: bool = True,
        address: str = "127.0.0.1:9094",
        socket: FilePath | None = None,
        relay_uid: int | None = None,
        keep_key_share: bool = True,
        insecure_noise_seed: int | None = None,
        strict: bool = False,
    ) -> Party:
        """Make the folder: identity, node key, party.toml, and the card for all others.

        Args:
            folder: new, or empty.
            invitation: file from the coordinator's administrator.
            data: file with the rows, or a .toml file with a query. It is read here, once.
            passphrase: seals identity and key share; at least 12 characters.
            keyring: a random one, in the operating system's keyring, in its place.
            name: as others know this party; the folder's.
            consent: "ask" lets every plan wait for `accept`; "policy" leaves it to the limits.
            max_epsilon: largest of a run; None: no limit, and with exact_sums no noise.
            max_delta: largest of a run.
            min_colluders: other owners who may pool what they see with the coordinator.
            protocols: that this party takes part in, by name; all. What others need is never
                loaded where rows and keys are.
            exact_sums: accept runs without noise, of whose sums, and models, whoever sees them can
                read whole records; with max_epsilon=None alone.
            allow_insecure: accept toy rings: for tests only.
            accept_unbounded: accept runs without a proof that training stays bounded.
            site_tables: accept sums that can tell of these rows alone.
            replica: "own", answer only what this party's own copy of the coordinator's computation
                asks; names, what these owners confirm, who have one; the centre relays everybody's
                replies then.
            budget_epsilon: of all runs on the data together; three times that of one run, which
                some seven runs of the largest size spend.
            budget_delta: the same; that of one run.
            keep_ledger: False: nobody adds up what the runs spend.
            address: HOST:PORT that Flower's own SuperNode binds, where it runs.
            socket: of the agent; FOLDER/agent.sock.
            relay_uid: user of the node, if another one.
            keep_key_share: keep it on disk, sealed, while a run lasts.
            insecure_noise_seed: NOT PRIVATE: for tests only.
            strict: refuse values outside the schema, now and whenever the rows are read.

        Raises:
            CohortError: the folder is in use, the invitation is none, the data do not fit the
                schema, or options contradict one another. Nothing is written then.
        """
        if not keep_ledger and (budget_epsilon, budget_delta) != (None, None):
            raise ParameterError(
                "keep_ledger=False (--no-ledger) is given together with a budget: leave one out"
            )
        budget = {}
        if max_epsilon is not None and keep_ledger:
            budget = {
                "epsilon": SEVERAL * max_epsilon if budget_epsilon is None else budget_epsilon,
                "delta": max_delta if budget_delta is None else budget_delta,
            }
        entry = ""
        if keyring and passphrase is not None:
            raise ParameterError(
                "keyring makes a passphrase of its own: leave --passphrase-file out"
            )
        if keyring:
            entry, passphrase = new_entry()
        path = Path(folder)
        init_party(
            path,
            Path(invitation),
            _given(passphrase),
            name=name or path.name,
            data=Path(data),
            keyring=entry,
            clientappio=address,
            socket=None if socket is None else Path(socket),
            relay_uid=relay_uid,
            keep_key_share=keep_key_share,
            keep_ledger=keep_ledger,
            insecure_noise_seed=insecure_noise_seed,
            strict=strict,
            consent={"mode": consent},
            policy={
                "max_epsilon": max_epsilon,
                "max_delta": max_delta,
                "min_colluders": min_colluders,
                "protocols": list(protocols or EVERY),
                "exact_sums": exact_sums,
                "allow_insecure": allow_insecure,
                "accept_unbounded": accept_unbounded,
                "site_tables": site_tables,
                "replica": _replica(replica),
            },
            budget=budget,
        )
        return cls(path)

    @property
    def settings(self) -> files.Settings:
        """party.toml, as it is now."""
        return files.Settings.load(self.folder)

    @property
    def name(self) -> str:
        """As the others know this party."""
        return self.settings.name

    @property
    def card(self) -> Path:
        """The file for the coordinator and all other parties: name, keys, number of rows."""
        return self.folder / files.CARD

    @property
    def coordinator_key(self) -> str:
        """The centre's key in groups of four, to compare with its administrator by telephone."""
        return spoken(self.settings.coordinator_key)

    @property
    def key(self) -> str:
        """This party's key in groups of four, to compare by telephone."""
        return spoken(Card.load(self.card).identity)

    # -- peers ------------------------------------------------------------------------------------

    @property
    def peers(self) -> dict[str, str]:
        """Keys of the parties that this owner knows, by name; a plan has no others."""
        return {name: spoken(key) for name, key in self.settings.peers.items()}

    def know(self, *cards: FilePath, replace: bool = False) -> dict[str, str]:
        """Know parties by their cards, at once; the own card is left out.

        replace: also where another key is known by the name.

        Returns:
            Their keys by name: compare each with its owner by telephone before you consent.

        Raises:
            ParameterError: a file is no card, or a name has another key.
        """
        name, own = self.name, Card.load(self.card).identity
        found = [Card.load(Path(card)) for card in cards]
        others = [card for card in found if card.identity != own]
        if len(others) < len(found):
            log.warning("%s: your own card, left out", name)
        if any(card.name == name for card in others):
            raise ParameterError(f"{name!r} is this party's own name: ask for another card")
        for card in others:
            self.settings.know(card.name, card.identity, replace=replace)
        return {card.name: spoken(card.identity) for card in others}

    def forget(self, name: str) -> None:
        """Know a party no longer. Raises ParameterError: it was not known."""
        self.settings.forget(name)

    # -- taking part ------------------------------------------------------------------------------

    def start(
        self, passphrase: str | None = None, *, only: Literal["agent", "node"] | None = None
    ) -> Party:
        """Run agent and node in the background, until `stop`; both go on after a restart.

        Where table or schema have changed since, `card` is written anew, and a warning says so.

        passphrase: of `init`; of a party with an entry in the keyring it may be left out. only:
        one of the two, where each runs as a user of its own.

        Raises:
            CohortError: the passphrase is wrong, the data fit no longer, a certificate of the
                centre is over, or it runs already.
        """
        if only not in (None, "agent", "node"):
            raise ParameterError(f"only={only!r} is not agent or node")
        settings = self.settings
        validity.check_file(self.folder / files.CA, RENEWED)
        shown = None if only == "agent" else validity.shown_at(settings.superlink)
        if shown is not None:
            validity.check(shown, f"the centre's certificate at {settings.superlink}", RENEWED)
        launch.no_core_files()
        with self.starting() as stack:
            if only != "node":
                if passphrase is None and settings.keyring:
                    passphrase = read_entry(settings.keyring)
                stack.enter_context(_agent(settings, _given(passphrase), self.ended))
            if only != "agent":
                stack.enter_context(supervised(_node(settings)))
        return self

    def certificate_until(self) -> datetime:
        """When the centre's certificate authority ends, as the invitation had it, UTC."""
        path = self.folder / files.CA
        return validity.ends(path.read_bytes(), str(path))

    def renew(self, invitation: FilePath) -> datetime:
        """Take the centre's new certificates from a new invitation; `start` again afterwards.

        Returns: when they end.

        Raises:
            ParameterError: it is no invitation, of another coordinator, or its certificate is over.
        """
        invited, settings = Invitation.load(Path(invitation)), self.settings
        if invited.coordinator_key != settings.coordinator_key:
            raise ParameterError(
                f"{invitation} is of a coordinator with the key {spoken(invited.coordinator_key)}, "
                f"not of this party's, {self.coordinator_key}: ask its administrator by telephone"
            )
        found = invited.ca.encode("ascii")
        until = validity.check(found, f"the certificate in {invitation}", RENEWED)
        write_private(self.folder / files.CA, found)
        return until

    def node(self) -> str:
        """What the node of this folder says last of its connection, and when; empty: nothing."""
        lines = _lines_of(_node_log(self.folder))
        said = (line for line in reversed(lines) if ONLINE in line or OFFLINE in line)
        when, _, words = next(said, "").partition(",")
        told = ONLINE if ONLINE in words else OFFLINE
        return f"{told}, since {when} by its own log" if words else ""

    def said(self) -> list[str]:
        """What the agent of this folder said of its latest session, with times: the last lines.

        For its owner alone: of what it refuses the centre hears less. How it ended, `status` says.
        """
        lines = _lines_of(_agent_log(self.folder))
        began = [k for k, line in enumerate(lines) if line.endswith(" begins")]
        own = lines[began[-1] + 1 if began else 0 :]
        return [line for line in own if " is over: " not in line][-MOST_SAID:]

    def status(self) -> dict[str, Any]:
        """The session that goes on, its step, and plans that wait: `session`, `step`, `pending`.

        last: the latest session, if it is over, and why.

        Raises:
            ProtocolError: no agent answers.
        """
        return self._ask(STATUS)

    def pending(self) -> dict[str, str]:
        """Plans that wait for consent, in words, by the code to accept or refuse each by."""
        found: dict[str, str] = self.status()["pending"]
        return found

    def accept(self, code: str) -> str:
        """Consent to the plan that waits under a code. Returns the plan's digest."""
        return self._decide(code, accept=True)

    def refuse(self, code: str) -> str:
        """Refuse the plan that waits under a code; the run ends."""
        return self._decide(code, accept=False)

    def abort(self) -> str | None:
        """End the session that goes on: the key share is erased. Returns its name."""
        ended: str | None = self._ask(GIVE_UP)["ended"]
        return ended

    def statement(self, out: FilePath, session: str | None = None) -> Path:
        """Sign what this party was asked in a session that is over, for whoever audits the run.

        out: file to write; session: the latest.
        """
        path, found = Path(out), self._ask(STATEMENT, {"session": session})
        path.write_bytes(bytes.fromhex(found["statement"]))
        return path

    def results(self) -> list[Path]:
        """Folders of trainings that finished, the latest last: model, plan, certificate, report.

        `load_model` and `cohort verify` take each; the centre has transcript and messages.
        """
        from ciphercohort.deploy.results import party_results

        return sorted(party_results(self.folder), key=_finished)

    def sums(self) -> list[Path]:
        """Folders of secure sums that finished, the latest last: what each was, and opened.

        The centre has the documents that follow; `cohort verify` of such a folder, and of the
        centre's, prints one digest.
        """
        from ciphercohort.deploy.results import sessions_of

        kept = [each.folder for each in sessions_of(self.folder / files.RESULTS) if each.is_sum]
        return sorted(kept, key=_finished)

    def purpose(self, session: Path) -> str:
        """What a session of `results` or `sums` was for, in words."""
        from ciphercohort.deploy.deployed import Session

        return str(Session.of(session).plan.purpose)

    def spent(self, session: Path) -> float | None:
        """Epsilon in all of the series that a session of `sums` began; None: sums were exact."""
        from ciphercohort.deploy.deployed import Session

        plan = Session.of(session).plan
        return None if plan.privacy is None else float(plan.epsilon_in_all)

    def series(self, session: Path) -> str:
        """Digest of the plan that began the series of a session of `sums`; its own, if it did."""
        from ciphercohort.deploy.deployed import Session

        plan = Session.of(session).plan
        return getattr(plan, "of_series", "") or plan.digest()

    def _decide(self, code: str, *, accept: bool) -> str:
        return str(self._ask(CONSENT, {"code": code, "accept": accept})["plan"])

    def _ask(self, kind: bytes, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return AgentClient(Path(self.settings.socket), patience=2.0).control(
            kind, dict(request or {})
        )


def _finished(session: Path) -> float:
    """When its outcome was told."""
    return (session / files.OUTCOME).stat().st_mtime


def _replica(given: str | Sequence[str]) -> str | list[str]:
    """As `Policy.replica` has it: a word, or names."""
    names = list(names_in(given))
    return names[0] if names in (["own"], ["none"]) else names


def encode_table(
    table: FilePath, schema: FilePath, out: FilePath, *, strict: bool = False
) -> tuple[str, ...]:
    """Write what a table's rows would contribute to a run, float64, in the table's order.

    Features and bias, at most `norm_bound` long; the outcome on [0, 1], of several classes a column
    each; the weight over its bound and the offset less its centre, where the schema has them.

    Returns: names of the columns. The file has mode 0600.

    Raises:
        ParameterError: the file exists. SchemaError, DataError: the table does not fit.
    """
    path, known = Path(out), Schema.load(Path(schema))
    if path.exists():
        raise ParameterError(f"out={str(path)!r} exists: choose another name, or delete it")
    shard = encode_shard(table, known, strict)
    terms = {name: getattr(shard, name) for name in known.row_terms}
    held = io.BytesIO()
    np.save(held, np.column_stack([shard.x, shard.y, *terms.values()]), allow_pickle=False)
    write_private(path, held.getvalue())
    return (*known.feature_names, "bias", *_outcomes(known.label), *terms)


def _outcomes(label: Label | Classes | Targets) -> tuple[str, ...]:
    """Names of the columns of `Shard.y`."""
    if isinstance(label, Targets):
        return label.names
    values = label.classes if isinstance(label, Classes) else (label.positive,)
    return tuple(f"{label.name}={value}" for value in values)


def _given(passphrase: str | None) -> str:
    if passphrase is None:
        raise ParameterError("the passphrase is missing: give one, such as getpass.getpass()")
    return passphrase


@contextmanager
def _agent(
    settings: files.Settings, passphrase: str, ended: queue.SimpleQueue[str]
) -> Iterator[None]:
    """The agent, in a process of its own that ends with this one."""
    output = _logged(_agent_log(settings.folder))
    held = child(
        [*launch.program("parties.agent"), str(settings.folder)],
        seconds=_STOP_SECONDS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        text=True,
        errors="replace",
    )
    stopping = threading.Event()
    with output, held as process:
        output.close()  # the agent alone has it
        assert process.stdin and process.stdout  # noqa: S101 (pipes)
        with suppress(BrokenPipeError):  # it has ended, and says why below
            print(json.dumps({"passphrase": passphrase}), file=process.stdin, flush=True)
        del passphrase
        said = json.loads(process.stdout.readline() or "{}")
        if "socket" not in said:
            kind = getattr(errors, said.get("kind", ""), errors.ProtocolError)
            raise kind(said.get("error", "the agent ended before it served: see what it wrote"))
        _renew_card(settings, said["rows"])
        watching = threading.Thread(target=_watch, args=(process, stopping, ended), daemon=True)
        watching.start()
        try:
            yield
        finally:
            stopping.set()


def _renew_card(settings: files.Settings, rows: int) -> None:
    """Write card.json anew, with the same keys, where table or schema have changed since."""
    path = settings.folder / files.CARD
    if not path.exists():
        return
    card, schema = Card.load(path), Schema.load(settings.folder / files.SCHEMA)
    shape = {"num_features": schema.num_features, "schema": schema.digest()}
    now = msgspec.structs.replace(card, rows=rows, **shape)
    if now != card:
        path.write_text(now.to_json(), encoding="utf-8")
        words = (
            f"the table has changed ({rows} rows now, {card.rows} before): send {path} to the "
            "centre again, which plans by it after cohort coordinator admit; keys are the same"
        )
        if now.schema != card.schema:
            words = (
                f"schema.json is not that of {path} as it was: the centre takes one schema of all "
                "parties, and refuses this card until its own and all cards are of it"
            )
        log.warning("%s", words)


def _watch(
    process: subprocess.Popen[str], stopping: threading.Event, ended: queue.SimpleQueue[str]
) -> None:
    """Say that the agent has ended by itself: nobody here has the passphrase to start it again."""
    code = process.wait()
    if not stopping.is_set():
        log.error("the agent ended with code %d: start it again", code)
        ended.put("agent")


def _logged(path: Path) -> IO[bytes]:
    """Where an agent writes its log: lines go to this process's own, and with the time to a file.

    A disk that is full ends neither.
    """
    source, sink = os.pipe()

    def keep() -> None:
        with os.fdopen(source, errors="replace") as lines:
            for line in lines:
                with suppress(OSError, ValueError):  # this process's own may be closed
                    sys.stderr.write(line)
                    sys.stderr.flush()
                with suppress(OSError), open(rolled(path), "a", opener=private_opener) as kept:
                    kept.write(f"{datetime.now().isoformat(' ', 'seconds')} {line}")

    threading.Thread(target=keep, daemon=True).start()
    return os.fdopen(sink, "wb")


def _lines_of(log_path: Path) -> list[str]:
    """Of a log, what was put aside before it first."""
    found = list[str]()
    for path in (aside(log_path), log_path):
        with suppress(FileNotFoundError):
            found += path.read_text(errors="replace").splitlines()
    return found


def _agent_log(folder: Path) -> Path:
    return folder / "logs" / "agent.log"


def _node_log(folder: Path) -> Path:
    return folder / "logs" / "supernode.log"


def _node(settings: files.Settings) -> Program:
    return Program(
        name="SuperNode",
        command=launch.tied(flower_commands.supernode(settings)),
        environment=flower_commands.environment(settings.folder),
        log_path=_node_log(settings.folder),
        ready=(ONLINE, f"is connected to {settings.superlink}"),
        expected={
            os.EX_TEMPFAIL: "is not let in, and goes on trying: the centre has not admitted this "
            "party, takes its last connection for alive, which a crash leaves for a minute, or has "
            "new certificates (cohort party renew)",
            os.EX_CONFIG: "does not connect, and goes on trying: a certificate is not valid today",
        },
    )
