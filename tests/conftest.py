"""The browser that tests share, and the order in which their files run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sims.browser import Page, find_browser, opened


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A tab of a real browser."""
    browser = find_browser()
    if browser is None:
        pytest.skip("no chromium or google-chrome on PATH")
    with opened(browser, tmp_path_factory.mktemp("browser") / "profile") as page:
        yield page


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
