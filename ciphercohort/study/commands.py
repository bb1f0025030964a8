"""`cohort describe`, `cohort survival` and `cohort glm`, and the same of a coordinator's folder."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ciphercohort.cli import options
from ciphercohort.cli.brief import FEW
from ciphercohort.cli.console import refusals, say, say_marks, stdout
from ciphercohort.cli.coordinator import of_sums
from ciphercohort.cli.evaluate import Colluders, Delta, Epsilon
from ciphercohort.job.config import DEFAULT_DELTA
from ciphercohort.study.asked import (
    ChosenColumns,
    CoxOptions,
    CurveOptions,
    DescribeOptions,
    DryRun,
    GlmOptions,
    Insists,
    StayColumns,
    SurvivalModel,
)
from protocols.errors import ParameterError
from protocols.words import size

if TYPE_CHECKING:
    from ciphercohort.deploy.coordinator import Coordinator
else:
    Coordinator = Any  # read where options are made

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

cohort glm --data stays.csv --target died --include arm --propensity arm=new --split by:hospital"""

PERSON_TIME = """Example:

cohort person-time --data lung.csv --time days --event died --cuts 90,180,365,730 --out rows.csv"""


PROMISED = {"epsilon", "delta", "colluders"}
"""Options of a study that may have noise."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A command, and the same of a coordinator's folder.

    name: of the function in `sims.study` and `deployed`, too; records: of options; simulated: of
    those without a deployment; words, centre: its help; few: options that `--help` shows.
    """

    name: str
    epilog: str
    words: str
    centre: str
    records: tuple[type, ...]
    simulated: tuple[type, ...] = ()
    few: tuple[str, ...]
    few_centre: tuple[str, ...] = ()


COMMANDS = (
    Study(
        name="describe",
        epilog=DESCRIBE,
        words="Table 1: describe rows of several parties, all simulated here, by one secure sum.",
        centre="Table 1: describe the rows of every admitted party, by one secure sum.",
        records=(DescribeOptions,),
        few=(
            *("data", "by", "sites", "schema", "include", "parties", "split", "epsilon", "least"),
            "out",
        ),
        few_centre=("by", "sites", "include", "least", "epsilon", "session", "dry_run"),
    ),
    Study(
        name="survival",
        epilog=SURVIVE,
        words="""Survival of rows of several parties, all simulated here, by secure sums.

        Curves with bands, numbers at risk and the log-rank test; or a Cox model: hazard ratios,
        robust errors, the test of proportional hazards, concordance and adjusted curves.
        """,
        centre="""Survival of the rows of every admitted party: curves, or a Cox model.

        Each sum is a session, which every party consents to. The schema's targets are time, event
        and, if rows enter late, entry.
        """,
        records=(SurvivalModel, CurveOptions, CoxOptions, Insists),
        simulated=(StayColumns,),
        few=(
            *("data", "time", "event", "model", "by", "schema", "include", "split", "epsilon"),
            "out",
        ),
        few_centre=(
            *("model", "by", "include", "strata", "curves", "bins", "least", "epsilon"),
            *("session", "dry_run"),
        ),
    ),
    Study(
        name="glm",
        epilog=REGRESS,
        words="""A generalised linear model of rows of several parties, all simulated here, by
        secure sums.

        With --propensity there are two: the treatment's first, of all columns, then the outcome's,
        of those that are included, whose rows weigh by the first.
        """,
        centre="""A generalised linear model of the rows of every admitted party, by secure sums.

        Each sum is a session, which every party consents to. Target, weight and offset are targets
        of the schema. With --propensity there are two models: the treatment's first, of all
        columns, then the outcome's, of those that are included.
        """,
        records=(GlmOptions,),
        few=(
            *("data", "target", "family", "weight", "propensity", "include", "schema", "parties"),
            *("split", "out"),
        ),
        few_centre=(
            *("target", "family", "link", "include", "weight", "offset", "propensity"),
            *("site_intercepts", "cluster", "session"),
        ),
    ),
)


def register(app: typer.Typer) -> None:
    """Give the command its studies."""
    for study in COMMANDS:
        FEW[study.name] = study.few
        app.command(study.name, epilog=study.epilog)(_simulated(study))
        if study.few_centre:
            FEW[f"coordinator {study.name}"] = study.few_centre
        made = of_sums(_coordinated(study), options.reads(*study.records, ChosenColumns, DryRun))
        if "epsilon" not in study.few:
            _exact(made)
    app.command("person-time", epilog=PERSON_TIME)(person_time)


def person_time(
    data: Annotated[Path, typer.Option(help="An owner's own table; nothing of it is sent.")],
    time: Annotated[str, typer.Option(help="Column of times.")],
    event: Annotated[str, typer.Option(help="Column with 1 for an event, 0 for none.")],
    cuts: Annotated[str, typer.Option(help="Public ends of intervals, the last of follow-up.")],
    out: Annotated[Path, typer.Option(help="CSV file to write, for the owner alone.")],
    entry: Annotated[str | None, typer.Option(help="Column of late entries.")] = None,
    debug: options.Debug = False,
) -> None:
    """Write a row for each interval that a person is at risk in, for a Poisson model of hazards."""
    with refusals(debug) as console:
        from parties.reader.person_time import write_person_time

        try:
            ends = [float(each) for each in cuts.split(",")]
        except ValueError:
            raise ParameterError(f"cuts={cuts!r} are no numbers with commas between them") from None
        rows = write_person_time(data, out, time=time, event=event, cuts=ends, entry=entry)
        say(
            console, f"{rows:,} rows of person-time written to {out}, which is as private as {data}"
        )


