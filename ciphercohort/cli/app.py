"""The command `cohort`.

Libraries that take long to load are imported inside the commands, so that help is instant.
"""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from ciphercohort.cli import options
from ciphercohort.cli.audit import audit_app
from ciphercohort.cli.brief import Commands
from ciphercohort.cli.console import refusals, say, say_marks, tell
from ciphercohort.cli.coordinator import coordinator_app
from ciphercohort.cli.evaluate import EXAMPLES as EVALUATE_EXAMPLES
from ciphercohort.cli.evaluate import evaluate
from ciphercohort.cli.party import party_app
from ciphercohort.cli.plan import EXAMPLES as PLAN_EXAMPLES
from ciphercohort.cli.plan import plan
from ciphercohort.cli.run import announce, progress, show
from ciphercohort.cli.schema import schema_app
from ciphercohort.job.config import SIMULATE, configured

EXAMPLES = """Examples:

cohort simulate --out runs/demo

cohort simulate --data patients.csv --label died --split by:hospital --out runs/died

cohort simulate --data a.csv --label y --parties 5 --update gd --no-privacy --json

cohort simulate --data b.csv --model linear --target Y1,Y2 --no-privacy --out runs/b"""

app = Commands(
    name="cohort",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 fine, 1 a check of verify failed or a run was aborted, 2 refused (the "
    "message says why), 130 interrupted.",
)
app.add_typer(schema_app, name="schema")
app.add_typer(coordinator_app, name="coordinator")
app.add_typer(party_app, name="party")
app.command(epilog=PLAN_EXAMPLES)(plan)
app.command(epilog=EVALUATE_EXAMPLES)(evaluate)

ROOMS = (
    # Papers, studies, attacks.
    "sims.lab.commands",
    # Descriptions and survival of the rows of several owners.
    "ciphercohort.study.commands",
)
"""Each with a function `register`, where it is installed."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ciphercohort {metadata.version('ciphercohort')}")
        raise typer.Exit


@app.callback()
def cohort(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Train a model on the rows of several owners, encrypted, and see nothing but the model."""


@app.command(epilog=EXAMPLES)
@options.takes(*SIMULATE)
def simulate(
    no_privacy: options.NoPrivacy = False,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
    **given: Any,
) -> None:
    """Train one model on the rows of several parties, all simulated on this machine.

    The jointly decrypted model is compared with plaintext training and with the optimum without
    privacy. Without --data it uses a data set that scikit-learn ships.
    """
    with refusals(debug) as console:
        config = configured(no_privacy=no_privacy, **given)
        announce(console, config, chosen=given["epsilon"] is not None)
        with progress(console, config) as reporter:
            from sims.simulation import simulate as run

            result = run(config, reporter)
        show(console, config, result, as_json, reporter)


@app.command(epilog="Example:  cohort predict --model runs/demo --data new.csv --out scored.csv")
def predict(
    model: Annotated[Path, typer.Option(help="Run folder, its release alone, or a model.json.")],
    data: Annotated[Path, typer.Option(help="Table (.csv, .parquet, …) with the model's columns.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write. Default: stdout.")] = None,
    debug: options.Debug = False,
) -> None:
    """Predict every row: probabilities of the label's values and the likeliest, or every target.

    If the label or the targets are there, the scores are shown on stderr.
    """
    with refusals(debug) as console:
        from ciphercohort.job.inputs import INFERRED, READ_FROM_ROWS
        from ciphercohort.results.predict import load_model, score_table
        from parties.reader.table import read_table
        from protocols.errors import DataError

        known = load_model(model)
        say_marks(console, insecure=known.insecure)
        if known.schema_from == INFERRED:
            say(console, READ_FROM_ROWS, "yellow")
        frame = read_table(data, label=known.schema.label.name)
        table = known.predict(frame)
        table.to_csv(sys.stdout if out is None else out, index=False)
        try:
            scores = score_table(known, frame)
        except DataError as error:
            say(console, f"not scored: {error}", "yellow")
            return
        if scores:
            say(console, f"{known.words(scores)}, {len(table):,} rows")


VERIFY_EXAMPLE = """Example:

cohort simulate --iterations 3 --out runs/demo --keep-messages

cohort verify runs/demo"""


@app.command(epilog=VERIFY_EXAMPLE)
def verify(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RUNDIR", help="A run folder, its release, or a session's folder."),
    ],
    data: Annotated[
        Path | None, typer.Option(help="The run's test rows, to compute the scores again.")
    ] = None,
    statement: Annotated[
        list[Path] | None,
        typer.Option(help="Of a party whose last replies were lost (cohort party statement)."),
    ] = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Check a finished run: hash chain, plan, model, and every figure that can be recomputed.

    Where the run kept its messages, the coordinator's arithmetic is executed on the replies again,
    and all it asked is compared. That needs no secret, and about the time that it took at first.
    Parties: compare the keys shown under signatures with your own; the plan could name others.
    """
    with refusals(debug) as console:
        from ciphercohort.cli.progress import reporting
        from ciphercohort.verify.folder import verify_run

        with reporting(console, unit="steps") as reporter:

            def on_step(step: str, done: int, total: int) -> None:
                if done == 0:
                    reporter.begin("run the steps again")
                reporter.step(done, total)

            said = [path.read_bytes() for path in statement or ()]
            checks = verify_run(folder, data, said, on_step)
        tell(checks, str(folder), "every check passed", as_json)


@app.command()
def version() -> None:
    """Show the versions of ciphercohort and of what it is built on."""
    import platform

    for name in ("ciphercohort", "openfhe", "flwr", "numpy", "scikit-learn"):
        try:
            typer.echo(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            typer.echo(f"{name} is not installed here")
    typer.echo(f"Python {platform.python_version()}")


# Without the laboratory's attack, which shows it, it only says where the rest has gone.
app.add_typer(audit_app, name="audit", hidden=True)
for _room in ROOMS:
    if find_spec(_room.rpartition(".")[0]):
        import_module(_room).register(app)


def main() -> None:
    """Entry point of the command."""
    app()


if __name__ == "__main__":
    main()
