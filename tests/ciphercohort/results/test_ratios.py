"""Ratios of every table: an interval that does not hold 1 is printed so that it does not."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciphercohort.after.inference_table import cell_table, latex_table, text_table
from ciphercohort.results.coefficients import coefficient, ratio_texts
from ciphercohort.study.tables import ratio_cells

ABOUT: dict[str, Any] = {
    **{"model": "logistic", "outcome": "died = yes", "rows": 944, "freedom": math.inf},
    **{"exact_sums": False, "epsilon_in_all": None, "notes": []},
}


@given(st.floats(-5, 5), st.floats(1e-4, 2), st.sampled_from(("odds_ratio", "hazard_ratio")))
def test_a_printed_interval_holds_one_as_its_numbers_do(
    coef: float, error: float, ratio: str
) -> None:
    row = coefficient("age", coef, error, ratio=ratio)
    values = [row[f"{ratio}{end}"] for end in ("", "_low", "_high")]
    printed = [float(each) for each in ratio_texts(row, ratio)]
    assert printed == pytest.approx(values, rel=1e-3, abs=5.001e-3)
    if min(abs(math.log(a / b)) for a, b in zip(values, (1.0, *values), strict=False)) < 1e-4:
        return  # six digits do not tell them apart
    assert printed[1] < printed[0] < printed[2]
    if not values[1] <= 1 <= values[2] and min(abs(each - 1) for each in values) > 1e-6:
        assert not printed[1] <= 1 <= printed[2]


def test_every_table_prints_a_ratio_alike_and_none_for_a_reference() -> None:
    rows = [
        coefficient("age", math.log(0.9993), 2.9e-4, ratio="odds_ratio"),
        coefficient("ward=A", math.nan, math.nan, ratio="odds_ratio"),
    ]
    own = "0.9993 [0.9987, 0.9999]"
    cells = cell_table(rows, ABOUT, "odds_ratio")[1]
    hazards = {key.replace("odds", "hazard"): value for key, value in rows[0].items()}
    assert cells[0][-1] == own == ratio_cells(hazards)[1]
    assert cells[1] == ["ward=A", *[""] * 7]
    assert r"0.9993 [0.9987, 0.9999] \\" in latex_table(rows, ABOUT, "odds_ratio")
    text = text_table(rows, ABOUT, "odds_ratio").splitlines()
    assert next(line for line in text if line.startswith("age")).endswith(" 0.9993")
    assert "ward=A" in [line.strip() for line in text]


def test_a_table_names_its_outcome() -> None:
    for made in (text_table([], ABOUT, "odds_ratio"), latex_table([], ABOUT, "odds_ratio")):
        assert "logistic regression of died = yes, 944 rows" in made
