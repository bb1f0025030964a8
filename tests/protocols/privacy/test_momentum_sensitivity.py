"""What one row can do to the row sums behind the preconditioner."""

from __future__ import annotations

import math

import numpy as np
import pytest

from protocols.curvature import row_sums
from protocols.privacy.momentum_certificate import row_sum_sensitivity


@pytest.mark.parametrize("features", [1, 2, 5, 12])
def test_one_row_moves_the_row_sums_by_at_most_d_b(features: int) -> None:
    """10 000 pairs of neighbours, dense, sparse and of disjoint support; two halves attain it."""
    rng = np.random.default_rng(features)
    bound = row_sum_sensitivity(0.25, 1.5, features)
    worst = 0.0
    for _ in range(10_000):
        pair = rng.standard_normal((2, features)) * (rng.random((2, features)) < rng.random())
        if rng.random() < 0.3:
            part = rng.random(features) < 0.5
            pair = np.abs(pair) ** 0.1 * np.stack([part, ~part])
        norms = np.linalg.norm(pair, axis=1, keepdims=True)
        pair = pair / np.where(norms > 0, norms, 1.0) * 1.5 * rng.random((2, 1)) ** 0.1
        move = 0.25 * (row_sums(pair[:1]) - row_sums(pair[1:]))
        worst = max(worst, float(np.linalg.norm(move)))
    assert 0.8 * bound < worst <= bound * (1 + 1e-12)
    if features % 2 == 0:
        half = np.repeat([1.0, 0.0], features // 2) * 1.5 / math.sqrt(features // 2)
        move = 0.25 * (row_sums(half[None]) - row_sums(half[None, ::-1]))
        assert float(np.linalg.norm(move)) == pytest.approx(bound, rel=1e-12)
