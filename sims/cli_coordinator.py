"""`cohort coordinator …`: what the coordinating centre's administrator runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from protocols.errors import ParameterError
from protocols.names import DEFAULT_COLLUDERS
from sims import cli_options as options
from sims.api import privacy_fields
from sims.cli_evaluate import Colluders, Delta, Epsilon, Threshold
from sims.config import (
    DEFAULT_DELTA,
    EncryptionOptions,
    PrivacyOptions,
    SimulationConfig,
    TrainingOptions,
    option_name,
    options_of,
)
from sims.console import FAILED, refusals, say, stdout

coordinator_app = typer.Typer(
    no_args_is_help=True, help="The coordinating centre of a run across machines: SuperLink, runs."
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The coordinator's folder.")]


PLANNED = options_of(
    *(TrainingOptions, PrivacyOptions, EncryptionOptions),
    without=("weights", "loss", "seed", "colluders", "ledger"),
)
"""Options that settle the plan."""


@coordinator_app.command(
    epilog="Example:  cohort coordinator init centre --schema schema.json --public centre.org:9092"
)
@options.takes(*PLANNED)
def init(
    folder: Folder,
    schema: Annotated[Path, typer.Option(help="Public column schema (cohort schema init).")],
    public: Annotated[
        str | None, typer.Option(help="HOST:PORT that the parties dial. Default: as --fleet.")
    ] = None,
    fleet: Annotated[str, typer.Option(help="HOST:PORT bound for them.")] = "127.0.0.1:9092",
    control: Annotated[str, typer.Option(help="Bound for this command.")] = "127.0.0.1:9093",
    serverappio: Annotated[str, typer.Option(help="Bound for own processes.")] = "127.0.0.1:9091",
    colluders: Annotated[
        int | None,
        typer.Option(help=f"Parties that may pool with you. Default: {DEFAULT_COLLUDERS}."),
    ] = None,
    no_privacy: options.NoPrivacy = False,
    step_seconds: Annotated[float, typer.Option(help="Longest wait for one step.")] = 3600.0,
    session_seconds: Annotated[float, typer.Option(help="Longest run.")] = 86400.0,
    debug: options.Debug = False,
    **given: Any,
) -> None:
    """Make identity, certificates and configuration; FOLDER/invitation.json goes to the parties."""
    with refusals(debug) as console:
        from coordinator.setup import init_coordinator
        from parties.data.schema import Schema

        promise = {name: given[name] for name in ("epsilon", "delta")}
        training = {each.name: given[option_name(each)] for each in PLANNED}
        training = {name: value for name, value in training.items() if value not in (None, "")}
        training |= privacy_fields(no_privacy, colluders=colluders, **promise)
        if colluders is None and not no_privacy:
            training["colluders"] = DEFAULT_COLLUDERS
        # Refused here, and not by the first run; the owners are not known yet.
        chosen = SimulationConfig(**training, parties=None, split="by:owner")
        training |= {"protocol": chosen.protocol}
        training |= {"update": chosen.update} if chosen.update else {}
        path = init_coordinator(
            folder,
            Schema.load(schema).to_dict(),
            {
                "fleet": fleet,
                "control": control,
                "serverappio": serverappio,
                "public": public or fleet,
            },
            training,
            {"step_seconds": step_seconds, "session_seconds": session_seconds},
        )
        key = json.loads(path.read_text(encoding="utf-8"))["coordinator_key"]
        say(console, f"send {path} to every party's administrator")
        say(console, f"the coordinator's key, to compare by telephone: {key}")


@coordinator_app.command()
def admit(
    folder: Folder,
    cards: Annotated[list[Path], typer.Argument(help="card.json of one party or more.")],
    debug: options.Debug = False,
) -> None:
    """Take parties in; `run` makes their nodes known to the SuperLink."""
    with refusals(debug) as console:
        from coordinator.settings import Settings
        from coordinator.setup import admit as take_in

        settings = Settings.load(folder)
        for path in cards:
            card = take_in(settings, path)
            say(console, f"{card.name}: {card.rows:,} rows, key {card.identity}")


@coordinator_app.command()
def start(folder: Folder, debug: options.Debug = False) -> None:
    """Run the SuperLink until stopped."""
    with refusals(debug) as console:
        from coordinator.settings import Settings
        from sims import flower_commands
        from sims.drive import register_quietly
        from sims.supervise import Program, supervised, until_stopped

        settings = Settings.load(folder)
        flower_commands.write_connection(settings)
        program = Program(
            name="SuperLink",
            command=flower_commands.superlink(settings),
            environment=flower_commands.environment(settings.folder),
            log_path=settings.folder / "logs" / "superlink.log",
        )
        with supervised(program):
            say(console, f"SuperLink: parties at {settings.fleet}, commands at {settings.control}")
            until_stopped(lambda: register_quietly(settings))


@coordinator_app.command()
def run(
    folder: Folder,
    session: Annotated[str | None, typer.Option(help="Go on with this one.")] = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Train with every admitted party; start it again with --session if it was interrupted."""
    with refusals(debug) as console:
        from coordinator.deployment import create_session
        from coordinator.settings import Settings
        from protocols.serialise import to_plain
        from sims.deployed import following, is_first, plan_template, write_model
        from sims.drive import drive

        settings = Settings.load(folder)

        def begin(before: str | None = None) -> str:
            plan, wanted = plan_template(settings, before)
            return create_session(settings, plan, to_plain(wanted), before)

        name = session or begin()
        say(console, f"session {name}")
        status = drive(settings, name, lambda words: say(console, words))
        if status["state"] == "finished" and is_first(settings, name):
            name = following(settings, name) or begin(name)
            say(console, f"the second moment is summed; session {name} trains on whitened rows")
            status = drive(settings, name, lambda words: say(console, words))
        if status["state"] == "finished":
            status["model"] = str(write_model(settings, name))
        _end(status, "model", as_json)


