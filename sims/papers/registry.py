"""All items: every module here named p000_figure_1 and the like is one: its ABOUT, and `run`."""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from importlib import import_module

import sims.papers
from protocols.documents import shown, suggest
from protocols.errors import ParameterError
from sims.papers.item import PAPERS, Item

MODULE = re.compile(r"p(\d{3})_(.+)")
ALL = "all"


@cache
def items() -> tuple[Item, ...]:
    """In the order of papers and names."""
    names = sorted(module.name for module in pkgutil.iter_modules(sims.papers.__path__))
    return tuple(_item(found) for found in map(MODULE.fullmatch, names) if found)


def _item(name: re.Match[str]) -> Item:
    module = import_module(f"sims.papers.{name[0]}")
    own = name[2].replace("_", "-")
    return Item(paper=name[1], name=own, about=module.ABOUT, run=module.run)


def chosen(paper: str, name: str | None = None) -> tuple[Item, ...]:
    """One item, all of a paper, or all.

    Raises:
        ParameterError: there is none.
    """
    if paper == ALL:
        return items()
    if paper not in PAPERS:
        raise ParameterError(
            f"paper={shown(paper)} is not one of {', '.join(PAPERS)} or {ALL}: see "
            "cohort reproduce --list"
        )
    mine = [item for item in items() if item.paper == paper]
    found = tuple(item for item in mine if name in (None, item.name))
    if not found:
        names = [item.name for item in mine]
        raise ParameterError(
            f"item={shown(str(name))} is not one of paper {paper}{suggest(str(name), names)}: it "
            f"has {', '.join(names) or 'none'}"
        )
    return found
