"""Tables of Stata and SPSS: the cells of the same table as text, dates by their formats."""

from __future__ import annotations

import sys
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from parties.reader.cells import cell_text
from parties.reader.table import read_table
from protocols.errors import DataError

ENDINGS = (".dta", ".sav")
FRAME = pd.DataFrame(
    {
        "age": [40, 51, None],
        "dose": [1.5, 0.1, 3.0],
        "ward": ["A", "", "é b"],
        "came": [date(2020, 1, 2), None, date(1899, 3, 1)],
        "seen": [datetime(2020, 1, 2, 3, 4, 5), None, datetime(1999, 1, 1)],
    }
)


def written(path: Path, frame: pd.DataFrame, **more: Any) -> Path:
    pyreadstat = pytest.importorskip("pyreadstat")
    {".dta": pyreadstat.write_dta, ".sav": pyreadstat.write_sav}[path.suffix](
        frame, str(path), **more
    )
    return path


@pytest.mark.parametrize("ending", ENDINGS)
def test_cells_are_those_of_the_same_table_as_text(ending: str, tmp_path: Path) -> None:
    found = read_table(written(tmp_path / f"t{ending}", FRAME))
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    text = read_table(tmp_path / "t.csv")
    assert list(found) == list(text)
    for name in FRAME:
        own, other = (list(map(cell_text, table[name])) for table in (found, text))
        assert own == other, name


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_number_with_a_label_stays_the_number(ending: str, tmp_path: Path) -> None:
    labels = {"variable_value_labels": {"sex": {1: "male", 2: "female"}}}
    path = written(tmp_path / f"t{ending}", pd.DataFrame({"sex": [1, 2, 2]}), **labels)
    assert list(map(cell_text, read_table(path)["sex"])) == ["1", "2", "2"]


def test_times_of_day_are_durations_in_spss(tmp_path: Path) -> None:
    frame = pd.DataFrame({"at": [time(7, 30), None, time(23, 59, 1)]})
    found = read_table(written(tmp_path / "t.sav", frame))["at"]
    assert list(map(cell_text, found)) == ["07:30:00", None, "23:59:01"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_day_that_no_calendar_has_is_an_object_of_its_own(ending: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"came": [1e12, 5.0]})
    form = {".dta": "%td", ".sav": "DATE11"}[ending]
    path = written(tmp_path / f"t{ending}", frame, variable_format={"came": form})
    first, second = read_table(path)["came"]
    with pytest.raises(TypeError, match="object"):
        cell_text(first)
    assert cell_text(second) == {".dta": "1960-01-06", ".sav": "1582-10-14"}[ending]


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_keeps_it_from_being_read_is_told(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"t{ending}"
    path.write_bytes(b"age,died\n40,1\n")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyreadstat", None)
        with pytest.raises(DataError, match=r"pip install 'ciphercohort\[stata\]'"):
            read_table(path)
    pytest.importorskip("pyreadstat")
    with pytest.raises(DataError, match="is not a readable (Stata|SPSS) table: save it again"):
        read_table(path)
