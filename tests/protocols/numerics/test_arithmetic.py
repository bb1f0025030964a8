"""What threshold CKKS costs in privacy: every figure recomputed, and allowances that hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from protocols.ckks.circuits.choice import smallest_mask_bits
from protocols.ckks.circuits.errors import slot_std
from protocols.ckks.flooding import Flooding
from protocols.errors import ParameterError
from protocols.lffr.plan import LffrPlan
from protocols.models.registry import REGRESSIONS, model_named
from protocols.numerics import arithmetic
from protocols.plan import kinds
from protocols.plan.circuit_plan import CircuitPlan
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.search.search import find_setting
from tests.support.flooding import norm
from tests.support.helpers import log2_error, make_data, make_plan, plain_weights
from tests.support.joint import encrypted_weights
from tests.support.plans import FEATURES, regression


def test_flooding_is_a_gaussian_release() -> None:
    # Two errors at the bounds, opposite, under noise that is sized for them.
    shown, sigma_e = np.arange(1 << 15) < 10, 7.0
    flooding = Flooding.of(shown, 1 << 15, sigma_e, sigma_e)
    error = np.where(shown, sigma_e, 0.0)
    error[10] = math.sqrt(1 << 15) * sigma_e
    mu = norm(flooding, error - -error)
    assert mu == pytest.approx(arithmetic.FLOODING_MU, rel=1e-3)
    # Its total variation, about mu / 2.5, is far above 2^-40.
    assert math.erf(mu / math.sqrt(8)) > 2.0**-23


def test_the_error_of_a_run_is_within_the_bound() -> None:
    """The whole model's error, which no single iteration exceeds, against e_ckks eta / N."""
    plan = make_plan(rows=(20, 20), rounds=2)
    shards = make_data((20, 20), 3, 4)
    noises = [np.zeros((2, 3))] * 2
    found = encrypted_weights(plan, shards, noises)
    rate = float(plan.update["learning_rate"])
    allowed = arithmetic.error_of(plan) * rate / plan.num_rows
    off = 2 ** log2_error(found.exact, plain_weights(plan, shards, np.zeros((2, 3))))
    # Beside the arithmetic: polynomial coefficients are encoded at the scale.
    assert off <= allowed
    assert off > allowed / 1000


@pytest.mark.parametrize(("rows", "features"), [(1000, 9), (50_000, 100)])
def test_plans_stay_within_the_allowances(rows: int, features: int) -> None:
    wanted = Wanted(update="gd", epsilon=1.0, colluders=3, rounds=100)
    figures = PublicFigures.even(rows=rows, features=features, parties=10)
    plan: Any = calibrate(figures, wanted).template
    arithmetic.check(plan, 1.0)
    assert arithmetic.delta_of(plan) < arithmetic.OTHER_DELTA / 4


def test_an_arithmetic_worse_than_counted_is_refused() -> None:
    plan = make_plan()
    coarse = replace(plan, ckks=replace(plan.ckks, scale_bits=30))
    with pytest.raises(ParameterError, match="encryption_error=.* exceeds"):
        arithmetic.check(coarse, 1.0)


def regression_plan(model: str) -> CircuitPlan:
    plan = regression(model).template
    assert isinstance(plan, CircuitPlan)
    return plan


@pytest.mark.parametrize("model", [name for name in REGRESSIONS if model_named(name).certified])
def test_regressions_stay_within_the_allowances(model: str) -> None:
    plan = regression_plan(model)
    arithmetic.check(plan, 1.0)
    # The largest coefficient over a mask's values, of every coefficient; P(|Z| > 9) of every slot.
    hidden = sum(plan.refreshes) * plan.ckks.ring_dim
    parts = 2.0 ** (32 + plan.ckks.scale_bits - smallest_mask_bits(plan.ckks, 3))
    tails = plan.rounds * FEATURES * 2 * stats.norm.sf(9)
    assert arithmetic.delta_of(plan) == pytest.approx(hidden * parts + tails, rel=1e-9)
    assert arithmetic.delta_of(plan) < arithmetic.OTHER_DELTA / 4
    # Masks of a chain without room, as for slots of any size, do not hide them.
    short = replace(plan.ckks, first_mod_bits=plan.ckks.scale_bits + 1, scale_bits=20)
    with pytest.raises(ParameterError, match="exceeds .*, which its certificate counts"):
        arithmetic.check(replace(plan, ckks=short), 1.0)


def test_the_error_of_lffr_widens_its_sensitivity() -> None:
    """One iteration moves W by eta / N of the sum: e is the slots' error in units of that."""
    plan = regression_plan("lffr")
    assert isinstance(plan, LffrPlan)
    counted = arithmetic.counted(plan, 1.0)
    size = plan.num_features * plan.outputs
    assert counted["encryption_error"] == pytest.approx(2**-12 * 8 / 27 / size**0.5, rel=1e-6)
    # The weights' own slots: the release has one of 128 columns of them.
    error = kinds.model_error_std(plan) * math.sqrt(plan.layout.block_size)
    slot = 9 * plan.link.radius * slot_std(plan.ckks, error)
    own = slot * plan.num_rows / plan.learning_rate
    assert arithmetic.error_of(plan) == pytest.approx(own, rel=1e-12)
    setting = plan.privacy_setting(1.0)
    widening = setting.sensitivity / setting.exact_sensitivity - 1
    assert widening == pytest.approx(2**-12, rel=1e-6)
    # So small a rate, and one iteration's error is worth more than that.
    slow = replace(plan, learning_rate=plan.learning_rate * 1e-6)
    with pytest.raises(ParameterError, match="encryption_error=.* exceeds"):
        arithmetic.check(slow, 1.0)


def test_sums_with_noise_are_not_widened() -> None:
    """Noise comes before encryption: D is that of the sums, whatever the circuit's error."""
    plan = regression_plan("linear")
    assert arithmetic.error_of(plan) == arithmetic.counted(plan, 1.0)["encryption_error"] == 0.0


def test_certificates_carry_all_three() -> None:
    counted = arithmetic.allowances(1.0, 11)
    found = find_setting(
        rows=20_000,
        features=11,
        norm_bound=1.0,
        epsilon=1.0,
        delta=1e-5,
        parties=3,
        colluders=1,
        rounds=50,
        degree=5,
        **counted,
    )
    figures = found.figures
    assert found.setting.encryption_error == counted["encryption_error"]
    widening = figures["sensitivity"] / figures["D2"] - 1
    assert 0 < widening <= 2.0**-12
    assert figures["delta_other"] == arithmetic.OTHER_DELTA
    assert figures["mu_beside"] == arithmetic.FLOODING_MU
    assert figures["epsilon_exact"] <= 1
