"""No edit of a file goes unsaid: of a simulation, with and without messages, of whole folders."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ciphercohort import simulate
from ciphercohort.results.result import RunResult
from ciphercohort.verify.folder import verify_run
from ciphercohort.verify.session import SOFTWARE
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
