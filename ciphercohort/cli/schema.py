"""The commands `cohort schema …`: write a first column schema, look at one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ciphercohort.cli.brief import Commands
from ciphercohort.cli.console import refusals, say, stdout
from ciphercohort.cli.options import Debug, names
from protocols.errors import ParameterError
from protocols.words import count

if TYPE_CHECKING:
    from parties.reader.schema import NumericColumn, Schema

PUBLIC = (
    "The sample must be PUBLIC (published, synthetic or made up): the schema repeats its ranges "
    "and categories, and every party and the coordinator get to see it. Never make it from "
    "private rows. Check every range and category before use."
)

schema_app = Commands(
    no_args_is_help=True,
    help="The public description of the columns that all parties agree on.",
)


@schema_app.command(
    epilog="Example:  cohort schema init public_sample.csv --label died --out schema.json"
)
def init(
    sample: Annotated[Path, typer.Argument(help="Table (.csv, .parquet, …); must be PUBLIC.")],
    label: Annotated[str | None, typer.Option(help="Column to predict, of few values.")] = None,
    target: Annotated[list[str] | None, names(help="Or numeric columns to predict.")] = None,
    time: Annotated[
        str | None, typer.Option(help="Or, for survival, the column of times, from 0 on.")
    ] = None,
    event: Annotated[
        str | None, typer.Option(help="With --time: column with 1 for an event, 0 for none.")
    ] = None,
    entry: Annotated[
        str | None, typer.Option(help="With --time: column of times at which rows enter late.")
    ] = None,
    positive: Annotated[
        str | None, typer.Option(help="The label's positive value. Default: the larger.")
    ] = None,
    exclude: Annotated[list[str] | None, names(help="Columns to leave out.")] = None,
    include: Annotated[
        list[str] | None, names(help="The only columns to use (default: all).")
    ] = None,
    reference: Annotated[
        list[str] | None,
        names(help="COLUMN=GROUP that other groups are compared with. Default: the first."),
    ] = None,
    person: Annotated[
        list[str] | None,
        names("--id", help="Columns that name people: left out, and rows are not joined by them."),
    ] = None,
    dates: Annotated[
        list[str] | None, names("--date", help="Columns of dates, taken as days.")
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            help="standard (typical value and spread) or range (low to high becomes -1 to 1). "
            "Default: standard, with rows clipped to a norm; with targets range, unclipped."
        ),
    ] = None,
    missing: Annotated[
        str,
        typer.Option(
            help="Of columns with missing cells: refuse them, fill in the typical value, or that "
            "with an indicator column beside it."
        ),
    ] = "refuse",
    weight: Annotated[
        str | None, typer.Option(help="Column that says how much a row counts, 0 or more.")
    ] = None,
    offset: Annotated[
        str | None, typer.Option(help="Column that is added to a row's score, coefficient 1.")
    ] = None,
    log_offset: Annotated[
        bool, typer.Option("--log-offset", help="The offset column holds exposures: add their log.")
    ] = False,
    project: Annotated[
        int | None,
        typer.Option(
            help="Train on so many principal components of the sample in place of the columns; "
            "for more than 160."
        ),
    ] = None,
    impute: Annotated[
        int | None,
        typer.Option(
            help="With models of missing cells for so many draws (glm and cox --imputations), "
            "fitted to the sample; with --missing typical."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON file to write; must not exist. Default: stdout.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a first schema from a PUBLIC sample, for a person to check.

    The sample must be public: the schema repeats its ranges and categories to everyone.
    """
    with refusals(debug) as console:
        import warnings
        from typing import get_args

        from ciphercohort.study.stays import with_stays
        from parties.reader.infer import REGRESSION_SCALING, infer_schema
        from parties.reader.schema import Missing
        from parties.reader.table import read_table

        if (time is None) != (event is None) or (entry is not None and time is None):
            raise ParameterError("time, event, entry: give --time and --event, or none of them")
        stays = list(filter(None, (time, event, entry)))
        if sum(map(bool, (label, target, stays))) != 1:
            raise ParameterError(
                "give either --label, of few values, or --target, numeric columns, or --time and "
                "--event"
            )

        if log_offset and offset is None:
            raise ParameterError("log_offset needs the column: add --offset COLUMN")
        if missing not in get_args(Missing):
            choices = ", ".join(get_args(Missing))
            raise ParameterError(f"missing={missing!r} is not one of {choices}")
        if out is not None and out.exists():
            raise ParameterError(f"out={str(out)!r} exists: choose another name, or delete it")
        say(console, PUBLIC, "yellow")
        predicted: Any = stays or target or label
        # infer_schema refuses what it does not know
        chosen: dict[str, Any] = {} if label else dict(REGRESSION_SCALING)
        chosen |= {"scaling": scaling} if scaling else {}
        chosen |= {"missing": missing, "weight": weight, "offset": offset, "log_offset": log_offset}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            schema = infer_schema(
                sample,
                predicted,
                positive,
                exclude=(*(exclude or ()), *(person or ())),
                include=include or None,
                reference=tuple(reference or ()),
                dates=tuple(dates or ()),
                several=True,
                project=project,
                impute=impute,
                **chosen,
            )
        if time is not None:
            schema = with_stays(schema, read_table(sample, label=time))
        for words in (
            *_of_outcome(schema, time, target),
            *_of_people(person),
            *(f"warning: {warning.message}" for warning in caught),
            *_of_encoding(schema, reference),
            *_of_gaps(schema, sample),
        ):
            say(console, words, "yellow")
        if out is None:
            sys.stdout.write(schema.to_json())
            return
        schema.save(out)
        say(console, f"{count(len(schema.columns), 'column')} written to {out}")
        if two := _two_alone(schema):
            say(console, f'of two numbers alone ("binary", cells between are rounded): {two}')


