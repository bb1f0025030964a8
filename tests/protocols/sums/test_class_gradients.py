"""Gradients of several classes: exact, clipped as a whole, and what one row moves of them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from parties.reader.shard import ClampCounts, Shard
from parties.verifier.objectives import open_contributor
from protocols.aggregate.choice import choose
from protocols.errors import ParameterError, PolicyError
from protocols.models.registry import model_named
from protocols.plan.run_plan import Member
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.laws import SystemRandomness
from protocols.rows.curvature import row_sums
from protocols.sums.objectives import (
    CURVATURE,
    GRADIENT,
    OF_CLASSES,
    RowObjective,
    objective_from_dict,
)
from protocols.sums.plan import GradientPlan, run_rule
from tests.support.plans import dual_objective, dual_rule, unit_schema

Floats = NDArray[np.float64]
FEATURES, CLASSES, ROWS = 3, 4, 10
NEAR = 0.9
"""Of a tight bound, what an attack has to reach."""


def plan_of(kind: str, clip: float = 100.0, outputs: int = CLASSES) -> GradientPlan:
    """Two parties of ten rows."""
    members = tuple(
        Member(name=f"p{k}", rows=ROWS, verify_key="00" * 32, commitment="11" * 32)
        for k in range(2)
    )
    return GradientPlan(
        session="s",
        members=members,
        schema={"digest": "22" * 32},
        num_features=FEATURES,
        privacy=None,
        model=kind,
        cipher=choose(parties=2, largest_sum=1000.0, precision=2.0**-20),
        objective=RowObjective(kind=kind, clip=clip, outputs=outputs).to_dict(),
        update={"kind": "gd", "rounds": 2, "learning_rate": 0.5, "ridge": 0.0},
        length=FEATURES * outputs,
    )


def shard_of(x: Floats, classes: Any, outputs: int = CLASSES) -> Shard:
    return Shard(
        x=x,
        y=np.eye(outputs)[np.asarray(classes)],
        counts=ClampCounts(rows=len(x)),
        schema=unit_schema(x.shape[1], outputs),
    )


def added(plan: GradientPlan, shard: Shard, point: Floats, query: str = GRADIENT) -> Floats:
    owner = open_contributor(plan, "p0", shard, SystemRandomness())
    return owner.contribution(query, 0, point.ravel())


def unit_rows(rng: np.random.Generator, count: int) -> Floats:
    x = rng.normal(size=(count, FEATURES))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True) * rng.uniform(size=(count, 1)))


# -- exact ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OF_CLASSES)
def test_it_is_the_gradient_of_the_models_loss(kind: str) -> None:
    rng = np.random.default_rng(1)
    x, w, step = unit_rows(rng, ROWS), rng.normal(size=(FEATURES, CLASSES)), 1e-6
    shard = shard_of(x, rng.integers(0, CLASSES, ROWS))
    found = added(plan_of(kind), shard, w).reshape(w.shape)
    for place in np.ndindex(w.shape):
        moved = np.zeros_like(w)
        moved[place] = step
        ends = [model_named(kind).loss(x @ (w + s * moved), shard.y).sum() for s in (1, -1)]
        assert found[place] * 2 * ROWS == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)


def test_softmax_of_two_classes_is_logistic_regression() -> None:
    """Scores z of one class against 0 of the other; the gradient of the other is the opposite."""
    rng = np.random.default_rng(2)
    x, w = unit_rows(rng, ROWS), rng.normal(size=FEATURES)
    labels = rng.integers(0, 2, ROWS)
    x_and_labels: Any = SimpleNamespace(  # no schema has classes of two values
        x=x,
        y=np.eye(2)[labels],
        weight=np.ones(ROWS),
        offset=np.zeros(ROWS),
        rows=ROWS,
        num_features=FEATURES,
        schema=SimpleNamespace(label=SimpleNamespace(outputs=2), norm_bound=1.0, row_terms={}),
    )
    scores = np.column_stack([0 * w, w])
    two = added(plan_of("softmax", outputs=2), x_and_labels, scores).reshape(FEATURES, 2)
    binary = replace(
        plan_of("softmax", outputs=2),
        objective=RowObjective(kind="logistic", clip=100.0).to_dict(),
        length=FEATURES,
    )
    schema = unit_schema(FEATURES)
    shard = Shard(x=x, y=labels.astype(float), counts=ClampCounts(rows=ROWS), schema=schema)
    np.testing.assert_allclose(two[:, 1], added(binary, shard, w), atol=1e-9)
    np.testing.assert_allclose(two.sum(axis=1), 0.0, atol=1e-9)


@pytest.mark.parametrize("kind", OF_CLASSES)
def test_a_row_is_clipped_as_a_whole(kind: str) -> None:
    rng = np.random.default_rng(3)
    free, clipped = (plan_of(kind, clip) for clip in (100.0, 0.3))
    for x in unit_rows(rng, 50):
        shard, w = shard_of(x[None], [1]), rng.normal(size=(FEATURES, CLASSES))
        whole = added(free, shard, w)
        length = 2 * ROWS * np.linalg.norm(whole)
        wanted = whole * min(1, 0.3 / length)
        # Integers of 2^-31 of a row's bound.
        np.testing.assert_allclose(added(clipped, shard, w), wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", OF_CLASSES)
def test_a_row_that_overflows_counts_as_zero(kind: str) -> None:
    shard = shard_of(np.array([[1.0, 0, 0], [0.5, 0, 0]]), [0, 1])
    with np.errstate(all="ignore"):
        found = added(plan_of(kind), shard, np.full((FEATURES, CLASSES), 1e308) * [[1], [-1], [1]])
    assert np.isfinite(found).all()


# -- what one row moves ---------------------------------------------------------------------------


def largest_move(plan: GradientPlan) -> float:
    """Of one replaced row, at points that nothing bounds, in the norm of the mechanism.

    Rows almost opposite across the direction u of the scores, which are large: every pattern of
    signs over the classes, every pair of labels.
    """
    rng, moved = np.random.default_rng(4), 0.0
    along = np.ones(FEATURES) / math.sqrt(FEATURES)
    for _ in range(2):
        u = np.linalg.qr(np.column_stack([along, rng.normal(size=FEATURES)]))[0][:, 1]
        rows = np.array([along + 0.01 * u, -along + 0.01 * u]) / math.hypot(1, 0.01)
        owners = [
            open_contributor(plan, "p0", shard_of(row[None], [label]), SystemRandomness())
            for row, label in product(rows, range(CLASSES))
        ]
        for signs in product((-1, 0, 1), repeat=CLASSES):
            point = 1e4 * np.outer(u, signs).ravel()
            sums = np.array([owner.contribution(GRADIENT, 0, point) for owner in owners])
            gaps = np.linalg.norm(sums[:, None] - sums[None], ord=plan.noise.norm, axis=2)
            moved = max(moved, float(gaps.max()))
    return moved


def natural(kind: str) -> float:
    """The clip that a plan without a wish for one has, for rows of norm 1."""
    wanted = Wanted(model=kind, protocol="secure-aggregation", update="gd")
    figures = PublicFigures.even(rows=2 * ROWS, features=FEATURES - 1, parties=2)
    plan = calibrate(figures=replace(figures, outputs=CLASSES), wanted=wanted).template
    assert isinstance(plan, GradientPlan)
    return float(plan.objective["clip"])


@pytest.mark.parametrize("kind", OF_CLASSES)
def test_the_sensitivity_holds_and_is_tight(kind: str) -> None:
    """The natural clip shortens no row, so that the residuals' bound is what is attacked."""
    clip = natural(kind)
    free, plan = plan_of(kind, 100.0), plan_of(kind, clip)
    sensitivity = plan.sensitivity(GRADIENT)
    moved = largest_move(free)
    assert NEAR * sensitivity < moved <= sensitivity * (1 + 1e-12)
    assert largest_move(plan) == pytest.approx(moved)
    short = replace(plan, objective={**plan.objective, "clip": clip / 3})
    assert NEAR < largest_move(short) / short.sensitivity(GRADIENT) <= 1 + 1e-12


