"""`cohort coordinator …`: what the coordinating centre's administrator runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ciphercohort.cli import options
from ciphercohort.cli.brief import Commands
from ciphercohort.cli.console import FAILED, refusals, say, say_marks, stdout
from ciphercohort.cli.evaluate import Colluders, Delta, Epsilon, HoweverNoisy, Threshold
from ciphercohort.job.config import DEFAULT_DELTA, DEPLOY
from ciphercohort.results.exact_sums import marks
from coordinator.errors import AbortedError
from coordinator.settings import SESSIONS
from protocols.errors import ParameterError
from protocols.exchange.validity import day, until
from protocols.names import spoken
from protocols.words import promise as promised

if TYPE_CHECKING:
    from ciphercohort.deploy.coordinator import Coordinator
else:
    Coordinator = Any  # read where options are made

coordinator_app = Commands(
    no_args_is_help=True, help="The coordinating centre of a run across machines: SuperLink, runs."
)
AGAIN = (
    "session {session} is over. When what ended it is mended, give the same command again, without "
    "--session"
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The coordinator's folder.")]
Session = Annotated[str | None, typer.Option(help="Go on with this one.")]
Model = Annotated[
    Path | None,
    typer.Option(help="model.json with the schema of this folder. Default: --session's."),
]


@coordinator_app.command(
    epilog="Example:  cohort coordinator init centre --schema schema.json --public centre.org:9092"
)
@options.takes(*DEPLOY)
def init(
    folder: Folder,
    schema: Annotated[Path, typer.Option(help="Public column schema (cohort schema init).")],
    public: Annotated[
        str | None, typer.Option(help="HOST:PORT that the parties dial. Default: as --fleet.")
    ] = None,
    fleet: Annotated[str, typer.Option(help="HOST:PORT bound for them.")] = "127.0.0.1:9092",
    control: Annotated[str, typer.Option(help="Bound for this command.")] = "127.0.0.1:9093",
    serverappio: Annotated[str, typer.Option(help="Bound for own processes.")] = "127.0.0.1:9091",
    no_privacy: options.NoPrivacy = False,
    step_seconds: Annotated[float, typer.Option(help="Longest wait for one step.")] = 3600.0,
    session_seconds: Annotated[float, typer.Option(help="Longest run.")] = 86400.0,
    relay: Annotated[
        bool,
        typer.Option(
            "--relay/--no-relay", help="Send owners with --replica what they check requests by."
        ),
    ] = True,
    debug: options.Debug = False,
    **given: Any,
) -> None:
    """Make identity, certificates and configuration; FOLDER/invitation.json goes to the parties."""
    with refusals(debug) as console:
        say(console, f"making identity and certificates in {folder}: some seconds")
        from ciphercohort.deploy.coordinator import Coordinator

        centre = Coordinator.init(
            folder,
            schema=schema,
            public=public,
            fleet=fleet,
            control=control,
            serverappio=serverappio,
            step_seconds=step_seconds,
            session_seconds=session_seconds,
            relay=relay,
            no_privacy=no_privacy,
            **given,
        )
        say_marks(console, insecure=centre.insecure)
        say(console, f"send {centre.invitation} to every party's administrator")
        say(console, f"the coordinator's key, to compare by telephone: {centre.key}")


@coordinator_app.command()
def admit(
    folder: Folder,
    cards: Annotated[list[Path], typer.Argument(help="card.json of one party or more.")],
    debug: options.Debug = False,
) -> None:
    """Take parties in; `run` makes their nodes known to the SuperLink."""
    with _centre(folder, debug) as (centre, tell):
        for path in cards:
            (card,) = centre.admit(path)
            tell(f"{card.name}: {card.rows:,} rows, key {spoken(card.identity)}")


@coordinator_app.command()
def renew(folder: Folder, debug: options.Debug = False) -> None:
    """Make new TLS certificates, for the same hosts, before the old ones expire."""
    with _centre(folder, debug) as (centre, tell):
        invitation = centre.renew()
        tell(f"certificates until {day(min(centre.certificates_until().values()))}")
        tell("stop cohort coordinator start, and start it again")
        tell(f"send {invitation} to every party's administrator, who runs cohort party renew")


@coordinator_app.command()
def start(folder: Folder, debug: options.Debug = False) -> None:
    """Run the SuperLink until stopped."""
    with _centre(folder, debug) as (centre, tell):
        from ciphercohort.deploy.supervise import until_stopped

        with centre.start():
            _toys(tell, centre.insecure)
            where = centre.settings
            tell(f"SuperLink: parties at {where.fleet}, commands at {where.control}")
            until_stopped()


@coordinator_app.command()
def run(
    folder: Folder,
    session: Session = None,
    superlink: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a SuperLink of somebody else, whose nodes have the rows."),
    ] = None,
    root_certificates: Annotated[
        Path | None, typer.Option(help="Of that SuperLink. Default: the system's.")
    ] = None,
    parties: Annotated[int, typer.Option(help="Sites to wait for there.")] = 3,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Train with every admitted party; start it again with --session if it was interrupted."""
    with _centre(folder, debug, as_json) as (centre, tell):
        from ciphercohort.job.layout import MODEL

        if superlink is not None:
            out = centre._run_on(superlink, root_certificates, parties, tell)
            _finished({"state": "finished"}, as_json, model=out / MODEL)
            return
        found = centre.run(session, tell)
        _toys(tell, found.insecure)
        if found.inference and not as_json:
            from ciphercohort.after.inference_table import ratio_of, text_table

            rows, about = found.inference["rows"], found.inference["about"]
            typer.echo(text_table(rows, about, ratio_of(about["model"])))
        _finished(found.status, as_json, model=found.folder / MODEL)


