"""A plan that opens one sum opens it, and no multiple or sign of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from protocols.errors import ParameterError
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.sums.plan import OPENS
from tests.protocols.sums.test_integer_sums import FIGURES, PROMISE, SUMS

UPDATES = {
    "another rate": {**OPENS, "learning_rate": 25.0},
    "a rate just beside": {**OPENS, "learning_rate": 1.1},
    "ridge": {**OPENS, "ridge": 0.5},
    "two rounds": {**OPENS, "rounds": 2},
    "Nesterov": {"kind": "nag", "rounds": 1, "learning_rate": 1.0},
    "signs": {"kind": "adam", "rounds": 1, "learning_rate": 1.0},
}


@pytest.mark.parametrize("kind", [name for name in SUMS if name != "exact"])
@pytest.mark.parametrize("change", UPDATES)
def test_another_update_is_refused(kind: str, change: str) -> None:
    plan: Any = plan_sum(FIGURES, PROMISE, SUMS[kind], 0.05 if kind == "moment" else None)
    assert plan.update == OPENS
    with pytest.raises(ParameterError):
        replace(plan, update=UPDATES[change])
