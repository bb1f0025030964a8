"""Numbers and texts of every LaTeX output: powers of ten, signs and infinities as mathematics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.mathtext import MathTextParser

import sims
from ciphercohort.after.inference_table import _number, latex_table
from ciphercohort.results.latex import latex, latex_number, latex_words

MATHEMATICS = re.compile(r"(?<!\\)\$(.*?)(?<!\\)\$")
PARSER = MathTextParser("path")
AWKWARD = (
    *(3.9e-4, -3.9e-4, 1e-300, -2.5e6, 1e22, 0.0, -0.0, 1.5, -1.5),
    *(float("inf"), float("-inf"), float("nan")),
)


def plain(text: str) -> str:
    """The text without its mathematics, which has to be mathematics to another reader, too."""
    for found in MATHEMATICS.findall(text):
        PARSER.parse(f"${found}$")
    return MATHEMATICS.sub("", text)


def numbers_of_python(text: str) -> list[str]:
    """Exponents anywhere, infinities and signs outside of mathematics."""
    exponents = re.findall(r"(?<!\w)[\d.,]+[eE][-+−]?\d\S*", text)
    return exponents + re.findall(r"\b(?:inf|nan)\b|(?<![\w-])[-−]\d\S*", plain(text))


@given(st.floats(), st.integers(1, 6))
def test_a_number_is_the_same_number(value: float, digits: int) -> None:
    printed = _number(value, digits)
    made = latex_number(printed)
    assert numbers_of_python(made) == [] and plain(made) in ("", "--")
    back = re.sub(r" \\times 10\^\{(-?\d+)\}", r"e\1", made.strip("$")).replace(r"\infty", "inf")
    assert back == "--" if value != value else float(back) == float(printed)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("delta 1e-05 in all", r"delta $1 \times 10^{-5}$ in all"),
        ("1.25e+07 of 1,000 rows", r"$1.25 \times 10^{7}$ of 1,000 rows"),
        ("2e−05 to −3", r"$2 \times 10^{-5}$ to $-3$"),
        ("[-1.5, -1,000]", r"[$-1.5$, $-1{,}000$]"),
        ("epsilon inf", r"epsilon $\infty$"),
        ("P-1 of 2-5 in 2020-01-05, x1e5, information", None),
    ],
)
def test_numbers_in_a_sentence(text: str, made: str | None) -> None:
    assert latex_words(text) == (made or text) and numbers_of_python(latex_words(text)) == []


def test_a_name_stays_as_it_is() -> None:
    assert latex("ward=1e-5") == "ward=1e-5"


def table_of_coefficients() -> str:
    keys = ("coef", "se", "z", "p", "low", "high")
    keys += ("odds_ratio", "odds_ratio_low", "odds_ratio_high")
    rows: list[dict[str, Any]] = [
        {"name": f"x{k}", **dict.fromkeys(keys, value)} for k, value in enumerate(AWKWARD)
    ]
    about = {
        **{"model": "logistic", "rows": 1_000_000, "epsilon_in_all": 1e-7, "delta_in_all": 1e-12},
        **{"freedom": float("inf"), "exact_sums": False, "notes": ["off by -3.2e-08 or 1e+09"]},
    }
    return latex_table(rows, about, "odds_ratio")


def test_every_number_of_a_table_of_coefficients() -> None:
    assert numbers_of_python(table_of_coefficients()) == []


def test_every_output_is_known() -> None:
    """A module that writes LaTeX takes words and numbers from `results.latex`, or is a new one."""
    root = Path(sims.__file__).parent.parent
    sources = {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for folder in ("sims", "ciphercohort", "coordinator", "parties", "protocols")
        for path in (root / folder).rglob("*.py")
    }
    writing = {path for path, text in sources.items() if re.search(r"\\begin\{|to_latex\(", text)}
    known = {
        "ciphercohort/after/inference_table.py",
        "ciphercohort/study/tables.py",
        "sims/lab/studies/noise/paper.py",
    }
    assert writing == known & sources.keys()
    assert all("from ciphercohort.results.latex import" in sources[path] for path in writing)


@pytest.mark.parametrize("text", ["--grid makes bins narrower", "a---b", "--however-noisy 1e-5"])
def test_no_option_becomes_a_dash(text: str) -> None:
    for made in (latex(text), latex_words(text)):
        assert "--" not in made
        assert made.replace("{}", "").startswith(text[:5])
