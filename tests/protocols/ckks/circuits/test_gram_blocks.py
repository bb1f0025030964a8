"""The Gram protocol on wide tables, in blocks, on toy rings (INSECURE): encrypted = twin."""

from __future__ import annotations

import numpy as np
import pytest

from parties.kernel.gram.sums import GramSums
from protocols.ckks.circuits.errors import slot_std
from protocols.ckks.circuits.gram_blocks import BlockLayout
from protocols.errors import ParameterError
from protocols.gram.contributions import UNIT, pack, row_sum_bound
from protocols.gram.errors import shown_error_std
from protocols.plan import kinds
from sims.gram_twin import run_gram_twin
from tests.protocols.gram.test_gram_plan import make_plan
from tests.protocols.gram_session import (
    check_against_twin,
    make_rows,
    make_task,
    run_encrypted,
    split,
)
from tests.protocols.slot_machine import seen_slots
from tests.support.helpers import Floats, insecure

GRID = [
    # features, outputs, parties, rounds, row_sums, accelerated, ring
    (17, 2, 2, 1, True, True, 512),
    (17, 3, 3, 5, True, True, 512),
    (60, 3, 2, 9, True, True, 2048),
    (40, 2, 2, 6, True, False, 1024),
    (23, 2, 2, 6, False, True, 1024),
]


@pytest.mark.parametrize("case", GRID, ids=str)
def test_encrypted_equals_plain(case: tuple[int, int, int, int, bool, bool, int]) -> None:
    """Weights agree to 1e-9, nothing else is released, and noise is within what is flooded for."""
    features, outputs, parties, rounds, row_sums, accelerated, ring = case
    task = make_task(
        features,
        outputs,
        parties,
        rounds,
        rows=90,
        ring_dim=ring,
        levels=6,
        row_sums=row_sums,
        accelerated=accelerated,
        ridge=0.0 if row_sums else 0.3,
    )
    assert isinstance(task.layout, BlockLayout)
    check_against_twin(task, least=0.001)


def table(kind: str, x: Floats) -> Floats:
    """Rows of which half the columns are (nearly) zero, all rows alike, or rows near zero."""
    if kind == "alike":
        return np.tile(x[:1], (len(x), 1))
    if kind == "small":
        return 0.05 * x
    found = x.copy()
    found[:, :-1:2] *= {"zero": 0.0, "nearly zero": 1e-3}[kind]
    return found


@pytest.mark.parametrize(
    ("kind", "floor"),
    [("zero", 2.0**-10), ("nearly zero", 1 / 16), ("alike", 1 / 16), ("small", 2.0**-10)],
)
def test_noise_of_any_table_is_what_is_flooded_for(kind: str, floor: float) -> None:
    """Two runs on one table, 60 steps; noise is what tells them apart, in what is shown.

    Copies that drift apart had 140 times the forecast where rows are alike. And the forecast does
    not grow with 1 / floor, as it must where a rounding is multiplied by 1 / b.
    """
    task = make_task(17, 2, rounds=60, rows=60, ring_dim=512, levels=6, floor=floor)
    x, y = make_rows(task, seed=5)
    sums = split(task, table(kind, x), y)
    first, second = (run_encrypted(task, sums).slots for _ in range(2))
    shown = task.layout.released() > 0
    noise = (first - second)[shown] / np.sqrt(2) / UNIT
    std = np.sqrt(np.mean(noise**2)) / slot_std(task.ckks, 1.0)
    assert 1e-4 < std / shown_error_std(task) < 0.5
    assert np.abs(first[~shown]).max() < 1e-9
    small = make_task(17, 2, rounds=60, rows=60, ring_dim=512, levels=6, floor=0.5)
    assert shown_error_std(task) < 2 * shown_error_std(small)


def heads_of(layout: BlockLayout, matrix: Floats, v: Floats) -> Floats:
    """The evaluator's rotations, products and sums, on arrays."""
    blocks, (spread,) = layout.matrices(matrix), layout.targets(v[:, None])
    total: Floats = np.zeros(layout.num_slots)
    for g in range(layout.giants):
        part = sum(
            blocks[g * layout.babies + b] * np.roll(spread, -layout.baby_rotation(b))
            for b in range(layout.babies)
        )
        total = total + np.roll(part, -layout.giant_rotation(g))
    for step in layout.fold_rotations:
        total = total + np.roll(total, -step)
    heads: Floats = total * layout.heads()
    return heads


def test_blocks_hold_the_diagonals_of_the_formula() -> None:
    """H v in the heads, and copied into every m, whatever the shape."""
    rng = np.random.default_rng(0)
    for slots, features in ((256, 17), (256, 32), (512, 40), (128, 50)):
        layout = BlockLayout(num_slots=slots, num_features=features, outputs=1)
        matrix, v = rng.normal(size=(features, features)), rng.normal(size=features)
        heads = heads_of(layout, matrix, v)
        np.testing.assert_allclose(heads.reshape(-1, layout.width)[:features, 0], matrix @ v)
        for step in layout.copy_rotations:
            heads = heads + np.roll(heads, -step)
        np.testing.assert_allclose(heads, layout.targets((matrix @ v)[:, None])[0])


def test_ciphertexts_and_keys_of_a_wide_table() -> None:
    """412 columns, 6 outputs in 16,384 slots: 16 blocks, where one matrix for all takes 128."""
    layout = BlockLayout(num_slots=16384, num_features=412, outputs=6)
    assert (layout.side, layout.width, layout.blocks) == (512, 32, 16)
    assert layout.counts == (16, 6, 4)
    assert len(layout.rotations) == 3 + 3 + 5 + 5
    task = make_task(17, 2, rows=30, ring_dim=512, levels=6)
    assert len(pack(task, GramSums.of(*make_rows(task, 1)))) == task.num_ciphertexts


def test_bounds_are_named() -> None:
    with pytest.raises(ParameterError, match="need 256 ciphertexts of 16384"):
        BlockLayout(num_slots=16384, num_features=2000, outputs=1)
    with pytest.raises(ParameterError, match="room for 16 outputs"):
        BlockLayout(num_slots=16384, num_features=1000, outputs=17)


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("accelerated", [True, False])
def test_no_slot_passes_its_bound(ridge: float, accelerated: bool) -> None:
    """Every refresh and the release; rows alike, one column, and random ones on the boundary."""
    d, n = 17, 40
    plan = make_plan(
        num_features=d,
        rounds=12,
        ridge=ridge,
        accelerated=accelerated,
        curvature_bound=row_sum_bound(1.0, d, 1.0),
        ckks=insecure(6, 512),
    )
    assert isinstance(plan.task.layout, BlockLayout)
    found = kinds.slot_bounds(plan, 1.0)
    spread = np.random.default_rng(1).normal(size=(n, d))
    spread /= np.linalg.norm(spread, axis=1, keepdims=True)
    column = np.tile(np.eye(d)[0], (n, 1))
    largest = 0.0
    for x in (np.full((n, d), d**-0.5), column, 0.2 * column, spread):
        y = np.ones((n, 2)) * (x[:, :1] > 0)
        shards = [(x[:30], y[:30]), (x[30:], y[30:])]
        seen = seen_slots(plan, shards, [np.zeros(plan.task.noise_size)] * 2)
        twin = run_gram_twin(plan.task, GramSums.of(x, y))
        np.testing.assert_allclose(seen.weights, twin, atol=1e-9)
        for slot, bound in zip(seen.refreshes, found.refreshes, strict=True):
            assert slot <= bound
        assert seen.release <= found.release
        largest = max(largest, seen.release)
    assert found.release <= 20 * largest
