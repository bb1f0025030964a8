"""`cohort party …`: what a data owner's administrator runs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer

from ciphercohort.cli import options
from ciphercohort.cli.brief import Commands
from ciphercohort.cli.console import refusals, say, stdout
from parties.launch import no_core_files
from protocols.errors import ParameterError
from protocols.exchange.validity import day, until
from protocols.names import DEFAULT_COLLUDERS
from protocols.words import count

party_app = Commands(
    no_args_is_help=True, help="One data owner of a run across machines: agent, relay, consent."
)
peers_app = Commands(
    no_args_is_help=True, help="The other parties that this owner knows; a plan has no others."
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The party's folder.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the passphrase, 12 characters or more. Default: systemd's credential, or a "
        "question."
    ),
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
        typer.Option(
            help="Other owners who may pool with the coordinator. "
            f"Default: asked, or {DEFAULT_COLLUDERS}."
        ),
    ] = None,
    accept_no_privacy: Annotated[
        bool,
        typer.Option(
            "--accept-no-privacy",
            help="Set no limit to epsilon; runs without noise need --exact-sums as well.",
        ),
    ] = False,
    protocol: Annotated[
        list[str] | None,
        options.names(
            help="That this party takes part in (default: all; what others need is never loaded "
            "beside rows and keys): encrypted-rows, encrypted-model, secure-aggregation "
            "(evaluation, whitening and standard errors need it too), cover, gram (linear models "
            "on encrypted rows)"
        ),
    ] = None,
    exact_sums: Annotated[
        bool,
        typer.Option(
            "--exact-sums",
            help="With --accept-no-privacy: accept runs without noise (exact sums, standard errors "
            "and evaluations, counts of empty cells; models, which come down to one exact sum if "
            "the coordinator chooses rounds and rate so). Whoever sees what opens, an honest "
            "coordinator or any one owner, can read whole records, such as that of a row with a "
            "category of its own.",
        ),
    ] = False,
    allow_insecure: Annotated[
        bool, typer.Option("--allow-insecure", help="Accept toy rings: for tests only.")
    ] = False,
    site_tables: Annotated[
        bool,
        typer.Option(
            "--site-tables",
            help="Accept sums that can tell of these rows alone: tables and errors "
            "by site, site intercepts.",
        ),
    ] = False,
    replica: Annotated[
        list[str] | None,
        options.names(
            help="Answer only what follows from everybody's replies, so that a coordinator that "
            "deviates gets nothing. own: this party computes it, too, and everybody's replies "
            "come here; names of owners who do, more than --min-colluders: what all of these "
            "confirm; none (default): the coordinator's word. cohort plan says what own takes"
        ),
    ] = None,
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
        typer.Option(help="For all runs on the data. Default: asked, or 3 x --max-epsilon."),
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
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse values outside the schema; do not clamp.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    keyring: Annotated[
        bool, typer.Option("--keyring", help="A random passphrase, in the system's keyring.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Make identity, node key and configuration; FOLDER/card.json goes to the coordinator."""
    with refusals(debug) as console:
        from ciphercohort.deploy.party import Party
        from parties.agent.setup import SEVERAL

        largest = None if accept_no_privacy else max_epsilon
        min_colluders = _asked(min_colluders, _COLLUDERS, DEFAULT_COLLUDERS)
        if largest is not None and not no_ledger:
            budget_epsilon = _asked(budget_epsilon, _EPSILON, SEVERAL * largest)
            budget_delta = _asked(budget_delta, _DELTA, max_delta)
        passphrase = None
        if passphrase_file is not None or not keyring:
            passphrase = _passphrase(passphrase_file, confirm=True)
        say(console, f"making keys in {folder}, and reading {data}: some seconds")
        party = Party.init(
            folder,
            invitation=invitation,
            data=data,
            passphrase=passphrase,
            keyring=keyring,
            name=name,
            consent=cast(Any, consent),
            max_epsilon=largest,
            max_delta=max_delta,
            min_colluders=min_colluders,
            protocols=protocol,
            exact_sums=exact_sums,
            allow_insecure=allow_insecure,
            accept_unbounded=accept_unbounded,
            site_tables=site_tables,
            replica=replica or "none",
            budget_epsilon=budget_epsilon,
            budget_delta=budget_delta,
            keep_ledger=not no_ledger,
            address=address,
            socket=socket,
            relay_uid=relay_uid,
            keep_key_share=keep_key_share,
            insecure_noise_seed=insecure_noise_seed,
            strict=strict,
        )
        say(console, f"{folder / 'party.toml'}: look through it, it says what you consent to")
        say(console, f"send {folder / 'card.json'} to the coordinator's administrator")
        say(console, "and to every other party, who runs cohort party peers add")
        say(console, f"your key, to compare by telephone: {party.key}")
        say(console, f"the coordinator's key, to compare as well: {party.coordinator_key}")


