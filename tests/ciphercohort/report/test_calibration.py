"""What a regression's run is made of: bounds, ring, ridge and noise from public figures alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciphercohort.job.config import SimulationConfig
from ciphercohort.job.figures import check_kind, figures_of
from ciphercohort.report.release import Release
from parties.kernel.gram.sums import GramSums
from parties.reader.schema import Label, NumericColumn, Schema, Targets
from parties.reader.shard import encode_shard
from parties.verifier.recompute import recompute
from protocols.errors import ParameterError, PolicyError, PrivacyError, SchemaError
from protocols.gram.plan import GramPlan
from protocols.plan.circuit_plan import CircuitPlan
from protocols.plan.kinds import only, plan_from_dict
from protocols.plan.run_plan import Member
from protocols.privacy.calibrate.calibration import Calibration, calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.gram import gram_curvature, gram_ring
from protocols.privacy.calibrate.rows import RELEASED
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.steps.decrypt import release_error_std
from sims.prepare import PreparedData, prepare
from tests.sims.model_runs import make_frame

NORM = 2.0  # of rows on [-1, 1], of two columns, a ward and the bias
MEMBERS = tuple(
    Member(name=f"party-{k + 1}", rows=80, verify_key="ab" * 32, commitment="cd" * 32)
    for k in range(3)
)


def config(**changes: Any) -> SimulationConfig:
    fields: dict[str, Any] = {
        "data": make_frame(), "model": "linear", "targets": ("cost", "days"), "seed": 1,
        "profile": "fast-insecure",
    }  # fmt: skip
    return SimulationConfig(**(fields | changes))


def prepared(**changes: Any) -> tuple[SimulationConfig, PreparedData]:
    wanted = config(**changes)
    return wanted, prepare(wanted, np.random.default_rng(1))


def calibration(**changes: Any) -> Calibration:
    wanted, data = prepared(**changes)
    figures = figures_of(data.schema, (shard.rows for shard in data.shards.values()))
    return calibrate(figures, wanted.wanted())


def planned(**changes: Any) -> GramPlan:
    plan = calibration(**changes).template
    assert isinstance(plan, GramPlan)
    return plan


@pytest.mark.parametrize(
    ("scaling", "row_norm", "entry"), [("range", None, 1), ("standard", None, 2), ("range", 1.5, 1)]
)
def test_the_curvature_bound_holds_for_every_row(scaling: Any, row_norm: Any, entry: int) -> None:
    """2 |x_k| sum_j |x_j| over rows at the schema's corners, beside random ones."""
    columns = tuple(
        NumericColumn(name=f"c{k}", low=-1.0, high=3.0, typical=1.0, spread=0.5) for k in range(4)
    )
    targets = Targets(columns=(NumericColumn(name="y", low=0.0, high=1.0),))
    schema = Schema(columns=columns, label=targets, scaling=scaling, row_norm=row_norm)
    rng = np.random.default_rng(2)
    cells = np.vstack([rng.uniform(-3, 5, (500, 4)), rng.choice([-9.0, 9.0, 1.0], (500, 4))])
    x = encode_shard(pd.DataFrame(cells, columns=[c.name for c in columns]).assign(y=0.5), schema).x
    assert np.abs(x).max() <= entry + 1e-12
    largest = (2 * np.abs(x) * np.abs(x).sum(axis=1, keepdims=True)).max()
    assert (
        0.8 * gram_curvature(figures_of(schema, ()))
        < largest
        <= gram_curvature(figures_of(schema, ())) * (1 + 1e-12)
    )


def test_the_plan_without_privacy() -> None:
    found = calibration(ridge=0.01, rounds=7)
    plan = found.plan("session", MEMBERS)
    assert isinstance(plan, GramPlan) and plan.members == MEMBERS and plan.session == "session"
    assert plan_from_dict(plan.to_dict()) == plan
    assert (plan.outputs, plan.rounds, plan.ridge, plan.privacy) == (2, 7, 0.01, None)
    assert plan.schema["targets"] == ["cost", "days"] and plan.task.row_sums
    assert found.certificate is None and planned().rounds == 12


def test_the_ring_is_the_smallest_and_wide_matrices_take_blocks() -> None:
    secure, toy = Wanted(), Wanted(profile="fast-insecure")
    for features, outputs in ((9, 2), (100, 2), (412, 6), (1024, 16)):
        assert gram_ring(secure, features, outputs).ring_dim == 32768
    assert gram_ring(replace(toy, ring_dim=4096), 33, 2).ring_dim == 4096
    with pytest.raises(ParameterError, match="take a larger ring or fewer columns"):
        gram_ring(secure, 1025, 1)
    with pytest.raises(ParameterError, match="ciphertexts of 1024 slots"):
        gram_ring(replace(toy, ring_dim=2048), 257, 2)


def wide(model: str, rounds: int, features: int = 411) -> Calibration:
    """At 128 bits; columns on [-1, 1], six targets."""
    shape = PublicFigures.even(
        rows=337, features=features, parties=3, norm_bound=math.sqrt(features + 1)
    )
    shape = replace(shape, entry_bound=1.0, outputs=6)
    return calibrate(shape, Wanted(model=model, rounds=rounds))


