"""Two runs on whitened rows charge a ledger for what they promise together, no more and no less."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from pathlib import Path

import dp_accounting
import pytest
from dp_accounting.pld import pld_privacy_accountant

from protocols.errors import PrivacyError
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.pace import SHARE
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.loss import mu_for_epsilon
from protocols.privacy.loss.accounting import GaussianEvent
from protocols.privacy.loss.ledger import Ledger

EPSILON, DELTA, NORM = 1.0, 1e-5, 1.0
PAIR = pytest.mark.parametrize("update", ["quadratic-gd", "quadratic-nag"])


@lru_cache
def calibration(update: str) -> Calibration:
    figures = PublicFigures.even(rows=20_000, features=5, parties=3, norm_bound=NORM)
    return calibrate(
        figures,
        Wanted(
            update=update, epsilon=EPSILON, delta=DELTA, colluders=1, profile="fast-insecure",
        ),
    )  # fmt: skip


@lru_cache
def both(update: str) -> tuple[Mechanism, Mechanism]:
    """What every party computes of the first run, and of the second."""
    found = calibration(update)
    assert found.first is not None
    first, second = (Mechanism.from_plan(p, NORM).require() for p in (found.first, found.template))
    return first, second


def mu(mechanism: Mechanism) -> float:
    events = [event for event in mechanism.events if isinstance(event, GaussianEvent)]
    assert len(events) == len(mechanism.events)
    return math.sqrt(sum(event.mu**2 for event in events))


@PAIR
def test_a_ledger_of_epsilon_takes_both_and_no_more(update: str, tmp_path: Path) -> None:
    ledger = Ledger(path=tmp_path / "spent.jsonl", epsilon=EPSILON, delta=DELTA)
    first, second = both(update)
    for name, each in (("first", first), ("second", second)):
        events, delta = each.events, each.additive_delta
        ledger.commit(ledger.reserve("rows", events, additive_delta=delta, identifier=name))
    spent = ledger.spent("rows")
    assert 0.97 * EPSILON < spent.epsilon <= EPSILON
    assert first.additive_delta + second.additive_delta == pytest.approx(spent.additive_delta)
    for each in (first, second):
        with pytest.raises(PrivacyError, match="exceeds the budget"):
            ledger.reserve("rows", each.events, additive_delta=each.additive_delta)
    # By another accountant, from the file, at the delta of the second run's mechanism.
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-4)
    for line in map(json.loads, ledger.path.read_text().splitlines()):
        for event in line.get("events", ()):
            assert event["kind"] == "gaussian"
            gaussian = dp_accounting.GaussianDpEvent(event["noise_multiplier"])
            accountant.compose(gaussian, event["count"])
    delta = second.certificate.figures["delta_mechanism"]
    assert accountant.get_epsilon(delta) == pytest.approx(EPSILON, rel=0.01)


@PAIR
def test_each_run_is_charged_for_its_own_part(update: str) -> None:
    """mu^2 of the two add up to the promise's; the second run has none of the first one's."""
    first, second = both(update)
    plan = calibration(update).first
    assert plan is not None
    own = math.sqrt(2) * NORM**2 / (plan.num_rows * plan.noise_scales[0])
    assert mu(first) == pytest.approx(own, rel=1e-3)
    budget = second.certificate.setting.budget
    assert budget.paid_mu == pytest.approx(mu(first), rel=1e-9)
    whole = mu_for_epsilon(epsilon=EPSILON, delta=budget.delta_mechanism)
    assert math.hypot(mu(first), mu(second)) == pytest.approx(whole, rel=1e-3)
    assert mu(first) ** 2 == pytest.approx(SHARE * whole**2, rel=0.05)
    assert mu(second) ** 2 == pytest.approx(whole**2 - budget.paid_mu**2, rel=1e-4)
