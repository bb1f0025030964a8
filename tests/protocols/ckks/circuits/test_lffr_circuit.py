"""Slots, levels and cost of the LFFR gradient."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parties.kernel.rows.curvature import LIFT
from protocols.ckks import CkksParameters
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.lffr import LFFR_LEVELS, LffrUnits, OutputLayout, cubic
from protocols.ckks.circuits.rows import MASK_VALUE, REFRESH_LEVEL
from protocols.ckks.circuits.tally import CountingContext, Shadow, Tally
from protocols.errors import ParameterError
from protocols.lffr.plan import LffrPlan
from protocols.lffr.training import train_lffr
from protocols.models.lffr import PAPER_LINK, slope_of_loss
from protocols.numerics.approximation import exponential_approximation, sigmoid_approximation
from tests.protocols.lffr_session import make_plan


def layout(features: int, outputs: int, rows: tuple[int, ...], side: int = 1) -> OutputLayout:
    return OutputLayout(
        num_slots=256,
        num_features=features,
        outputs=outputs,
        rows_by_party=rows,
        rounds=side,
    )


def test_slots_stand_where_the_formula_says() -> None:
    """Row g of feature j and output o: column g % C of block j c' + o, rotated by the offset."""
    packing = layout(3, 3, (10, 13))
    size = packing.block_size
    assert (packing.num_blocks, packing.depth, size) == (16, 4, 16)
    assert packing.num_data_ciphertexts == 4
    rows, factors = np.arange(39.0).reshape(13, 3) + 1, np.arange(39.0).reshape(13, 3) + 50
    repeated = np.repeat(rows[:, :, None], 3, axis=2)
    kinds = (LIFT * repeated, LIFT * (repeated * factors[:, None, :]))
    packed = packing.pack_data(kinds, party=1)
    # Rows 10 to 22: the last 6 columns of the first two ciphertexts, 7 of the next.
    assert list(packed) == [0, 1, 2, 3] == list(packing.ciphertexts_of(1))
    assert list(packing.ciphertexts_of(0)) == [0, 1]
    used = np.zeros((4, 256), bool)
    for i, j, o in np.ndindex(13, 3, 3):
        k, column = divmod(10 + i, 16)
        at = ((j * 4 + o) * size + column + packing.offset) % 256
        used[2 * k : 2 * k + 2, at] = True
        x, term = rows[i, j], rows[i, j] * factors[i, o]
        assert [packed[2 * k + kind][at] for kind in range(2)] == [LIFT * x, LIFT * term]
    assert not np.stack(list(packed.values()))[~used].any()


def test_the_factored_cubic_is_the_link() -> None:
    for link in (PAPER_LINK, sigmoid_approximation(3, 8.0).polynomial):
        leading, root = cubic(link)
        z = np.linspace(-link.radius, link.radius, 101)
        s = z / link.radius
        np.testing.assert_allclose(0.5 + leading * s * (s * s - root), link(z), atol=1e-14)
    with pytest.raises(ParameterError, match="degree=7 of the link"):
        cubic(sigmoid_approximation(7, 5.0).polynomial)
    with pytest.raises(ParameterError, match="1/2 plus an odd polynomial"):
        cubic(exponential_approximation(3, 5.0).polynomial)


@pytest.mark.parametrize("step", [0.3, 1e-3, 1e-6])
def test_units_leave_the_gradient_and_bring_its_factor_to_the_mask_value(step: float) -> None:
    """In float64: mask value * sum of the encoded product = step * slope of the loss / R."""
    rng = np.random.default_rng(3)
    for link in (PAPER_LINK, sigmoid_approximation(3, 8.0).polynomial):
        units = LffrUnits.of(link, step)
        leading, root = cubic(units.link)
        x, z, y = rng.uniform(-1, 1, 50), rng.uniform(-5, 5, 50), rng.uniform(0, 1, 50)
        encoded, term = units.row_scale * x, units.row_scale * x * (0.5 - y) / units.leading
        s = units.row_scale * z / link.radius
        t = s * (s * s - root)
        total = ((encoded * t + term) * (t * t - 1 / (2 * leading) ** 2)).sum()
        value = step * units.side_scale / units.weight_unit
        assert abs(value) == pytest.approx(MASK_VALUE)
        wanted = step * (x * slope_of_loss(link, z, y)).sum() / link.radius
        assert value * total == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("preconditioned", [True, False])
