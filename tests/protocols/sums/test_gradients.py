"""The secure-aggregation protocol's plan, certificate and rule driver, without keys."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant

from parties.kernel.integers.exact import Exact
from parties.kernel.sums.integer_sums import PartSum
from parties.verifier.objectives import open_contributor
from protocols.aggregate.choice import choose
from protocols.errors import CohortError, MessageError, ParameterError
from protocols.exchange.messages import Body
from protocols.plan.kinds import plan_from_dict
from protocols.plan.run_plan import Member, PrivacyPlan
from protocols.privacy.certificates.sums import SumSetting, check
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.laws.shares import NoiseSplit
from protocols.privacy.loss.catalogue import noise_of
from protocols.rows.training import PlainGradient, train_plain
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan, read_point, run_rule
from protocols.updates.momentum import GradientDescent, Nesterov
from tests.support.plans import sums

LENGTH = 3


def make_plan(**changes: Any) -> GradientPlan:
    """Three parties of unequal size, two iterations."""
    members = tuple(
        Member(name=f"p{k}", rows=10 * (k + 1), verify_key="00" * 32, commitment="11" * 32)
        for k in range(3)
    )
    fields: dict[str, Any] = {
        "session": "s",
        "members": members,
        "schema": {"digest": "22" * 32},
        "num_features": LENGTH,
        "privacy": None,
        "cipher": choose(parties=3, largest_sum=100.0, precision=2.0**-20),
        "objective": RowObjective(kind="logistic", clip=1.0).to_dict(),
        "update": GradientDescent(rounds=2, learning_rate=0.5).to_dict(),
        "length": LENGTH,
    }
    return GradientPlan(**{**fields, **changes})


PRIVACY = PrivacyPlan(
    epsilon=1.0, delta=1e-5, colluders=1, sigma=0.4, share_std=0.3, sensitivity=2.0
)


def test_a_plan_survives_the_wire() -> None:
    plan = make_plan(privacy=PRIVACY, noise_scales=(0.5, 0.4), weights=(1 / 3,) * 3)
    back = plan_from_dict(json.loads(json.dumps(plan.to_dict())))
    assert back == plan and back.digest() == plan.digest()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise_scales": (0.5, 0.4)}, "go together"),
        ({"privacy": PRIVACY, "noise_scales": (0.5,)}, "1 entries for 2"),
        ({"privacy": PRIVACY, "noise_scales": (0.5, math.inf)}, "finite"),
        ({"weights": (0.5, 0.5)}, "2 of them"),
        ({"weights": (0.5, 0.5, 0.5)}, "all the same, 0.333333 each"),
        ({"weights": (0.2, 0.3, 0.5)}, "from 0.2 to 0.5"),
        ({"weights": (1 - 2**-29, 2**-30, 2**-30)}, "by their rows"),
        ({"weights": (math.nan,) * 3}, "from nan"),
        ({"privacy": replace(PRIVACY, colluders=2), "noise_scales": (0.5, 0.4)}, "is above 1"),
        ({"mechanism": "uniform"}, "mechanism"),
        ({"length": 0}, "length"),
        ({"cipher": choose(parties=2, largest_sum=1.0, precision=0.1)}, "parties"),
        ({"objective": {"kind": "logistic", "clip": -1.0}}, "clip"),
        ({"objective": {"kind": "other", "clip": 1.0}}, "logistic"),
        ({"update": {"kind": "gd", "rounds": 2}}, "wrong fields"),
    ],
)
def test_plans_that_do_not_fit(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        plan = make_plan(**changes)
        _ = plan.queries, plan.rule


def test_sensitivity_counts_the_heaviest_row() -> None:
    """2 clip / N for weights n_p / N; for equal weights, that of the smallest party."""
    assert make_plan().sensitivity("gradient") == pytest.approx(2 / 60)
    equal = make_plan(weights=(1 / 3, 1 / 3, 1 / 3))
    assert equal.sensitivity("gradient") == pytest.approx(2 / 30)


def test_replacing_a_row_moves_a_sum_by_at_most_the_sensitivity() -> None:
    """20,000 neighbour pairs, gradients of any length; the bound is nearly reached."""
    rng = np.random.default_rng(1)
    bound, largest = 0.7, 0.0
    rows = rng.normal(size=(20_000, 2, LENGTH)) * rng.exponential(3, (20_000, 2, 1))
    rows[:100, 1] = -rows[:100, 0]
    for norm in (1, 2):
        total = PartSum(Fraction(bound), norm, LENGTH, 20_000)
        first, second = (total.rounded(rows[:, k]) for k in (0, 1))
        moved = np.linalg.norm(first - second, ord=norm, axis=1) * 2.0**-total.bits
        largest = float(moved.max())
        assert largest <= 2 * bound * (1 + 1e-12)
        assert largest > 1.98 * bound


SETTING = SumSetting(
    mechanism="gaussian",
    sensitivities=(0.1, 0.2, 0.2),
    scales=(1.0, 1.5, 2.5),
    length=10,
    split=NoiseSplit(parties=5, colluders=2),
    epsilon=1.0,
    delta=1e-5,
)


def test_gaussian_epsilon_against_dp_accounting() -> None:
    certificate = check(SETTING)
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for c, scale in zip(SETTING.sensitivities, SETTING.scales, strict=True):
        accountant.compose(GaussianDpEvent(scale / c))
    library = accountant.get_epsilon(SETTING.delta_mechanism)
    exact = certificate.figures["epsilon_exact"]
    assert exact <= library * (1 + 1e-6) and library <= 1.01 * exact
    assert certificate.satisfied and certificate.epsilon_by_coalition[2] == exact
    assert list(certificate.epsilon_by_coalition) == sorted(certificate.epsilon_by_coalition)


def test_the_ends_of_the_noise_are_stated() -> None:
    """5 parties, 10 values, 3 queries: a sampler's end and a value beyond 40 scales, for each."""
    certificate = check(replace(SETTING, epsilon=1.0))
    ends, grid = (certificate.figures[name] for name in ("delta_other", "delta_grid"))
    assert ends == pytest.approx(150 * (1 + math.e) * noise_of("gaussian").tail)
    assert certificate.additive_delta == ends + grid


