"""The status page in a real headless browser: what a person sees, wide and narrow."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sims.status_page import REFRESH_SECONDS, make_server
from tests.sims.browser import Page

SEEN = "document.body.innerText"
COLOUR = "getComputedStyle(document.querySelector('b')).color"
WIDTH = "document.documentElement.scrollWidth"
LONG = "party 'hospital-of-the-holy-ghost' refuses step 'decrypt': out of order " * 4


def run(**changes: Any) -> dict[str, Any]:
    """A status file's fields."""
    return {
        "session": "5e55104ab1c94d6f9a5f6a6b1c3d2e4f",
        "state": "running",
        "phase": "train",
        "step": "refresh/1",
        "iteration": 1,
        "rounds": 4,
        "reason": "",
        "culprit": None,
        "attempts": 1,
        "updated": "2026-11-21T10:00:00+00:00",
        "seconds": {"agree": 0.4, "keys": 12.5},
        "bytes_per_party": {"keys": 7_000_000},
        "parties": {
            "hospital-a": {"rows": 1234, "bytes": 7_000_000},
            "<script>document.title='x'</script>": {"rows": 5, "bytes": 0},
        },
    } | changes


def write(folder: Path, **changes: Any) -> None:
    fields = run(**changes)
    (folder / fields["session"]).mkdir(exist_ok=True)
    (folder / fields["session"] / "status.json").write_text(json.dumps(fields))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    folder = tmp_path / "sessions"
    folder.mkdir()
    with make_server(folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("width", [1280, 360])
def test_a_run_is_seen_and_goes_on_by_itself(
    page: Page, served: tuple[Path, str], tmp_path: Path, width: int
) -> None:
    folder, address = served
    page.problems.clear()
    page.open(address, width)
    assert "There is no run yet" in page.evaluate(SEEN)
    write(folder)
    page.wait_for(f"{SEEN}.includes('iteration 1 of 4')")  # nobody reloaded it
    seen = page.evaluate(SEEN)
    for words in ("running", "hospital-a", "1,234", "7.0 MB", "12.5", "<script>"):
        assert words in seen
    assert page.evaluate("document.title") == "ciphercohort"
    bar = "document.querySelector('progress')"
    assert page.evaluate(f"{bar}.value / {bar}.max") == 0.25
    write(folder, session="ab" * 16, state="aborted", reason=LONG, updated="2026-11-20")
    write(folder, state="aborted", reason=LONG, iteration=2)
    page.wait_for(f"{SEEN}.includes('holy-ghost')", seconds=20 * REFRESH_SECONDS)
    assert page.evaluate(COLOUR) == "rgb(161, 18, 18)"
    assert page.evaluate(WIDTH) <= width, "the page scrolls sideways"
    picture = tmp_path / f"{width}.png"
    page.screenshot(picture)
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000
    assert [p for p in page.problems if "favicon" not in p] == []


def test_the_page_runs_no_script(page: Page, served: tuple[Path, str]) -> None:
    folder, address = served
    write(folder)
    page.open(address, 800)
    assert page.evaluate("document.scripts.length") == 0
    inject = "document.body.append(Object.assign(document.createElement('script'), {text: 'z=1'}))"
    page.evaluate(inject)
    assert page.evaluate("typeof z") == "undefined"
