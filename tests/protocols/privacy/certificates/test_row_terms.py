"""Weights and offsets of rows in sums and gradients: repeated rows, and what one row can move.

The bound of weights is part of a sensitivity: rows are held to weights over their bound. A search
for the worst pair of rows finds what is stated and no more; a mutant that forgets the bound is
found out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from parties.kernel.gram.sums import GramSums
from parties.reader.schema import Label, NumericColumn, Offset, Schema, Weight
from parties.reader.shard import ClampCounts, Shard
from parties.verifier.objectives import open_contributor
from protocols.errors import ParameterError
from protocols.model.plan import ModelPlan
from protocols.numerics.approximation import sigmoid_approximation
from protocols.plan import kinds
from protocols.plan.run_plan import PrivacyPlan
from protocols.privacy.certificates.descent_bound import push_bound
from protocols.privacy.certificates.gram import gram_sensitivity
from protocols.privacy.certificates.sensitivity import diameter
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.privacy.loss.budget import Budget
from protocols.rows.slots import Course, norms
from protocols.rows.training import PlainGradient
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan
from tests.protocols.gram.test_gram_plan import make_plan as gram_plan
from tests.protocols.sums.test_gradients import PRIVACY
from tests.protocols.sums.test_gradients import make_plan as sums_plan
from tests.support.helpers import make_link, make_plan
from tests.support.plans import dual_objective

Floats = NDArray[np.float64]
BOUND = 4.0
SCHEMA = Schema(
    columns=tuple(NumericColumn(name=f"x{k}", low=-1, high=1) for k in range(2)),
    label=Label(name="y", positive="1", negative="0"),
    scaling="range",
    weight=Weight(name="w", bound=BOUND),
    offset=Offset(name="o", low=-1, high=1),
)
PAIRS = 20_000


def shard_of(x: Floats, y: Floats, w: Floats, o: Floats) -> Shard:
    counts = ClampCounts(rows=len(x))
    return Shard(x=x, y=y, counts=counts, schema=SCHEMA, weight=w / BOUND, offset=o)


def rows(count: int, seed: int = 0) -> tuple[Floats, Floats, Floats, Floats]:
    """x, y, weights 0 … 4, offsets."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(-1, 1, (count, 2)), np.ones(count)])
    y = rng.integers(0, 2, count).astype(float)
    return x, y, rng.integers(0, 5, count).astype(float), rng.uniform(-1, 1, count)


def summed(plan: GradientPlan, shard: Shard, query: str = "gradient") -> Floats:
    """What a party of N rows adds to a sum over N, times N."""
    owner = open_contributor(plan, "p0", shard, SeededRandomness(1, "p0"))
    return plan.num_rows * owner.contribution(query, 0, np.array([0.7, -1.2, 0.4]))


# -- a row of weight 2 is two rows ----------------------------------------------------------------


@pytest.mark.parametrize("query", ["gradient", "curvature"])
def test_integer_weights_are_repeated_rows_in_clipped_sums(query: str) -> None:
    x, y, w, o = rows(40)
    task = RowObjective(kind="logistic", clip=0.5, curvature_clip=0.3).to_dict()
    plan = sums_plan(objective=task)
    again = np.repeat(np.arange(40), w.astype(int))
    once = shard_of(x[again], y[again], np.full(len(again), BOUND), o[again])
    # Weights over their bound: BOUND times the sum is that of rows that are repeated.
    found = BOUND * summed(plan, shard_of(x, y, w, o), query)
    np.testing.assert_allclose(found, summed(plan, once, query), rtol=1e-9, atol=1e-9)


def test_integer_weights_are_repeated_rows_in_gram_sums_and_gradients() -> None:
    x, y, w, o = rows(40)
    again, plan = np.repeat(np.arange(40), w.astype(int)), gram_plan(num_features=3, outputs=1)
    weighted = plan.contribution(x, y[:, None], np.zeros(0), w / BOUND)
    once: GramSums = plan.contribution(x[again], y[again, None], np.zeros(0))
    for name in ("gram", "cross", "row_sums"):
        np.testing.assert_allclose(BOUND * getattr(weighted, name), getattr(once, name))
    noise, link, point = np.zeros((1, 3)), make_link(7), np.array([0.7, -1.2, 0.4])
    one = PlainGradient(x, y, noise, link, weight=w / BOUND, offset=o)
    two = PlainGradient(x[again], y[again], noise, link, offset=o[again])
    np.testing.assert_allclose(BOUND * 40 * one(point, 1.0), len(again) * two(point, 1.0))