def of_sums(
    command: Callable[..., None], own: Sequence[Parameter] | None = None
) -> Callable[..., None]:
    """The command of sums that `f(centre, asked, as_json, …)` describes, with its own options.

    asked: what all of them are asked for, as the centre's function takes it; own: None: those that
    `f` names.
    """

    def run(
        folder: Folder,
        epsilon: Epsilon = None,
        delta: Delta = DEFAULT_DELTA,
        colluders: Colluders = 0,
        session: Annotated[
            str | None, typer.Option(help="Go on with this one, by what it began with.")
        ] = None,
        as_json: options.AsJson = False,
        debug: options.Debug = False,
        **own: Any,
    ) -> None:
        with _centre(folder, debug, as_json) as (centre, tell):
            promise = {"epsilon": epsilon, "delta": delta, "colluders": colluders}
            command(centre, {**promise, "session": session, "tell": tell}, as_json, **own)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    if own is None:
        own = [each for each in options.parameters(command) if each.kind is each.KEYWORD_ONLY]
    return coordinator_app.command()(options.with_parameters(run, own))


@of_sums
def evaluate(
    centre: Coordinator,
    asked: dict[str, Any],
    as_json: bool,
    *,
    model: Model = None,
    rows: Annotated[
        str,
        typer.Option(help="all, or held-out: those that parties held back from its training here."),
    ] = "all",
    parties: Annotated[
        list[str] | None, options.names(help="Only these (default: all, or all that trained it).")
    ] = None,
    threshold: Threshold = 0.5,
    sites: Annotated[
        list[str] | None, options.names(help="Parties that consent to a table of their own.")
    ] = None,
    however_noisy: HoweverNoisy = False,
) -> None:
    """Judge a model on rows of admitted parties, by one secure sum."""
    from ciphercohort.after.evaluation_words import lines
    from ciphercohort.job.layout import EVALUATION
    from coordinator.status import read_status

    found = centre.evaluate(
        model,
        rows=rows,
        parties=tuple(parties or ()),
        threshold=threshold,
        sites=tuple(sites or ()),
        however_noisy=however_noisy,
        **asked,
    )
    ended = centre.settings.session_folder(found.opened.plan.session)
    _finished(read_status(ended) or {}, as_json, evaluation=ended / EVALUATION)
    _toys(asked["tell"], found.model.insecure)
    for note in found.notes:
        asked["tell"](f"warning: {note}")
    for line in () if as_json else lines(found):
        say(stdout(), line)


