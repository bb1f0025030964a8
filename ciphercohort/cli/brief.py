"""Help of at most ten options: those that a first run needs; `--help-all` shows every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import typer
from typer.core import TyperCommand, TyperOption

MOST = 10
Command = TypeVar("Command", bound=Callable[..., Any])
FEW: dict[str, tuple[str, ...]] = {
    "simulate": (
        *("data", "label", "schema", "parties", "split", "model", "protocol", "epsilon"),
        *("no_privacy", "out"),
    ),
    "plan": (
        *("rows", "features", "parties", "colluders", "epsilon", "no_privacy", "model", "protocol"),
        *("within", "as_json"),
    ),
    "evaluate": (
        *("data", "model", "rows", "parties", "split", "epsilon", "colluders", "threshold"),
        *("sites", "out"),
    ),
    "schema init": (
        *("label", "target", "time", "event", "exclude", "scaling", "missing", "weight"),
        *("offset", "out"),
    ),
    "coordinator init": (
        *("schema", "public", "fleet", "model", "protocol", "iterations", "epsilon", "colluders"),
        *("no_privacy", "profile"),
    ),
    "coordinator evaluate": (
        *("model", "rows", "parties", "threshold", "sites", "epsilon", "delta", "colluders"),
        "session",
    ),
    "party init": (
        *("invitation", "data", "name", "consent", "max_epsilon", "min_colluders"),
        *("budget_epsilon", "protocol", "passphrase_file", "keyring"),
    ),
}
"""What `--help` of a command shows, of those that have more; rooms add those of their own."""


class Commands(typer.Typer):
    """An app whose commands have a short help."""

    def command(self, *given: Any, **options: Any) -> Callable[[Command], Command]:
        """As of `typer.Typer`."""
        return super().command(*given, **{"cls": BriefCommand, **options})


class BriefCommand(TyperCommand):
    """A command whose `--help` shows `FEW` of its options."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own and `--help-all`, which shows itself where some are not shown."""
        return [*super().get_params(ctx), _every(hidden=_path(ctx) not in FEW)]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What is not among the few is hidden, as long as this takes."""
        few = None if ctx.meta.get(_ALL) else FEW.get(_path(ctx))
        own = (each for each in self.params if isinstance(each, click.Option))
        left_out = [o for o in own if few is not None and o.name not in few and not o.hidden]
        for each in left_out:
            each.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:
            for each in left_out:
                each.hidden = False


_ALL = "ciphercohort.help-all"


def _path(ctx: click.Context) -> str:
    """Names of the command, without the program's: "party init"."""
    names = []
    while ctx.parent is not None:
        names.append(str(ctx.info_name))
        ctx = ctx.parent
    return " ".join(reversed(names))


def _every(hidden: bool) -> click.Option:
    def show(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
        if wanted and not ctx.resilient_parsing:
            ctx.meta[_ALL] = True
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    return TyperOption(
        param_decls=["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show every option and exit.",
        hidden=hidden,
    )
