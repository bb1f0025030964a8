"""`cohort party peers …`: the other owners whom this one knows, and takes part with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocols.errors import ParameterError
from sims import cli_options as options
from sims.console import refusals, say

peers_app = typer.Typer(
    no_args_is_help=True, help="The other parties that this owner knows; a plan has no others."
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The party's folder.")]


@peers_app.command(epilog="Example:  cohort party peers add hospital-a card-b.json card-c.json")
def add(
    folder: Folder,
    cards: Annotated[list[Path], typer.Argument(help="card.json of one party or more.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where another key is known by the name.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Know parties by their cards; compare each key with its owner by telephone."""
    with refusals(debug) as console:
        from parties.agent.settings import CARD, Settings
        from protocols.cards import Card, spoken

        settings, own = Settings.load(folder), Card.load(folder / CARD)
        found = [Card.load(path) for path in cards]
        for card in found:
            if card.identity != own.identity and card.name == settings.name:
                raise ParameterError(
                    f"{card.name!r} is this party's own name: ask for another card"
                )
        for card in found:
            if card.identity == own.identity:
                say(console, f"{card.name}: your own card, left out")
                continue
            Settings.load(folder).know(card.name, card.identity, replace=replace)
            say(console, f"{card.name}: {spoken(card.identity)}")
        say(console, "compare each key with its owner by telephone before you consent to a plan")


@peers_app.command("list")
def show(folder: Folder, debug: options.Debug = False) -> None:
    """Show every known party with its key, to compare by telephone; your own one first."""
    with refusals(debug):
        from parties.agent.settings import CARD, Settings
        from protocols.cards import Card, spoken

        settings, own = Settings.load(folder), Card.load(folder / CARD)
        typer.echo(f"{own.name} (you): {spoken(own.identity)}")
        for name, key in settings.peers.items():
            typer.echo(f"{name}: {spoken(key)}")
        if not settings.peers:
            typer.echo("no other party is known: every plan is refused; see cohort party peers add")


@peers_app.command()
def remove(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="As cohort party peers list shows it.")],
    debug: options.Debug = False,
) -> None:
    """Know a party no longer: plans with it are refused."""
    with refusals(debug) as console:
        from parties.agent.settings import Settings

        Settings.load(folder).forget(name)
        say(console, f"{name} is known no longer")