def test_every_machine_makes_the_same_masks(preconditioned: bool) -> None:
    """One map a step: plain refreshes, copies of 1 / b, then sums, and heads at the end."""
    changes: dict[str, Any] = {} if preconditioned else {"curvature": None}
    plan = make_plan(rounds=3, **changes)
    steps = range(len(plan.refreshes))
    maps = [plan.column_maps(step) for step in steps]
    assert [len(each) for each in maps] == list(plan.refreshes)
    *before, first, second, last = maps
    assert bool(before) == preconditioned
    if preconditioned:
        (copies,) = before.pop()
        assert copies is not None and (copies.column, copies.head) == (0, None)
        assert all(column_map is None for each in before for column_map in each)
    assert first == second
    for (column_map,), head in ((first, None), (last, 0)):
        assert column_map is not None
        assert (column_map.column, column_map.head) == (None, head)
        # W - step * gradient, exactly this number whatever the rate, the rows and the parties.
        assert column_map.value == -MASK_VALUE
        step = plan.learning_rate / plan.num_rows
        step *= plan.units.side_scale / (plan.curvature.high if plan.curvature else 1)
        assert column_map.value == pytest.approx(-step / plan.unit)


# -- cost -----------------------------------------------------------------------------------------


class Counting(CountingContext):
    """The start is a ciphertext too."""

    def ciphertext(self, polynomials: Any) -> Shadow:
        return Shadow(REFRESH_LEVEL)


def tally_lffr(plan: LffrPlan) -> list[Tally]:
    """Operations by level: of the first iteration and all before it, then of every other one."""
    context: Any = Counting(plan.ckks)
    evaluator = Evaluator(context, plan.layout)
    tallies: list[Tally] = []

    def shadows(number: int) -> list[EncryptedVector]:
        return [evaluator.wrap(Shadow(0)) for _ in range(number)]

    steps = itertools.count()

    def fresh(vectors: Any) -> Any:
        maps = plan.column_maps(next(steps))
        levels = [0 if each is None else REFRESH_LEVEL for each in maps]
        return tuple(evaluator.wrap(Shadow(level)) for level in levels)
        yield  # makes this a generator

    data, side = (
        shadows(plan.layout.num_data_ciphertexts),
        shadows(plan.layout.num_side_ciphertexts),
    )
    on_iteration = lambda t: tallies.append(context.take())  # noqa: E731
    list(train_lffr(evaluator, plan, data, side, fresh, on_iteration))
    return tallies


def operations(**changes: Any) -> Counter[str]:
    """Of an iteration in the middle."""
    ckks = CkksParameters(ring_dim=2048, depth=LFFR_LEVELS + 2, security_bits=0)
    plan = make_plan(features=5, rounds=4, ckks=ckks, **changes)
    found: Counter[str] = Counter()
    for (operation, level), count in tally_lffr(plan)[2].items():
        # An addition follows the last rescaling.
        assert level < LFFR_LEVELS or operation == "add"
        found[operation] += count
    return found


def test_all_outputs_cost_what_one_costs_and_rows_cost_ciphertexts_alone() -> None:
    """30 rows of 1, 2, 3 or 4 outputs fill one pair of ciphertexts; 100 rows of 4 outputs four."""
    counts = [operations(outputs=c, rows=(16, 14)) for c in (1, 2, 3, 4)]
    assert counts == counts[:1] * 4
    # Over 8 feature blocks; the refresh sums over columns.
    assert counts[0]["rotate"] == 3
    # z, z^2, T, x T, T^2, and one relinearisation of the sum.
    assert counts[0]["relinearise"] == 6
    more = operations(outputs=4, rows=(60, 40))
    assert (more["rotate"], more["relinearise"]) == (4 * 3, 4 * 5 + 1)


def test_an_iteration_takes_the_levels_that_it_declares() -> None:
    """From the refresh's to the last product's; the plan needs two primes more."""
    plan = make_plan(rounds=3)
    deepest = max(level for operation, level in tally_lffr(plan)[1] if operation != "add")
    assert min(level for _, level in tally_lffr(plan)[1]) == REFRESH_LEVEL
    assert deepest == LFFR_LEVELS - 1
    assert plan.ckks.depth == LFFR_LEVELS + 2
    assert plan.refreshes[-3:] == (1, 1, 1)
    assert set(plan.rotations) == set(plan.layout.feature_rotations)
    assert len(replace(plan, rounds=9).refreshes) == len(plan.refreshes) + 6
