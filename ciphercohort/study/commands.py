"""`cohort describe` and `cohort survival`, and the same of a coordinator's folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ciphercohort.cli import options
from ciphercohort.cli.brief import FEW
from ciphercohort.cli.console import refusals, say, stdout
from ciphercohort.cli.coordinator import of_sums
from ciphercohort.cli.evaluate import Colluders, Delta, Epsilon
from ciphercohort.job.config import DEFAULT_DELTA
from protocols.errors import ParameterError
from protocols.words import NOT_PRIVATE

if TYPE_CHECKING:
    from ciphercohort.deploy.coordinator import Coordinator
else:
    Coordinator = Any  # read where options are made

Data = Annotated[Path, typer.Option(help="Table (.csv, .parquet, …).")]
SchemaFile = Annotated[
    Path | None, typer.Option(help="Public column schema (cohort schema init). Default: inferred.")
]
Exclude = Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.")]
Parties = Annotated[int | None, typer.Option(help="How many data owners. Default: 3.")]
Split = Annotated[str, typer.Option(help="even, by:COLUMN or dirichlet:ALPHA.")]
Ledger = Annotated[Path | None, typer.Option(help="Folder with a ledger per party.")]
Seed = Annotated[int | None, typer.Option(help="Repeatable split and noise: NOT PRIVATE.")]
Out = Annotated[Path | None, typer.Option(help="Folder for JSON, CSV, LaTeX, SVG and a page.")]
By = Annotated[str | None, typer.Option(help="Column with categories: a group each.")]
Bins = Annotated[
    int | None, typer.Option(help="Of numeric columns. Default: 200, with epsilon 20.")
]
Least = Annotated[int, typer.Option(help="Exact counts below it are left out.", min=2)]
LEAST = 10
DESCRIBE = """Examples:

cohort describe --data patients.csv --by sex --split by:hospital

cohort describe --data patients.csv --by arm --split by:hospital --sites all --out tables

cohort describe --data patients.csv --parties 4 --epsilon 1"""


SURVIVE = """Examples:

cohort survival --data lung.csv --time days --event died --by arm --split by:hospital --out curves

cohort survival --data lung.csv --time days --event died --by arm --parties 4 --epsilon 1

cohort survival --model cox --data lung.csv --time days --event died --split by:hospital

cohort survival --model cox --data lung.csv --time days --event died --strata sex --curves arm"""
CURVES, COX = "kaplan-meier", "cox"
Time = Annotated[str | None, typer.Option(help="Column of times. Default: the schema's.")]
Event = Annotated[
    str | None, typer.Option(help="Column with 1 for an event, 0 for none. Default: the schema's.")
]
Entry = Annotated[str | None, typer.Option(help="Column of times at which rows enter late.")]
Model = Annotated[
    str, typer.Option(help="kaplan-meier (curves, log-rank test), or cox (hazard ratios).")
]
Strata = Annotated[
    str | None,
    typer.Option(help="Of cox: column with categories, each with a baseline hazard of its own."),
]
Curves = Annotated[
    str | None, typer.Option(help="Of cox: covariate with categories, for adjusted curves.")
]
Grid = Annotated[
    int | None,
    typer.Option(help="Bins of time. Default: the recorded unit of 50 to 400 of them, else 200."),
]
Tau = Annotated[
    float | None, typer.Option(help="Of kaplan-meier: end of the restricted mean survival time.")
]


def register(app: typer.Typer) -> None:
    """Give the command its studies."""
    FEW["describe"] = (
        *("data", "by", "sites", "schema", "exclude", "parties", "split", "epsilon", "least"),
        "out",
    )
    FEW["survival"] = (
        *("data", "time", "event", "model", "by", "strata", "schema", "parties", "split"),
        *("epsilon", "out"),
    )
    FEW["coordinator survival"] = (
        *("model", "by", "strata", "curves", "grid", "tau", "least", "epsilon", "colluders"),
        "session",
    )
    app.command(epilog=DESCRIBE)(describe)
    of_sums(coordinated_description)
    app.command(epilog=SURVIVE)(survival)
    of_sums(coordinated_survival)


def describe(
    data: Data,
    by: By = None,
    sites: Annotated[
        str, typer.Option(help="Parties that consented to a table of their own, or all.")
    ] = "",
    schema: SchemaFile = None,
    exclude: Exclude = None,
    parties: Parties = None,
    split: Split = "even",
    epsilon: Epsilon = None,
    delta: Delta = DEFAULT_DELTA,
    colluders: Colluders = 0,
    bins: Bins = None,
    least: Least = LEAST,
    ledger: Ledger = None,
    seed: Seed = None,
    out: Out = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Table 1: describe rows of several parties, all simulated here, by one secure sum."""
    with refusals(debug) as console:
        from sims.study import describe as described

        if seed is not None and epsilon is not None:
            say(console, NOT_PRIVATE, "bold red")
        found = described(
            data,
            by=by,
            sites=sites if sites in ("", "all") else tuple(sites.split(",")),
            bins=bins,
            least=least,
            schema=schema,
            exclude=tuple(exclude or ()),
            parties=parties,
            split=split,
            epsilon=epsilon,
            delta=delta,
            colluders=colluders,
            ledger=ledger,
            seed=seed,
            out=out,
        )
        _show(found, as_json)
        if out is not None:
            say(console, f"written: {out}")


