"""The commands `cohort study …`: many simulations, one report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ciphercohort.cli import options
from ciphercohort.cli.brief import Commands
from ciphercohort.cli.console import refusals, say, stdout
from ciphercohort.job.config import DEFAULT_DELTA
from protocols.errors import ParameterError
from protocols.names import ENCRYPTED_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from sims.lab.studies.noise.grid import Grid
    from sims.lab.studies.noise.store import Progress

GRID, RUN = "Grid (lists: values separated by commas)", "Running"
NOISE_EXAMPLES = """Examples:

cohort study noise --out studies/noise

cohort study noise --data adult.csv --label income --schema docs/schemas/adult.json --test
adult_test.csv --parties 1,2,5,10,20,50,100,200 --update barrier --seeds 20 --out studies/adult

cohort study noise --data edin.csv --label y --parties none --encrypted 2,5,10,20 --colluders 0
--epsilon none --iterations 4 --out studies/edin

cohort study noise --protocol encrypted-model --parties none --encrypted 2,5,10,20,50,100,200
--colluders 0 --epsilon none --iterations 3 --profile fast-insecure --ring-dim 1024
--out studies/model

Started again with the same options, a study goes on where it was stopped."""

study_app = Commands(
    no_args_is_help=True, help="How noise, accuracy and cost grow, with a report and tables."
)


def _listed(words: str) -> Any:
    return typer.Option(help=words, rich_help_panel=GRID)


def _running(words: str, **limits: Any) -> Any:
    return typer.Option(help=words, rich_help_panel=RUN, **limits)


Parties = Annotated[str, _listed("Numbers of clients, in plaintext; none for no twin.")]
Colluders = Annotated[str, _listed("Coalitions: numbers, half, all-but-one.")]
Encrypted = Annotated[str, _listed("Numbers of clients that are run encrypted as well.")]
Modes = Annotated[str, _listed("fixed: all rows shared out; growing: each client brings its own.")]
Updates = Annotated[
    str,
    _listed(
        "Update rules. Of these and all lists below the first is the base, "
        "and each other value is tried alone."
    ),
]
Noises = Annotated[str, _listed("honest: std sigma / sqrt(P - t) each; all: sigma each.")]
Splits = Annotated[str, _listed("even, dirichlet:ALPHA.")]
Weights = Annotated[str, _listed("Of clients in --protocol secure-aggregation: rows, equal.")]
Epsilons = Annotated[str, _listed("The promise; none for no privacy noise.")]
Iterations = Annotated[str | None, _listed("T; none as certified.")]
Norms = Annotated[str | None, _listed("Row norm bounds; none as the schema says.")]
Seeds = Annotated[int, _running("Repetitions in plaintext.", min=1)]
EncryptedSeeds = Annotated[int, _running("Repetitions of encrypted runs.", min=1)]
Jobs = Annotated[int, _running("Worker processes of the plaintext part.", min=1)]
Folder = Annotated[Path, _running("Folder of the study; an unfinished one is resumed.")]


@study_app.command(epilog=NOISE_EXAMPLES)
def noise(
    out: Folder,
    data: options.Data = None,
    label: options.Label = None,
    positive: options.Positive = None,
    schema: options.SchemaFile = None,
    test: options.TestFile = None,
    exclude: options.Exclude = None,
    protocol: options.Protocol = ENCRYPTED_ROWS,
    parties: Parties = "1,2,5,10,20,50,100,200",
    colluders: Colluders = "0,1,half,all-but-one",
    encrypted: Encrypted = "none",
    mode: Modes = "fixed",
    update: Updates = "gd",
    noise_rule: Noises = "honest",
    split: Splits = "even",
    weights: Weights = "rows",
    epsilon: Epsilons = "1",
    delta: options.Delta = None,
    iterations: Iterations = None,
    norm: Norms = None,
    grid: Annotated[
        Path | None, _running("YAML file with grids, in place of the lists above.")
    ] = None,
    seeds: Seeds = 20,
    encrypted_seeds: EncryptedSeeds = 1,
    jobs: Jobs = 2,
    profile: options.Profile = "secure",
    ring_dim: options.RingDim = None,
    debug: options.Debug = False,
) -> None:
    """How privacy noise, encryption noise, accuracy, time and traffic grow with the clients.

    Leaves report.html, summary.txt, measurements.csv, summary.csv, slopes.csv, columns.txt and the
    plots as SVG and PNG. Nothing of a study is private: its noise is seeded.
    """
    with refusals(debug) as console:
        from sims.lab.studies.noise.grid import Grid, read_grids

        given = {
            "protocol": protocol,
            "parties": _values(parties, int),
            "colluders": _values(colluders, str),
            "encrypted": _values(encrypted, int),
            "modes": _values(mode, str),
            "updates": _values(update, str),
            "noises": _values(noise_rule, str),
            "splits": _values(split, str),
            "weights": _values(weights, str),
            "epsilons": _optional(epsilon, float),
            "iterations": _optional(iterations, int),
            "norms": _optional(norm, float),
            "delta": DEFAULT_DELTA if delta is None else delta,
            "profile": profile,
            "ring_dim": ring_dim,
        }
        grids = read_grids(grid) if grid else [Grid.from_dict(given)]
        rows = _source(data, label, positive, schema, test, exclude)
        title = f"Noise and the number of clients: {rows.title}"
        _run(console, grids, rows, out, title, seeds, encrypted_seeds, jobs)


@study_app.command(
    epilog="Example:  cohort study accuracy --data adult.csv --label income --test adult_test.csv "
    "--schema docs/schemas/adult.json --out studies/epsilon"
)
def accuracy(
    out: Folder,
    data: options.Data = None,
    label: options.Label = None,
    positive: options.Positive = None,
    schema: options.SchemaFile = None,
    test: options.TestFile = None,
    exclude: options.Exclude = None,
    protocol: options.Protocol = ENCRYPTED_ROWS,
    update: options.Update = "gd",
    parties: Annotated[int, typer.Option(help="Number of clients.", min=1)] = 10,
    colluders: Colluders = "0,half,all-but-one",
    epsilon: Epsilons = "1,0.25,0.5,2,4,8",
    delta: options.Delta = None,
    seeds: Seeds = 20,
    jobs: Jobs = 2,
    debug: options.Debug = False,
) -> None:
    """How accurate the model is at each epsilon, for each coalition."""
    with refusals(debug) as console:
        from sims.lab.studies.noise.grid import Grid

        grid = Grid(
            protocol=protocol,
            updates=(update,),
            parties=(parties,),
            colluders=tuple(_values(colluders, str)),
            epsilons=tuple(_optional(epsilon, float)),
            delta=DEFAULT_DELTA if delta is None else delta,
        )
        rows = _source(data, label, positive, schema, test, exclude)
        title = f"Accuracy and epsilon: {rows.title}, {parties} clients"
        _run(console, [grid], rows, out, title, seeds, 1, jobs)


@study_app.command(epilog="Example:  cohort study cost --rows 1000,10000,100000 --out studies/cost")
def cost(
    out: Folder,
    rows: Annotated[str, _listed("N, all clients' rows.")] = "1000,3000,10000,30000,100000",
    features: Annotated[str, _listed("Columns of a row without the bias.")] = "9,30,100",
    ring_dim: Annotated[str, _listed("Ring dimensions; none: the smallest secure.")] = "none,65536",
    parties: Annotated[int, typer.Option(help="Number of clients.", min=2)] = 3,
    iterations: Annotated[int, typer.Option(help="T.", min=1)] = 10,
    no_timing: Annotated[
        bool, typer.Option("--no-timing", help="Do not time this machine.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """What encrypted training costs by rows, columns and ring; from the plan alone, no data."""
    with refusals(debug) as console:
        from sims.lab.studies.noise.cost import CostGrid, write_cost

        grid = CostGrid(
            rows=tuple(_values(rows, int)),
            features=tuple(_values(features, int)),
            ring_dims=tuple(_optional(ring_dim, int)),
            parties=parties,
            rounds=iterations,
        )
        for line in write_cost(grid, out, _command(), timing=not no_timing):
            say(stdout(), line)
        say(console, f"report: {out / 'report.html'}")


def _run(
    console: Console,
    grids: list[Grid],
    source: Any,
    out: Path,
    title: str,
    seeds: int,
    encrypted_seeds: int,
    jobs: int,
) -> None:
    from sims.lab.studies.noise.grid import cells_of
    from sims.lab.studies.noise.report import write_all
    from sims.lab.studies.noise.source import open_pool
    from sims.lab.studies.noise.store import Store, run_study, units_of

    cells = cells_of(grids, len(open_pool(source, None).labels))
    store = Store(out, {"source": source.to_dict()})
    units = units_of(cells, seeds, encrypted_seeds)
    run_study(units, source, store, jobs=jobs, on_progress=_reporter(console))
    wanted = {(unit.cell.key, seed) for unit in units for seed in unit.seeds}
    found = [m for m in store.measurements if m.name in wanted]
    for line in write_all(out, title, _command(), found, grids):
        say(stdout(), line)
    say(console, f"report: {out / 'report.html'}")


def _reporter(console: Console) -> Callable[[Progress], None]:
    """A line per unit on a log, one line that changes on a terminal."""

    def show(progress: Progress) -> None:
        left = ""
        if progress.left is not None and progress.done < progress.total:
            left = f", about {_duration(progress.left)} left"
        words = f"{progress.kind}: {progress.done} of {progress.total} cells{left}"
        end = "\r" if console.is_terminal and progress.done < progress.total else "\n"
        console.print(f"{words:<70}", end=end, markup=False, highlight=False, soft_wrap=True)

    return show


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _source(
    data: Path | None,
    label: str | None,
    positive: str | None,
    schema: Path | None,
    test: Path | None,
    exclude: list[str] | None,
) -> Any:
    from sims.lab.studies.noise.source import Source

    if data is None and label is not None:
        raise ParameterError(f"label={label!r} is given without data: add --data FILE")
    paths = {"data": data, "schema": schema, "test": test}
    files: dict[str, Any] = {name: str(path) if path else None for name, path in paths.items()}
    return Source(**files, label=label, positive=positive, exclude=tuple(exclude or ()))


def _values(text: str, kind: Callable[[str], Any]) -> list[Any]:
    """Values between commas; none: an empty list."""
    return [] if text.strip() == "none" else _optional(text, kind)


def _optional(text: str | None, kind: Callable[[str], Any]) -> list[Any]:
    """Values between commas, None for none."""
    if text is None:
        return [None]
    parts = [part.strip() for part in text.split(",")]
    try:
        return [None if part == "none" else kind(part) for part in parts]
    except ValueError:
        raise ParameterError(f"{text!r} is not a list of numbers separated by commas") from None


def _command() -> str:
    return " ".join(["cohort", *sys.argv[1:]])
