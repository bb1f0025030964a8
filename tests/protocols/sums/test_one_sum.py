"""Every objective that is one sum: its promise of distances, its plan, what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant

from parties.agent.manifest import describe_plan
from parties.kernel.study.described import Described
from parties.kernel.study.glm import Generalised
from parties.kernel.study.hazards import CoxRows, RiskSets
from parties.kernel.study.lifetimes import Lifetimes
from parties.policy import Policy
from protocols.errors import ParameterError, PolicyError, PrivacyError
from protocols.plan import kinds
from protocols.plan.kinds import plan_from_dict
from protocols.plan.run_plan import Member
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.statistics.evaluation.objective import EvaluationObjective
from protocols.statistics.inference.objective import InformationObjective, ProductsObjective
from protocols.statistics.study import objectives as study_objectives
from protocols.statistics.study.cox import written
from protocols.statistics.study.objectives import (
    CoxRowsObjective,
    DescriptionObjective,
    GeneralisedObjective,
    LifetimesObjective,
    PersonTimeObjective,
    RiskSetsObjective,
)
from protocols.sums.missing_cells import MissingObjective
from protocols.sums.objectives import MomentObjective, objective_from_dict
from protocols.sums.one_sum import OneSum
from protocols.sums.plan import GradientPlan

D, BOUND = 4, 2.0
LABEL = EvaluationObjective(
    model="logistic",
    weights=((0.5, -1.0, 0.2, 0.1),),
    bins=8,
    width=0.5,
    centre=0.0,
    exact=False,
    row_norm=BOUND,
)
DESCRIBED = Described(columns=((0, 1, 2, 4), (1, 2, -1, 0), (D, 2, -1, 0)), groups=(0, 3))
SUMS: dict[str, OneSum] = {
    "evaluation": LABEL,
    "sites": replace(LABEL, sites=("a",)),
    "exact": replace(LABEL, exact=True, sites=("a",)),
    "targets": replace(LABEL, model="linear"),
    "counts": replace(LABEL, model="poisson"),
    "information": InformationObjective(
        model="logistic", theta=(0.4, -2.0, 1.0, 0.3), row_norm=BOUND, epsilon_in_all=2.0
    ),
    "poisson": InformationObjective(
        model="poisson", theta=(0.4, -2.0, 1.0, 0.3), row_norm=BOUND, epsilon_in_all=2.0
    ),
    "products": ProductsObjective(row_norm=BOUND, outputs=1, epsilon_in_all=2.0),
    "description": DescriptionObjective(adds=DESCRIBED, exact=False),
    "description of sites": DescriptionObjective(
        adds=replace(DESCRIBED, sites=("a",)), exact=False
    ),
    **{
        f"lifetimes {late} {factored}": LifetimesObjective(
            adds=Lifetimes(bins=5, recorded=False, late=late, groups=(0, 3), factored=factored),
            exact=False,
        )
        for late in (False, True)
        for factored in (False, True)
    },
    "missing": MissingObjective(columns=D - 1, exact=False),
    "moment": MomentObjective(row_norm=BOUND, epsilon_in_all=2.0),
}
INFORMATION: Any = SUMS["information"]
EXACT = replace(INFORMATION, epsilon_in_all=None)
FIGURES = PublicFigures(rows_by_party=(300, 200), num_features=D, norm_bound=BOUND)
PROMISE = Wanted(update="gd", epsilon=1.0, delta=1e-6)


COX: dict[str, Any] = {"columns": (0,), "bins": 5, "recorded": False, "row_norm": 1.0}
HAZARDS = np.zeros((1, 5))
EXACT_STUDIES: dict[str, OneSum] = {
    "risk sets": RiskSetsObjective(adds=RiskSets(theta=(0.1,), **COX)),
    "cox rows": CoxRowsObjective(
        adds=CoxRows(theta=(0.1,), tables=written(*[HAZARDS] * 6), scores=(0.0, 1.0, 2), **COX)
    ),
    "glm": GeneralisedObjective(
        adds=Generalised(
            **{"family": "binomial", "link": "logit", "theta": (0.1, 0.2), "columns": (0,)},
            **{"target": (0, 0.0, 1.0), "row_norm": 1.0, "rows": 300},
        )
    ),
}
OF_TRAINING = ("training", "gradient", "the loss", "coefficients after")


@pytest.mark.parametrize("name", [*SUMS, *EXACT_STUDIES])
def test_an_owner_reads_what_a_sum_is_for(name: str) -> None:
    """Its statistic by name, and of a study no word of a training or of another model."""
    task = (SUMS | EXACT_STUDIES)[name]
    exact = name == "exact" or name in EXACT_STUDIES
    plan = plan_sum(FIGURES, replace(PROMISE, epsilon=None) if exact else PROMISE, task)
    members = tuple(
        Member(name=owner, rows=rows, verify_key="00" * 32, commitment="00" * 32)
        for owner, rows in zip("ab", FIGURES.rows_by_party, strict=True)
    )
    words = describe_plan(replace(plan, members=members), "a", BOUND)
    assert f"one sum, for {task.statistic}" in words
    own = words.replace("no training", "")
    if type(task).__module__ == DescriptionObjective.__module__:
        assert not [each for each in (*OF_TRAINING, "logistic") if each in own]


def test_no_two_sums_are_for_the_same() -> None:
    named = {type(task): task.statistic for task in (SUMS | EXACT_STUDIES).values()}
    assert len({*named.values()}) == len(named) and all(named.values())
    of_studies = [each for each in vars(study_objectives).values() if hasattr(each, "statistic")]
    assert {PersonTimeObjective, *named} >= {*of_studies}


def parts(task: OneSum, rows: int = 400) -> np.ndarray:
    """What single rows add, at most B long, some of length B and along the axes."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((rows, D))
    x[: 2 * D] = np.vstack([np.eye(D), -np.eye(D)])
    x *= BOUND / np.linalg.norm(x, axis=1)[:, None]
    x[rows // 2 :] *= rng.random((rows - rows // 2, 1))
    numeric = "targets" in SUMS and task in tuple(
        map(SUMS.get, ("targets", "counts", "products", "poisson"))
    )
    y = rng.random(rows) if numeric else (rng.random(rows) < 0.5).astype(float)
    y[: rows // 4] = np.round(y[: rows // 4])
    shape = (1, 1) if numeric else (1,)
    if isinstance(task, LifetimesObjective):
        y = np.column_stack([rng.random(rows), y, np.zeros(rows)])[:, : task.adds.shape[-1]]
        y[:4, 0] = 1.0
        y[:, 2:] = y[:, :1] * 0.7
        shape = (1, y.shape[1])
    return np.array([task.of_rows(x[i : i + 1], y[i].reshape(shape), "a") for i in range(rows)])


@pytest.mark.parametrize("name", SUMS)
def test_no_two_rows_are_further_apart_than_the_diameter(name: str) -> None:
    task = SUMS[name]
    v = parts(task)
    assert v.shape[1] == task.length(D)
    squares = np.einsum("ij,ij->i", v, v)
    gaps = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * v @ v.T, 0).max())
    assert math.sqrt(squares.max()) <= task.norm_bound(task.kind) * (1 + 1e-9)
    assert gaps <= task.diameter(task.kind) * (1 + 1e-9)
    if name in ("evaluation", "sites", "moment") or name.startswith("lifetimes False"):
        assert gaps >= 0.99 * task.diameter(task.kind)


