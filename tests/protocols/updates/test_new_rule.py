"""A rule that is one file and one line of the registry trains under both protocols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from ciphercohort.job.config import SimulationConfig
from protocols.errors import ParameterError
from protocols.names import ENCRYPTED_ROWS, SECURE_AGGREGATION
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.rows import choose_rows
from protocols.updates import momentum
from protocols.updates.registry import RULES, UPDATES
from protocols.updates.update import Update, V
from sims.simulation import simulate

FIGURES = PublicFigures(rows_by_party=(1200, 900), num_features=4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plain(Update):
    """Gradient descent."""

    kind: ClassVar[str] = "plain"
    words: ClassVar[str] = "gradient descent once more"
    default_rounds: ClassVar[int] = 3
    rounds: int
    learning_rate: float

    def step(self, gradient: V, state: tuple[V, ...], t: int, unit: float = 1.0) -> tuple[V, ...]:
        w: Any = state[0]
        return (w - gradient,)

    def gradient_factor(self, t: int) -> float:
        return self.learning_rate

    def levels(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(momentum, "Plain", Plain, raising=False)
    monkeypatch.setitem(RULES, "plain", "momentum.Plain")
    for protocol, offered in UPDATES.items():
        monkeypatch.setitem(UPDATES, protocol, (*offered, "plain"))


@pytest.mark.parametrize("protocol", [ENCRYPTED_ROWS, SECURE_AGGREGATION])
def test_it_trains(protocol: str) -> None:
    toy: dict[str, Any] = {"rounds": 3}
    if protocol == ENCRYPTED_ROWS:
        toy = {"profile": "fast-insecure", "degree": 3}
    result = simulate(SimulationConfig(protocol=protocol, update="plain", parties=2, seed=1, **toy))
    plan: Any = result.plan
    assert (plan.update["kind"], plan.rounds) == ("plain", 3)
    assert result.max_abs_diff_to_twin < 1e-3


def test_without_a_certificate_it_is_refused_on_encrypted_rows() -> None:
    with pytest.raises(ParameterError) as refused:
        choose_rows(FIGURES, Wanted(update="plain", epsilon=1.0))
    assert str(refused.value) == (
        "update 'plain' has no privacy certificate on encrypted rows: add --no-privacy, or take "
        "--protocol secure-aggregation"
    )
