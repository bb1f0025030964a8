"""Row functions that a sheet names: read back as written, and within the bounds that they state."""

from __future__ import annotations

import json
import math
import pkgutil
import subprocess
import sys
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.kernel.study.described import Described
from parties.kernel.study.glm import ESTIMANDS, TARGETS, Generalised
from parties.kernel.study.glm import LINKS as FAMILIES
from parties.kernel.study.hazards import CoxRows, RiskSets
from parties.kernel.study.lifetimes import Lifetimes
from parties.kernel.study.person_time import PersonTime
from parties.kernel.sums import links
from parties.kernel.sums.dual import DualSteps
from parties.kernel.sums.gradients import CURVATURE, GRADIENT, MEANS, Gradients
from parties.kernel.sums.products import Information, MissingCells, Products
from parties.kernel.sums.row_function import Own, RowFunction
from parties.kernel.sums.row_functions import KINDS, LATE, OwnCode, row_function
from parties.kernel.sums.tables import Judged
from protocols.errors import ParameterError, PolicyError
from protocols.models.registry import MODELS
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.statistics.study import objectives
from protocols.statistics.study.cox import written

NORM, D = 1.5, 3
JUDGED: dict[str, Any] = {"bins": 8, "width": 0.5, "centre": 0.0, "row_norm": NORM}
CUT: dict[str, Any] = JUDGED | {"centre": 0.7}
OF_LABEL: list[RowFunction] = [
    Gradients(loss="logistic", clip=0.3, curvature_clip=0.2),
    DualSteps(loss="logistic", lam=0.1, rows=40, batches=1, rounds=9, clip=0.5, row_scale=NORM),
    DualSteps(loss="svm", lam=0.1, rows=40, batches=4, rounds=9, clip=0.5, row_scale=NORM),
    Products(row_norm=NORM),
    Products(row_norm=NORM, outputs=1),
    MissingCells(columns=D - 1),
    *(
        Information(model="logistic", theta=(0.3, -2.0, 1.0), row_norm=NORM, private=private)
        for private in (False, True)
    ),
    *(
        Judged(model="logistic", weights=((0.3, -2.0, 1.0),), exact=exact, sites=sites, **fields)
        for exact in (False, True)
        for sites in ((), ("a",))
        for fields in (JUDGED, CUT)
    ),
]
OF_LABEL += [
    Described(columns=((0, 1, 2, 4), (1, 2, -1, 0), (D, 2, -1, 0)), groups=groups, sites=sites)
    for groups in ((), (0, 2))
    for sites in ((), ("a",))
]
COX: dict[str, Any] = {"theta": (0.3, -2.0), "columns": (0, 1), "bins": 3, "row_norm": NORM}
OF_STAY: list[RowFunction] = [
    *(
        Lifetimes(bins=5, recorded=recorded, late=late, groups=groups, factored=factored)
        for recorded in (False, True)
        for late in (False, True)
        for groups in ((), (0, 2))
        for factored in (False, True)
    ),
    *(
        RiskSets(recorded=False, late=late, strata=strata, **COX)
        for late in (False, True)
        for strata in ((), (2,))
    ),
    *(
        CoxRows(
            recorded=True,
            late=late,
            tables=written(
                [0.1, 0.2, 0.9],
                [0.0, 0.1, 0.2],
                [0.1, 0.3, 1.0],
                [0.1, -0.2, 0.3, 0.0, -0.5, 0.5],
                [0.0, 0.0, 0.1, 0.0, -0.1, 0.2],
                [0.5, 0.0, -1.0, 1.0, 0.2, 0.1],
            ),
            scores=(-2.0, 1.0, 4),
            factor=factor,
            **COX,
        )
        for late in (False, True)
        for factor in ((), (1,))
    ),
    *(
        PersonTime(
            columns=(0, 1),
            cuts=(0.3, 0.6),
            base=(0.5, -1.0, 2.0),
            scale=(3.0, 2.0, 0.5),
            centre=(0.1, -0.2),
            matrix=(2.0, 0.5, 0.5, 1.0),
            theta=(0.3, 0.0, -0.4, 1.0, -2.0),
            clip=clip,
            kappa=0.4,
            most_hazard=1.5,
            late=late,
        )
        for late in (False, True)
        for clip in (1.0, 50.0)
    ),
]
OF_TARGET: list[RowFunction] = [
    *(
        Generalised(
            family=family,
            link=link,
            theta=(0.3, -2.0, 1.0),
            columns=(0, 1),
            target=(0, 0.5 if family == "gamma" else 0.0, 1.0 if family == "binomial" else 9.0),
            row_norm=NORM,
            rows=1,
            alpha=0.5 * (family == "negative-binomial"),
            within=within,
            clusters=within,
        )
        for family, links_of in FAMILIES.items()
        for link in links_of
        for within in (False, True)
    ),
    *(
        Generalised(
            family="gaussian",
            link="identity",
            theta=(0.3, 1.0),
            columns=columns,
            target=target,
            row_norm=NORM,
            rows=1,
            estimand=estimand,
            treatment=treatment,
            scored=(1,),
            scores=(0.4, -0.1),
            trim=0.2,
        )
        for columns, target, treatment in (
            ((0,), (0, 0.0, 1.0), (2,)),
            ((2,), (TARGETS, 0.0, 1.0), (2,)),
        )
        for estimand in ESTIMANDS
    ),
    Gradients(loss="squared", clip=0.3),
    DualSteps(loss="ridge", lam=0.1, rows=40, batches=1, rounds=9, clip=0.5, row_scale=NORM),
    Products(row_norm=NORM, outputs=1),
    *(
        Information(model="poisson", theta=(0.3, -2.0, 1.0), row_norm=NORM, private=private)
        for private in (False, True)
    ),
    *(
        Judged(model=model, weights=((0.3, -2.0, 1.0),), exact=exact, **JUDGED)
        for model in links.TARGETS
        for exact in (False, True)
    ),
]
OF_CLASSES: list[RowFunction] = [
    *(Gradients(loss=loss, clip=0.3, outputs=3) for loss in ("softmax", "one-vs-rest")),
    *(
        Judged(model=model, weights=((1.0, -2.0, 0.0),) * 3, exact=exact, **JUDGED)
        for model in links.CLASSES
        for exact in (False, True)
    ),
]
ALL = [*OF_LABEL, *OF_STAY, *OF_TARGET, *OF_CLASSES, OwnCode(clip=1.0)]
REAL = st.floats(-1, 1)


