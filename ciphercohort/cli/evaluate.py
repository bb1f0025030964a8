"""`cohort evaluate`: how good a model is on the rows of several parties."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ciphercohort.cli import options
from ciphercohort.cli.console import refusals, say, say_marks, stdout
from ciphercohort.job.config import DEFAULT_DELTA
from ciphercohort.job.options import HOWEVER_NOISY
from protocols.errors import ParameterError

Epsilon = Annotated[
    float | None, typer.Option(help="The promise. Default: none, and sums are exact.")
]
Delta = Annotated[float, typer.Option(help="Its failure probability.")]
Colluders = Annotated[int, typer.Option(help="Parties that may pool what they see.")]
Threshold = Annotated[float, typer.Option(help="Probability above which a row counts as positive.")]
HoweverNoisy = Annotated[bool, typer.Option("--however-noisy", help=HOWEVER_NOISY)]
EXAMPLES = """Examples:

cohort evaluate --model runs/died --data new.csv --split by:hospital

cohort evaluate --model runs/died --data new.csv --parties 3 --epsilon 1 --json

cohort evaluate --model model.json --data new.csv --split by:hospital --sites all --inference
--out evaluations/new

cohort evaluate runs/died --rows held-out --data train.csv"""


def evaluate(
    data: Annotated[Path, typer.Option(help="Table with its outcome (.csv, .parquet, …).")],
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Run folder with the model.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Or its release folder or model.json alone; any model's.")
    ] = None,
    rows: Annotated[
        str,
        typer.Option(
            help="all of the table, or held-out: those that owners held back from RUN, whose "
            "training table --data is."
        ),
    ] = "all",
    parties: Annotated[int | None, typer.Option(help="How many data owners. Default: 3.")] = None,
    split: Annotated[str, typer.Option(help="even, by:COLUMN or dirichlet:ALPHA.")] = "even",
    epsilon: Epsilon = None,
    delta: Delta = DEFAULT_DELTA,
    colluders: Colluders = 0,
    threshold: Threshold = 0.5,
    bins: Annotated[
        int | None, typer.Option(help="Of the scores. Default: 4096, with epsilon 64.")
    ] = None,
    sites: Annotated[
        list[str] | None,
        options.names(help="Parties that consented to a table of their own, or all."),
    ] = None,
    least: Annotated[
        int, typer.Option(help="Rows below which a cell or a site's table is left out.", min=2)
    ] = 10,
    inference: Annotated[
        bool, typer.Option("--inference", help="A table of coefficients on these rows, too.")
    ] = False,
    however_noisy: HoweverNoisy = False,
    ledger: Annotated[Path | None, typer.Option(help="Folder with a ledger per party.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable split and noise: NOT PRIVATE.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for evaluation.json.")] = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Judge a model on rows of several parties, all simulated here, by one secure sum."""
    with refusals(debug) as console:
        from ciphercohort.after.evaluation_words import lines
        from ciphercohort.job.inputs import INFERRED, READ_FROM_ROWS
        from ciphercohort.results.documents import to_json
        from ciphercohort.results.predict import load_model
        from sims.evaluation import evaluate as judge

        if (run is None) == (model is None):
            raise ParameterError("give either a run folder or --model model.json")
        known = load_model(model or run or Path())
        say_marks(console, insecure=known.insecure, seeded=seed is not None and epsilon is not None)
        if known.schema_from == INFERRED:
            say(console, READ_FROM_ROWS, "yellow")
        found = judge(
            run or known,
            data,
            rows=rows,
            parties=parties,
            split=split,
            epsilon=epsilon,
            delta=delta,
            colluders=colluders,
            threshold=threshold,
            bins=bins,
            sites="all" if sites == ["all"] else tuple(sites or ()),
            least=least,
            inference=inference,
            however_noisy=however_noisy,
            ledger=ledger,
            seed=seed,
            out=out,
        )
        for note in found.notes:
            say(console, f"warning: {note}", "yellow")
        if as_json:
            sys.stdout.write(to_json(found.summary(), indent=None))
            return
        for line in lines(found):
            say(stdout(), line)
        if found.inference:
            stdout().print(
                found.inference.text(marked=False), markup=False, highlight=False, soft_wrap=True
            )
        if out is not None:
            say(stdout(), f"written: {out / 'evaluation.json'}")
