"""Names that LaTeX, spreadsheets, terminals or XML would take for more than names."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any
from xml.dom import minidom

import numpy as np
import pandas as pd
import pytest

from ciphercohort.after.inference_table import cell_table, latex_table, text_table
from ciphercohort.results.coefficients import coefficient
from ciphercohort.results.latex import latex_row
from ciphercohort.study.tables import INDENT, PaperTable
from sims.study import cox, describe, glm, survival

NAMES = ("[18,65)", "*b", "=1+1", "-y", "\x1b[31mred\nPlan accepted", "\t@z", "_hid", "≥65 & \\")
ARM, AGE = "[arm\n\x07", "=age"
TIMES: dict[str, Any] = {"time": "months", "event": "died"}
EXACT: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (describe, {"by": ARM}),
    (describe, {}),
    (survival, {**TIMES, "by": ARM}),
    (cox, {**TIMES, "curves": ARM}),
    (glm, {"target": "died", "exclude": ("months",)}),
    (
        glm,
        {
            **{"target": "died", "exclude": ("months",), "propensity": "two=" + NAMES[0]},
            "include": ("two",),
            "propensity_columns": (AGE,),
        },
    ),
    (glm, {"target": "died", "exclude": ("months",), "imputations": 2}),
    (survival, {**TIMES, "by": ARM, "epsilon": 20.0}),
]


def rows(study: Callable[..., Any], **asked: Any) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    size = 800
    months = np.minimum(np.ceil(rng.exponential(30, size)), 59)
    found = pd.DataFrame(
        {
            **{"months": months, "died": ((months < 59) & (rng.random(size) < 0.9)).astype(int)},
            **{AGE: rng.integers(30, 80, size).astype(float), ARM: rng.choice(NAMES, size)},
            **{"two": rng.choice(NAMES[:2], size), "site": rng.choice(["p", "q"], size)},
        }
    )
    if "imputations" in asked:
        found.loc[rng.random(size) < 0.1, AGE] = np.nan
    return found


def check_latex(text: str) -> None:
    r"""No option after a rule or `\\`, no empty line, and as many cells in every row."""
    assert not re.search(r"(?:\\\\|\\(?:top|mid|bottom)rule)\s*[\[*]", text)
    assert "\n\n" not in text and all(line.isprintable() for line in text.split("\n"))
    lines = [line for line in text.split("\n") if line.endswith(r" \\")]
    cells = {len(re.findall(r"(?<!\\)&", line)) for line in lines if "multicolumn" not in line}
    assert len(cells) == 1 and len(lines) >= 2


def check_csv(text: str) -> None:
    for line in csv.reader(io.StringIO(text)):
        for cell in line:
            formula = cell.lstrip().startswith(("=", "+", "-", "@"))
            assert cell.isprintable() and not (formula and not re.match(r"-\d", cell))


@pytest.mark.parametrize(("study", "asked"), EXACT)
def test_documents_of_every_study(study: Callable[..., Any], asked: dict[str, Any]) -> None:
    found = study(rows(study, **asked), split="by:site", **asked)
    checks = {".tex": check_latex, ".csv": check_csv, ".svg": minidom.parseString}
    seen = set()
    for name, text in found.documents():
        suffix = name[name.index(".") :]
        seen.add(suffix)
        checks.get(suffix, lambda text: None)(text)
        assert not re.search(r"[^\n\t\x20-\U0010ffff]", text)
        assert "31mred" not in text or "?[31mred?Plan accepted" in text
    assert seen == {*checks, ".html"}
    for table in found.tables():
        assert all(line.isprintable() for line in table.text().split("\n"))


def test_a_name_before_which_nothing_is_said_stays_as_it_is() -> None:
    assert latex_row(["a", "[b"]) == r"a & [b \\" and latex_row(["[b"]) == r"{}[b \\"
    rows = (("-1.5", "-0.3"), (f"{INDENT}=x", "-2"), ("b", "=5"))
    told = PaperTable(name="t", title="T", heads=("", "-c"), rows=rows).csv()
    assert told == ",'-c\n-1.5,-0.3\n  '=x,-2\nb,=5\n"


def test_tables_of_coefficients() -> None:
    own = [
        {**coefficient(name, 0.1, 0.2, ratio="odds_ratio"), "target": target}
        for target in NAMES
        for name in NAMES
    ]
    about = {
        **{"model": "logistic", "rows": 100, "epsilon_in_all": None, "delta_in_all": 0.0},
        **{"freedom": float("inf"), "exact_sums": True, "notes": []},
    }
    check_latex(latex_table(own, about, "odds_ratio"))
    assert all(line.isprintable() for line in text_table(own, about, "odds_ratio").split("\n"))
    assert all(
        cell.isprintable() for line in cell_table(own, about, "odds_ratio")[1] for cell in line
    )