def test_a_range_that_noise_leaves_is_no_plan() -> None:
    plan = sums()
    coarse = replace(plan.cipher, scale_bits=plan.cipher.scale_bits + 3)
    with pytest.raises(ParameterError, match="40 noise scales"):
        replace(plan, cipher=coarse)


@pytest.mark.parametrize("factor", [0.5, 0.99])
def test_less_noise_is_refused(factor: float) -> None:
    own = check(SETTING).figures["epsilon_exact"]
    scales = tuple(factor * scale for scale in SETTING.scales)
    assert check(replace(SETTING, epsilon=own)).satisfied
    assert not check(replace(SETTING, epsilon=own, scales=scales)).satisfied


def test_secret_batches_amplify_and_public_ones_do_not() -> None:
    same = replace(SETTING, sensitivities=(0.2,) * 3, scales=(0.3,) * 3)
    assert replace(same, rate=0.1).epsilon_of() < 0.5 * same.epsilon_of()
    with pytest.raises(ParameterError, match="same noise"):
        replace(SETTING, rate=0.1)


def test_noise_is_on_the_grid_and_split() -> None:
    """Variance sigma^2 / (P - t): 4 sigma of the estimate from 20,000 values is 2 %."""
    plan = make_plan(privacy=PRIVACY, noise_scales=(0.5, 0.4), length=20_000)
    share = plan.draw_noise(0, SeededRandomness(1, "a"))
    assert share.std() == pytest.approx(0.5 / math.sqrt(2), rel=0.02)
    units = share / plan.grid(0).unit
    assert (plan.on_grid(0, Exact.of(share)) == units).all()
    assert np.abs(plan.on_grid(0, Exact.of(share + 1e-13)) - units).max() <= 1
    assert (plan.noisy(0, Exact.of(share), share).values == 2 * share).all()


@pytest.mark.parametrize(
    "rule",
    [GradientDescent(rounds=4, learning_rate=0.7, ridge=0.1), Nesterov(rounds=4, learning_rate=1)],
)
def test_the_driver_is_plain_training(rule: Any) -> None:
    """run_rule asks at the points at which train_plain calls its oracle."""
    rng = np.random.default_rng(2)
    x, y = rng.uniform(-1, 1, (40, LENGTH)), rng.integers(0, 2, 40).astype(float)
    plain = PlainGradient(x, y, np.zeros((4, LENGTH)), lambda z: 1 / (1 + np.exp(-z)))
    plan = make_plan(update=rule.to_dict())

    def ask(t: int, point: Any) -> Any:
        return plain(point, 1.0)
        yield

    with pytest.raises(StopIteration) as stop:
        next(run_rule(plan, ask, np.zeros(LENGTH)))
    twin = PlainGradient(x, y, np.zeros((4, LENGTH)), lambda z: 1 / (1 + np.exp(-z)))
    assert np.allclose(stop.value.value, train_plain(rule, twin, LENGTH), atol=1e-14)


@pytest.mark.parametrize(
    "blobs", [(), (b"1" * 8,), (b"",) * 2, (np.full(LENGTH, np.nan).tobytes(),)]
)
def test_points_that_are_none(blobs: tuple[bytes, ...]) -> None:
    with pytest.raises(MessageError):
        read_point(make_plan(), Body(blobs=blobs), LENGTH)


NO_CLASSES: Any = SimpleNamespace(schema=SimpleNamespace(label=None))


def test_an_unknown_objective_is_refused() -> None:
    plan = make_plan(objective=RowObjective(kind="torch", clip=1.0).to_dict())
    with pytest.raises(CohortError, match="not one of this party"):
        open_contributor(plan, "p0", NO_CLASSES, SeededRandomness(1, "p0"))