def row_of(function: RowFunction, values: list[float], outcome: int, target: float) -> Any:
    """One row, of norm at most NORM, with a label, a target or one of three classes."""
    x = np.array([values])
    x /= max(1.0, float(np.linalg.norm(x)) / NORM)
    y: Any = np.array([float(outcome > 0)])
    if function in OF_TARGET:
        y = np.array([[target]])
    if function in OF_CLASSES:
        y = np.eye(3)[[outcome]]
    if function in OF_STAY:
        stay = [target, float(outcome > 0), target * outcome / 2]
        y = np.array([stay if getattr(function, "late", False) else stay[:2]])
    ones = np.ones(1)
    return SimpleNamespace(
        x=x, y=y, rows=1, weight=ones, offset=0 * ones, schema=SimpleNamespace(norm_bound=NORM)
    )


def test_every_kind_is_here() -> None:
    late = {pkgutil.resolve_name(name) for name in LATE.values()}
    assert {type(function) for function in ALL} == {*KINDS.values(), *late}
    assert not {*LATE} & {*KINDS} and all(pkgutil.resolve_name(LATE[k]).kind == k for k in LATE)
    assert {*links.MODELS} == {*MODELS}
    assert {*MEANS} <= {"logistic", "squared", *links.CLASSES}


@pytest.mark.parametrize("function", ALL, ids=repr)
def test_a_sheet_gives_it_back(function: RowFunction) -> None:
    assert row_function(json.loads(json.dumps(function.fields()))) == function