@coordinator_app.command()
def evaluate(
    folder: Folder,
    model: Annotated[Path, typer.Option(help="model.json with the schema of this folder.")],
    epsilon: Epsilon = None,
    delta: Delta = DEFAULT_DELTA,
    colluders: Colluders = 0,
    threshold: Threshold = 0.5,
    sites: Annotated[
        str, typer.Option(help="Parties that consent to a table of their own: a,b.")
    ] = "",
    session: Annotated[str | None, typer.Option(help="Go on with this one.")] = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Judge a model on the rows of every admitted party, by one secure sum."""
    with refusals(debug) as console:
        from coordinator.deployment import create_session
        from coordinator.settings import Settings
        from sims.deployed_evaluation import evaluation_plan, write_evaluation
        from sims.drive import drive
        from sims.predict import load_model

        settings, known = Settings.load(folder), load_model(model)
        name = session or create_session(
            settings,
            evaluation_plan(
                settings,
                known,
                epsilon=epsilon,
                delta=delta,
                colluders=colluders,
                threshold=threshold,
                sites=tuple(filter(None, sites.split(","))),
            ),
        )
        say(console, f"session {name}")
        status = drive(settings, name, lambda words: say(console, words))
        if status["state"] == "finished":
            status["evaluation"] = str(write_evaluation(settings, name, known))
        _end(status, "evaluation", as_json)


def _end(status: dict[str, Any], result: str, as_json: bool) -> None:
    """Say how a run ended, and where its result is; result: the field that says it."""
    if as_json:
        typer.echo(json.dumps(status))
    else:
        typer.echo(f"{status['state']}: {status.get(result) or status['reason']}")
    if status["state"] != "finished":
        raise typer.Exit(FAILED)


@coordinator_app.command()
def status(
    folder: Folder,
    web: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve a page on 127.0.0.1 instead.")
    ] = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Show every run: progress, parties, phases, bytes; no data."""
    with refusals(debug) as console:
        from coordinator.settings import SESSIONS, Settings
        from coordinator.status import sessions
        from sims.status_page import status_tables

        path = Settings.load(folder).folder / SESSIONS
        if web is not None:
            from sims.status_page import serve

            if not 0 <= web < 65536:
                raise ParameterError(f"web={web} is not a port")
            serve(path, web, lambda url: say(console, f"status at {url}"))
        elif as_json:
            typer.echo(json.dumps(sessions(path)))
        else:
            for table in status_tables(sessions(path)):
                stdout().print(table)
