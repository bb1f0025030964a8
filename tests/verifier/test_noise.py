"""A plan draws, from one source, the noise that a party's own session adds: a twin has no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parties.kernel import EVERY
from parties.kernel.model import session as model_session
from parties.kernel.rows import packed
from parties.verifier.sheets import model_sheet, rows_sheet
from protocols.plan.run_plan import Member
from protocols.privacy.laws.seeded import SeededRandomness
from tests.support.plans import ROWS, regression

CASES = {
    "rows": ("logistic", "encrypted-rows"),
    "model": ("logistic", "encrypted-model"),
    "lffr": ("lffr", "encrypted-rows"),
    "model-lffr": ("lffr", "encrypted-model"),
    "gram": ("improved-lffr", "encrypted-rows"),
}


@pytest.mark.parametrize("epsilon", [None, 1.0])
@pytest.mark.parametrize("kind", list(CASES))
def test_plan_and_party_draw_the_same_noise(kind: str, epsilon: float | None) -> None:
    """Equal to the last bit; without privacy there is none."""
    model, protocol = CASES[kind]
    members = tuple(
        Member(name=f"p{k}", rows=rows, verify_key="00" * 32, commitment="00" * 32)
        for k, rows in enumerate(ROWS)
    )
    found = regression(model, protocol=protocol, epsilon=epsilon, rounds=3)
    plan: Any = found.plan("session", members)
    assert plan.kind == kind
    drawn = plan.draw_noise(SeededRandomness(1, "p0"))
    source = SeededRandomness(1, "p0")
    if plan.gathered == "gradients":
        added = model_session.draw_noise(model_sheet(plan, 1.0), source)
    else:
        sheet = rows_sheet(plan, 1.0)
        added = packed.draw_noise(sheet, packed.numbers(sheet, EVERY).noise_size(sheet), source)
    np.testing.assert_array_equal(drawn.ravel(), added.ravel())
    assert drawn.any() == (epsilon is not None)