def _simulated(study: Study) -> Callable[..., None]:
    def run(
        data: Annotated[Path, typer.Option(help="Table (.csv, .parquet, …).")],
        schema: Annotated[
            Path | None,
            typer.Option(help="Public column schema (cohort schema init). Default: inferred."),
        ] = None,
        exclude: Annotated[list[str] | None, options.names(help="Columns to leave out.")] = None,
        include: Annotated[
            list[str] | None, options.names(help="The only columns to use (default: all).")
        ] = None,
        reference: Annotated[
            list[str] | None,
            options.names(
                help="COLUMN=GROUP that other groups are compared with. Default: the first."
            ),
        ] = None,
        parties: Annotated[
            int | None, typer.Option(help="How many data owners. Default: 3.")
        ] = None,
        split: Annotated[str, typer.Option(help="even, by:COLUMN or dirichlet:ALPHA.")] = "even",
        epsilon: Epsilon = None,
        delta: Delta = DEFAULT_DELTA,
        colluders: Colluders = 0,
        ledger: Annotated[Path | None, typer.Option(help="Folder with a ledger per party.")] = None,
        seed: Annotated[
            int | None, typer.Option(help="Repeatable split and noise: NOT PRIVATE.")
        ] = None,
        out: Annotated[
            Path | None, typer.Option(help="Folder for JSON, CSV, LaTeX, SVG and a page.")
        ] = None,
        as_json: options.AsJson = False,
        debug: options.Debug = False,
        **own: Any,
    ) -> None:
        with refusals(debug) as console:
            from ciphercohort.cli.progress import pulse

            name, own = _chosen(study.name, own)
            say_marks(console, seeded=seed is not None and epsilon is not None)
            with pulse(console) as on_progress:
                from sims import study as simulated  # takes seconds

                found = getattr(simulated, name)(
                    data,
                    schema=schema,
                    exclude=tuple(exclude or ()),
                    include=tuple(include or ()),
                    reference=tuple(reference or ()),
                    parties=parties,
                    split=split,
                    epsilon=epsilon,
                    delta=delta,
                    colluders=colluders,
                    ledger=ledger,
                    seed=seed,
                    out=out,
                    on_progress=on_progress,
                    **own,
                )
            _show(found, as_json)
            if out is not None:
                say(console, f"written: {out}")

    run.__doc__ = study.words
    whole = options.with_parameters(run, options.reads(*study.simulated, *study.records))
    return whole if "epsilon" in study.few else _exact(whole)


def _exact(command: Callable[..., None]) -> Callable[..., None]:
    """Without words of a promise: it has none, and says so to whoever asks for one."""
    signature = inspect.signature(command)
    for name in PROMISED & signature.parameters.keys():
        kind, *_ = get_args(command.__annotations__[name])
        command.__annotations__[name] = Annotated[kind, options.named(name, hidden=True)]
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            each.replace(annotation=command.__annotations__[name])
            for name, each in signature.parameters.items()
        ]
    )
    return command


def _coordinated(study: Study) -> Callable[..., None]:
    def run(centre: Coordinator, asked: dict[str, Any], as_json: bool, **own: Any) -> None:
        from ciphercohort.study import deployed

        name, own = _chosen(study.name, own)
        if own.pop("dry_run"):
            _show_forecast(name, deployed.forecast(centre, name, **own, **_promise(asked)), as_json)
            return
        path, found = getattr(deployed, name)(centre, **own, **asked)
        _show(found, as_json)
        asked["tell"](f"finished: {path}")

    run.__name__, run.__doc__ = study.name, study.centre
    return run


def _chosen(name: str, own: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The function that a model of survival stands for, and its options.

    Raises:
        ParameterError: there is no such model, or an option is of the other.
    """
    if name != "survival":
        return name, own
    functions: dict[str, tuple[str, tuple[Any, ...]]] = {
        "kaplan-meier": ("survival", (CurveOptions,)),
        "cox": ("cox", (CoxOptions, Insists)),
    }
    model = own.pop("model")
    if model not in functions:
        raise ParameterError(f"model={model!r} is not {' or '.join(functions)}")
    name, records = functions[model]
    known = {each.name for record in records for each in fields(record)}
    all_records = [record for _, several in functions.values() for record in several]
    others = {each.name: each.default for record in all_records for each in fields(record)}
    for each in sorted({*others} - known):
        value = own.pop(each)
        if value != others[each]:
            raise ParameterError(f"{each}={value!r} belongs to the other model: leave it out")
    return name, own


def _promise(asked: dict[str, Any]) -> dict[str, Any]:
    """Of what a sum is asked for, that which a forecast is of.

    Raises:
        ParameterError: a session is to be gone on with.
    """
    if asked["session"] is not None:
        raise ParameterError(
            "--dry-run asks nobody, so that it cannot go on with --session: leave one of them out"
        )
    return {name: asked[name] for name in ("epsilon", "delta", "colluders")}


def _show_forecast(name: str, told: dict[str, Any], as_json: bool) -> None:
    """On stdout."""
    from ciphercohort.results.documents import to_json

    if as_json:
        sys.stdout.write(to_json({"study": name, **told}, indent=None))
        return
    noise = "without noise"
    if told["noise_std"]:
        noise = f"with noise of standard deviation {told['noise_std']:.3g} on each"
    say(
        stdout(),
        f"first sum, of {told['rows']:,} rows: {told['statistic']}; opens {told['released']}: "
        f"{told['values']:,} values, {noise}; an owner sends {size(told['bytes'])}; nobody was "
        "asked",
    )


def _show(found: Any, as_json: bool) -> None:
    """On stdout."""
    from ciphercohort.results.documents import to_json

    if as_json:
        sys.stdout.write(to_json(found.released(), indent=None))
        return
    for table in found.tables():
        stdout().print(f"{table.text()}\n", markup=False, highlight=False, soft_wrap=True)
