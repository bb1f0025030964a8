"""No edit of a file goes unsaid: of a simulation, with and without messages, of whole folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ciphercohort import simulate
from ciphercohort.results.result import RunResult
from ciphercohort.verify.folder import verify_run
from ciphercohort.verify.session import SOFTWARE, differences
from tests.ciphercohort.verify.edits import remembered, unsaid, unsaid_together
from tests.sims.fake_run import reseal
from tests.sims.model_runs import public_schema
from tests.sims.tables import lopsided_frame


def test_of_a_simulation(fake: tuple[Path, RunResult], tmp_path: Path) -> None:
    """Digests are repaired, as a forger would."""
    run = Path(shutil.copytree(fake[0], tmp_path / "run"))
    assert unsaid(run, lambda: reseal(run), every=5) == []


def test_of_a_simulation_with_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered(monkeypatch)
    run = tmp_path / "run"
    options: dict[str, Any] = {"no_privacy": True, "iterations": 2, "seed": 1}
    options |= {"protocol": "secure-aggregation", "keep_messages": True, "parties": 2}
    simulate(data=lopsided_frame(200), label="y", out=run, **options)
    shutil.rmtree(run / "private")
    assert unsaid(run, every=9) == []
    assert unsaid_together(run) == []


@pytest.mark.parametrize(
    "words",
    [
        "Python 0.0.0{}main *{display:none} main::before{content:'epsilon = 0.01'}",
        "Python 3.10.0, ciphercohort 9.9.9 and an epsilon of 0.01",
        "<p>Python 3.10.0</p>",
    ],
)
@pytest.mark.parametrize("place", ["</style>", "</main>", "</html>"])
def test_a_report_has_nothing_beside_its_software(
    words: str, place: str, fake: tuple[Path, RunResult], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(fake[0], tmp_path / "run"))
    page = run / "release/report.html"
    text = page.read_text(encoding="utf-8")
    assert place in text
    page.write_text(text.replace(place, words + place, 1), encoding="utf-8")
    reseal(run)
    assert "documents" in {check.name for check in verify_run(run) if not check.passed}
    line = SOFTWARE.search(text)
    assert line is not None and len(SOFTWARE.findall(text)) == 1
    page.write_text(text.replace(line[0], "Python 3.99.0, ciphercohort 9.9.9"), encoding="utf-8")
    reseal(run)
    assert all(check.passed for check in verify_run(run))


def reports(text: str, folder: Path) -> Callable[[str], bool]:
    """Whether a report is told from the text that it should be."""
    page = folder / "report.html"

    def is_told(found: str) -> bool:
        page.write_text(found, encoding="utf-8")
        return bool(list(differences(folder, {page.name: text})))

    return is_told


SOFTWARE_LINE = "<tr><td>Software</td><td>Python 3.10.0</td></tr>"


@pytest.mark.parametrize(
    "words",
    [
        "Python 3.means_in_truth_epsilon.below_0.1",
        "+approved.by.the.board",
        ", flwr 1.0 and an epsilon of 0.01",
        "\u0663",  # a digit of another script
        "<p>epsilon = 0.01</p>",
        SOFTWARE_LINE,
        "\n",
    ],
)
def test_words_anywhere_in_a_report_are_told(
    words: str, fake: tuple[Path, RunResult], tmp_path: Path
) -> None:
    """Of the places around the releases each; of the others one in 50."""
    text = (fake[0] / "release/report.html").read_text(encoding="utf-8")
    is_told, line = reports(text, tmp_path), SOFTWARE.search(text)
    assert not is_told(text) and line is not None and line.start() > len(text) - 3000
    near = range(line.start() - 200, line.end() + 200)
    places = {*range(0, len(text), 50), *near, len(text)}
    assert [at for at in sorted(places) if not is_told(text[:at] + words + text[at:])] == []
    # Nor where the releases are gone from their place.
    gone = text[: line.start()] + text[line.end() :]
    assert [at for at in sorted(places) if not is_told(gone[:at] + words + gone[at:])] == []


@pytest.mark.parametrize(
    ("releases", "is_fine"),
    [
        ("Python 3.99.0, ciphercohort 9.9.9", True),
        ("Python 3.14.0rc2, ciphercohort 1.0.0.dev3+g1a2b3c4.d20260101, flwr 2.0.post1", True),
        ("Python 3.13.0+, ciphercohort 0.4.0b1, openfhe 1.6.1.0.22.4, flwr 1.30.0", True),
        ("", False),
        ("Python", False),
        ("ciphercohort 9.9.9", False),
        ("Python 3.10.0, Python 3.10.0", False),
        ("Python 3.10.0, flwr 1.0.0, flwr 1.0.0", False),
        ("Python 3.10.0, epsilon 0.01", False),
        ("Python 3.10.0+below.a.bound", False),
        ("Python 3.10.0_in_truth", False),
        ("Python 3.10.0 ", False),
        ("Python 3." + "1" * 99, False),
    ],
)
def test_releases_are_numbers_at_their_place(
    releases: str, is_fine: bool, fake: tuple[Path, RunResult], tmp_path: Path
) -> None:
    text = (fake[0] / "release/report.html").read_text(encoding="utf-8")
    line = SOFTWARE.search(text)
    assert line is not None
    found = text[: line.start()] + releases + text[line.end() :]
    assert reports(text, tmp_path)(found) == (not is_fine)
    # A table that looks like it does not make room for another.
    assert reports(text.replace("</main>", f"{SOFTWARE_LINE}</main>"), tmp_path)(found)


@pytest.mark.parametrize(
    "options",
    [
        {"no_privacy": True, "protocol": "secure-aggregation"},
        {"epsilon": 12.0, "protocol": "secure-aggregation", "update": "gd", "inference": True},
        {"epsilon": 8.0, "profile": "fast-insecure"},
    ],
    ids=["exact", "private sums with a table", "private whitened rows"],
)
@pytest.mark.parametrize("keep_messages", [False, True])
def test_of_all_documents_at_once(
    options: dict[str, Any], keep_messages: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered(monkeypatch)
    frame = lopsided_frame(6000)[["age", "smoker", "y"]]
    given = {"schema": public_schema(frame, "y")} if "epsilon" in options else {}
    simulate(
        data=frame,
        label="y",
        out=tmp_path,
        iterations=1,
        seed=1,
        parties=2,
        keep_messages=keep_messages,
        **given,
        **options,
    )
    shutil.rmtree(tmp_path / "private")
    assert unsaid_together(tmp_path) == []
