"""`cohort reproduce`: every item is listed and runs in its quick setting without any file."""

from __future__ import annotations

import inspect
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sims.lab.papers
from ciphercohort.cli.app import app
from sims.lab.papers import data
from sims.lab.papers.data import Need
from sims.lab.papers.item import ABSENT, NOT_HERE, PAPERS, VERDICTS, Item, Settings
from sims.lab.papers.registry import items


def test_every_file_of_an_item_is_listed() -> None:
    root = Path(sims.lab.papers.__path__[0])
    files = [path for path in root.glob("p???/*.py") if path.name != "__init__.py"]
    expected = {(path.parent.name[1:], path.stem.replace("_", "-")) for path in files}
    assert expected and {(item.paper, item.name) for item in items()} == expected
    shown = CliRunner().invoke(app, ["reproduce", "--list"], env={"COLUMNS": "300"})
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    for item in items():
        assert item.paper in PAPERS and item.about.verdict in VERDICTS[:-1]
        wanted = (item.paper, item.name, item.about.verdict)
        assert any(all(word in line for word in wanted) for line in lines)
    for each in NOT_HERE:
        assert any(each.paper in line and "missing" in line for line in lines)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the tables that a run reads; of several that may be absent the first is."""
    names: set[str] = set()
    present, load = Settings.present, Need.load

    def without_the_first(self: Settings, needs: Any) -> tuple[list[Need], list[str]]:
        there, notes = present(self, needs)
        if len(there) > 1:
            notes = [f"{ABSENT}{there[0].words}", *notes]
        return there[-max(1, len(there) - 1) :], notes

    def recorded(self: Need, *args: Any) -> Any:
        names.add(self.name)
        return load(self, *args)

    monkeypatch.setattr(Settings, "present", without_the_first)
    monkeypatch.setattr(Need, "load", recorded)
    return names


TABLES = {need.name: need for need in vars(data).values() if isinstance(need, Need)}
DECIMAL = re.compile(r"(?<![\w.,/-])\d+\.\d+(?![\w.]*/)")


def named(words: str) -> set[str]:
    """Tables that a text names."""
    return {name for name in TABLES if re.search(rf"(?i)(?<![\w]){name}(?![\w])", words)}


def check_remarks(item: Item, document: Any, used: set[str]) -> None:
    """Fixed texts name no table of several; notes name those that were read; numbers are known."""
    about = item.about
    whole = {name.removesuffix("_test") for name in (need.name for need in about.data)}
    certain = whole if len(whole) == 1 else set()
    for words in (about.finding, *about.unknown, *about.remarks):
        assert named(words) <= certain, words
    module = f"sims.lab.papers.p{item.paper}.{item.name.replace('-', '_')}"
    known = inspect.getsource(import_module(module))
    for words in document["notes"]:
        if not words.startswith(ABSENT):
            assert named(words) <= used, words
    for words in (about.finding, *about.remarks):
        for clause in re.split(r"[;:,] ", words):
            if not re.search(
                r"paper|text|published|printed|figure|Algorithm|Lemma|equation", clause
            ):
                for number in DECIMAL.findall(clause):
                    assert known.count(number) > 1, (number, words)


@pytest.mark.parametrize("item", items(), ids=lambda item: item.stem)
def test_every_item_runs_quickly_without_files(item: Item, tmp_path: Path, read: set[str]) -> None:
    """Rows of numbers, JSON, CSV, the figure where there is one; remarks of what ran."""
    args = ["reproduce", item.paper, item.name, "--quick"]
    args += ["--data-folder", str(tmp_path), "--out", str(tmp_path / "out"), "--json"]
    found = CliRunner().invoke(app, args)
    assert found.exit_code == 0, found.output
    (document,) = json.loads(found.stdout)
    assert document["rows"] and document["quick"]
    assert document["made"] == [need.name for need in item.about.data]
    stem = tmp_path / "out" / f"{item.paper}-{item.name}"
    assert json.loads(stem.with_suffix(".json").read_text()) == document
    lines = stem.with_suffix(".csv").read_text().splitlines()
    assert lines[0] == "quantity,ours,paper,published,std_error,seconds,note"
    check_remarks(item, document, read)
    if item.name.startswith("figure"):
        assert "<svg" in stem.with_suffix(".svg").read_text()


@pytest.mark.parametrize(
    ("item", "parts"),
    [
        (("000", "figure-4"), ("lbw.csv", "189 rows", "IDASH2017", "--data-folder")),
        (("003", "table-4"), ("compas.csv", "7,214 rows", "ProPublica", "--data-folder")),
    ],
)
def test_a_missing_file_is_named_with_shape_and_source(
    item: tuple[str, str], parts: tuple[str, ...], tmp_path: Path
) -> None:
    """Where every table is missing, too; nothing is written."""
    out = tmp_path / "out"
    args = ["reproduce", *item, "--data-folder", str(tmp_path), "--out", str(out)]
    found = CliRunner().invoke(app, args)
    words = " ".join(found.output.split())
    assert found.exit_code == 2 and not out.exists()
    assert all(part in words for part in parts)


def test_an_unknown_item_is_refused() -> None:
    found = CliRunner().invoke(app, ["reproduce", "000", "figure-44"])
    assert found.exit_code == 2 and "figure-4" in found.output
    assert CliRunner().invoke(app, ["reproduce", "999"]).exit_code == 2


def test_the_page_has_every_item_and_the_figures_of_full_runs(tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "papers.md"
    args = ["reproduce", "000", "figure-4", "--quick", "--data-folder", str(tmp_path)]
    run = [*args, "--out", str(out), "--page", str(page)]
    assert CliRunner().invoke(app, run).exit_code == 0
    empty = page.read_text()
    # A quick run is no result.
    assert empty.count("Not run for this page.") == len(items())
    path = out / "000-figure-4.json"
    document = json.loads(path.read_text())
    row = document["rows"][0] | {"paper": 1.25, "ours": 2.5, "std_error": 0.125, "note": "a | b"}
    path.write_text(json.dumps(document | {"quick": False, "rows": [row], "seconds": 7}))
    again = CliRunner().invoke(app, ["reproduce", "--out", str(out), "--page", str(page)])
    assert again.exit_code == 0, again.output
    text = page.read_text()
    assert (
        f"| {row['quantity'].split(':')[1].strip()} |" in text and "| 1.25 | 2.5 ± 0.12 |" in text
    )
    for item in items():
        about = item.about
        assert f"### {item.paper} {item.name}\n" in text
        assert f"**{about.verdict.capitalize()}.** " in text and about.finding in text
        for words in (*about.unknown, *about.remarks):
            assert words in text
        for need in about.data:
            assert f"{need.file} ({need.shape})" in text and need.source in text
