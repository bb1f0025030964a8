"""Encrypted rows under the quadratic gradient, its preconditioner too; toy rings, INSECURE."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.rows.curvature import Curvature, largest_row_sum
from protocols.updates.quadratic import QuadraticNesterov
from tests.protocols.rows.test_encrypted_equals_plain import check
from tests.support.helpers import make_plan


def quadratic(features: int, rounds: int = 4, **changes: Any) -> QuadraticNesterov:
    """For rows in [-1, 1]."""
    largest = largest_row_sum(features, columns=[1.0] * features)
    curvature = Curvature.for_rows(largest, offset=0.02)
    return QuadraticNesterov(rounds=rounds, curvature=curvature, **changes)


@pytest.mark.parametrize(
    ("rule", "rows", "features", "degree", "width"),
    [
        (quadratic(1, rounds=2), [3, 5], 1, 5, None),
        (quadratic(5, rounds=1), [12, 9, 20], 5, 3, None),
        (quadratic(5, schedule="harmonic", learning_rate=1 + 10 / 21), [12, 9], 5, 5, None),
        # The row sums and the noise fill several side ciphertexts.
        (quadratic(200), [3, 2], 200, 5, None),
        (quadratic(6), [300, 250], 6, 7, 1),
        (quadratic(6), [300, 250], 6, 7, 4),
    ],
)
def test_an_encrypted_preconditioner(
    rule: Any, rows: list[int], features: int, degree: int, width: int | None
) -> None:
    """Row sums, their inverse and gradients, in one part and in several."""
    shape: dict[str, Any] = {"ring_dim": 1024, "features_per_ciphertext": width}
    plan = make_plan(rows=rows, features=features, degree=degree, update=rule.to_dict(), **shape)
    check(plan, seed=degree)