# -- what one row moves ---------------------------------------------------------------------------


def pairs(seed: int = 3) -> dict[str, Floats]:
    """Two rows each, of norm 1, with labels and weights; half of them opposite ones."""
    rng = np.random.default_rng(seed)
    drawn: dict[str, Floats] = {}
    for one in ("x", "other"):
        rows = rng.normal(size=(PAIRS, 3))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        drawn[one] = rows
        drawn[f"y_{one}"] = rng.integers(0, 2, PAIRS).astype(float)
        drawn[f"u_{one}"] = rng.uniform(0, 1, PAIRS) ** 0.2
    half = PAIRS // 2
    drawn["other"][:half] = -drawn["x"][:half]
    drawn["y_other"][:half] = drawn["y_x"][:half]
    drawn["u_x"][:half:2] = drawn["u_other"][:half:2] = 1.0
    drawn["u_other"][half::2] = 0.0  # a row of no weight beside one of all
    drawn["u_x"][half::2] = 1.0
    return drawn


def largest(of: Any, drawn: dict[str, Floats], forgotten: float = 1.0) -> float:
    """Largest |u g - u' g'|; forgotten: a bound that weights were not divided by."""
    first, second = (
        forgotten * drawn[f"u_{k}"][:, None] * of(drawn[k], drawn[f"y_{k}"]) for k in ("x", "other")
    )
    return float(np.linalg.norm(first - second, axis=1).max())


@pytest.mark.parametrize("radius", [0.5, 6.0])
def test_no_pair_of_weighted_rows_moves_a_gradient_by_more_than_stated(radius: float) -> None:
    p = sigmoid_approximation(7, 8.0).polynomial
    w = np.array([0.6, -0.64, 0.48])
    w *= radius / np.linalg.norm(w)
    stated, drawn = diameter(p, norm_bound=1.0, radius=radius), pairs()

    def gradients(x: Floats, y: Floats) -> Floats:
        residual: Floats = p(x @ w) - y
        return residual[:, None] * x

    found = largest(gradients, drawn)
    assert 0.7 * stated < found <= stated
    assert largest(gradients, drawn, forgotten=BOUND) > stated


def test_no_pair_of_weighted_rows_moves_gram_sums_by_more_than_stated() -> None:
    stated, drawn = gram_sensitivity(1.0, 1.0), pairs()

    def sums(x: Floats, y: Floats) -> Floats:
        products = np.einsum("ni,nj->nij", x, x).reshape(len(x), -1)
        return np.column_stack([products, (2 * y - 1)[:, None] * x])

    found = largest(sums, drawn)
    assert 0.7 * stated < found <= stated * (1 + 1e-12)
    assert largest(sums, drawn, forgotten=BOUND) > stated


def test_the_search_by_a_partys_own_code_finds_what_the_plan_states() -> None:
    """The contributor's answers for neighbours that differ in the last row."""
    task = RowObjective(kind="logistic", clip=0.5).to_dict()
    plan = sums_plan(objective=task, privacy=PRIVACY, noise_scales=(0.5, 0.4))
    x, y, w, o = rows(10)

    def answer(sign: float, weight: float, factor: float = 1.0) -> Floats:
        x[-1], y[-1], w[-1], o[-1] = sign, 0, weight, 0.0
        shard = shard_of(x, y, w, o)
        # What a shard refuses at birth: weights that are not over their bound.
        object.__setattr__(shard, "weight", factor * shard.weight)
        return summed(plan, shard)

    stated = plan.num_rows * plan.sensitivity("gradient")
    # The bias is 1 in a true row; -1 is further than any.
    weights = (0.0, 1.0, BOUND)
    moved = [np.linalg.norm(answer(1, a) - answer(-1, b)) for a in weights for b in weights]
    assert 0.9 * stated < max(moved) <= stated * (1 + 1e-12)
    forgetful = np.linalg.norm(answer(1, BOUND, BOUND) - answer(-1, BOUND, BOUND))
    assert forgetful > 3 * stated


