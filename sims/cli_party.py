"""`cohort party …`: what a data owner's administrator runs."""

from __future__ import annotations

import logging
import os
import resource
import sys
import threading
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from protocols.cards import Card, spoken
from protocols.errors import ParameterError
from sims import cli_options as options
from sims.console import refusals, say, stdout

party_app = typer.Typer(
    no_args_is_help=True, help="One data owner of a run across machines: agent, relay, consent."
)
peers_app = typer.Typer(
    no_args_is_help=True, help="The other parties that this owner knows; a plan has no others."
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The party's folder.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(help="File with the passphrase. Default: systemd's credential, or a question."),
]
CREDENTIAL = "passphrase"
log = logging.getLogger(__name__)
Number = TypeVar("Number", int, float)
_COLLUDERS = "How many of the other owners may pool what they see with the coordinator"
_EPSILON = "Largest epsilon of all runs on this data together"
_DELTA = "Largest delta of all runs on this data together"
party_app.add_typer(peers_app, name="peers")


@party_app.command(
    epilog="Example:  cohort party init hospital-a --invitation invitation.json --data rows.csv"
)
def init(
    folder: Folder,
    invitation: Annotated[Path, typer.Option(help="File from the coordinator's administrator.")],
    data: Annotated[Path, typer.Option(help="Rows: .csv, .parquet, …, or .toml: a query.")],
    name: Annotated[str | None, typer.Option(help="Default: the folder's name.")] = None,
    consent: Annotated[str, typer.Option(help="ask a person, or leave it to the policy.")] = "ask",
    max_epsilon: Annotated[float | None, typer.Option(help="Largest per run.")] = 1.0,
    max_delta: Annotated[float, typer.Option(help="Largest per run.")] = 1e-5,
    min_colluders: Annotated[
        int | None,
        typer.Option(help="Other owners who may pool with the coordinator. Default: asked, or 1."),
    ] = None,
    accept_no_privacy: Annotated[
        bool, typer.Option("--accept-no-privacy", help="Accept runs without noise.")
    ] = False,
    allow_insecure: Annotated[
        bool, typer.Option("--allow-insecure", help="Accept toy rings: for tests only.")
    ] = False,
    accept_unbounded: Annotated[
        bool,
        typer.Option(
            "--accept-unbounded",
            help="Accept runs without a proof that training stays bounded: if it diverges, the "
            "coordinator may see about log2(2P) bits a refresh of each value computed from a row; "
            "those of several refreshes add up.",
        ),
    ] = False,
    budget_epsilon: Annotated[
        float | None,
        typer.Option(help="For all runs on the data. Default: asked, or as --max-epsilon."),
    ] = None,
    budget_delta: Annotated[
        float | None, typer.Option(help="The same. Default: asked, or as --max-delta.")
    ] = None,
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Nobody adds up what runs on the data spend.")
    ] = False,
    address: Annotated[
        str, typer.Option(help="HOST:PORT that the SuperNode binds for its own processes.")
    ] = "127.0.0.1:9094",
    socket: Annotated[
        Path | None, typer.Option(help="Of the agent. Default: FOLDER/agent.sock.")
    ] = None,
    relay_uid: Annotated[
        int | None, typer.Option(help="User id of the SuperNode, if another one.")
    ] = None,
    keep_key_share: Annotated[
        bool, typer.Option(help="Keep it on disk, sealed, while a run lasts.")
    ] = True,
    insecure_noise_seed: Annotated[
        int | None, typer.Option(help="NOT PRIVATE: seeded noise, for tests only.")
    ] = None,
    passphrase_file: PassphraseFile = None,
    keyring: Annotated[
        bool, typer.Option("--keyring", help="A random passphrase, in the system's keyring.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Make identity, node key and configuration; FOLDER/card.json goes to the coordinator."""
    with refusals(debug) as console:
        from parties.agent.setup import init_party
        from protocols.names import DEFAULT_COLLUDERS

        largest = None if accept_no_privacy else max_epsilon
        policy: dict[str, Any] = {
            "max_epsilon": largest,
            "max_delta": max_delta,
            "min_colluders": _asked(min_colluders, _COLLUDERS, DEFAULT_COLLUDERS),
            "allow_insecure": allow_insecure,
            "accept_unbounded": accept_unbounded,
        }
        if no_ledger and (budget_epsilon, budget_delta) != (None, None):
            raise ParameterError("--no-ledger is given together with a budget: leave one out")
        budget = {}
        if largest is not None and not no_ledger:
            budget["epsilon"] = _asked(budget_epsilon, _EPSILON, largest)
            budget["delta"] = _asked(budget_delta, _DELTA, max_delta)
        entry, passphrase = _new_passphrase(passphrase_file, keyring)
        card = init_party(
            folder,
            invitation,
            passphrase,
            name=name or folder.name,
            data=data,
            keyring=entry,
            clientappio=address,
            socket=socket,
            relay_uid=relay_uid,
            keep_key_share=keep_key_share,
            keep_ledger=not no_ledger,
            insecure_noise_seed=insecure_noise_seed,
            consent={"mode": consent},
            policy=policy,
            budget=budget,
        )
        say(console, f"{folder / 'party.toml'}: look through it, it says what you consent to")
        say(console, f"send {folder / 'card.json'} to the coordinator's administrator")
        say(console, "and to every other party, who runs cohort party peers add")
        say(console, f"your key, to compare by telephone: {spoken(card.identity)}")


@party_app.command()
def start(
    folder: Folder,
    only: Annotated[
        str | None, typer.Option(help="agent or node, where each runs as a user of its own.")
    ] = None,
    passphrase_file: PassphraseFile = None,
    debug: options.Debug = False,
) -> None:
    """Run agent and SuperNode until stopped; both go on after a restart."""
    with refusals(debug) as console:
        from contextlib import ExitStack

        from parties.agent.settings import Settings
        from sims.supervise import until_stopped

        if only not in (None, "agent", "node"):
            raise ParameterError(f"only={only!r} is not agent or node")
        settings = Settings.load(folder)
        logging.getLogger("parties").setLevel(logging.INFO)
        with ExitStack() as stack:
            if only != "node":
                passphrase = _passphrase(passphrase_file, settings.keyring)
                stack.enter_context(_agent(settings, passphrase))
                say(console, f"agent of {settings.name}: {settings.socket}")
            if only != "agent":
                stack.enter_context(_node(settings))
                say(console, f"SuperNode of {settings.name}: to {settings.superlink}")
            until_stopped()


@party_app.command()
def status(folder: Folder, as_json: options.AsJson = False, debug: options.Debug = False) -> None:
    """Show the session that is going on, and plans that wait for consent."""
    with refusals(debug):
        import json

        from parties.agent.frames import STATUS

        found = _control(folder, STATUS, {})
        if as_json:
            typer.echo(json.dumps(found))
            return
        words = f"session {found['session']}, after {found['step'] or 'nothing'}"
        typer.echo(f"{found['party']}: {words if found['session'] else 'no session'}")
        typer.echo(f"plans that wait for consent: {len(found['pending'])}")


@party_app.command(
    epilog="Examples:  cohort party consent FOLDER\n\ncohort party consent FOLDER --accept 3f2a91c0"
)
def consent(
    folder: Folder,
    accept: Annotated[str | None, typer.Option(help="Plan: its first 8 digits or more.")] = None,
    refuse: Annotated[str | None, typer.Option(help="Plan: its first 8 digits or more.")] = None,
    debug: options.Debug = False,
) -> None:
    """Show the plans that wait, in words; accept or refuse one."""
    with refusals(debug):
        from parties.agent.frames import CONSENT, STATUS

        if accept and refuse:
            raise ParameterError("accept and refuse are both given: choose one of them")
        if accept or refuse:
            asked = {"plan": accept or refuse, "accept": bool(accept)}
            found = _control(folder, CONSENT, asked)
            typer.echo(f"{'accepted' if found['accepted'] else 'refused'}: {found['plan']}")
            return
        pending = _control(folder, STATUS, {})["pending"]
        for words in pending.values():
            stdout().print(words, markup=False)
        if not pending:
            typer.echo("no plan waits for consent")


@party_app.command()
def abort(folder: Folder, debug: options.Debug = False) -> None:
    """End the session that is going on: the key share is erased and the run cannot finish."""
    with refusals(debug):
        from parties.agent.frames import GIVE_UP

        ended = _control(folder, GIVE_UP, {})["ended"]
        typer.echo(f"session {ended} is over" if ended else "there was no session")


@party_app.command()
def statement(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="File to write, for cohort audit transcript.")],
    session: Annotated[str | None, typer.Option(help="Default: the latest.")] = None,
    debug: options.Debug = False,
) -> None:
    """Sign what this party was asked in a session that is over, as a digest: no data, no key."""
    with refusals(debug) as console:
        from parties.agent.frames import STATEMENT

        found = _control(folder, STATEMENT, {"session": session})
        out.write_bytes(bytes.fromhex(found["statement"]))
        say(console, f"{out}: whoever audits the run gives it to cohort audit transcript")


