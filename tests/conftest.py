"""The order in which test files run; the same examples in every run, and no deadline for any."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import settings
from typer.main import get_command

from ciphercohort.report import plots
from tests.support.pictures import put_together

# A machine may be busy; and what is drawn anew in every run would fail one that changed nothing.
settings.register_profile("untimed", deadline=None, derandomize=True)
settings.load_profile("untimed")
# Millions of objects are collected, none of them garbage: half of the time looks for some.
gc.disable()

pytest_plugins = ["tests.sims.fixtures", "tests.support.rehearsals"]


@pytest.fixture(scope="session", autouse=True)
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test knows what this machine has rehearsed, nor adds to it; commands are built once.

    Nor are a report's pictures drawn: see `tests.support.pictures`.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patched.setattr("typer.testing._get_command", cache(get_command))
        patched.setattr(plots, "to_svg", put_together)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first: short ones are left for the end, when a process waits.

    `--no-loadscope-reorder` keeps the order.
    """
    slow = {
        item.path
        for item in items
        if item.get_closest_marker("slow") or item.get_closest_marker("secure")
    }
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What is there now stays, and is not looked at again."""
    gc.freeze()
    gc.enable()