# -- curvature ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "constant"), [("softmax", 0.5), ("one-vs-rest", 0.25)])
def test_all_classes_share_one_curvature_above_the_hessian(kind: str, constant: float) -> None:
    """Boehning's bound times the rows' diagonal one, for every class; asked for once."""
    figures = replace(PublicFigures.even(rows=2 * ROWS, features=2, parties=2), outputs=CLASSES)
    wanted = Wanted(model=kind, protocol="secure-aggregation", update="quadratic-gd", rounds=1)
    plan = calibrate(figures, wanted).template
    assert isinstance(plan, GradientPlan) and plan.rule.curvature is not None
    assert plan.queries == (CURVATURE, GRADIENT)
    rng = np.random.default_rng(6)
    x = unit_rows(rng, 2 * ROWS)
    shard = shard_of(x, rng.integers(0, CLASSES, 2 * ROWS))
    name = plan.names[0]
    owner = open_contributor(plan, name, shard, SystemRandomness())
    bound = owner.contribution(CURVATURE, 0, np.zeros(plan.length)).reshape(FEATURES, CLASSES)
    np.testing.assert_allclose(bound[:, 0], constant * row_sums(x) / (2 * ROWS))
    assert not bound[:, 1:].any()

    def ask(t: int, point: Floats) -> Any:
        return owner.contribution(plan.queries[t], t, point)
        yield

    with pytest.raises(StopIteration) as stopped:
        next(run_rule(plan, ask, np.zeros(plan.length)))
    w, b = stopped.value.value, plan.rule.curvature.offset + bound[:, 0]
    gradient = owner.contribution(GRADIENT, 1, np.zeros(plan.length)).reshape(w.shape)
    np.testing.assert_allclose(w, -gradient / b[:, None])
    # The Hessian of the mean loss at random points, all classes together.
    for scale in (0.0, 1.0, 10.0):
        z = scale * x @ rng.normal(size=(FEATURES, CLASSES))
        p = model_named("softmax").decode(z) if kind == "softmax" else 1 / (1 + np.exp(-z))
        each = [
            np.diag(v) - np.outer(v, v) if kind == "softmax" else np.diag(v * (1 - v)) for v in p
        ]
        hessian = sum(np.kron(np.outer(a, a), h) for a, h in zip(x, each, strict=True)) / len(x)
        slack = np.diag(np.repeat(bound[:, 0], CLASSES)) - hessian
        assert np.linalg.eigvalsh(slack).min() > -1e-12


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [{"kind": "logistic", "outputs": 3}, {"kind": "softmax"}, {"kind": "softmax", "outputs": 0}],
)
def test_outputs_that_do_not_fit_the_objective_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="outputs="):
        objective_from_dict({"clip": 1.0, **fields})


