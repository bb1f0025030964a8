"""LFFR on encrypted rows, toy rings (INSECURE): encrypted = twin, partitions, noise, refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from parties.verifier.sheets import packed_slots
from protocols.ckks import CkksParameters
from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.circuits.lffr import LFFR_LEVELS
from protocols.errors import DataError, ParameterError, PolicyError
from protocols.lffr.plan import LffrPlan, fixed_hessian_of
from protocols.models.lffr import CURVATURE, PAPER_LINK
from protocols.numerics.approximation import sigmoid_approximation
from protocols.plan import kinds
from protocols.plan.protocol import sequence
from protocols.plan.run_plan import PrivacyPlan
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.rows.curvature import largest_row_sum
from protocols.steps.contribute import check_outputs
from protocols.steps.decrypt import release_error_std
from sims.lffr_twin import run_lffr_twin
from tests.protocols.lffr_session import make_plan, make_rows, noise_std, run_encrypted
from tests.support.helpers import relative_error

Floats = np.ndarray
MINIMAX = sigmoid_approximation(3, 5.0).polynomial


def gradients(plan: LffrPlan, seed: int) -> list[Floats]:
    """Noise of each party, large enough that a twin without it is far off."""
    shape = (plan.rounds, plan.num_features, plan.outputs)
    return list(np.random.default_rng(seed).normal(0, 0.02, (len(plan.names), *shape)))


# -- encrypted = twin -----------------------------------------------------------------------------

PUBLIC_RATE = {"curvature": None, "learning_rate": 1.5}
GRID: list[tuple[int, int, tuple[int, ...], int, dict[str, Any]]] = [
    # features, outputs, rows by party, iterations, changes
    (1, 1, (1, 2), 1, {}),
    (3, 2, (12, 12), 2, {}),
    (4, 2, (9, 8), 5, {"ridge": 0.1}),
    (9, 2, (20, 30, 10), 3, {"ring_dim": 1024, "link": MINIMAX}),
    (5, 1, (30, 9), 3, PUBLIC_RATE | {"ridge": 0.05}),
    (3, 4, (6, 5), 20, PUBLIC_RATE),
    # Wide blocks: 512 columns, of which 30 hold rows.
    (2, 1, (3,) * 10, 10, PUBLIC_RATE | {"ridge": 0.05, "ring_dim": 2048}),
]


@pytest.mark.parametrize("case", GRID, ids=str)
def test_encrypted_equals_plain(case: tuple[Any, ...]) -> None:
    """Weights agree to 1e-10, nothing else is released, noise is below what flooding hides."""
    features, outputs, rows, iterations, changes = case
    plan = make_plan(features, outputs, rows, iterations, **changes)
    x, y = make_rows(plan, seed=features)
    noises = None if plan.curvature else gradients(plan, seed=1)
    run = run_encrypted(plan, x, y, noises)
    twin = run_lffr_twin(plan, x, y, None if noises is None else sum(noises))
    assert np.abs(twin).max() > 0.05  # zero weights would prove nothing
    assert relative_error(run.exact, twin) < 1e-10
    assert np.abs(run.slots * plan.unit - plan.layout.heads(twin)).max() < 1e-10
    assert run.refreshed == plan.refreshes
    assert 1 < noise_std(plan, run, twin) < kinds.model_error_std(plan)


def test_several_data_and_noise_ciphertexts() -> None:
    """Blocks of 4 columns: 11 rows in 3 ciphertexts, noise of 6 rounds in 2."""
    plan = make_plan(17, 2, (4, 7), 6, **PUBLIC_RATE)
    assert plan.layout.block_size == 4
    assert (plan.layout.num_data_ciphertexts, plan.layout.num_side_ciphertexts) == (6, 2)
    x, y = make_rows(plan, seed=2)
    noises = gradients(plan, seed=3)
    twin = run_lffr_twin(plan, x, y, sum(noises))
    assert relative_error(run_encrypted(plan, x, y, noises).exact, twin) < 1e-10
    assert relative_error(run_lffr_twin(plan, x, y), twin) > 0.01


def test_one_output_is_the_textbook_loop() -> None:
    """Row by row, with the paper's coefficients and Python floats; 1 / b to the inverse's error."""
    plan = make_plan(4, 1, (7, 6), 3)
    x, y = make_rows(plan, seed=4)
    assert plan.curvature is not None
    error = plan.curvature.inverse.relative_error
    n, d, offset = len(x), 4, plan.curvature.offset
    b = [
        offset + CURVATURE / n * sum(abs(r[j] * r[k]) for r in x for j in range(d))
        for k in range(d)
    ]
    w = [0.0] * d
    for _ in range(plan.rounds):
        step = [0.0] * d
        for row, target in zip(x, y[:, 0], strict=True):
            z = sum(row[k] * w[k] for k in range(d))
            p = 0.5 + 0.19824 * z - 0.0044650 * z**3
            for k in range(d):
                step[k] += 2 * row[k] * (p - target) * p * (1 - p) / n
        w = [w[k] - step[k] / b[k] for k in range(d)]
    weights = run_encrypted(plan, x, y).exact
    assert weights.shape == (4, 1)
    assert relative_error(weights[:, 0], np.array(w)) < 2 * plan.rounds * error


def test_outputs_do_not_meet() -> None:
    """Three outputs in one run are three runs of one output."""
    plan = make_plan(4, 3, (10, 9), 3)
    x, y = make_rows(plan, seed=5)
    together = run_encrypted(plan, x, y).exact
    for o in range(3):
        alone = run_encrypted(replace(plan, outputs=1), x, y[:, [o]]).exact
        assert np.abs(together[:, [o]] - alone).max() < 1e-10


def test_a_zero_column_keeps_weight_zero() -> None:
    """And the other weights are what they are without it."""
    plan = make_plan(4, 2, (12, 12), 3)
    x, y = make_rows(plan, seed=7)
    x[:, 1] = 0.0
    weights = run_encrypted(plan, x, y).exact
    assert np.abs(weights[1]).max() < 1e-10
    without = run_lffr_twin(replace(plan, num_features=3), np.delete(x, 1, axis=1), y)
    assert relative_error(np.delete(weights, 1, axis=0), without) < 1e-10


def test_noise_stays_below_its_bound_where_columns_nearly_vanish() -> None:
    """b_k is about twice its offset there, so that 1 / b_k and all that errs in it is largest."""
    plan = make_plan(16, 2, (6, 6), 10)
    x, y = make_rows(plan, seed=8)
    x[:, :-1] *= 0.1
    twin = run_lffr_twin(plan, x, np.rint(y))
    assert np.abs(twin).max() > 1
    run = run_encrypted(plan, x, np.rint(y))
    assert 1 < noise_std(plan, run, twin) < kinds.model_error_std(plan)


def test_the_twin_converges_to_a_stationary_point_with_ridge() -> None:
    """The gradient vanishes, ridge included; more ridge, smaller weights."""
    norms = []
    for ridge in (0.01, 0.1):
        plan = make_plan(4, 2, (60, 60), 4000, ridge=ridge)
        x, y = make_rows(plan, seed=8)
        w = run_lffr_twin(plan, x, y)
        p = PAPER_LINK(x @ w)
        pull = 2 * x.T @ ((p - y) * p * (1 - p)) / len(x) + 2 * ridge * w
        assert np.abs(pull).max() < 1e-9
        norms.append(np.linalg.norm(w))
    assert norms[1] < norms[0]


# -- noise ----------------------------------------------------------------------------------------


def private_plan(**changes: Any) -> LffrPlan:
    share = 0.05 / math.sqrt(2)
    privacy = PrivacyPlan(
        epsilon=1.0, delta=1e-5, colluders=1, sigma=0.05, share_std=share, sensitivity=1.0
    )
    return make_plan(4, 3, (9, 8, 7), 500, privacy=privacy, **(PUBLIC_RATE | changes))


def test_noise_has_the_promised_deviation() -> None:
    """6000 draws of one party: variance within a two-sided 1e-6 chi-square interval, 5 % apart."""
    plan = private_plan()
    noise = plan.draw_noise(SeededRandomness(1, "noise"))
    assert noise.shape == (500, 4, 3)
    assert plan.privacy is not None
    statistic = float((noise**2).sum()) / plan.privacy.share_std**2
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], noise.size)
    assert low < statistic < high
    assert not low < statistic * 1.05**4 < high
    assert not low < statistic / 1.05**4 < high
    plain = replace(plan, privacy=None)
    assert not plain.draw_noise(SeededRandomness(1, "noise")).any()


# -- refusals -------------------------------------------------------------------------------------


def test_the_plan_refuses_what_does_not_go_together() -> None:
    plan = make_plan()
    curve = fixed_hessian_of(largest_row_sum(4, columns=[1.0] * 4), offset=0.02)
    with pytest.raises(ParameterError, match="privacy with a preconditioner"):
        private_plan(curvature=curve)
    with pytest.raises(ParameterError, match="no certificate"):
        plan.privacy_setting(1.0)
    with pytest.raises(ParameterError, match="degree=5 of the link is not 3"):
        replace(plan, link=sigmoid_approximation(5, 5.0).polynomial)
    shallow = CkksParameters(ring_dim=512, depth=LFFR_LEVELS + 1, security_bits=0)
    with pytest.raises(ParameterError, match="depth=7 levels is below the 8 that one iteration"):
        replace(plan, ckks=shallow)
    with pytest.raises(ParameterError, match="ridge=2.0 overshoots"):
        replace(plan, ridge=2.0)
    with pytest.raises(ParameterError, match="outputs=100 need 384 slots"):
        replace(plan, outputs=100)
    for change in ({"rounds": 0}, {"learning_rate": 0.0}, {"ridge": -1.0}, {"model": "linear"}):
        with pytest.raises(ParameterError, match=next(iter(change))):
            replace(plan, **change)


def test_the_plan_is_plain_json_with_a_digest_of_every_field() -> None:
    plan = make_plan()
    fields = json.loads(json.dumps(plan.to_dict()))
    assert (fields["kind"], fields["model"], fields["outputs"]) == ("lffr", "lffr", 2)
    assert fields["curvature"] == plan.to_dict()["curvature"]
    for change in ({"rounds": 3}, {"outputs": 1}, {"learning_rate": 0.5}, {"curvature": None}):
        assert replace(plan, **change).digest() != plan.digest()
    assert sequence(plan)[-2] == "decrypt"
    assert sum(step.startswith("refresh/") for step in sequence(plan)) == len(plan.refreshes)


def test_a_party_refuses_targets_that_are_not_scaled() -> None:
    plan = make_plan()
    x, y = make_rows(plan, seed=9)
    noise = np.zeros((2, 3, 2))

    def answer(rows: Floats, targets: Floats) -> None:
        check_outputs(plan, targets.shape[1:])
        packed_slots(plan, plan.names[0], rows, targets, noise)

    with pytest.raises(DataError, match=r"targets outside \[0, 1\]"):
        answer(x[:12], y[:12] * 2)
    with pytest.raises(DataError, match="targets"):
        answer(x[:12], y[:12] * np.nan)
    with pytest.raises(PolicyError, match="targets of shape"):
        answer(x[:12], y[:12, :1])
    with pytest.raises(PolicyError, match="a row is longer"):
        answer(np.nan * x[:12], y[:12])


# -- at 128 bits ----------------------------------------------------------------------------------


def test_the_smallest_secure_ring() -> None:
    """Ring 2^15; the released error of four iterations on 768 rows is below 1e-4."""
    ckks = choose_parameters(LFFR_LEVELS)
    assert (ckks.ring_dim, ckks.depth, ckks.security_bits) == (32768, 8, 128)
    plan = make_plan(9, 2, (256, 256, 256), 4, ckks=ckks, profile="secure")
    assert release_error_std(plan) < 1e-4
    assert plan.layout.num_data_ciphertexts == 4