def test_weighted_steps_stay_within_the_bound_of_a_step() -> None:
    """|v|^2 <= rho |w|^2 + 2 eta M of `descent_bound`, for the worst of many weightings."""
    rng, p, eta = np.random.default_rng(5), sigmoid_approximation(7, 8.0).polynomial, 0.5
    x, w = rng.normal(size=(30, 3)), np.array([2.0, -1.0, 0.5])
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = (x @ w > 0).astype(float)  # every row pushes outwards
    push = push_bound(
        p, shrink=1.0, learning_rate=eta, norm_bound=1.0, radius=float(np.linalg.norm(w))
    )
    reached = 0.0
    for _ in range(300):
        u = rng.integers(0, 2, 30) * rng.uniform(0, 1, 30) ** 0.3
        v = w - eta * PlainGradient(x, y, np.zeros((1, 3)), p, weight=u)(w, 1.0)
        reached = max(reached, float(v @ v - w @ w))
    assert 0 < reached <= 2 * eta * push


# -- what plans take ------------------------------------------------------------------------------

WEIGHT, OFFSET = {"digest": "22" * 32, "weight": 2.0}, {"digest": "22" * 32, "offset": 1.0}
SCD = dual_objective(ridge=0.1)
NOISY = PrivacyPlan(epsilon=1, delta=1e-5, colluders=0, sigma=0.1, share_std=0.1, sensitivity=1)


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (make_plan, {"schema": WEIGHT}, "take --protocol encrypted-model or secure-aggregation"),
        (make_plan, {"schema": OFFSET}, "take --protocol encrypted-model or secure-aggregation"),
        (make_plan, {"schema": OFFSET, "make": ModelPlan}, "take --update nag"),
        (
            make_plan,
            {"schema": OFFSET, "make": ModelPlan, "update": "nag", "privacy": NOISY},
            "take --protocol secure-aggregation, where gradients are clipped, or --no-privacy",
        ),
        (gram_plan, {"schema": OFFSET}, "subtract it there"),
        (sums_plan, {"schema": WEIGHT, "objective": SCD}, "take another update"),
        (make_plan, {"schema": WEIGHT | {"weight": -1}}, "weight=-1 must be finite and positive"),
        (make_plan, {"schema": WEIGHT | {"weight": "2"}}, "must be finite and positive"),
    ],
)
def test_refusals_say_what_to_take(make: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        make(**options)


def test_what_is_taken() -> None:
    make_plan(schema=WEIGHT, make=ModelPlan)
    make_plan(schema=WEIGHT, make=ModelPlan, privacy=NOISY)
    make_plan(schema=WEIGHT | OFFSET, make=ModelPlan, update="nag")
    gram_plan(schema=WEIGHT)
    assert sums_plan(schema=WEIGHT | OFFSET).row_terms == {"weight": 2.0, "offset": 1.0}


def test_bounds_of_slots_are_at_the_offsets_ends() -> None:
    """The walk with offsets is longer than without, and holds where rows have them."""
    plan = make_plan(rows=(30,) * 2, update="nag", rounds=2, make=ModelPlan, schema=OFFSET)
    plain = replace(plan, schema={"digest": "22" * 32})
    bounds, without = (kinds.slot_bounds(each, 3**0.5) for each in (plan, plain))
    assert bounds.largest is not None and without.largest is not None
    assert bounds.largest > without.largest
    # The worst rows: all push the same way from the start.
    gradient = PlainGradient(
        np.ones((60, 3)), np.zeros(60), np.zeros((2, 3)), plan.link, offset=np.ones(60)
    )
    course = Course(
        rule=plan.rule,
        link=plan.link,
        norm_bound=3**0.5,
        rows=60,
        features=3,
        sigma=0.0,
        budget=Budget.of(None, plan.split),
        offset=1.0,
    )
    (found,) = norms(course)
    (shorter, *_) = norms(replace(course, offset=0.0))
    reached = float(np.linalg.norm(gradient(np.zeros(3), plan.rule.rates[0])))
    assert shorter.points[1] < reached <= found.points[1]


def test_targets_of_gram_sums_are_weighted_after_they_are_encoded() -> None:
    """Improved LFFR bends targets: sqrt(u) comes after that."""
    plan = gram_plan(num_features=3, outputs=1, model="improved-lffr")
    x, y, w, _ = rows(20)
    found = plan.contribution(x, y[:, None], np.zeros(0), w / BOUND)
    expected = x.T @ ((w / BOUND)[:, None] * plan.fitted.encode(y[:, None]))
    np.testing.assert_allclose(found.cross, expected)
