"""Rows of person-time: statsmodels' Poisson model of them is lifelines' Cox model of persons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from lifelines import CoxPHFitter
from lifelines.datasets import load_rossi

from parties.reader.person_time import person_time
from protocols.errors import DataError, ParameterError, SchemaError
from tests.sims.model_runs import cohort

CUTS = (13.0, 26.0, 39.0, 52.0)
STAY: dict[str, Any] = {"time": "week", "event": "arrest", "cuts": CUTS}


def test_a_person_is_a_row_for_each_interval_at_risk() -> None:
    rows = pd.DataFrame(
        {"week": [5, 13, 14, 60, 20], "arrest": [1, 1, 0, 1, 0], "from": [0, 2, 13, 0, 20]}
    ).assign(who=list("abcde"))
    found = person_time(rows, **STAY)
    own = {str(who): part for who, part in found.groupby("who")}
    assert own["a"].at_risk.tolist() == [5] and own["a"].arrest.tolist() == [1]
    assert own["b"].at_risk.tolist() == [13] and own["b"].arrest.tolist() == [1]
    assert own["c"].at_risk.tolist() == [13, 1] and own["c"].arrest.sum() == 0
    assert own["d"].at_risk.tolist() == [13] * 4 and own["d"].arrest.sum() == 0  # after the end
    assert own["d"].interval.tolist() == ["0 to 13", "13 to 26", "26 to 39", "39 to 52"]
    late = person_time(rows, **STAY, entry="from").groupby("who").at_risk.sum()
    assert late.to_dict() == {"a": 5, "b": 11, "c": 1, "d": 52}
    assert {*found.columns} == {"who", "from", "arrest", "at_risk", "interval"}


def test_its_poisson_model_is_coxs() -> None:
    """Within .03 standard errors, with four intervals."""
    rows = load_rossi()
    due = CoxPHFitter().fit(rows, "week", "arrest")
    found = person_time(rows, **STAY)
    x = pd.get_dummies(found.drop(columns=["arrest", "at_risk"]), drop_first=True).astype(float)
    model = sm.GLM(
        found.arrest,
        sm.add_constant(x),
        family=sm.families.Poisson(),
        offset=np.log(found.at_risk),
    ).fit()
    names = list(due.params_.index)
    apart = (model.params[names] - due.params_) / due.standard_errors_
    assert np.abs(apart).max() < 0.03


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"cuts": ()}, ParameterError, "do not rise"),
        ({"cuts": (26.0, 13.0)}, ParameterError, "do not rise"),
        ({"cuts": (0.0, 13.0)}, ParameterError, "do not rise"),
        ({"time": "weak"}, SchemaError, "weak"),
        ({"event": "age"}, DataError, "not 0 or 1"),
        ({"entry": "below"}, DataError, "a number from 0"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], kind: type, words: str) -> None:
    rows = load_rossi().assign(below=-1.0)
    with pytest.raises(kind, match=words):
        person_time(rows, **{**STAY, **given})
    with pytest.raises(ParameterError, match="at_risk"):
        person_time(rows.assign(at_risk=1), **STAY)


def test_the_command(tmp_path: Path) -> None:
    """Its file is the owner's alone, and is never overwritten."""
    path, out = tmp_path / "rossi.csv", tmp_path / "rows.csv"
    load_rossi().to_csv(path, index=False)
    asked = ("person-time", "--data", path, "--time", "week", "--event", "arrest", "--out", out)
    ran = cohort(*asked, "--cuts", "26,52")
    assert ran.exit_code == 0, ran.output
    assert len(pd.read_csv(out)) == 810 and out.stat().st_mode & 0o077 == 0
    assert "exists" in cohort(*asked, "--cuts", "26,52").output
    out.unlink()
    assert "no numbers" in cohort(*asked, "--cuts", "26;52").output
