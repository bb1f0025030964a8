"""The cheapest packing: what is counted and weighed, against every other packing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.circuits.packing import next_power_of_two
from protocols.ckks.circuits.rows_at_home import _Rounded
from protocols.costs.counts import cheapest_layout, iteration_work
from protocols.errors import ParameterError
from protocols.rows.counts import NEARLY
from protocols.rows.plan import RowsPlan
from tests.support.helpers import make_plan

SHAPES = [(1253, 10), (12000, 51), (100_000, 21), (200, 256), (5, 1)]


def plan_of(rows: int, features: int, update: str = "barrier-1") -> RowsPlan:
    """Three parties at 128 bits; nothing is encrypted here."""
    cut = (rows // 3, rows // 3, rows - 2 * (rows // 3))
    parameters = {"ckks": choose_parameters(5), "profile": "secure"}
    return make_plan(rows=cut, features=features, rounds=8, update=update, **parameters)


@pytest.mark.parametrize("update", ["barrier-1", "nag"])
@pytest.mark.parametrize(("rows", "features"), SHAPES)
def test_no_other_packing_needs_much_less_work(rows: int, features: int, update: str) -> None:
    """Against all powers of two, not only those that the search tries; fewer parts, fewer bytes."""
    plan = plan_of(rows, features, update)
    chosen = cheapest_layout(plan)
    widths = [1 << k for k in range(next_power_of_two(features).bit_length())]
    works = {w: iteration_work(replace(plan, features_per_ciphertext=w)) for w in widths}
    good = [width for width, work in works.items() if work <= NEARLY * min(works.values())]
    assert chosen.layout.num_blocks == max(good)


def test_one_group_of_rows_takes_one_ciphertext() -> None:
    """Nothing to share among groups: parts would only cost."""
    assert cheapest_layout(plan_of(900, 10)).layout.num_parts == 1


def test_many_groups_take_several() -> None:
    """A size of docs/method/costs.md: 12,000 x 50 and a bias column, in less than half the work."""
    plan = plan_of(12000, 51)
    chosen = cheapest_layout(plan)
    assert chosen.layout.num_parts > 1
    assert iteration_work(chosen) < 0.5 * iteration_work(plan)


def test_what_the_layout_needs_fits_wherever_the_default_fits() -> None:
    """m k never exceeds d': no rotation key more than log2 S + 1, no side ciphertext more."""
    for rows, features in SHAPES:
        plan = plan_of(rows, features)
        for width in (1 << k for k in range(next_power_of_two(features).bit_length())):
            layout = replace(plan, features_per_ciphertext=width).layout
            assert layout.num_side_ciphertexts <= plan.layout.num_side_ciphertexts
            assert len(layout.rotations) <= plan.ckks.num_slots.bit_length()


def test_a_plan_of_another_packing_is_another_plan() -> None:
    """Parties agree to it by digest; a width that is no power of two is refused."""
    plan = plan_of(12000, 51)
    assert replace(plan, features_per_ciphertext=8).digest() != plan.digest()
    with pytest.raises(ParameterError, match="features_per_ciphertext=3"):
        replace(plan, features_per_ciphertext=3)


def test_owners_sum_independent_roundings_in_one_order() -> None:
    """By addresses the last digit, and so the digest of a sheet, differed between processes."""
    one, sources = np.ones(1), [object() for _ in range(40)]
    left, right = (_Rounded(one, dict.fromkeys(part, one)) for part in (sources[:30], sources[20:]))
    assert list((left * right).slopes)[:40] == sources
