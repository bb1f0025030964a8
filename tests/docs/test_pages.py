"""What the pages say can be done: commands exist, the tutorial and the notebooks run."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ciphercohort.cli.app import app
from ciphercohort.verify.folder import verify_run
from parties.reader.infer import infer_schema
from protocols.plan.protocol import PROTOCOLS, protocol
from tests.rooms.rooms import PACKAGES
from tests.support.scripts import ROOT, load

notebooks = load("scripts/run_notebook.py")
steps = load("scripts/step_tables.py")
DOCS = ROOT / "docs"
TEXTS = [*sorted(DOCS.rglob("*.md")), *(ROOT / f"{n}.md" for n in ("README", "SECURITY"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What the tests shorten; the tutorial says so.
SHORTER = {"simulate": ["--profile", "fast-insecure"], "plan": ["--no-timing"]}
FEW = ["--iterations", "4"]  # of those on a toy ring, where only the promise is looked at


def test_security_is_read_in_one_sitting() -> None:
    assert len((ROOT / "SECURITY.md").read_text(encoding="utf-8").split()) <= 3_000


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(block: str) -> Iterator[list[str]]:
    """The words after `cohort` of every command of a block."""
    for line in block.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s+&&\s+|\s+#\s", line.strip()):
            if found := re.match(r"(?:\.venv/bin/)?cohort\s+(.+)", part):
                yield shlex.split(found[1])


def parse(command: click.Command, words: Sequence[str]) -> None:
    """Raises click.UsageError where a command, an option or a value of one does not exist."""
    context = command.make_context("cohort", list(words))
    if isinstance(command, click.Group):
        _, inner, left = command.resolve_command(context, [*context._protected_args, *context.args])
        assert inner is not None
        parse(inner, left)


def command_lines() -> list[list[str]]:
    return [
        words
        for page in TEXTS
        for language, block in blocks(page)
        if language in ("", "sh", "bash")
        for words in commands(block)
        if not words[0].endswith(("-completion", "--version"))
    ]


def test_every_command_of_a_page_exists() -> None:
    lines, cohort = command_lines(), get_command(app)
    assert len(lines) > 40
    for words in lines:
        parse(cohort, words)
    with pytest.raises(click.UsageError, match="--partys"):
        parse(cohort, ["simulate", "--partys", "3"])


# -- steps of protocols ---------------------------------------------------------------------------


def test_tables_of_steps_are_the_protocols() -> None:
    page = steps.PAGE.read_text(encoding="utf-8")
    assert steps.renewed(page) == page, "python scripts/step_tables.py --write"
    for name in PROTOCOLS:
        for step in protocol(name).steps:
            last = list(steps.rows(step))[-1]
            assert page.count(f"| {' | '.join(last)} |") >= 1 and last[2:] != ("nothing",) * 3
    assert steps.renewed(page.replace("| `keys` |", "| `key` |")) == page


@pytest.mark.parametrize(
    "page", [steps.PAGE, DOCS / "method/formulas.md"], ids=lambda page: page.stem
)
def test_files_that_a_page_of_protocols_names_are_there(page: Path) -> None:
    named = re.findall(r"`([a-z_0-9/]+(?:\.py|/))`", page.read_text(encoding="utf-8"))
    assert len(named) > 40
    rooms = [ROOT, ROOT / "protocols", ROOT / "protocols/rows"]  # the last: files of every room
    assert [name for name in named if not any((room / name).exists() for room in rooms)] == []


def test_files_that_any_page_names_by_their_path_are_there() -> None:
    path = re.compile(rf"\b(?:{'|'.join(PACKAGES)}|tests)/[\w/]+\.py\b")
    pages = [*TEXTS, ROOT / "CONTRIBUTING.md", ROOT / "parties/kernel/README.md"]
    named = [(page.name, name) for page in pages for name in path.findall(page.read_text("utf-8"))]
    assert len(named) > 200
    assert [each for each in named if not (ROOT / each[1]).is_file()] == []


# -- what claims an epsilon -----------------------------------------------------------------------

CALLS = {"simulate", "FederatedLogisticRegression", "FederatedRegression"}


def claiming() -> list[list[str]]:
    """Commands that train with an epsilon, each once."""
    lines = [" ".join(w) for w in command_lines() if w[0] == "simulate" and "--no-privacy" not in w]
    return [line.split() for line in dict.fromkeys(lines)]


def python_calls() -> Iterator[ast.Call]:
    """Of every page's Python that trains, in blocks and within sentences."""
    for page in TEXTS:
        inline = re.findall(r"`((?:Federated\w+|simulate)\([^`]*\))[^`]*`", page.read_text("utf-8"))
        pieces = [
            block
            for language, block in blocks(page)
            if language == "python" and re.search(r"\b(simulate|Federated\w+)\(", block)
        ]
        for text in (*pieces, *(piece for piece in inline if "…" not in piece)):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") in CALLS:
                    yield node


