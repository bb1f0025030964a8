"""The documentation site: every link leads somewhere, nothing comes from elsewhere, all is near."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.scripts import ROOT, load

pages = load("scripts/site_pages.py")
HAS_MKDOCS = importlib.util.find_spec("mkdocs") is not None
built = pytest.mark.skipif(not HAS_MKDOCS, reason="mkdocs is not installed (extra docs)")
FIRST = {
    "deployment.html",
    "method/epsilon.html",
    "choosing.html",
    "method/threat-model.html",
    "tutorial.html",
}


def build(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(out), *options]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    done = build(out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Targets(HTMLParser):
    """What a page loads, and where it leads to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: set[str] = set()
        self.leads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in found:
            self.leads.add(found["href"].partition("#")[0])
        elif "src" in found:
            self.loads.add(found["src"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon"):
            self.loads.add(found["href"])


@built
def test_every_page_is_two_clicks_away(site: Path) -> None:
    """From home; how to deploy, what epsilon means and which protocol to take are one away."""
    near = {site / "index.html": 0}
    queue = list(near)
    for page in queue:
        for target in Targets(page.read_text(encoding="utf-8")).leads:
            to = (page.parent / target).resolve()
            if target.endswith(".html") and "://" not in target and to not in near:
                near[to] = near[page] + 1
                queue.append(to)
    made = {path for path in site.rglob("*.html") if path.name != "404.html"}
    assert made == set(near) and len(made) > 25
    assert max(near.values()) <= 2
    home = (site / "index.html").read_text(encoding="utf-8").partition("<article")[2]
    assert Targets(home).leads >= FIRST


@built
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for target in Targets(page.read_text(encoding="utf-8")).loads:
            assert "://" not in target and not target.startswith("//"), (page, target)
            if not target.startswith("data:") and page.name != "404.html":
                assert (page.parent / target.partition("?")[0]).exists(), (page, target)


@built
def test_a_link_that_leads_nowhere_fails(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[gone](gone.md)\n")
    config = tmp_path / "mkdocs.yml"
    hook = ROOT / "scripts" / "site_pages.py"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\nsite_dir: {tmp_path / 'site'}\ndocs_dir: docs\n"
        f"nav: [index.md]\nhooks: ['{hook}']\nextra_css: []\n"
    )
    done = build(tmp_path / "site", "--config-file", str(config))
    assert done.returncode == 1 and "gone.md" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("source", "page", "link", "becomes"),
    [
        ("docs/faq.md", "faq.md", "[s](../SECURITY.md#x)", "[s](security.md#x)"),
        ("SECURITY.md", "security.md", "[f](docs/flower.md)", "[f](flower.md)"),
        ("protocols/README.md", "protocols.md", "[a](aggregate/README.md)", "[a](aggregate.md)"),
        ("docs/notebooks/a.md", "notebooks/a.md", "[f](../faq.md)", "[f](../faq.md)"),
        (
            "docs/faq.md",
            "faq.md",
            "[c](../ciphercohort/cli/app.py)",
            "c (`ciphercohort/cli/app.py`)",
        ),
        ("docs/faq.md", "faq.md", "[n](notebooks/a.ipynb)", "[n](notebooks/a.md)"),
        ("docs/notebooks/a.md", "notebooks/a.md", "[n](a.ipynb)", "[n](a.ipynb)"),
        ("docs/faq.md", "faq.md", "[n](../nowhere.py)", "[n](../nowhere.py)"),
        ("docs/faq.md", "faq.md", "[w](https://flower.ai)", "[w](https://flower.ai)"),
        ("docs/faq.md", "faq.md", "![p](gallery/a.svg)", "![p](gallery/a.svg)"),
    ],
)
def test_a_link_leads_to_the_page_of_its_file(
    source: str, page: str, link: str, becomes: str
) -> None:
    assert pages.with_links(f"See {link}.", source, page) == f"See {becomes}."


def test_every_command_has_its_section() -> None:
    text = pages.commands_page()
    for name in ("simulate", "plan", "party consent", "study noise", "audit privacy"):
        assert re.search(rf"^#+ `cohort {name}`$", text, re.MULTILINE), name
    assert "`--epsilon`" in text and "\f" not in text