# -- peers ---------------------------------------------------------------------------------------


@peers_app.command(epilog="Example:  cohort party peers add hospital-a card-b.json card-c.json")
def add(
    folder: Folder,
    cards: Annotated[list[Path], typer.Argument(help="card.json of one party or more.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where another key is known by the name.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Know parties by their cards; compare each key with its owner by telephone."""
    with refusals(debug) as console:
        from parties.agent.settings import CARD, Settings

        settings, own = Settings.load(folder), Card.load(folder / CARD)
        found = [Card.load(path) for path in cards]
        for card in found:
            if card.identity != own.identity and card.name == settings.name:
                raise ParameterError(
                    f"{card.name!r} is this party's own name: ask for another card"
                )
        for card in found:
            if card.identity == own.identity:
                say(console, f"{card.name}: your own card, left out")
                continue
            Settings.load(folder).know(card.name, card.identity, replace=replace)
            say(console, f"{card.name}: {spoken(card.identity)}")
        say(console, "compare each key with its owner by telephone before you consent to a plan")


@peers_app.command("list")
def show(folder: Folder, debug: options.Debug = False) -> None:
    """Show every known party with its key, to compare by telephone; your own one first."""
    with refusals(debug):
        from parties.agent.settings import CARD, Settings

        settings, own = Settings.load(folder), Card.load(folder / CARD)
        typer.echo(f"{own.name} (you): {spoken(own.identity)}")
        for name, key in settings.peers.items():
            typer.echo(f"{name}: {spoken(key)}")
        if not settings.peers:
            typer.echo("no other party is known: every plan is refused; see cohort party peers add")


@peers_app.command()
def remove(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="As cohort party peers list shows it.")],
    debug: options.Debug = False,
) -> None:
    """Know a party no longer: plans with it are refused."""
    with refusals(debug) as console:
        from parties.agent.settings import Settings

        Settings.load(folder).forget(name)
        say(console, f"{name} is known no longer")


# -- parts ---------------------------------------------------------------------------------------


def _agent(settings: Any, passphrase: str) -> Any:
    from contextlib import contextmanager

    from parties.agent.server import AgentServer
    from parties.agent.settings import build_agent

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold the key share
    server = AgentServer(
        build_agent(settings, passphrase),
        Path(settings.socket),
        settings.relay_uid,
    )

    @contextmanager
    def serving() -> Any:
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.stop()
            thread.join(10)

    return serving()


def _node(settings: Any) -> Any:
    from sims import flower_commands
    from sims.supervise import Program, supervised

    return supervised(
        Program(
            name="SuperNode",
            command=flower_commands.supernode(settings),
            environment=flower_commands.environment(settings.folder),
            log_path=settings.folder / "logs" / "supernode.log",
        )
    )


def _control(folder: Path, kind: bytes, request: dict[str, Any]) -> dict[str, Any]:
    from parties.agent.frames import AgentClient
    from parties.agent.settings import Settings

    return AgentClient(Path(Settings.load(folder).socket), patience=2.0).control(kind, request)


def _new_passphrase(path: Path | None, keyring: bool) -> tuple[str, str]:
    """(entry of the keyring or nothing, passphrase)."""
    if not keyring:
        return "", _passphrase(path, confirm=True)
    if path is not None:
        raise ParameterError("--keyring makes a passphrase of its own: leave --passphrase-file out")
    from parties.agent.vault import new_entry

    return new_entry()


def _passphrase(path: Path | None, entry: str = "", confirm: bool = False) -> str:
    if path is None and entry:
        from parties.agent.vault import read_entry

        return read_entry(entry)
    if path is None and "CREDENTIALS_DIRECTORY" in os.environ:
        path = Path(os.environ["CREDENTIALS_DIRECTORY"]) / CREDENTIAL
    if path is not None:
        if path.stat().st_mode & 0o077:
            log.warning("other users can read the passphrase: chmod 600 %s", path)
        return path.read_text(encoding="utf-8").rstrip("\n")
    found: str = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True)
    return found


def _asked(given: Number | None, question: str, default: Number) -> Number:
    """What an option says, else what a person at a terminal answers, else the default."""
    if given is not None:
        return given
    found: Number = typer.prompt(question, default=default, err=True) if is_terminal() else default
    return found


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty()