@pytest.mark.parametrize("function", ALL, ids=repr)
def test_fields_out_of_range_are_refused(function: RowFunction) -> None:
    """Whatever JSON can say in the place of a field: there is a function, or a `ParameterError`."""
    given_fields = function.fields()
    names = [*(field.name for field in fields(function)), "unknown"]  # type: ignore[arg-type]
    for name in names:
        for value in (math.nan, math.inf, -1, "", "x", None, {"a": 1}, [], [[math.nan]], 1 << 400):
            try:
                changed = row_function(given_fields | {name: value})
            except ParameterError:
                continue
            for query in (GRADIENT, CURVATURE):
                assert 0 <= changed.most(query) < math.inf
                assert changed.moves(query) <= 2 * changed.most(query) * (1 + 1e-12)


@pytest.mark.parametrize("function", [f for f in ALL if not isinstance(f, OwnCode)], ids=repr)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_two_rows_are_no_further_apart_than_stated(
    function: RowFunction, data: st.DataObject
) -> None:
    """At any point, for any two rows; Euclidean, at weight .5, beside the grid of integers."""
    point = np.array(data.draw(st.lists(st.floats(-50, 50), min_size=9, max_size=9)))
    length = 9 if function in OF_CLASSES else 3
    queries = (GRADIENT, CURVATURE) if getattr(function, "curvature_clip", 0) else (GRADIENT,)
    for query in queries:
        parts = []
        for k in range(2):
            values = data.draw(st.lists(REAL, min_size=D, max_size=D), label=f"row {k}")
            outcome, target = data.draw(st.integers(0, 2)), data.draw(st.floats(0, 1))
            own = Own(name="a", weight=0.5, norm=2, randomness=SeededRandomness(1))
            owner = function.of(row_of(function, values, outcome, target), own)
            parts.append(owner.exact(query, 0, point[:length]).values)
        scale = 1.0 if isinstance(function, DualSteps) else 0.5
        bounds = scale * function.most(query), scale * function.moves(query)
        found = max(map(np.linalg.norm, parts)), np.linalg.norm(parts[0] - parts[1])
        assert all(f <= b * (1 + 1e-6) for f, b in zip(found, bounds, strict=True))


OF_STUDIES = {
    pkgutil.resolve_name(name): objective
    for name in LATE.values()
    for objective in vars(objectives).values()
    if getattr(objective, "kind", "") == pkgutil.resolve_name(name).kind
}


@pytest.mark.parametrize("function", [f for f in ALL if type(f) in OF_STUDIES], ids=repr)
def test_an_owner_is_told_of_every_column_that_a_study_reads(function: RowFunction) -> None:
    """What stands in any other column moves no sum; what stands in these moves one."""
    own = OF_STUDIES[type(function)]
    given_fields = {"adds": function, "exact": True, "epsilon_in_all": 1.0}
    named = {field.name for field in fields(own)}
    places = own(**{k: v for k, v in given_fields.items() if k in named}).places
    rows = [row_of(function, values, 1, 0.5) for values in ([0.4, 0.2, 0.5], [-0.4, 0.7, 0.1])]

    def added(**changed: Any) -> Any:
        x = np.vstack([each.x for each in rows])
        for place, value in changed.items():
            x[:, int(place[1:])] = value
        y = np.concatenate([each.y for each in rows])
        return function.exact_sum(x, y, "a").values

    moving = {
        k for k in range(D) for v in (0.0, 1.0, 0.3) if (added(**{f"x{k}": v}) != added()).any()
    }
    assert moving == {place for place in places if place < D}


def test_a_sheet_brings_no_code() -> None:
    own = Own(name="a", weight=1.0, norm=2, randomness=SeededRandomness(1))
    with pytest.raises(PolicyError, match="owner does not bring"):
        OwnCode(clip=1.0).of(None, own)


def test_what_studies_add_is_loaded_when_a_sheet_names_it() -> None:
    text = "import sys, parties.kernel.sums.session; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "parties.kernel.sums.row_functions" in loaded
    assert not [name for name in loaded if name.startswith("parties.kernel.study")]