def test_whatever_claims_an_epsilon_names_a_public_schema() -> None:
    """Built-in tables have theirs; an inferred one is a condition that is not met."""
    assert len(claiming()) > 10
    for words in claiming():
        assert "--schema" in words or "--data" not in words, words
    calls = list(python_calls())
    assert len(calls) > 4
    for call in calls:
        given = {each.arg: each.value for each in call.keywords}
        exact = isinstance(given.get("epsilon"), ast.Constant) and given["epsilon"].value is None
        from_rows = call.func.id != "simulate" or "data" in given
        assert exact or "no_privacy" in given or "schema" in given or not from_rows, ast.dump(call)


def public_tables(folder: Path) -> None:
    """Made-up tables under the pages' names, and schemas of tables made up likewise."""
    rng = np.random.default_rng(2)
    rows = pd.DataFrame(rng.normal(size=(5_000, 2)), columns=["age", "dose"]).assign(
        ward=rng.choice(["A", "B"], 5_000), hospital=rng.choice(["north", "south", "west"], 5_000)
    )
    risk = rows.age + (rows.ward == "A")
    died = np.where(risk + rng.logistic(size=5_000) > 0, "yes", "no")
    species = pd.cut(risk, [-9, -1, 1, 9], labels=["setosa", "virginica", "other"]).astype(str)
    for name, outcome, cells, schema in (
        *((name, "died", died, "schema") for name in ("patients", "train", "new", "rows")),
        ("stays", ["days"], 5 + risk.round(1), "stays"),
        ("flowers", "species", species, "flowers"),
    ):
        column = outcome if isinstance(outcome, str) else outcome[0]
        table = rows.assign(**{column: cells})
        table.to_csv(folder / f"{name}.csv", index=False)
        public = infer_schema(table, outcome, exclude=["hospital"], several=True)
        public.save(folder / f"{schema}.json")


@pytest.mark.slow
def test_whatever_claims_an_epsilon_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run on a toy ring for a few iterations, certificate and check of the folder say satisfied.

    Every third command; with COHORT_SLOW=1 all.
    """
    monkeypatch.chdir(tmp_path)
    public_tables(tmp_path)
    for number, given in enumerate(claiming()[:: 1 if os.environ.get("COHORT_SLOW") else 3]):
        # The model is the same whatever the number of workers.
        words = " ".join(given).replace(" --workers 4", "").split()
        out = tmp_path / f"run-{number}"
        placed = [
            out if before == "--out" else word
            for before, word in zip(["", *words], words, strict=False)
        ]
        placed += [] if "--out" in words else ["--out", out]
        fast = "--profile" in words or "secure-aggregation" in words
        toy = [] if fast else [*SHORTER["simulate"], *FEW]
        done = CliRunner().invoke(app, [*map(str, placed), *toy])
        if words[-1] == "runs/second":
            assert "exceeds the budget 0.5" in " ".join(done.output.split()), (
                "docs/method/budgets.md"
            )
            continue
        assert done.exit_code == 0, (words, done.output, done.exception)
        certificate = json.loads((out / "release/certificate.json").read_text())
        assert certificate["satisfied"] is True, words
        assert "NOT satisfied" not in done.output, words
        assert all(check.passed for check in verify_run(out)), words


# -- the tutorial ---------------------------------------------------------------------------------


def test_the_tutorial_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks in their order, in an empty folder; one space for all of its Python."""
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    said: dict[str, str] = {}
    for language, block in blocks(DOCS / "tutorial.md"):
        if language == "python":
            exec(compile(block, "tutorial.md", "exec"), space)
        for words in commands("" if language else block):
            done = CliRunner().invoke(app, [*words, *SHORTER.get(words[0], [])])
            assert done.exit_code == 0, (words, done.output, done.exception)
            said[" ".join(words[:2])] = done.output
    schema = json.loads((tmp_path / "schema.json").read_text())
    age = next(column for column in schema["columns"] if column["name"] == "age")
    assert (age["typical"], age["spread"]) == (70, 10), "section 2 says so"
    assert "epsilon by number of colluding parties" in said["plan --rows"], "section 3"
    assert len(pd.read_csv(tmp_path / "scored.csv")) == 200
    assert (tmp_path / "runs" / "died" / "release" / "report.html").exists()
    assert "every check passed" in said["verify runs/died"]