@schema_app.command(epilog="Example:  cohort schema check schema.json rows.csv")
def check(
    schema: Annotated[Path, typer.Argument(help="Schema file.")],
    data: Annotated[Path, typer.Argument(help="A party's own table; nothing of it is sent.")],
    strict: Annotated[bool, typer.Option("--strict", help="Refuse values outside.")] = False,
    debug: Debug = False,
) -> None:
    """Hold a party's own table against a schema; the report stays on this machine.

    Every problem is named by its row in the file; no cell is shown.
    """
    with refusals(debug) as console:
        from parties.reader.look import party_warnings
        from parties.reader.moments import moment_notes
        from parties.reader.schema import Schema
        from parties.reader.shard import encode_shard

        if data.suffix == ".json" and schema.suffix != ".json":
            raise ParameterError(
                f"the schema comes first, then the table: cohort schema check {data} {schema}"
            )
        known = Schema.load(schema)
        shard = encode_shard(data, known, strict)
        say(
            stdout(),
            f"{shard.rows:,} rows fit the schema; {shard.num_features} features with the bias",
        )
        # All others are refused.
        absent = ", ".join(f"{name} {count:,}" for name, count in shard.counts.filled.items())
        say(stdout(), f"missing cells: {absent or 'none'}")
        for line in shard.counts.summary():
            say(stdout(), line)
        for words in (*moment_notes(known), *party_warnings(shard)):
            say(console, f"warning: {words}", "yellow")
        say(stdout(), "these figures are private: nothing here was sent")


@schema_app.command()
def show(
    schema: Annotated[Path, typer.Argument(help="Schema file.")],
    debug: Debug = False,
) -> None:
    """Show a schema as a table."""
    with refusals(debug) as console:
        from parties.reader.moments import moment_notes
        from parties.reader.schema import Schema

        known = Schema.load(schema)
        _print(known)
        for words in moment_notes(known):
            say(console, f"warning: {words}", "yellow")


def _of_outcome(schema: Schema, time: str | None, target: list[str] | None) -> Iterator[str]:
    from ciphercohort.study.stays import likely_stays
    from parties.reader.schema import Classes

    if time is not None:
        yield (
            f"times longer than the sample's longest are taken as that: make high of {time} the "
            "longest that the protocol allows"
        )
    elif target and likely_stays(schema.label):
        yield (
            f"warning: the range of {target[0]} begins at the sample's least; if it is the time "
            f"until {target[1]}, give --time and --event"
        )
    if isinstance(schema.label, Classes):
        yield (
            f"{schema.label.name} has {schema.label.outputs} classes: models softmax and "
            "one-vs-rest predict such a label; of numbers give --target"
        )