def coordinated_description(
    centre: Coordinator,
    asked: dict[str, Any],
    as_json: bool,
    *,
    by: By = None,
    sites: Annotated[
        str, typer.Option(help="Parties that consent to a table of their own: a,b.")
    ] = "",
    bins: Bins = None,
    least: Least = LEAST,
) -> None:
    """Table 1: describe the rows of every admitted party, by one secure sum."""
    from ciphercohort.study.deployed import describe as described

    named = tuple(filter(None, sites.split(",")))
    path, found = described(centre, by=by, sites=named, bins=bins, least=least, **asked)
    _show(found, as_json)
    asked["tell"](f"finished: {path}")


coordinated_description.__name__ = "describe"


def survival(
    data: Data,
    time: Time = None,
    event: Event = None,
    entry: Entry = None,
    model: Model = CURVES,
    by: By = None,
    strata: Strata = None,
    curves: Curves = None,
    grid: Grid = None,
    tau: Tau = None,
    schema: SchemaFile = None,
    exclude: Exclude = None,
    parties: Parties = None,
    split: Split = "even",
    epsilon: Epsilon = None,
    delta: Delta = DEFAULT_DELTA,
    colluders: Colluders = 0,
    least: Least = LEAST,
    ledger: Ledger = None,
    seed: Seed = None,
    out: Out = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Survival of rows of several parties, all simulated here, by secure sums.

    Curves with bands, numbers at risk and the log-rank test; or a Cox model: hazard ratios, robust
    errors, the test of proportional hazards, concordance and adjusted curves.
    """
    with refusals(debug) as console:
        from sims import study

        own = _own(model, by=by, strata=strata, curves=curves, tau=tau)
        if seed is not None and epsilon is not None:
            say(console, NOT_PRIVATE, "bold red")
        found = (study.cox if model == COX else study.survival)(
            data,
            time=time,
            event=event,
            entry=entry,
            bins=grid,
            least=least,
            schema=schema,
            exclude=tuple(exclude or ()),
            parties=parties,
            split=split,
            epsilon=epsilon,
            delta=delta,
            colluders=colluders,
            ledger=ledger,
            seed=seed,
            out=out,
            **own,
        )
        _show(found, as_json)
        if out is not None:
            say(console, f"written: {out}")


def coordinated_survival(
    centre: Coordinator,
    asked: dict[str, Any],
    as_json: bool,
    *,
    model: Model = CURVES,
    by: By = None,
    strata: Strata = None,
    curves: Curves = None,
    grid: Grid = None,
    tau: Tau = None,
    least: Least = LEAST,
) -> None:
    """Survival of the rows of every admitted party: curves, or a Cox model.

    Each sum is a session, which every party consents to. The schema's targets are time, event and,
    if rows enter late, entry.
    """
    from ciphercohort.study import deployed

    own = _own(model, by=by, strata=strata, curves=curves, tau=tau)
    find = deployed.cox if model == COX else deployed.survival
    path, found = find(centre, bins=grid, least=least, **own, **asked)
    _show(found, as_json)
    asked["tell"](f"finished: {path}")


coordinated_survival.__name__ = "survival"


def _own(model: str, **given: Any) -> dict[str, Any]:
    """Options of a model; those of the other are refused."""
    known = {CURVES: ("by", "tau"), COX: ("strata", "curves")}
    if model not in known:
        raise ParameterError(f"model={model!r} is not {' or '.join(known)}")
    for name, value in given.items():
        if value is not None and name not in known[model]:
            raise ParameterError(f"{name}={value!r} belongs to the other model: leave it out")
    return {name: given[name] for name in known[model]}


def _show(found: Any, as_json: bool) -> None:
    """On stdout."""
    from ciphercohort.results.documents import to_json

    if as_json:
        sys.stdout.write(to_json(found.released(), indent=None))
        return
    for table in found.tables():
        stdout().print(f"{table.text()}\n", markup=False, highlight=False, soft_wrap=True)