@party_app.command(
    epilog="Example:  cohort party encode rows.csv --schema schema.json --out rows.npy"
)
def encode(
    table: Annotated[Path, typer.Argument(help="Rows: .csv, .parquet, …, or .toml: a query.")],
    schema: Annotated[Path, typer.Option(help="The study's schema.json.")],
    out: Annotated[Path, typer.Option(help="NumPy file to write; must not exist.")],
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse values outside the schema.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Write what the rows of a table would contribute, row by row, for their owner to look at.

    Private, as the table is: nobody else needs it, and no run reads it.
    """
    with refusals(debug) as console:
        from ciphercohort.deploy.party import encode_table

        names = encode_table(table, schema, out, strict=strict)
        say(console, f"{out} is PRIVATE, one row for each of the table's: keep it here", "yellow")
        say(console, f"columns: {', '.join(f'{k} {name}' for k, name in enumerate(names))}")


@party_app.command()
def start(
    folder: Folder,
    only: Annotated[
        str | None, typer.Option(help="agent or node, where each runs as a user of its own.")
    ] = None,
    passphrase_file: PassphraseFile = None,
    debug: options.Debug = False,
) -> None:
    """Run agent and SuperNode until stopped; both go on after a restart.

    It ends with code 2 where the agent dies by itself: only its owner has the passphrase.
    """
    with refusals(debug) as console:
        from ciphercohort.deploy.party import Party
        from ciphercohort.deploy.supervise import until_stopped

        party = Party(folder)
        settings = party.settings
        logging.getLogger("parties").setLevel(logging.INFO)
        passphrase = None
        if only != "node":
            passphrase = _passphrase(passphrase_file, has_entry=bool(settings.keyring))
        with party.start(passphrase, only=cast(Any, only)):
            del passphrase
            if only != "node":
                say(console, f"agent of {settings.name}: {settings.socket}")
            if only != "agent":
                say(console, f"SuperNode of {settings.name}: to {settings.superlink}")
            if until_stopped(party.ended):
                raise typer.Exit(2)


@party_app.command(epilog="Example:  cohort party renew hospital-a --invitation invitation.json")
def renew(
    folder: Folder,
    invitation: Annotated[Path, typer.Option(help="The new one, of the same coordinator.")],
    debug: options.Debug = False,
) -> None:
    """Take the centre's new TLS certificates, before the old ones expire."""
    with refusals(debug) as console:
        from ciphercohort.deploy.party import Party

        end = Party(folder).renew(invitation)
        say(console, f"the centre's certificates until {day(end)}: start this party again")


@party_app.command(epilog="Example:  cohort party trusted --protocol encrypted-rows")
def trusted(
    protocol: Annotated[
        list[str] | None,
        options.names("--protocol", help="List what an owner reads who takes part in these alone"),
    ] = None,
    live: Annotated[
        Path | None,
        typer.Option(help="Folder of an agent that runs: hold its process to the list."),
    ] = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Show what an owner has to trust: files with secrets, and what stands beside them."""
    with refusals(debug):
        import json

        import sims
        from ciphercohort.cli.trusted import Trusted
        from parties.policy import BESIDE, check_protocols

        found = Trusted.of(Path(sims.__file__).parents[1])
        if protocol:
            check_protocols(protocol)
        kernel = found.of_protocols(protocol) if protocol else found.kernel
        loaded = [] if live is None else _loaded(live)
        beyond = found.beyond(loaded, kernel)
        if as_json:
            told = {"loaded": loaded, "beyond": beyond} if live is not None else {}
            typer.echo(json.dumps(found.to_dict() | told, indent=2))
            raise typer.Exit(bool(beyond))
        for name in kernel:
            typer.echo(f"{found.lines[name]:6}  {name}")
        if protocol:
            size = f"{found.total(kernel):6}  lines in {len(kernel)} modules"
            typer.echo(f"{size}: what {', '.join(protocol)} need together")
        for each, names in found.protocols.items():
            what = f"{each} {BESIDE.get(each, 'needs')}"
            typer.echo(f"{found.total(names):6}  lines in {len(names)} modules: {what}")
        typer.echo(
            f"{found.total(found.kernel):6}  lines: the whole kernel, secrets and all that they "
            "load of this project, beside Python, " + ", ".join(found.libraries)
        )
        for what, names in (
            ("reader: cells become rows", found.reader),
            ("the rest of that process: store, ledger, settings", found.agent),
            ("the verifier, a process without rows and keys", found.verifier),
        ):
            typer.echo(f"{found.total(names):6}  lines in {len(names)} modules: {what}")
        typer.echo(
            "of the kernel, the process with rows and keys loads what the protocols need that its "
            "owner named (protocols in [policy] of party.toml; --protocol lists it); reader and "
            "rest it may load. The last, where plans, certificates and messages are read, drives "
            "it; what it can do is sign as this party, stop it, spend what the account allows, and "
            "what the kernel's README says that it does not check"
        )
        if live is not None:
            typer.echo(
                f"{len(loaded):6}  modules are loaded now by the agent of {live}; of these on no "
                "list: "
            )
            typer.echo("        " + (", ".join(beyond) or "none"))
            raise typer.Exit(bool(beyond))


def _loaded(folder: Path) -> list[str]:
    """Of this project, by the process that holds an owner's rows and keys."""
    from ciphercohort.deploy.party import Party

    found: list[str] = Party(folder).status()["modules"]
    return found


@party_app.command()
def status(folder: Folder, as_json: options.AsJson = False, debug: options.Debug = False) -> None:
    """Show the session that goes on, plans that wait for consent, budget, certificate."""
    with refusals(debug):
        import json

        from ciphercohort.deploy.party import RENEWED, Party

        party = Party(folder)
        end = party.certificate_until()
        if as_json:
            typer.echo(json.dumps({**party.status(), "certificate_until": end.isoformat()}))
            return
        typer.echo(f"the centre's certificate authority: {until(end, RENEWED)}")
        found = party.status()
        words = (
            f"session {found['session']}, answered {found['step'] or 'nothing'}; nothing was asked "
            f"for {found['silent_seconds']:.0f} s"
        )
        typer.echo(f"{found['party']}: {words if found['session'] else 'no session'}")
        _say_last(found, party.said())
        if node := party.node():
            typer.echo(node)
        # A code stands beside the words that it accepts, and nowhere else.
        show = f"; to see them: cohort party consent {folder}" if found["pending"] else ""
        typer.echo(f"plans that wait for consent: {len(found['pending'])}{show}")
        budget = found.get("budget")
        if budget:
            typer.echo(
                f"budget: epsilon={budget['before']:.4g} of {budget['epsilon']:g} spent, at delta="
                f"{budget['delta']:g}, in {count(budget['sessions'], 'session')}"
            )


def _say_last(status: Mapping[str, Any], log: Sequence[str]) -> None:
    """How the session before ended, where none goes on; log: what its agent said of it."""
    from parties.policy import End

    last = status["last"]
    if last and not status["session"]:
        typer.echo(f"session {last['session']} is over: {last['reason']}")
        if last["reason"] != End.FINISHED.value:
            for line in log:
                typer.echo(f"  {line}")


@party_app.command(
    epilog="Examples:  cohort party consent FOLDER\n\ncohort party consent FOLDER --accept 3f2a91c0"
)
def consent(
    folder: Folder,
    accept: Annotated[str | None, typer.Option(help="Code of a plan that waits.")] = None,
    refuse: Annotated[str | None, typer.Option(help="Code of a plan that waits.")] = None,
    debug: options.Debug = False,
) -> None:
    """Show the plans that wait, in words; accept or refuse one."""
    with refusals(debug):
        from ciphercohort.deploy.party import Party

        if accept and refuse:
            raise ParameterError("accept and refuse are both given: choose one of them")
        party = Party(folder)
        if accept:
            typer.echo(f"accepted: plan {party.accept(accept)}")
            return
        if refuse:
            typer.echo(f"refused: plan {party.refuse(refuse)}")
            return
        found = party.status()
        for code, words in found["pending"].items():
            stdout().print(words, markup=False)
            typer.echo(f"to accept: cohort party consent {folder} --accept {code}")
        if not found["pending"]:
            typer.echo("no plan waits for consent")
            _say_last(found, party.said())


@party_app.command(epilog="Example:  cohort party results hospital-a")
def results(folder: Folder, debug: options.Debug = False) -> None:
    """Write model, plan, certificate and report of every training that finished here."""
    with refusals(debug):
        from ciphercohort.deploy.party import Party

        party = Party(folder)
        found, sums = party.results(), party.sums()
        for each in found:
            typer.echo(f"{each}  {party.purpose(each)}")
        if not found:
            typer.echo("no training has finished here")
        series = dict[str, list[Path]]()
        for each in sums:
            series.setdefault(party.series(each), []).append(each)
        for first, *others in series.values():
            more = f"; {count(len(others) + 1, 'sum')}, the last is {others[-1]}" if others else ""
            begun = party.purpose(first)  # and the study that it began
            later = dict.fromkeys(party.purpose(each) for each in others)
            purposes = [begun, *(each for each in later if not begun.endswith(each))]
            epsilon = party.spent(first)
            spent = "" if epsilon is None else f"; epsilon={epsilon:g} for all of it"
            typer.echo(f"{first}  {'; '.join(purposes)}{more}{spent}")
        if sums:
            typer.echo(
                "Of sums the centre has the documents, also where it got no figure of them: what "
                "they cost stays spent. What you were told of each: cohort verify "
                f"{sums[-1]}"
            )


@party_app.command()
def abort(folder: Folder, debug: options.Debug = False) -> None:
    """End the session that is going on: the key share is erased and the run cannot finish."""
    with refusals(debug):
        from ciphercohort.deploy.party import Party

        ended = Party(folder).abort()
        typer.echo(f"session {ended} is over" if ended else "there was no session")


@party_app.command()
def statement(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="File to write, for cohort verify.")],
    session: Annotated[str | None, typer.Option(help="Default: the latest.")] = None,
    debug: options.Debug = False,
) -> None:
    """Sign what this party was asked in a session that is over, as a digest: no data, no key."""
    with refusals(debug) as console:
        from ciphercohort.deploy.party import Party

        Party(folder).statement(out, session)
        say(console, f"{out}: whoever verifies the run gives it to cohort verify")


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
        from ciphercohort.deploy.party import Party

        for name, key in Party(folder).know(*cards, replace=replace).items():
            say(console, f"{name}: {key}")
        say(console, "compare each key with its owner by telephone before you consent to a plan")


