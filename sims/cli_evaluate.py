"""`cohort evaluate`: how good a model is on the rows of several parties."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sims import cli_options as options
from sims.config import DEFAULT_DELTA
from sims.console import INSECURE, NOT_PRIVATE, refusals, say, stdout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sims.evaluation import Evaluation

Epsilon = Annotated[
    float | None, typer.Option(help="The promise. Default: none, and sums are exact.")
]
Delta = Annotated[float, typer.Option(help="Its failure probability.")]
Colluders = Annotated[int, typer.Option(help="Parties that may pool what they see.")]
Threshold = Annotated[float, typer.Option(help="Probability above which a row counts as positive.")]
EXAMPLES = """Examples:

cohort evaluate --model runs/died/model.json --data new.csv --split by:hospital

cohort evaluate --model runs/died/model.json --data new.csv --parties 3 --epsilon 1 --json

cohort evaluate --model model.json --data new.csv --split by:hospital --sites all --inference
--out evaluations/new"""
WORDS = {
    "auc": "area under ROC",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "base_rate_log_loss": "log loss of the base rate",
    "brier": "Brier score",
    "calibration_slope": "calibration slope",
    "calibration_intercept": "calibration intercept",
    "base_rate": "share of positives",
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "relative_mse": "squared error over range²",
    "r2": "R²",
}


def evaluate(
    model: Annotated[Path, typer.Option(help="model.json of a run folder.")],
    data: Annotated[Path, typer.Option(help="Table with its outcome (.csv, .parquet, …).")],
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
        str, typer.Option(help="Parties that consented to a table of their own, or all.")
    ] = "",
    least: Annotated[
        int, typer.Option(help="Rows below which a cell or a site's table is left out.", min=2)
    ] = 10,
    inference: Annotated[
        bool, typer.Option("--inference", help="A table of coefficients on these rows, too.")
    ] = False,
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
        from sims.documents import to_json
        from sims.evaluation import evaluate as run
        from sims.predict import load_model

        known = load_model(model)
        if known.insecure:
            say(console, INSECURE, "bold red")
        if seed is not None and epsilon is not None:
            say(console, NOT_PRIVATE, "bold red")
        found = run(
            known,
            data,
            parties=parties,
            split=split,
            epsilon=epsilon,
            delta=delta,
            colluders=colluders,
            threshold=threshold,
            bins=bins,
            sites=sites if sites in ("", "all") else tuple(sites.split(",")),
            least=least,
            inference=inference,
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
            stdout().print(found.inference.text(), markup=False, highlight=False, soft_wrap=True)
        if out is not None:
            say(stdout(), f"written: {out / 'evaluation.json'}")


def lines(found: Evaluation) -> Iterator[str]:
    """What a person wants to know, one sentence or figure a line."""
    rows = sum(found.rows_by_party.values())
    yield f"{rows:,} rows of {len(found.rows_by_party)} parties, by one secure sum"
    for key, words in WORDS.items():
        if key in found.figures:
            yield f"{words}: {_shown(found.figures[key])}{_error(found, key)}"
    cells = found.figures.get("confusion")
    if cells:
        told = ", ".join(
            f"{name.replace('_', ' ')} "
            + (f"below {found.least}" if count is None else f"{max(count, 0):,.0f}")
            for name, count in cells.items()
        )
        yield f"at probability {found.figures.threshold:g}: {told}"
    for site, own in found.sites.items():
        key = "auc" if "auc" in own else "r2"
        yield f"{site}: {own.rows:,.0f} rows, {WORDS[key]} {_shown(own[key])}"
    for name in found.small:
        yield f"{name}: fewer than {found.least} rows, no table"
    promise = found.opened.plan.privacy
    if promise:
        yield (
            f"privacy: epsilon={promise.epsilon:.4g}, delta={promise.delta:g}, "
            f"colluders={promise.colluders}"
        )
    else:
        yield "privacy: no noise was added; the coordinator learns exact counts by score and label"


def _shown(value: float | list[float]) -> str:
    if isinstance(value, list):
        return ", ".join(f"{each:.4g}" for each in value)
    return f"{value:.4f}"


def _error(found: Evaluation, key: str) -> str:
    if key != "auc":
        return ""
    noise = found.figures.auc_noise_std
    words = f" (within {found.figures.auc_error_bound:.1g} by its bins"
    return f"{words}, noise of std {noise:.2g})" if noise else f"{words})"