def test_the_score_alone_attains_the_diameter_of_the_information() -> None:
    task = replace(INFORMATION, theta=(60.0, 0.0, 0.0, 0.0))
    ends = [
        task.of_rows(np.array([[s * BOUND, 0.0, 0.0, 0.0]]), np.array([y]), "a")
        for s, y in ((1.0, 0.0), (-1.0, 1.0))
    ]
    # mean 1 where the label is 0, and the reverse: residuals +1 and -1 on opposite rows.
    assert np.linalg.norm(ends[0]) == pytest.approx(BOUND, rel=1e-6)
    far = task.of_rows(np.array([[BOUND, 0.0, 0.0, 0.0]]), np.array([0.0]), "a")
    back = replace(task, theta=(-60.0, 0.0, 0.0, 0.0)).of_rows(
        np.array([[BOUND, 0.0, 0.0, 0.0]]), np.array([1.0]), "a"
    )
    assert np.linalg.norm(far - back) == pytest.approx(task.diameter(task.kind), rel=1e-6)


def test_a_count_attains_the_diameter_beside_its_own_opposite() -> None:
    """A mean of 1 and no count; a mean of nearly 0 and a full count, on the same row."""
    row = np.array([[BOUND, 0.0, 0.0, 0.0]])
    task = replace(SUMS["poisson"], theta=(60.0, 0.0, 0.0, 0.0))
    above = task.of_rows(row, np.zeros((1, 1)), "a")
    below = replace(task, theta=(-60.0, 0.0, 0.0, 0.0)).of_rows(row, np.ones((1, 1)), "a")
    assert np.linalg.norm(above - below) == pytest.approx(task.diameter(task.kind), rel=1e-6)
    # The mean is capped at the end of the range: a full count leaves no residual.
    assert not task.of_rows(row, np.ones((1, 1)), "a")[:D].any()


