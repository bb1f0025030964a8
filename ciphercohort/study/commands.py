"""`cohort describe`, `cohort survival` and `cohort glm`, and the same of a coordinator's folder."""

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
Exclude = Annotated[list[str] | None, options.names(help="Columns to leave out.")]
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
REGRESS = """Examples:

cohort glm --data stays.csv --target falls --family negative-binomial --offset log_days

cohort glm --data stays.csv --target cost --family gamma --split by:hospital --site-intercepts

cohort glm --data stays.csv --target died --link cloglog --weight propensity --cluster"""
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
Target = Annotated[
    str | None, typer.Option(help="Column of numbers, or of 0 and 1. Default: the schema's first.")
]
Family = Annotated[
    str, typer.Option(help="binomial, poisson, negative-binomial, gamma or gaussian.")
]
Link = Annotated[
    str | None, typer.Option(help="Of binomial: logit, probit or cloglog. Default: the usual one.")
]
Weight = Annotated[str | None, typer.Option(help="Column of weights, such as of propensities.")]
Offset = Annotated[
    str | None, typer.Option(help="Column that is added to scores, such as a log of exposure.")
]
Alpha = Annotated[
    float | None, typer.Option(help="Of negative-binomial: dispersion. Default: estimated.")
]
SiteIntercepts = Annotated[
    bool, typer.Option("--site-intercepts", help="Each site has one of its own, which stays there.")
]
Cluster = Annotated[
    bool, typer.Option("--cluster", help="Standard errors by site, too; of four sites or more.")
]


def register(app: typer.Typer) -> None:
    """Give the command its studies."""
    FEW["describe"] = (
        *("data", "by", "sites", "schema", "exclude", "parties", "split", "epsilon", "least"),
        "out",
    )
    FEW["survival"] = (
        *("data", "time", "event", "model", "by", "schema", "parties", "split"),
        *("epsilon", "out"),
    )
    FEW["coordinator survival"] = (
        *("model", "by", "strata", "curves", "grid", "tau", "least", "epsilon", "colluders"),
        "session",
    )
    FEW["glm"] = (
        *("data", "target", "family", "link", "weight", "offset", "schema", "parties", "split"),
        "out",
    )
    FEW["coordinator glm"] = (
        *("target", "family", "link", "weight", "offset", "site_intercepts", "cluster", "session"),
    )
    app.command(epilog=DESCRIBE)(describe)
    of_sums(coordinated_description)
    app.command(epilog=SURVIVE)(survival)
    of_sums(coordinated_survival)
    app.command(epilog=REGRESS)(glm)
    of_sums(coordinated_glm)


def describe(
    data: Data,
    by: By = None,
    sites: Annotated[
        list[str] | None,
        options.names(help="Parties that consented to a table of their own, or all."),
    ] = None,
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
            sites="all" if sites == ["all"] else tuple(sites or ()),
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
        list[str] | None, options.names(help="Parties that consent to a table of their own.")
    ] = None,
    bins: Bins = None,
    least: Least = LEAST,
) -> None:
    """Table 1: describe the rows of every admitted party, by one secure sum."""
    from ciphercohort.study.deployed import describe as described

    own: dict[str, Any] = {"by": by, "sites": tuple(sites or ()), "bins": bins, "least": least}
    path, found = described(centre, **own, **asked)
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


def glm(
    data: Data,
    target: Target = None,
    family: Family = "binomial",
    link: Link = None,
    weight: Weight = None,
    offset: Offset = None,
    alpha: Alpha = None,
    site_intercepts: SiteIntercepts = False,
    cluster: Cluster = False,
    schema: SchemaFile = None,
    exclude: Exclude = None,
    parties: Parties = None,
    split: Split = "even",
    seed: Seed = None,
    out: Out = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """A generalised linear model of rows of several parties, all simulated here, by secure sums."""
    with refusals(debug) as console:
        from sims import study

        found = study.glm(
            data,
            target=target,
            weight=weight,
            offset=offset,
            family=family,
            link=link,
            alpha=alpha,
            site_intercepts=site_intercepts,
            cluster=cluster,
            schema=schema,
            exclude=tuple(exclude or ()),
            parties=parties,
            split=split,
            seed=seed,
            out=out,
        )
        _show(found, as_json)
        if out is not None:
            say(console, f"written: {out}")


def coordinated_glm(
    centre: Coordinator,
    asked: dict[str, Any],
    as_json: bool,
    *,
    target: Target = None,
    family: Family = "binomial",
    link: Link = None,
    weight: Weight = None,
    offset: Offset = None,
    alpha: Alpha = None,
    site_intercepts: SiteIntercepts = False,
    cluster: Cluster = False,
) -> None:
    """A generalised linear model of the rows of every admitted party, by secure sums.

    Each sum is a session, which every party consents to. Target, weight and offset are targets of
    the schema.
    """
    from ciphercohort.study.deployed import glm as found_by

    path, found = found_by(
        centre,
        target=target,
        weight=weight,
        offset=offset,
        family=family,
        link=link,
        alpha=alpha,
        site_intercepts=site_intercepts,
        cluster=cluster,
        **asked,
    )
    _show(found, as_json)
    asked["tell"](f"finished: {path}")


coordinated_glm.__name__ = "glm"


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
