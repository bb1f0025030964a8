"""The command `cohort reproduce`: the papers' tables and figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ciphercohort.cli import options
from ciphercohort.cli.console import REFUSED, refusals, say, stdout

EXAMPLES = """Examples:

cohort reproduce --list

cohort reproduce 000 figure-1 --data-folder data --out papers

cohort reproduce all --quick"""


def reproduce(
    paper: Annotated[str | None, typer.Argument(help="000 to 004, or all.")] = None,
    item: Annotated[str | None, typer.Argument(help="table-2, figure-1, … Default: all.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show every item.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="In seconds, to see that it runs.")
    ] = False,
    data_folder: Annotated[
        Path, typer.Option(help="Folder of tables that are not built in.")
    ] = Path("data"),
    seeds: Annotated[int | None, typer.Option(min=1, help="Repetitions.")] = None,
    profile: Annotated[
        str | None, typer.Option(help="Of encrypted runs: secure, or fast-insecure.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for JSON, CSV and SVG.")] = None,
    page: Annotated[
        Path | None, typer.Option(help="Markdown file to make of all results in --out.")
    ] = None,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Run a table or figure of a paper, and show its figures beside ours."""
    with refusals(debug) as console:
        from ciphercohort.results.documents import to_json
        from protocols.errors import DataError, ParameterError
        from sims.lab.papers import command
        from sims.lab.papers.item import Settings
        from sims.lab.papers.page import collected
        from sims.lab.papers.page import page as page_of
        from sims.lab.papers.registry import chosen, items

        if listed:
            stdout().print(command.listing(items()))
            return
        if paper is None and (page is None or out is None):
            raise ParameterError("paper is missing: give one, or --list, or --page and --out")
        settings = Settings(quick=quick, seeds=seeds, profile=profile, data_folder=data_folder)
        documents, missing = [], []
        for each in chosen(paper, item) if paper else ():
            say(console, f"{each.paper} {each.name}: {each.about.title}")
            try:
                found = command.reproduce(each, settings, out)
            except DataError as error:
                missing.append(f"{each.paper} {each.name}: {error}")
                continue
            documents.append(found)
            if not as_json:
                stdout().print(command.table(found))
                for line in command.lines(found):
                    say(stdout(), line)
        if as_json:
            sys.stdout.write(to_json(documents))
        if page and out:
            text = page_of(items(), collected(out), page.parent)
            page.write_text(text, encoding="utf-8")
            say(console, f"page: {page}")
        for words in missing:
            say(console, f"cohort: {words}", "bold red")
        if missing:
            raise typer.Exit(REFUSED)