def test_a_row_beyond_the_bound_is_clipped() -> None:
    for name in ("information", "products", "poisson"):
        task = SUMS[name]
        own = task.of_rows(np.full((1, D), 30.0), np.zeros(1), "a")
        assert np.linalg.norm(own) <= task.norm_bound(task.kind) * (1 + 1e-9)


@pytest.mark.parametrize("name", [name for name in SUMS if name != "exact"])
def test_plans_survive_the_wire_and_epsilon_is_dp_accountings(name: str) -> None:
    task = SUMS[name]
    mu = 0.05 if name == "moment" else None
    plan = plan_sum(FIGURES, PROMISE, task, mu)
    assert plan_from_dict(plan.to_dict()) == plan
    assert objective_from_dict(task.to_dict()) == task
    found = Mechanism.from_plan(plan, BOUND).require()
    # From scratch: noise that one honest party of two leaves, over what one row moves of the mean.
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(
        dp_accounting.GaussianDpEvent(plan.noise_scales[0] * 500 / task.diameter(task.kind))
    )
    epsilon = accountant.get_epsilon(1e-6)
    assert plan.privacy is not None and epsilon <= plan.privacy.epsilon * 1.001
    assert epsilon >= plan.privacy.epsilon * (0.98 if mu is None else 0.9)
    quieter = replace(plan, noise_scales=(plan.noise_scales[0] * 0.9,))
    with pytest.raises(PrivacyError, match="epsilon"):
        Mechanism.from_plan(quieter, BOUND).require()
    assert found.additive_delta < 1e-8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"length": 5}, "length=5"),
        ({"mechanism": "laplace"}, "mechanism='laplace'"),
        ({"weights": (0.5, 0.5)}, "weighs rows alike"),
        ({"objective": EXACT.to_dict(), "length": EXACT.length(D)}, "epsilon_in_all"),
    ],
)
def test_plans_that_do_not_fit_are_refused(change: dict[str, object], words: str) -> None:
    plan = plan_sum(FIGURES, PROMISE, LABEL)
    with pytest.raises(ParameterError, match=words):
        replace(plan, **change)
    assert isinstance(plan, GradientPlan) and not plan.alone
    with pytest.raises(ParameterError, match="one round"):
        LABEL.queries(2)


def test_owners_are_told_what_is_exact_and_what_is_of_one_party() -> None:
    told = list(kinds.remarks(plan_sum(FIGURES, replace(PROMISE, epsilon=None), SUMS["exact"])))
    assert "exact" in told[0] and told[1].endswith("the rows of each of a alone")
    assert not list(kinds.remarks(plan_sum(FIGURES, PROMISE, LABEL)))


def test_noise_of_two_sums_is_not_the_same() -> None:
    streams = {task.stream for task in SUMS.values()}
    assert len(streams) == len(SUMS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bins": 7}, "even number"),
        ({"width": 0.0}, "width"),
        ({"weights": ((1.0,), (2.0,))}, "a label has one"),
        ({"weights": ((math.nan,),)}, "not within"),
        ({"centre": math.inf}, "centre"),
        ({"sites": ("a", "a")}, "twice"),
    ],
)
def test_evaluations_that_make_no_sense_are_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        replace(LABEL, **change)


HUGE = 1.7e308


