"""The order in which test files run, and no deadline for any example: a machine may be busy."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

pytest_plugins = ["tests.sims.fixtures", "tests.support.rehearsals"]


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