@peers_app.command("list")
def show(folder: Folder, debug: options.Debug = False) -> None:
    """Show every known party with its key, to compare by telephone; your own one first."""
    with refusals(debug):
        from ciphercohort.deploy.party import Party

        party = Party(folder)
        typer.echo(f"{party.name} (you): {party.key}")
        for name, key in party.peers.items():
            typer.echo(f"{name}: {key}")
        typer.echo(f"the coordinator: {party.coordinator_key}")
        if not party.peers:
            typer.echo("no other party is known: every plan is refused; see cohort party peers add")


@peers_app.command()
def remove(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="As cohort party peers list shows it.")],
    debug: options.Debug = False,
) -> None:
    """Know a party no longer: plans with it are refused."""
    with refusals(debug) as console:
        from ciphercohort.deploy.party import Party

        Party(folder).forget(name)
        say(console, f"{name} is known no longer")


# -- questions -----------------------------------------------------------------------------------


def _passphrase(path: Path | None, *, has_entry: bool = False, confirm: bool = False) -> str | None:
    """Of a file, of systemd, or of a person; None where the keyring has it."""
    no_core_files()
    if path is None and has_entry:
        return None
    if path is None and "CREDENTIALS_DIRECTORY" in os.environ:
        path = Path(os.environ["CREDENTIALS_DIRECTORY"]) / CREDENTIAL
    if path is not None:
        if not path.exists():  # it may be a pipe
            cure = "" if confirm else "; it has to hold what cohort party init was given"
            raise ParameterError(f"passphrase-file={str(path)!r}: there is no such file{cure}")
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
