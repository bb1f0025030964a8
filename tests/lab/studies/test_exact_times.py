"""Survival figures beside lifelines': the page's line of rossi is what the command finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.study.stays import Stays
from parties.reader.schema import NumericColumn, Schema, Targets
from sims.lab.studies import exact_times
from sims.lab.studies.exact_times import ENTRY, EVENT, FIGURES, HEADS, TIME, beside, binned, cases
from sims.study import cox

PAGE = (Path(__file__).parents[3] / "docs" / "survival.md").read_text(encoding="utf-8")
SAME = [name for name, style in FIGURES.items() if style.endswith("e")]


def test_the_page_has_the_table_of_the_command() -> None:
    """Of rossi anew: what is of the same bins to 1e-6, other figures as they are printed."""
    case = next(cases(["rossi"], None))
    (said,) = (row for row in PAGE.split("\n") if "| rossi |" in row)
    found = beside(case, None)
    assert HEADS in PAGE
    assert all(0 <= found[name] < 1e-6 for name in SAME)
    told = dict(zip(*(row.strip("| ").split(" | ") for row in (HEADS, said)), strict=True))
    assert told["grid"] == found["grid"]
    for name, style in FIGURES.items():
        if name not in SAME:
            assert told[name] == format(found[name], style)


def test_what_is_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients a hundredth of a standard error off, errors a hundredth, and other bins."""
    case = next(cases(["rossi"], None))
    case = replace(case, rows=case.rows[[TIME, EVENT, "fin", "prio", "site"]])

    def off(**asked: Any) -> Any:
        found: Any = cox(**asked)
        return replace(found, coef=found.coef + 0.01 * found.se, se=1.01 * found.se)

    monkeypatch.setattr(exact_times, "cox", off)
    monkeypatch.setattr(exact_times, "binned", lambda rows, _: rows.assign(time=rows[TIME] // 9))
    found = beside(case, None)
    assert found["coef, exact times"] == pytest.approx(0.01, abs=1e-4)
    assert (
        found["se, relative"] > 1e-3
        and found["log-rank"] > 1e-6
        and found["curves, largest gap"] > 1e-3
    )


def test_bins_are_those_of_the_kernel() -> None:
    """Times and entries rounded up, at ends and beside them."""
    columns = (NumericColumn(TIME, 0.0, 999.0), NumericColumn(EVENT, 0.0, 1.0))
    label = Targets(columns=(*columns, NumericColumn(ENTRY, 0.0, 999.0)))
    x = NumericColumn("x", 0.0, 1.0)
    stays = Stays.of(Schema(columns=(x,), label=label, scaling="range"), 333)
    rng = np.random.default_rng(3)
    time = np.concatenate([np.arange(1000.0), rng.uniform(0, 999, 1000)])
    rows = pd.DataFrame({TIME: time, EVENT: 1, ENTRY: np.floor(time * rng.random(len(time)))})
    y = rows[[TIME, EVENT, ENTRY]].to_numpy() / [999, 1, 999]
    into, out, _ = stays.grid.stay(y, late=True)
    found = binned(rows, stays)
    ends = np.concatenate([[0.0], stays.times])
    np.testing.assert_array_equal(found.index, np.flatnonzero(out >= 0))
    np.testing.assert_array_equal(found[TIME], ends[out[out >= 0] + 1])
    np.testing.assert_array_equal(found[ENTRY], ends[into[out >= 0] + 1])
