"""What threshold CKKS costs in privacy: every figure recomputed, and allowances that hold."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from protocols import arithmetic
from protocols.ckks.flooding import flooding_std
from protocols.errors import ParameterError
from protocols.privacy.search import find_setting
from sims.config import SimulationConfig
from sims.planning import Shape, placeholder_plan
from sims.setting import choose_setting
from tests.helpers import encrypted_weights, log2_error, make_data, make_plan, plain_weights


def test_flooding_is_a_gaussian_release() -> None:
    # Two errors of norm sqrt(n) sigma_e, opposite, under noise of flooding_std(sigma_e).
    n, sigma_e = 1 << 15, 7.0
    error = np.full(n, sigma_e)
    mu = float(np.linalg.norm(error - -error)) / flooding_std(sigma_e)
    assert arithmetic.flooding_mu(n) == pytest.approx(mu, rel=1e-12)
    # Its total variation, about mu / 2.5, is far above a delta of 1e-5: hence no share of delta.
    assert math.erf(mu / math.sqrt(8)) > 1e-5
    assert arithmetic.flooding_mu(n) < arithmetic.FLOODING_MU < 3e-4


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
    config = SimulationConfig(update="gd", epsilon=1.0, parties=10, colluders=3, rounds=100)
    shape = Shape.even(rows=rows, features=features, parties=10)
    setting = choose_setting(
        config, rows=rows, num_features=features + 1, norm_bound=1.0, parties=10
    )
    plan = placeholder_plan(config, shape, setting)
    arithmetic.check(plan, 1.0)
    assert arithmetic.delta_of(plan) < arithmetic.OTHER_DELTA / 4


def test_an_arithmetic_worse_than_counted_is_refused() -> None:
    plan = make_plan()
    coarse = replace(plan, ckks=replace(plan.ckks, scale_bits=30))
    with pytest.raises(ParameterError, match="encryption_error=.* exceeds"):
        arithmetic.check(coarse, 1.0)


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
    widening = figures["D2_widened"] / figures["D2"] - 1
    assert 0 < widening <= 2.0**-12
    assert figures["delta_other"] == arithmetic.OTHER_DELTA
    assert figures["mu_beside"] == arithmetic.FLOODING_MU
    assert figures["epsilon_exact"] <= 1
