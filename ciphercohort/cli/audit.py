"""The group `cohort audit`, to which the laboratory adds its attack; where the rest has gone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ciphercohort.cli.brief import Commands
from ciphercohort.cli.console import refusals

audit_app = Commands(no_args_is_help=True, help="Try to refute what a certificate says.")


@audit_app.command(hidden=True)
def transcript(folder: Annotated[Path, typer.Argument(metavar="RUNDIR")]) -> None:
    """Say where it has gone.

    Raises:
        ParameterError: always.
    """
    with refusals(False):
        from protocols.errors import ParameterError

        raise ParameterError(f"cohort audit transcript is a part of cohort verify now: {folder}")