def _of_people(person: list[str] | None) -> Iterator[str]:
    if person:
        yield (
            f"{', '.join(person)} is in no row that is encoded, and joins none: several rows of "
            "one person stay several, and epsilon is the promise of one row. Where it is to be of "
            "a person, write one row for each before"
        )


def _of_encoding(schema: Schema, reference: list[str] | None) -> Iterator[str]:
    if schema.row_norm is not None:
        yield (
            f"row_norm {schema.row_norm:g} is the middle length of the sample's rows, to one "
            "digit: longer ones, which cohort schema check counts, are shortened to it, which "
            "saves privacy noise; without privacy set it to null"
        )
    if not reference and (first := _references(schema)):
        yield f"tables compare categories with {first}: --reference COLUMN=CATEGORY names others"


def _of_gaps(schema: Schema, sample: Path) -> Iterator[str]:
    """Of columns that refuse empty cells, and have them in the sample."""
    from parties.reader.look import missing_counts
    from parties.reader.table import read_table

    table = read_table(sample, label=schema.label.name)
    pairs = zip(schema.columns, missing_counts(table, schema), strict=False)
    gaps = [column.name for column, number in pairs if number and column.missing == "refuse"]
    if gaps:
        yield (
            f"warning: missing cells in {', '.join(gaps)}: this schema refuses such rows; "
            "--missing typical or --missing indicator fills them in"
        )


def _references(schema: Schema) -> str:
    """Of each categorical column the first, as the option has it."""
    from parties.reader.schema import CategoricalColumn

    found = [column for column in schema.columns if isinstance(column, CategoricalColumn)]
    return ", ".join(f"{column.name}={column.categories[0]}" for column in found)


def _ends(column: NumericColumn) -> str:
    return f"{column.low:g} {'or' if column.binary else 'to'} {column.high:g}"


def _two_alone(schema: Schema) -> str:
    """Columns that have two numbers alone; empty: none."""
    columns = (*schema.columns, *getattr(schema.label, "columns", ()))
    return ", ".join(
        f"{each.name} ({_ends(each)})" for each in columns if getattr(each, "binary", False)
    )


def _print(schema: Schema) -> None:
    from rich.table import Table
    from rich.text import Text

    from parties.reader.schema import DateColumn, Label, NumericColumn, Targets

    table = Table(title=Text(count(len(schema.columns), "column")))
    for name in ("Column", "Kind", "Range or categories", "Typical ± spread", "Missing"):
        table.add_column(name, overflow="fold")
    for column in schema.columns:
        if isinstance(column, NumericColumn):
            spread = "" if column.typical is None else f"{column.typical:g}"
            spread += "" if column.spread is None else f" ± {column.spread:g}"
            ends = _ends(column)
            kind = "numeric"
            if isinstance(column, DateColumn):
                kind = f"days since {column.origin}"
                ends += f", {column.day(column.low)} to {column.day(column.high)}"
            cells = (kind, ends, spread)
        else:
            cells = ("categorical", ", ".join(column.categories), column.typical or "")
        table.add_row(*map(Text, (column.name, *cells, column.missing)))
    screen, label = stdout(), schema.label
    screen.print(table)
    if isinstance(label, Targets):
        for column in label.columns:
            say(screen, f"target: {column.name}, {_ends(column)}")
    elif not isinstance(label, Label):
        say(screen, f"label: {label.name}, one of {', '.join(label.classes)}")
    else:
        say(screen, f"label: {label.name}, {label.positive} (positive) or {label.negative}")
    if (weight := schema.weight) is not None:
        say(screen, f"weight: {weight.name}, 0 to {weight.bound:g}")
    if (offset := schema.offset) is not None:
        added = "its logarithm is added" if offset.log else "added to scores"
        say(screen, f"offset: {offset.name}, {offset.low:g} to {offset.high:g}, {added}")
    if schema.projection is not None:
        say(screen, f"projected to {count(len(schema.projection.rows), 'component')} before that")
    if schema.imputation is not None:
        drawn = ", ".join(model.feature for model in schema.imputation.models)
        say(screen, f"missing cells can be drawn, of: {drawn}")
    norm = "none" if schema.row_norm is None else f"{schema.row_norm:g}"
    say(screen, f"scaling: {schema.scaling}; row norm: {norm}")
    say(screen, f"{schema.num_features} features with the bias; digest {schema.digest()}")
