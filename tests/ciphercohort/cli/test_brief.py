"""`--help` of every command shows at most ten options, and `--help-all` every one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
import pytest
import typer
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from ciphercohort.cli.brief import FEW, MOST

ASIDE = {"--help", "--help-all", "--debug"}


def commands(command: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """By name, with the options that are not hidden."""
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{path} {name}".strip())
    if not hasattr(command, "commands"):
        options = (p for p in command.params if isinstance(p, click.Option) and not p.hidden)
        yield path, list(options)


EVERY = dict(commands(typer.main.get_command(app)))


def shown(path: str, word: str) -> set[str]:
    """First names of options in a help; a switch has --no-… beside."""
    done = CliRunner().invoke(app, [*path.split(), word], env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return set(re.findall(r"^│[ *]+(--[a-z-]+)", done.output, re.MULTILINE))


@pytest.mark.parametrize("path", EVERY)
def test_help_is_short_and_complete_on_request(path: str) -> None:
    options = {each.name: each.opts[0] for each in EVERY[path]}
    if path not in FEW:
        assert len(options.keys() - {"debug"}) <= MOST, "name its first ten in FEW"
        assert shown(path, "--help-all") == shown(path, "--help") >= set(options.values())
        return
    assert set(FEW[path]) <= options.keys() and len(FEW[path]) <= MOST < len(options)
    assert len(set(FEW[path])) == len(FEW[path])
    required = {each.name for each in EVERY[path] if each.required}
    assert required <= set(FEW[path])
    short, whole = shown(path, "--help"), shown(path, "--help-all")
    assert short - ASIDE == {options[name] for name in FEW[path]} and "--help-all" in short
    assert whole >= set(options.values())
    assert shown(path, "--help") == short  # nothing stays hidden, or shown


def test_every_name_is_a_command() -> None:
    assert FEW.keys() <= EVERY.keys()


@pytest.mark.parametrize("path", ["glm", "coordinator glm", "describe", "coordinator survival"])
def test_a_study_of_exact_sums_offers_no_promise(path: str) -> None:
    """Who asks for one is told why there is none (tests of every option)."""
    offered = {"--epsilon", "--delta", "--colluders"} & shown(path, "--help-all")
    assert bool(offered) == ("glm" not in path) and len(offered) in (0, 3)
