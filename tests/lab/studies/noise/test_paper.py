"""What a study gives a paper: the report's own figures, in LaTeX that compiles, and its methods."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ciphercohort.results.latex import latex, latex_words
from sims.lab.studies.noise import paper
from sims.lab.studies.noise.gallery import plots_of
from sims.lab.studies.noise.report import slope_tables, write_all
from sims.lab.studies.noise.slopes import fit_slopes
from sims.lab.studies.noise.tables import tidy
from tests.ciphercohort.results.test_latex import AWKWARD, numbers_of_python
from tests.lab.studies.noise.test_study import GRID, study

SPECIAL = re.compile(r"(?<!\\)[%$#_&^~]")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("paper")
    write_all(out, "Noise_of 100% & more", "cohort study noise --mode a_b", study(out), [GRID])
    return out


def test_every_figure_is_included_with_its_caption(out: Path) -> None:
    text = (out / "figures.tex").read_text(encoding="utf-8")
    included = re.findall(r"\\includegraphics\[.*?\]\{(.*?)\}", text)
    assert len(included) > 3 and set(included) == {f"figures/{p.name}" for p in drawn(out)}
    captions = re.findall(r"\\caption\{(.*)\}", text)
    assert len(captions) == len(included) and all("Abscissa" in words for words in captions)
    assert not [words for words in captions if SPECIAL.search(words.replace("$", ""))]
    assert all(path.read_bytes().startswith(b"%PDF") for path in drawn(out))


def drawn(out: Path) -> list[Path]:
    return list((out / "figures").glob("*.pdf"))


def test_the_tables_are_those_of_the_report(out: Path) -> None:
    text = (out / "tables.tex").read_text(encoding="utf-8")
    bodies = text.split(r"\begin{longtable}")[1:]
    slopes = fit_slopes(tidy(study(out)))
    wanted = [found for found in slope_tables(slopes) if found["rows"]]
    assert len(bodies) == 1 + len(wanted)
    for body, found in zip(bodies[1:], wanted, strict=True):
        assert latex_words(found["words"]) in body
        for _, cells in found["rows"]:
            for parts in cells:
                assert latex_words(" ".join(words for words, _ in parts)) in body
    for body in bodies:
        rows = re.findall(r"^(?!\\caption|\\multicolumn).* \\\\$", body, re.MULTILINE)
        assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1 < len(rows)


def test_the_methods_say_what_was_measured(out: Path) -> None:
    text = (out / "methods.txt").read_text(encoding="utf-8")
    for words in (
        *("P = 1, 2, 4 clients", "protocol secure-aggregation", "iterations: 5.", "t = P - 1"),
        *("epsilon = 1, delta = 1e-05", "sigma / sqrt(P - t)", "repeated with 3 seeds"),
        *("standard deviation sigma.", "cohort study noise", "not private"),
    ):
        assert words in text, words
    slopes = [s for s in fit_slopes(tidy(study(out))) if s.agrees is not None and not s.exact]
    held = sum(bool(s.agrees) for s in slopes if s.relation == "=")
    assert f"{held} of {sum(s.relation == '=' for s in slopes)} contain" in text
    assert "Encrypted runs" not in text  # there are none


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("5% of a_b & c#d", r"5\% of a\_b \& c\#d"),
        ("x^2 ~ {y} \\z", r"x\textasciicircum{}2 \textasciitilde{} \{y\} \textbackslash{}z"),
        ("0.5 ± 0.1 <= 1", r"0.5 $\pm$ 0.1 $<$= 1"),
    ],
)
def test_no_sign_of_a_text_is_a_command(text: str, safe: str) -> None:
    assert latex(text) == safe


def test_a_caption_tells_of_what_is_drawn(out: Path) -> None:
    plots = {plot.name: plot for plot in plots_of(tidy(study(out)), [GRID])}
    words = {name: paper.caption(plot) for name, plot in plots.items()}
    assert "the formula" in words["privacy_ratio_fixed"]
    assert "the formula" not in words["accuracy_fixed"] and "bands" in words["accuracy_fixed"]


def test_every_number_of_a_table() -> None:
    cells = [[f"{value:.3e}", f"{value:g} ± 1e-05"] for value in AWKWARD[:9]]
    rows = [(f"delta {1e-5:g}", each) for each in cells]
    text = paper.table("Slopes at delta 1e-05", "slopes", ["", "-1.5e-3", "b"], rows)
    assert numbers_of_python(text) == []
