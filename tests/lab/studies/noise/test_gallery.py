"""The gallery: shows what is there, keeps it small, and is brought up to date by one command."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sims.lab.studies.noise.gallery import plots_of
from sims.lab.studies.noise.grid import Grid, read_grids
from sims.lab.studies.noise.measurement import Measurement
from sims.lab.studies.noise.report import write_all
from sims.lab.studies.noise.slopes import fit_slopes
from sims.lab.studies.noise.tables import tidy
from tests.lab.studies.noise.made_up import GRID, made_up

DOCS = Path(__file__).parents[4] / "docs"
LARGEST = 60_000  # bytes of a picture
PAGE = """# Page
![ratio](gallery/adult-rows/privacy_ratio_fixed.svg)
<!-- slopes adult-rows privacy_ratio largest_iterate -->
old table
<!-- end -->
text
"""


def few() -> list[Measurement]:
    made = (m for m in made_up() if m.cell.kind == "twin" and m.cell.rounds is None)
    return [m for m in made if m.cell.mode == "fixed"]


@pytest.fixture(scope="module")
def assembler() -> Any:
    spec = importlib.util.spec_from_file_location("assemble", DOCS / "gallery" / "assemble.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished study, and an empty one whose name begins alike."""
    folder = tmp_path_factory.mktemp("studies")
    for name in ("adult-rows", "adult"):
        (folder / name).mkdir()
    write_all(folder / "adult-rows", "t", "c", few(), [Grid()])
    return folder


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "gallery/adult-rows").mkdir(parents=True)
    (tmp_path / "gallery/adult-rows/forgotten.svg").write_text("<svg/>")
    path = tmp_path / "gallery.md"
    path.write_text(PAGE)
    return path


def test_the_page_shows_what_is_there(assembler: Any) -> None:
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    shown = set(assembler.PICTURE.findall(text))
    every = {path.relative_to(DOCS / "gallery") for path in (DOCS / "gallery").rglob("*.svg")}
    assert {Path(f"{study}/{name}.svg") for study, name in shown} == every
    assert len(shown) > 20
    for path in every:
        assert (DOCS / "gallery" / path).stat().st_size < LARGEST, path
    tables = [match[0] for match in assembler.TABLE.finditer(text)]
    assert len(tables) == text.count("<!-- slopes") == 4
    assert all(table.count("\n|") > 5 for table in tables)


def test_its_grid_can_be_read() -> None:
    first, second = read_grids(DOCS / "gallery" / "aggregation.yaml")
    assert first.encrypted == (2, 5, 10, 20)
    assert second.weights == ("equal",)


def test_it_is_brought_up_to_date(assembler: Any, studies: Path, page: Path) -> None:
    assembler.assemble(page, studies)
    text = page.read_text()
    assert text.startswith("# Page") and text.endswith("<!-- end -->\ntext\n")
    assert "old table" not in text
    settings = {s.setting for s in fit_slopes(tidy(few()))}
    assert text.count("| privacy_ratio |") == len(settings)
    assert "| t = 0 | t = 1 | t = P / 2 | t = P - 1 |" in text
    assert "bits below the bound" in text
    assert [path.name for path in (page.parent / "gallery/adult-rows").iterdir()] == [
        "privacy_ratio_fixed.svg"
    ]
    once = text
    assembler.assemble(page, studies)
    assert page.read_text() == once


def test_nothing_is_lost_where_a_study_is_missing(
    assembler: Any, studies: Path, page: Path, tmp_path: Path
) -> None:
    less = tmp_path / "less"
    shutil.copytree(studies, less)
    (less / "adult-rows" / "figures" / "privacy_ratio_fixed.svg").unlink()
    with pytest.raises(SystemExit, match=r"privacy_ratio_fixed\.svg"):
        assembler.assemble(page, less)
    shutil.rmtree(less / "adult-rows")
    with pytest.raises(SystemExit, match="adult-rows"):
        assembler.assemble(page, less)
    assert page.read_text() == PAGE
    assert len(list((page.parent / "gallery/adult-rows").iterdir())) == 1


def test_privacy_noise_stands_beside_encryptions_error() -> None:
    """Of the same coalition and base setting: of t = 0 it is the same for all P."""
    made = [
        replace(m, values={**m.values, "release": 1e-5 * m.cell.parties})
        if m.cell.kind == "encrypted"
        else m
        for m in made_up()
    ]
    (plot,) = (p for p in plots_of(tidy(made), [GRID]) if p.name == "model_deviation")
    shown = {line.label: line.points.middle for line in plot.lines}
    assert list(shown) == ["encryption", "privacy noise"]
    assert dict(shown["encryption"]) == pytest.approx({p: 1e-5 * p for p in GRID.encrypted})
    assert dict(shown["privacy noise"]) == pytest.approx(dict.fromkeys(GRID.parties, 0.1))
