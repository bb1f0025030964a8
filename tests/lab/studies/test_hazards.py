"""Hazards with noise: intervals hold the truth."""

from __future__ import annotations

from scipy.stats import binom

from sims.lab.studies.hazards import EFFECTS, cover

STUDIES = 20


def test_intervals_hold_the_truth() -> None:
    """Of five effects each, dependent: as of one of each study at worst."""
    found = cover(2000, 4.0, STUDIES)
    assert found["coverage"] >= binom.ppf(1e-4, STUDIES, 0.95) / STUDIES
    assert found["refused"] == 0 and len(found["by_covariate"]) == len(EFFECTS)
    assert 0.05 < found["of_it_noise"] < 0.5