def test_a_length_that_does_not_fit_the_classes_is_refused() -> None:
    with pytest.raises(ParameterError, match="length=9 is not 3 features by 4 classes"):
        replace(plan_of("softmax"), length=9)


def test_a_party_refuses_a_plan_for_other_classes() -> None:
    x = np.zeros((ROWS, FEATURES))
    shard = shard_of(x, [0] * ROWS, 5)
    with pytest.raises(PolicyError, match="outputs=4 of objective softmax are not this party's 5"):
        open_contributor(plan_of("softmax"), "p0", shard, SystemRandomness())
    two = Shard(x=x, y=np.zeros(ROWS), counts=ClampCounts(rows=ROWS), schema=unit_schema(FEATURES))
    with pytest.raises(PolicyError, match="not this party's 1"):
        open_contributor(plan_of("softmax"), "p0", two, SystemRandomness())


def test_a_party_with_classes_refuses_dual_steps_of_two_values() -> None:
    shard = shard_of(np.zeros((ROWS, FEATURES)), [0] * ROWS)
    sums = {"objective": dual_objective(), "update": dual_rule(), "length": FEATURES}
    plan = replace(plan_of("softmax"), **sums)
    with pytest.raises(PolicyError, match="objective='dual' knows no label of several classes"):
        open_contributor(plan, "p0", shard, SystemRandomness())


@pytest.mark.parametrize("update", ["barrier", "scd"])
def test_updates_of_one_score_are_refused(update: str) -> None:
    figures = replace(PublicFigures.even(rows=40, features=4, parties=2), outputs=CLASSES)
    wanted = Wanted(model="softmax", protocol="secure-aggregation", update=update)
    with pytest.raises(ParameterError, match="label of two values"):
        calibrate(figures, wanted)
