"""All items: every module of a paper's folder, such as p000, is one: its ABOUT, and `run`."""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from importlib import import_module

import sims.lab.papers
from protocols.errors import ParameterError
from protocols.exchange.documents import shown, suggest
from sims.lab.papers.item import PAPERS, Item

FOLDER = re.compile(r"p(\d{3})")
ALL = "all"


@cache
def items() -> tuple[Item, ...]:
    """In the order of papers and names."""
    papers = sorted(m.name for m in pkgutil.iter_modules(sims.lab.papers.__path__))
    found = (_of(match[0], match[1]) for match in map(FOLDER.fullmatch, papers) if match)
    return tuple(item for own in found for item in own)


def _of(folder: str, paper: str) -> list[Item]:
    package = import_module(f"sims.lab.papers.{folder}")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [(name, import_module(f"{package.__name__}.{name}")) for name in names]
    return [
        Item(paper=paper, name=name.replace("_", "-"), about=module.ABOUT, run=module.run)
        for name, module in modules
    ]


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
