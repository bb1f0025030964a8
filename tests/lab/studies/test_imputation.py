"""Imputed rows: intervals hold the truth, and models of other rows make them wider."""

from __future__ import annotations

import numpy as np
import pytest

from sims.lab.studies import imputation
from sims.lab.studies.imputation import compare


def test_models_of_other_rows_are_counted_as_uncertainty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imputation, "DRAWS", 3)
    found = {line["models"]: line for line in compare(studies=8, anchors=0)}
    wide = {name: np.array(line["width_over_error"]) for name, line in found.items()}
    whole, lost = found["nothing missing"], found["complete rows"]
    assert np.all(np.array(whole["coverage"]) > 0.7) and lost["studies"] == 8
    assert np.all(wide["public, ten times as many"] > wide["complete rows"])
    # Large outcomes lose their bmi: complete rows alone are biased.
    assert lost["error"][1] > 1.2 * found["public, ten times as many"]["error"][1]
