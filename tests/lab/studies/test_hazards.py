"""Hazards with noise: intervals hold the truth, and are no wider than they have to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from parties.kernel.study.lifetimes import Lifetimes
from protocols.statistics.inference.estimate import Estimate
from protocols.statistics.study.weighted import weighted
from protocols.statistics.study.whitened import counts, read, whitened
from sims.lab.studies.hazards import EFFECTS, cover, people

STUDIES, ROWS = 20, 12_000
OF_THREE = (0.3, 0.1, 0.04)
"""Shares of a column's categories but the first."""


def test_intervals_hold_the_truth() -> None:
    """Of five effects each, dependent: as of one of each study at worst."""
    found = cover(2000, 4.0, STUDIES)
    assert found["coverage"] >= binom.ppf(1e-4, STUDIES, 0.95) / STUDIES
    assert found["refused"] == 0 and len(found["by_covariate"]) == len(EFFECTS)
    assert 0.05 < found["of_it_noise"] < 0.5


@pytest.mark.parametrize("kind", ["numbers", "flags", "categories"])
@pytest.mark.parametrize("late", [False, True])
def test_weights_are_known_without_a_sum_of_their_squares(kind: str, late: bool) -> None:
    """Standard errors of made-up persons, within 3 % of the rows' own."""
    rng = np.random.default_rng(3)
    flags: list[tuple[int, ...]] = [(2,), (3,), (4,)] if kind == "flags" else [(2, 3, 4)]
    x, y = people(rng, ROWS, OF_THREE if kind == "flags" else ())
    if kind == "categories":
        own = rng.random((ROWS, 1)) - np.cumsum([0.0, *OF_THREE])
        x[:, 2:5] = (own[:, :-1] > 0) & (own[:, 1:] <= 0)
    if late:
        entry = rng.uniform(-0.3, 0.5, ROWS)
        keep = entry < y[:, 0]
        x, y = x[keep], np.column_stack([y, np.maximum(entry, 0.0)])[keep]
    table = Lifetimes(bins=20, recorded=False, late=late)
    found = counts(table.exact_sum(x, y, "").values.reshape(table.shape)[0], 1.0)
    start = whitened(found, x.T @ x, 1.0, len(x), 6, tuple(range(len(EFFECTS))), late)
    matrix = np.array(start.matrix).reshape(5, 5)
    theta = np.append(np.zeros(len(start.base)), np.linalg.solve(matrix.T, EFFECTS))
    start = replace(start, theta=tuple(theta.tolist()))
    parts, whole = start.parts(x, y), replace(start, clip=1e90).parts(x, y)
    weights = np.linalg.norm(parts, axis=1) / np.maximum(np.linalg.norm(whole, axis=1), 1e-300)
    a, b = (read(start, each)[1] for each in (parts.sum(axis=0), weights @ parts))
    inverse = np.linalg.inv(a)
    plain = Estimate(theta=theta, covariance=inverse, noise=np.zeros_like(inverse))
    own = weighted(plain, start, found, [] if kind == "numbers" else flags).covariance

    def errors(covariance: np.ndarray) -> np.ndarray:
        return np.sqrt(np.diag(matrix.T @ covariance[-5:, -5:] @ matrix))

    true = errors(inverse @ b @ inverse)
    assert np.abs(errors(own) / true - 1).max() < 0.03
    assert (errors(inverse) / true).max() > (1.04 if kind == "numbers" else 1.4)
