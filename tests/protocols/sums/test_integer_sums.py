"""What a row adds to a sum: integers, of the row alone, no longer than its certificate says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from parties.kernel import integers
from parties.kernel.integers import REST_BITS, added, integer_rows
from parties.kernel.integers.exact import Exact
from parties.kernel.integers.integer_rows import IntegerRows, held
from parties.kernel.sums import integer_sums
from parties.kernel.sums.integer_sums import Factors, PartSum, log_sum, row_scores
from parties.kernel.sums.products import products_of
from parties.verifier.objectives import open_contributor
from protocols.aggregate.choice import choose
from protocols.aggregate.cipher import encode
from protocols.aggregate.coordinator_cipher import decode
from protocols.privacy.calibrate.one_sum import plan_sum
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.sums.objectives import RowObjective
from protocols.sums.plan import GradientPlan
from tests.protocols.sums.test_gradients import PRIVACY, make_plan
from tests.protocols.sums.test_one_sum import FIGURES, PROMISE, SUMS
from tests.support.plans import dual_objective, dual_rule

Array = np.ndarray[Any, Any]
Case = tuple[GradientPlan, int, Callable[[Array, Array], Any]]
D, CLASSES, BOUND = 4, 3, 2.0
STAYS = {"stay": 2, "late stay": 3}  # time, event and, if late, entry
CURVED = {"kind": "quadratic-nag", "rounds": 2, "schedule": "geometric", "learning_rate": 1.0,
          "decay": 0.9, "first_alpha": 1.0,
          "curvature": {"offset": 0.02, "high": 2.0, "error": 1e-3, "constant": 0.25}}  # fmt: skip


def shard_of(x: Array, y: Array, weight: Array | None = None) -> Any:
    """Rows as a contributor reads them, of norm BOUND at most."""
    rows = len(x)
    return SimpleNamespace(
        x=x,
        y=y,
        rows=rows,
        num_features=x.shape[1],
        weight=np.ones(rows) if weight is None else weight,
        offset=np.zeros(rows),
        schema=SimpleNamespace(
            label=SimpleNamespace(outputs=y.shape[1] if y.ndim > 1 else 1), norm_bound=BOUND
        ),
    )


def table(kind: str, rows: int, seed: int) -> tuple[Array, Array]:
    """Rows up to the bound, many at it, and outcomes of a kind."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, D))
    x[: min(rows, 2 * D)] = np.vstack([np.eye(D), -np.eye(D)])[:rows]
    x *= BOUND / np.linalg.norm(x, axis=1, keepdims=True)
    x[rows // 2 :] *= rng.random((rows - rows // 2, 1))
    x *= np.minimum(1, BOUND / np.linalg.norm(x, axis=1, keepdims=True))
    if kind == "classes":
        return x, np.eye(CLASSES)[rng.integers(0, CLASSES, rows)]
    if kind == "numbers":
        return x, rng.random((rows, 1))
    if kind in STAYS:
        return x, rng.random((rows, STAYS[kind]))
    return x, (rng.random(rows) < 0.5).astype(float)


def plan_of(objective: dict[str, Any], mechanism: str, length: int, **changes: Any) -> GradientPlan:
    scales = (0.03,) * (3 if objective.get("curvature_clip") else 2)
    return make_plan(
        objective=objective,
        mechanism=mechanism,
        length=length,
        num_features=D,
        privacy=PRIVACY,
        noise_scales=scales,
        cipher=choose(parties=3, largest_sum=600.0, precision=2.0**-40),
        **changes,
    )


def quadratic_cases() -> Iterator[Any]:
    task = RowObjective(kind="logistic", clip=0.4, curvature_clip=0.3).to_dict()
    plan = plan_of(task, "gaussian", D, update=CURVED)
    yield pytest.param(plan, 0, "label", id="curvature-gaussian")


def dual_cases() -> Iterator[Any]:
    for loss in ("ridge", "logistic", "svm"):
        dual = dual_objective(loss=loss, ridge=0.1, clip=0.2, row_scale=BOUND)
        plan = plan_of(dual, "gaussian", D, update=dual_rule(rounds=2))
        yield pytest.param(plan, 0, "label", id=f"dual-{loss}-gaussian")


def cases() -> Iterator[Any]:
    """(plan, round, kind of outcomes) of every objective and norm."""
    for mechanism in ("gaussian",):
        for kind, outcome in (("logistic", "label"), ("squared", "numbers"),
                              ("softmax", "classes"), ("one-vs-rest", "classes")):  # fmt: skip
            outputs = CLASSES if outcome == "classes" else 1
            for clip in (0.4, 3.0):
                task = RowObjective(kind=kind, clip=clip, outputs=outputs).to_dict()
                plan = plan_of(task, mechanism, D * outputs)
                yield pytest.param(plan, 0, outcome, id=f"{kind}-{clip}-{mechanism}")
    yield from quadratic_cases()
    yield from dual_cases()
    for name, sum_ in SUMS.items():
        if name != "exact":
            numeric = name in ("targets", "counts", "products", "poisson")
            plan = plan_sum(FIGURES, PROMISE, sum_, 0.05 if name == "moment" else None)
            outcome = "numbers" if numeric else "label"
            late = getattr(sum_.row_function, "late", None)
            if late is not None:
                outcome = "late stay" if late else "stay"
            yield pytest.param(plan, 0, outcome, id=name)


EVERY = pytest.mark.parametrize(("plan", "t", "outcome"), list(cases()))


def opened(plan: GradientPlan, x: Array, y: Array, weight: Array | None = None) -> Any:
    return open_contributor(plan, "a" if "a" in plan.names else plan.names[0],
                            shard_of(x, y, weight), SeededRandomness(1))  # fmt: skip


def exact(plan: GradientPlan, t: int, x: Array, y: Array, point: Array) -> Exact:
    return opened(plan, x, y).exact(plan.queries[t], t, point)


def points(plan: GradientPlan) -> list[Array]:
    rng = np.random.default_rng(8)
    return [rng.standard_normal(plan.length) * scale for scale in (0.0, 1.0, 1e3)]


@EVERY
def test_a_row_adds_the_same_alone_and_in_company(
    plan: GradientPlan, t: int, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: a sum is that of single rows, in any order and blocks of any size."""
    x, y = table(outcome, 100, 1)
    order = np.random.default_rng(2).permutation(100)
    for point in points(plan):
        whole = exact(plan, t, x, y, point)
        alone = [exact(plan, t, x[[i]], y[[i]], point) for i in range(len(x))]
        assert {part.bits for part in alone} == {whole.bits}
        assert (sum(part.units.astype(object) for part in alone) == whole.units).all()
        assert (exact(plan, t, x[order], y[order], point).units == whole.units).all()
        with monkeypatch.context() as patch:
            for module in (integers, integer_sums):
                patch.setattr(module, "CHUNK", 7 * D)
            for module in (integer_rows, integer_sums):
                patch.setattr(module, "BLOCK", 4)
            assert (exact(plan, t, x, y, point).units == whole.units).all()


@EVERY
def test_no_neighbours_are_further_apart_than_certified(
    plan: GradientPlan, t: int, outcome: str
) -> None:
    """In exact integers, on the noise grid, with rows in any order; opposite rows come near it."""
    x, y = table(outcome, 60, 3)
    others, labels = table(outcome, 60, 4)
    others[:20] = -x[:20]
    rng = np.random.default_rng(5)
    bound = Fraction(plan.sum_setting().widened[t]) / Fraction(plan.grid(t).unit)
    for point in points(plan):
        first = plan.on_grid(t, exact(plan, t, x, y, point))
        for k in range(20):
            other, outcomes = x.copy(), y.copy()
            other[k], outcomes[k] = others[k], labels[k]
            order = rng.permutation(60)
            second = plan.on_grid(t, exact(plan, t, other[order], outcomes[order], point))
            moved = [abs(int(a) - int(b)) for a, b in zip(first, second, strict=True)]
            if plan.noise.norm == 1:
                assert sum(moved) <= bound
            else:
                assert sum(m * m for m in moved) <= bound * bound


# -- checks that mutants fail ---------------------------------------------------------------------


def no_part_is_longer_than_its_bound() -> bool:
    """Exactly, and the longest parts are within a unit: rows of length 2^31 and of none."""
    x, _ = table("label", 200, 6)
    x[::7] = 0.0
    rng = np.random.default_rng(7)
    for norm in (1, 2):
        rows = IntegerRows(x, BOUND, norm)
        for outputs in (1, CLASSES):
            factors = Factors(rows, Fraction(0.37), norm)
            f = rng.standard_normal((200, outputs)) * 10.0 ** rng.integers(-3, 9, (200, 1))
            whole = factors.rounded(f, slice(None))
            for row, own in zip(rows.x, whole, strict=True):
                part = [int(a) * int(b) for a in row for b in own]
                if not integer_rows.fits(part, factors.limit, norm):
                    return False
        total = PartSum(Fraction(0.37), norm, D, 200)
        parts = total.rounded(x * 10.0 ** rng.integers(-3, 9, (200, 1)))
        if not all(integer_rows.fits([int(v) for v in p], total.limit, norm) for p in parts):
            return False
    return True


def magnitudes_only_shrink() -> bool:
    """Of rows, factors and parts, against exact fractions."""
    x, _ = table("label", 100, 8)
    rows = IntegerRows(0.9 * x, BOUND)
    factors = Factors(rows, Fraction(64), 2)
    f = np.random.default_rng(9).random((100, 1))
    total = PartSum(Fraction(64), 2, D, 100)
    return all(
        bool((np.abs(whole) <= np.abs(true) * np.ldexp(1.0, bits)).all())
        for whole, true, bits in (
            (rows.x, 0.9 * x, rows.bits),
            (factors.rounded(f, slice(None)), f, factors.bits),
            (total.rounded(x), x, total.bits),
        )
    )


def a_sum_is_that_of_single_rows() -> bool:
    plan = make_plan(num_features=D, length=D)
    x, y = table("label", 5000, 10)
    point = np.array([0.3, -1.0, 0.7, 2.0])
    whole = exact(plan, 0, x, y, point).units
    halves = (
        exact(plan, 0, x[:999], y[:999], point).units,
        exact(plan, 0, x[999:], y[999:], point).units,
    )
    return bool((halves[0] + halves[1] == whole).all())


def a_score_is_of_its_row_alone() -> bool:
    x, _ = table("label", 3000, 11)
    rows, w = IntegerRows(x, BOUND), np.array([[0.3], [-1.0], [0.7], [2.0]])
    alone = np.vstack([integer_sums.scores(rows, w, slice(k, k + 1)) for k in range(len(x))])
    return bool((integer_sums.scores(rows, w) == alone).all())


def one_unit_more(limit: int, divisors: Array) -> Array:
    return QUOTIENTS(limit, divisors) + 1


def in_floating_point(rows: IntegerRows, factors: Callable[[slice], Array]) -> Any:
    whole = rows.x.T @ factors(slice(0, len(rows.x)))
    return np.vectorize(int, otypes=[object])(whole)


def by_blas(rows: IntegerRows, point: Array, some: Any = slice(None)) -> Any:
    return (rows.x[some] @ point) * 2.0**-rows.bits


QUOTIENTS = integer_sums._quotients


@pytest.mark.parametrize(
    ("check", "where", "name", "mutant"),
    [
        (no_part_is_longer_than_its_bound, integer_sums, "_quotients", one_unit_more),
        (
            no_part_is_longer_than_its_bound,
            integer_sums,
            "held",
            lambda whole, limit, norm: np.where(whole > 0, whole + 1, whole),
        ),
        (magnitudes_only_shrink, np, "trunc", np.rint),
        (a_sum_is_that_of_single_rows, IntegerRows, "products", in_floating_point),
        (a_score_is_of_its_row_alone, integer_sums, "scores", by_blas),
    ],
)
def test_mutants_are_caught(
    check: Callable[[], bool], where: Any, name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check()
    monkeypatch.setattr(where, name, mutant)
    assert not check()


# -- the attack -----------------------------------------------------------------------------------


def test_a_float_sum_passes_the_bound_and_the_integer_sum_does_not() -> None:
    """One row decides whether the sum of 8193 passes 2^12, and with it how 30,000 more are rounded.

    These have a quarter or half of the last place of what they are added to. The first row is
    replaced by its opposite, which moves the sum by 2 C exactly.
    """
    big, small, clip = 8193, 30_000, 0.5
    plan = make_plan(num_features=2, length=2, objective={"kind": "logistic", "clip": clip})
    x = np.zeros((big + small, 2))
    x[:big, 0], x[big:, 0] = 1.0, -2 * 0.51 * 2.0**-41
    y, other = np.zeros(len(x)), np.zeros(len(x))
    other[0] = 1.0
    certified = Fraction(plan.sensitivity("gradient"))

    def in_floats(labels: Array) -> Fraction:
        """As contributions were summed: each times its row, rounded at every addition."""
        total = np.cumsum(x[:, 0] * (expit(np.zeros(len(x))) - labels))[-1]
        return Fraction(total * plan.row_weight(0))

    def in_integers(labels: Array) -> Fraction:
        found = exact(plan, 0, x, labels, np.zeros(2))
        return Fraction(int(found.units[0])) / 2**found.bits

    assert abs(in_floats(y) - in_floats(other)) > certified * (1 + Fraction(1, 10**8))
    moved = abs(in_integers(y) - in_integers(other))
    assert certified * (1 - Fraction(1, 10**9)) < moved <= certified


# -- parts ----------------------------------------------------------------------------------------


def test_numbers_and_grids() -> None:
    values = np.array([0.0, 1.5, -2.25, 2.0**-20, 3e8])
    found = Exact.of(values)
    assert (found.values == values).all() and ((-found).values == -values).all()
    assert list(found.on(1)) == [0, 3, -4, 0, 600_000_000]  # halves go up
    assert list(found.on(100)) == [int(Fraction(v) * 2**100) for v in values]
    third = Exact(np.array([3, 6]), 0).times(1 / 3)
    assert (third.values <= [1.0, 2.0]).all() and third.values == pytest.approx([1.0, 2.0])
    assert not Exact.of(np.zeros(2)).units.any()
    odd = Exact.of(np.array([np.nan, np.inf, -np.inf])).values
    assert odd[0] == 0 and odd[1] == -odd[2] > 1e308 and np.isfinite(odd).all()
    big = Exact(np.array([1 << 90], object), 100)
    assert big.values == [2.0**-10] and big.on(10) == [1]


def test_encoded_integers_are_what_floats_are() -> None:
    for largest in (100.0, 1e30):
        params = choose(parties=3, largest_sum=largest, precision=2.0**-20)
        units = np.array([0, 5, -7, 1 << 40, -(1 << 40)])
        floats = np.ldexp(units.astype(float), -params.scale_bits)
        kept = np.abs(floats) <= params.max_value
        residues = encode(params, units[kept].astype(object))
        assert (residues == encode(params, floats[kept])).all()
        assert (decode(params, residues) == floats[kept]).all()


def test_products_are_exact() -> None:
    """Against Python's integers, at the largest entries."""
    rng = np.random.default_rng(12)
    x = rng.choice([-1.0, 1.0, 0.5], (2100, D)) / math.sqrt(D)
    rows = IntegerRows(x, 1.0)
    f = rng.integers(-(2**39) + 1, 2**39, (2100, 2)).astype(float)
    true = rows.x.astype(np.int64).astype(object).T @ f.astype(np.int64).astype(object)
    assert (rows.products(lambda some: f[some]) == true).all()
    w = rng.standard_normal((D, 2))
    assert integer_sums.scores(rows, w) == pytest.approx(x @ w, abs=1e-8)
    assert row_scores(x, w) == pytest.approx(x @ w, abs=1e-14)
    assert log_sum(np.array([[1e3, 1e3], [0.0, -1e3]])) == pytest.approx([1e3 + math.log(2), 0.0])
    gram = products_of(x, 1.0).values[0]
    assert gram == pytest.approx((x.T @ x)[0, 0], rel=1e-8)


def test_a_row_beyond_the_bound_shrinks() -> None:
    limit = 1000
    whole = held(np.array([[1000.0, 1.0], [600.0, 800.0], [-1000.0, 0.0]]), limit, 2)
    assert integer_rows.fits([int(v) for v in whole[0]], limit, 2) and whole[0, 0] >= 998
    assert whole[1:].tolist() == [[600.0, 800.0], [-1000.0, 0.0]]
    weights = np.array([0.5, 1.0])
    plan = replace(make_plan(num_features=D, length=D))
    x, y = table("label", 2, 13)
    part = opened(plan, x, y, weights).exact("gradient", 0, np.zeros(D))
    one, two = (opened(plan, x[[k]], y[[k]]).exact("gradient", 0, np.zeros(D)) for k in (0, 1))
    assert part.values == pytest.approx(0.5 * one.values + two.values, rel=1e-9)


@pytest.mark.parametrize("largest", [1.0, 37.5])
def test_sums_without_a_clip_are_of_each_row_alone(largest: float) -> None:
    """In any order and block size, within 2^-79 of the largest a row of what fractions give."""
    rng = np.random.default_rng(3)
    parts = rng.uniform(-largest, largest, (3000, D)) * 2.0 ** rng.integers(-40, 1, (3000, 1))
    parts[5, 2] = 2 * largest  # cut
    cut = np.clip(parts, -largest, largest)

    def total(order: Any) -> Exact:
        return Exact(*added(lambda some: parts[order][some], len(parts), D, largest))

    found, other = total(np.arange(3000)), total(rng.permutation(3000))
    assert (found.units == other.units).all() and found.bits == other.bits
    alone = sum(added(lambda some, k=k: parts[k : k + 1], 1, D, largest)[0] for k in range(50))
    assert (added(lambda some: parts[:50][some], 50, D, largest)[0] == alone).all()
    for k in range(D):
        exact = sum(map(Fraction, cut[:, k].tolist()), Fraction())
        off = abs(Fraction(int(found.units[k]), 2**found.bits) - exact)
        assert off <= 3000 * Fraction(2) ** (1 - found.bits)
    assert found.bits > REST_BITS