@pytest.mark.parametrize(
    ("model", "rounds", "bound"),
    [("linear", 12, 1e-4), ("improved-lffr", 12, 1e-4), ("lffr", 3, 7e-4)],
)
def test_opening_moves_weights_of_wide_tables_little(model: str, rounds: int, bound: float) -> None:
    """411 columns: it was 3e-3, where the floor multiplied the circuit's noise; LFFR's, 1.3e-3."""
    found = wide(model, rounds)
    assert release_error_std(only(CircuitPlan, found.template)) < bound
    assert not any("opening the model" in note for note in found.notes)


def test_opening_that_moves_scores_far_is_said_before_the_first_key() -> None:
    (note,) = (note for note in wide("lffr", 60).notes if "opening the model" in note)
    assert "fewer rounds" in note


@pytest.mark.parametrize("model", ["linear", "improved-lffr"])
def test_a_promise_takes_the_ridge_of_its_noise(model: str) -> None:
    found = calibration(model=model, epsilon=2.0, colluders=1)
    plan, certificate = found.template, found.certificate
    assert isinstance(plan, GramPlan) and not plan.task.row_sums
    assert certificate is not None and plan.ridge == certificate.figures["noise_bound"]
    assert "ridge=" in found.notes[0]
    assert 1.99 < recompute(plan, NORM).epsilon <= 2.0 * (1 + 1e-9)


def test_a_ridge_or_curvature_below_the_noise_is_refused() -> None:
    body = planned(epsilon=1.0).to_dict()
    for field, message in (("ridge", "ridge >= tau"), ("curvature_bound", "curvature_bound")):
        with pytest.raises(PolicyError, match=message):
            changed = plan_from_dict({**body, field: 0.9 * body[field]})
            recompute(changed, NORM)


def test_noise_is_the_sums_alone() -> None:
    """Twin and parties add the same noise; its spread on a diagonal entry is the plan's."""
    plan, data = planned(epsilon=1.0), prepared()[1]
    assert plan.privacy is not None
    x, y = data.rows, data.labels
    exact = GramSums.of(x, plan.fitted.encode(y)).gram / plan.num_rows
    drawn = [
        (plan.contribution(x, y, plan.draw_noise(SeededRandomness(seed, "a"))).gram / plan.num_rows)
        for seed in range(200)
    ]
    diagonal = np.array([np.diag(g - exact) for g in drawn])
    # 200 x 5 normals: the estimate is within 7 % at four standard errors.
    assert diagonal.std() == pytest.approx(plan.privacy.share_std, rel=0.09)


def test_a_hopeless_promise_is_refused_or_costs_a_ridge() -> None:
    assert planned(epsilon=0.01).ridge > 10 * planned(epsilon=1.0).ridge
    with pytest.raises((PrivacyError, ParameterError)):
        planned(epsilon=1.0, delta=1e-300)
    assert planned(epsilon=1.0, ridge=1e3).ridge == 1e3 and math.isfinite(planned().ridge)


def test_schema_and_model_go_together() -> None:
    wanted, data = prepared()
    labelled = Schema(
        columns=data.schema.columns,
        label=Label(name="y", positive="1", negative="0"),
        scaling="range",
    )
    with pytest.raises(SchemaError, match="a label of two values"):
        check_kind(labelled, wanted.model)
    with pytest.raises(SchemaError, match="numeric targets"):
        check_kind(data.schema, "logistic")


def test_a_deployment_needs_public_figures_only() -> None:
    """Nobody has the data there: a schema and the number of rows decide, and a model is written."""
    schema = prepared()[1].schema
    wanted = SimulationConfig(model="linear", epsilon=1.0).wanted()
    found = calibrate(figures_of(schema, (400,) * 3), wanted)
    members = tuple(replace(member, rows=400) for member in MEMBERS)
    plan = found.plan("session", members)
    weights = np.arange(2.0 * schema.num_features).reshape(-1, 2)
    release = Release(
        plan=plan,
        schema=schema,
        schema_from="given",
        weights=weights,
        released=weights,
        scaling=None,
        transcript_head="",
        noise="system",
    )
    document = release.model_document()
    assert document["kind"] == "regression" and document["privacy"]["epsilon"] == 1.0
    assert np.shape(document["coef"]) == (2, schema.num_features - 1)


# -- offset of the quadratic gradient --------------------------------------------------------------


def quadratic_plan(rows: int, features: int) -> Any:
    shape = PublicFigures.even(rows=rows, features=features, parties=3)
    return calibrate(shape, Wanted(update="quadratic-nag")).template


def test_the_offset_is_the_smallest_that_the_released_error_allows() -> None:
    """Many rows: a smaller one, and longer steps; never above a hundredth of the largest part."""
    offsets = []
    for rows, features in ((150, 9), (2_000, 9), (200_000, 9)):
        plan = quadratic_plan(rows, features)
        curvature = plan.curvature
        offsets.append(curvature.offset / (curvature.high - curvature.offset))
        # Few rows keep the largest one, whatever it leaves.
        assert release_error_std(plan) <= RELEASED or offsets[-1] > 0.0099
        if offsets[-1] > 0.01 / 31:
            half = replace(
                curvature, offset=curvature.offset / 2, high=curvature.high - curvature.offset / 2
            )
            rule = replace(plan.rule, curvature=half)
            assert release_error_std(replace(plan, update=rule.to_dict())) > RELEASED
    assert offsets == sorted(offsets, reverse=True)
    assert offsets[0] <= 0.01 and offsets[-1] < offsets[0] / 4
    # The bound of the diagonal, whose inverse is certified on it, holds for the worst rows.
    assert curvature.inverse.relative_error <= curvature.error