@pytest.mark.parametrize(
    "name", ["evaluation", "exact", "targets", "counts", "information", "poisson"]
)
def test_no_point_makes_a_row_overflow(name: str) -> None:
    """A row (1.5, 1.5) would make the sum inf - inf: a refusal that no noise hides."""
    task: Any = SUMS[name]

    def at(point: tuple[float, ...]) -> Any:
        if isinstance(task, InformationObjective):
            return replace(task, theta=point)
        return replace(task, weights=(point,))

    with pytest.raises(ParameterError, match="not within 1e"):
        at((HUGE, -HUGE, 0.0, 0.0))
    with pytest.raises(ParameterError, match="row_norm"):
        replace(task, row_norm=1e-308)
    y = np.zeros((1, 1) if name in ("targets", "counts", "poisson") else 1)
    row = np.array([[1.5, 1.5, 0.0, 0.0]])
    assert np.isfinite(at((1e100, -1e100, 0.0, 0.0)).of_rows(row, y, "a")).all()


@pytest.mark.parametrize("model", ["logistic", "linear"])
def test_a_plan_that_understates_rows_does_not_move_a_sum_by_more(model: str) -> None:
    """Of exact tables: a score is at most B |w|, whatever rows are and the plan says of them."""
    weights = ((1e6, 1e6, 0.0, 0.0),)
    task = replace(LABEL, exact=True, model=model, weights=weights, row_norm=0.7e-6)
    rows = np.array([[1.5, 1.5, 0.0, 0.0], [-1.5, -1.5, 0.0, 0.0]])
    shape = (1, 1) if model == "linear" else 1
    own = [task.of_rows(r[None], np.full(shape, y), "a") for r in rows for y in (0.0, 1.0)]
    assert max(float(np.linalg.norm(each)) for each in own) <= task.norm_bound(task.kind) * (
        1 + 1e-9
    )


def test_the_last_party_is_alone_where_all_others_are() -> None:
    """All rows less the tables of the others: it must consent, too."""
    plan = plan_sum(FIGURES, replace(PROMISE, epsilon=None), SUMS["exact"])
    members = tuple(
        Member(name=name, rows=rows, verify_key="00" * 32, commitment="00" * 32)
        for name, rows in (("a", 300), ("b", 200))
    )
    plan = replace(plan, members=members)
    assert plan.alone == ("a", "b")
    assert "of each of a, b alone" in " ".join(kinds.remarks(plan))
    alone = replace(LABEL, exact=True)
    with pytest.raises(PolicyError, match="site_tables"):
        Policy().check_alone(plan, "b")
    assert not replace(plan, objective=alone.to_dict(), length=alone.length(D)).alone


@pytest.mark.parametrize(
    ("task", "epsilon"), [(LABEL, None), (SUMS["exact"], 1.0), (INFORMATION, None), (EXACT, 1.0)]
)
def test_a_sum_that_says_it_is_exact_has_no_epsilon(task: OneSum, epsilon: float | None) -> None:
    with pytest.raises(ParameterError, match="exact|epsilon_in_all"):
        plan_sum(FIGURES, replace(PROMISE, epsilon=epsilon), task)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (SUMS["exact"], ("exact",)),
        (SUMS["sites"], ("of a alone",)),
        (replace(cast(Any, SUMS["missing"]), exact=True), ("few empty cells",)),
        (EXACT, ("asked again", "the sum is this row", "scaled by the ranges")),
        (SUMS["information"], ("asked again", "epsilon=2", "scaled by the ranges")),
        (SUMS["products"], ("epsilon=2",)),
        (replace(cast(Any, SUMS["products"]), epsilon_in_all=None), ("sums are exact",)),
    ],
)
def test_the_manifest_says_what_a_sum_opens(task: OneSum, words: tuple[str, ...]) -> None:
    in_all = getattr(task, "epsilon_in_all", 1.0)
    private = in_all is not None and not getattr(task, "exact", False)
    plan = plan_sum(FIGURES, replace(PROMISE, epsilon=1.0 if private else None), task)
    text = describe_plan(plan, plan.names[0], BOUND)
    assert list(kinds.remarks(plan)) and all(remark in text for remark in kinds.remarks(plan))
    assert all(word in text for word in words)
    if private and hasattr(task, "epsilon_in_all"):
        # The owner's limit is held against all that is announced.
        with pytest.raises(PolicyError, match="exceeds"):
            Policy(max_epsilon=1.5, max_delta=1e-5).check(plan)
        Policy(max_epsilon=2.0, max_delta=1e-5).check(plan)