# -- notebooks ------------------------------------------------------------------------------------

SMALL: dict[str, dict[str, Any]] = {
    "consortium": {"PROFILE": "fast-insecure", "ROWS": 2500, "EPSILON": 20.0},
    "noise": {"PARTIES": (1, 2), "SEEDS": 1},
}


def kinds(cell: dict[str, Any]) -> list[list[str]]:
    """Of its outputs, by the forms that each has."""
    return [sorted(each.get("data", {"stream": ""})) for each in cell["outputs"]]


@pytest.mark.parametrize("name", SMALL)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its first cell to its last, with smaller parameters; it shows what is kept in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["notebook"])  # the commands of a notebook set it
    kept = json.loads((DOCS / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    done = notebooks.execute(kept, **SMALL[name])
    cells = [c for c in zip(kept["cells"], done["cells"], strict=True) if "outputs" in c[0]]
    for before, after in cells:
        assert kinds(before) == kinds(after), "".join(before["source"])
        assert before["execution_count"] == after["execution_count"]
    assert sum(bool(after["outputs"]) for _, after in cells) >= 5
    assert str(ROOT) not in json.dumps(kept)


def test_every_notebook_is_run() -> None:
    assert {path.stem for path in (DOCS / "notebooks").glob("*.ipynb")} == set(SMALL)


def cell(source: str, *tags: str) -> dict[str, Any]:
    return {"cell_type": "code", "source": [source], "metadata": {"tags": list(tags)}}


def test_the_runner_does_what_a_notebook_does() -> None:
    """One space for all cells; what is printed, then the last expression; parameters overruled."""
    first, second = cell("n = 2", "parameters"), cell("print('so many:')\nn * 10")
    for given, shown in (({}, "20"), ({"n": 3}, "30")):
        outputs = notebooks.execute({"cells": [first, second]}, **given)["cells"][1]["outputs"]
        assert [each["output_type"] for each in outputs] == ["stream", "display_data"]
        assert outputs[0]["text"] == ["so many:\n"]
        assert outputs[1]["data"] == {"text/plain": [shown]}
    assert "text/html" in notebooks.shown(pd.DataFrame({"a": [1]}))
    with pytest.raises(KeyError, match="no parameter m"):
        notebooks.execute({"cells": [first]}, m=1)
    with pytest.raises(ZeroDivisionError):
        notebooks.execute({"cells": [cell("1 / 0")]})


LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize(
    "page",
    [
        *(each for each in TEXTS if LINK.search(each.read_text(encoding="utf-8"))),
        *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "protocols/README.md")),
        ROOT / "parties" / "kernel" / "README.md",
    ],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_links_lead_to_files_of_a_clone(page: Path) -> None:
    """Not only to pages that the site makes of other files."""
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [to for to in targets if not (page.parent / to).exists()] == []


def test_every_picture_is_shown_and_small() -> None:
    """In a folder beside its page; a visitor loads all pictures of a page at once."""
    shown = {
        (page.parent / name).resolve()
        for page in TEXTS
        for name in re.findall(r"[\w./-]+\.(?:svg|png)", page.read_text("utf-8"))
    }
    there = {path for end in ("svg", "png") for path in DOCS.rglob(f"*.{end}")}
    assert len(there) > 30
    assert there - shown == {DOCS / "assets/favicon.svg"}
    assert not [path for path in there if path.stat().st_size >= 200_000]
