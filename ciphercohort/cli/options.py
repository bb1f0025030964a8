"""Options of the commands, made from the groups of `ciphercohort.job.config`."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from ciphercohort.job.config import (
    BY_BUDGET,
    FORMER,
    BudgetOptions,
    DataOptions,
    EncryptionOptions,
    OutputOptions,
    PrivacyOptions,
    SimulationConfig,
    TrainingOptions,
    kinds,
)
from ciphercohort.job.options import option_name, options_of

Command = TypeVar("Command", bound=Callable[..., None])
GROUPS: dict[type, str] = {
    DataOptions: "Data",
    TrainingOptions: "Training",
    BudgetOptions: "Budget",
    PrivacyOptions: "Privacy",
    EncryptionOptions: "Encryption",
    OutputOptions: "Output",
}
OUTPUT = GROUPS[OutputOptions]
_FIELDS = {each.name: each for each in options_of(SimulationConfig)}


def each_name(given: Sequence[str] | None) -> list[str]:
    """Of an option that is repeated, or has commas; a name that has one is quoted, as in csv files.

    >>> each_name(["age, sex", '"height, cm"'])
    ['age', 'sex', 'height, cm']
    """
    rows = csv.reader(given or (), skipinitialspace=True)
    return [name.strip() for row in rows for name in row if name.strip()]


def names(*flags: str, help: str) -> Any:
    """An option of several names, `each_name` of what is given."""
    words = f"{help.rstrip('.')}; a,b, or repeated."
    return typer.Option(*flags, help=words, callback=each_name)


def named(name: str, *, hidden: bool = False, budget: bool = True) -> Any:
    """The option of a field, with its words; hidden: from the help; budget: see `_parameter`."""
    each = _FIELDS[name]
    group = next(group for group in GROUPS if each in options_of(group))
    words = each.metadata["words"]
    words = words if budget else words.replace(f"; {BY_BUDGET}", ".")
    if each.metadata["is_asked"] and each.default not in (None, ""):
        default = each.default if isinstance(each.default, str) else f"{each.default:g}"
        words = f"{words} Default: {default}."
    flags: tuple[str, ...] = ()
    if isinstance(each.default, bool):
        flags = (f"--{option_name(each).replace('_', '-')}",)
    panel = each.metadata["panel"] or GROUPS[group]
    several = each_name if get_origin(kinds()[name]) is tuple else None
    return typer.Option(*flags, help=words, rich_help_panel=panel, hidden=hidden, callback=several)


Data = Annotated[Path | None, named("data")]
Label = Annotated[str | None, named("label")]
Positive = Annotated[str | None, named("positive")]
SchemaFile = Annotated[Path | None, named("schema")]
TestFile = Annotated[Path | None, named("test")]
Exclude = Annotated[list[str] | None, named("exclude")]
Parties = Annotated[int | None, named("parties")]
Protocol = Annotated[str, named("protocol")]
Update = Annotated[str, named("update")]
Iterations = Annotated[int | None, named("rounds")]
Epsilon = Annotated[float | None, named("epsilon")]
Delta = Annotated[float | None, named("delta")]
Colluders = Annotated[int | None, named("colluders")]
Profile = Annotated[str, named("profile")]
RingDim = Annotated[int | None, named("ring_dim")]
NoPrivacy = Annotated[
    bool,
    typer.Option(
        "--no-privacy", help="Add no noise; rows still stay encrypted.", rich_help_panel="Privacy"
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on stdout.", rich_help_panel=OUTPUT),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug", help="Show tracebacks and warnings of libraries.", rich_help_panel=OUTPUT
    ),
]


def takes(*chosen: Field[Any]) -> Callable[[Command], Command]:
    """Give a command `f(…, **given)` the options of these fields beside its own."""
    budget = any(each.name == "within" for each in chosen)
    made = [_parameter(each, budget=budget) for each in chosen]
    made += [_parameter(each, old) for each in chosen for old in _former(each)]
    return lambda command: with_parameters(command, made)


def reads(*records: type) -> list[inspect.Parameter]:
    """Parameters of a command that makes records of options, in their order."""
    made = {}
    for record in records:
        types = get_type_hints(record)
        for each in fields(record):
            words, kind = each.metadata, types[each.name]
            flag = f"--{option_name(each).replace('_', '-')}"  # A truth has no second one.
            several = any(get_origin(k) is tuple for k in (kind, *get_args(kind)))
            if several:
                asked = typer.Option(flag, help=words["words"], callback=each_name)
            else:
                asked = typer.Option(flag, help=words["words"], min=words["least"])
            made[each.name] = inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if several else each.default,
                annotation=Annotated[list[str] | None if several else kind, asked],
            )
    return [*made.values()]


def parameters(command: Callable[..., None]) -> list[inspect.Parameter]:
    """Of a command, but for `**`."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    return [p for p in own if p.kind is not p.VAR_KEYWORD]


def with_parameters(command: Command, more: Sequence[inspect.Parameter]) -> Command:
    """A command `f(…, **given)` that takes more; all are asked for by name."""
    own = parameters(command)
    made = [p for p in own if p.default is p.empty]
    made += [*more, *(p for p in own if p.default is not p.empty)]
    keyword = [p.replace(kind=p.KEYWORD_ONLY) for p in made]
    command.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in keyword}
    return command


def _former(each: Field[Any]) -> list[str]:
    return [old for old, name in FORMER.items() if name == each.name]


def _parameter(each: Field[Any], former: str = "", budget: bool = True) -> inspect.Parameter:
    """former: a name that it had before; budget: the command takes one, too."""
    kind, default = kinds()[each.name], each.default
    if kind is Any:
        kind = Path | None
    elif get_origin(kind) is tuple:
        kind, default = list[str] | None, None
    elif each.metadata["is_asked"]:
        kind, default = kind | None, None
    return inspect.Parameter(
        former or option_name(each),
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, named(each.name, hidden=bool(former), budget=budget)],
    )
