"""The search for parameters: what it turns down, and that its carried-over times are counts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.circuits.cost import UnitTimes, work
from protocols.ckks.circuits.rows import iteration_levels
from protocols.ckks.circuits.tally import OPERATIONS
from protocols.ckks.parameters import CkksParameters
from protocols.costs import candidates as search
from protocols.costs import planner, traffic
from protocols.costs.planner import cheapest_layout
from protocols.rows.plan import RowsPlan
from tests.support.helpers import make_plan

PARAMS = choose_parameters(5)


def plan_of(update: str = "barrier-1", **changes: object) -> RowsPlan:
    return make_plan(
        rows=(400, 400), features=10, rounds=4, update=update, ckks=PARAMS, profile="secure",
        **changes,
    )  # fmt: skip


def model_times(params: CkksParameters) -> UnitTimes:
    """A machine on which every unit of work takes a nanosecond."""
    names = [f for f in UnitTimes.__dataclass_fields__ if f != "operations"]
    operations = {
        name: tuple(
            1e-9 * work(name, params, level).units(params.ring_dim) for level in range(params.depth)
        )
        for name in OPERATIONS
    }
    return UnitTimes(operations=operations, **dict.fromkeys(names, 0.0))


@pytest.fixture(scope="module")
def found() -> list[search.Candidate]:
    return search.candidates(plan_of(), model_times(PARAMS))


def test_every_combination_is_judged(found: list[search.Candidate]) -> None:
    tried = {(c.ring_dim, c.num_digits, c.scale_bits) for c in found}
    sizes = map(len, (search.RINGS, search.DIGITS, search.SCALES))
    assert len(tried) == len(found) == math.prod(sizes)


def test_those_that_can_be_run_come_first_and_cheapest_first(
    found: list[search.Candidate],
) -> None:
    usable = [c for c in found if not c.why_out]
    assert found[: len(usable)] == usable
    assert [c.seconds for c in usable] == sorted(c.seconds for c in usable)
    for each in usable:
        assert each.params is not None
        assert each.params.log_qp <= each.params.max_log_qp
        assert each.security_bits >= 128
        assert each.release_error <= search.MAX_RELEASE_ERROR
        assert each.params.depth == iteration_levels(plan_of().link, plan_of().rule) + 2
        # The plan with these parameters is one that parties accept.
        replace(plan_of(), ckks=each.params)


def test_the_plans_own_is_found(found: list[search.Candidate]) -> None:
    own = [c for c in found if search.is_choice(c, plan_of())]
    assert len(own) == 1
    assert not own[0].why_out
    course = planner.seconds(plan_of(), model_times(PARAMS))
    assert own[0].seconds == course.total
    assert own[0].num_bytes == sum(traffic.bytes_per_party(cheapest_layout(plan_of())).values())


@pytest.mark.parametrize(
    ("ring", "digits", "scale", "word"),
    [
        (1 << 14, 2, 59, "128 bits"),
        (1 << 15, 1, 50, "off by"),
        (1 << 15, 5, 59, "without a prime"),
        (1 << 15, 2, 57, "saves nothing"),
    ],
)
def test_others_are_out_for_a_reason(
    found: list[search.Candidate], ring: int, digits: int, scale: int, word: str
) -> None:
    key = (ring, digits, scale)
    (each,) = [c for c in found if (c.ring_dim, c.num_digits, c.scale_bits) == key]
    assert word in each.why_out


def test_carried_over_times_follow_the_work() -> None:
    """On the model machine carrying over is exact, and doubles with the ring (and its log).

    Twice the ring and 12 primes for 8: a refresh has three times the residues.
    """
    other = CkksParameters(ring_dim=1 << 16, depth=12, num_digits=3)
    carried = model_times(PARAMS).scaled(PARAMS, other)
    for name, laps in model_times(other).operations.items():
        assert carried.operations[name] == pytest.approx(laps)
    assert model_times(PARAMS).scaled(PARAMS, PARAMS) == model_times(PARAMS)
    names = ("refresh_share", "refresh_join", "map_share", "map_join", "read")
    one = replace(model_times(PARAMS), **dict.fromkeys(names, 1.0))
    carried = one.scaled(PARAMS, CkksParameters(ring_dim=1 << 16, depth=11))
    assert [getattr(carried, name) for name in names] == pytest.approx([3.0] * 5)


def test_key_switch_counts_are_the_papers() -> None:
    """8 primes, 5 special, 2 digits of 4: (2 + 2)(8 + 5) transforms; one digit from level 4 on."""
    assert work("rotate", PARAMS, 0).transforms == 52
    assert work("relinearise", PARAMS, 4).transforms == 3 * 9
    for level in range(PARAMS.depth):
        halves = [work(name, PARAMS, level) for name in ("raise", "hoisted")]
        whole = work("rotate", PARAMS, level)
        assert sum(half.transforms for half in halves) == whole.transforms
        assert sum(half.products for half in halves) == whole.products


def test_mask_leak_is_that_of_two_mask_primes() -> None:
    plan = plan_of()
    coefficients = sum(plan.refreshes) * plan.ckks.ring_dim
    leak = coefficients * 2.0 ** (59 + 1) / 2.0 ** (2 * 59)
    assert search.mask_leak_bits(plan) == pytest.approx(math.log2(leak))