@of_sums
def check(centre: Coordinator, asked: dict[str, Any], as_json: bool) -> None:
    """Count the empty cells of each column over every party's rows, by one secure sum."""
    from parties.reader.look import filled_words

    path, found = centre.check(**asked)
    if not as_json:
        least = found["suppressed"]["below"]
        words = filled_words(found["missing"], found["rows"], least) or "no cell is missing"
        say(stdout(), words)
    _finished({"state": "finished"}, as_json, missing=path)


@of_sums
def infer(
    centre: Coordinator,
    asked: dict[str, Any],
    as_json: bool,
    *,
    model: Model = None,
    however_noisy: HoweverNoisy = False,
) -> None:
    """Standard errors and intervals of a model, by a few secure sums over every party's rows.

    Each sum is a session, which every party consents to. --epsilon is of all of them together.
    """
    path, found = centre.infer(model, however_noisy=however_noisy, **asked)
    _toys(asked["tell"], found.insecure)
    if not as_json:
        stdout().print(found.text(marked=False), markup=False, highlight=False, soft_wrap=True)
        if whole := json.loads(path.read_text()).get("privacy_with_training"):
            say(
                stdout(),
                f"privacy with the training: {promised(colluders=asked['colluders'], **whole)}",
            )
    _finished({"state": "finished"}, as_json, inference=path)


def _toys(tell: Callable[[str], None], insecure: bool) -> None:
    for words in marks(insecure=insecure).values():
        tell(words)


def _finished(status: Mapping[str, Any], as_json: bool, **result: Path) -> None:
    """Say where the result of a run is."""
    ((name, path),) = result.items()
    typer.echo(json.dumps({**status, name: str(path)}) if as_json else f"finished: {path}")


@contextmanager
def _centre(
    folder: Path, debug: bool, as_json: bool = False
) -> Iterator[tuple[Coordinator, Callable[[str], None]]]:
    """The centre of a folder, and who is told of its progress.

    An aborted run is said on stdout as well as a finished one is; the exit code tells them apart.
    """
    with refusals(debug) as console:
        from ciphercohort.deploy.coordinator import Coordinator

        centre = Coordinator(folder)
        try:
            yield centre, lambda words: say(console, words)
        except AbortedError as error:
            (status,) = (each for each in centre.status() if each["session"] == error.session)
            typer.echo(json.dumps(status) if as_json else f"{status['state']}: {error}")
            say(console, AGAIN.format(session=error.session))
            raise typer.Exit(FAILED) from None


@coordinator_app.command(epilog="Example:  cohort coordinator abort centre")
def abort(
    folder: Folder,
    session: Annotated[
        str | None, typer.Option(help="This one. Default: the latest that is not over.")
    ] = None,
    debug: options.Debug = False,
) -> None:
    """End a session that goes on or was interrupted: its parties erase their key shares."""
    with _centre(folder, debug) as (centre, tell):
        typer.echo(f"session {centre.abort(session, tell)} is over")


@coordinator_app.command()
def status(
    folder: Folder,
    web: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve a page on 127.0.0.1 instead.")
    ] = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Show every run: progress, who is awaited since when, phases, bytes; no data."""
    with _centre(folder, debug) as (centre, tell):
        from ciphercohort.report.status_page import status_tables

        if web is not None:
            from ciphercohort.report.status_page import serve

            if not 0 <= web < 65536:
                raise ParameterError(f"web={web} is not a port")
            serve(centre.folder / SESSIONS, web, lambda url: tell(f"status at {url}"))
        elif as_json:
            typer.echo(json.dumps(centre.status()))
        else:
            for shown in status_tables(centre.status()):
                stdout().print(shown)
            from ciphercohort.deploy.coordinator import RENEW

            ends = centre.certificates_until().items()
            typer.echo(f"certificates: {', '.join(f'{n} {until(end, RENEW)}' for n, end in ends)}")
