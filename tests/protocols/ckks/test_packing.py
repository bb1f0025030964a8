"""Packing: every row in exactly one place, side columns, heads, and no rotation too many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.ckks.packing import MAX_SIDE_CIPHERTEXTS, Layout, next_power_of_two
from protocols.errors import ParameterError

SLOTS = 64


@st.composite
def layouts(draw: Any) -> Layout:
    """Any layout of up to 256 slots."""
    slots = draw(st.sampled_from([8, 64, 256]))
    features = draw(st.integers(1, slots))
    width = 1 << draw(st.integers(0, next_power_of_two(features).bit_length() - 1))
    block, parts = slots // width, -(-features // width)
    return Layout(
        num_slots=slots,
        num_features=features,
        rows_by_party=tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))),
        rounds=draw(st.integers(1, min(60, MAX_SIDE_CIPHERTEXTS * block // parts))),
        features_per_ciphertext=width,
    )


def parts_of(layout: Layout, vectors: np.ndarray) -> np.ndarray:
    """The last axis as parts x blocks, zero beyond the features."""
    room = layout.num_parts * layout.num_blocks - layout.num_features
    padded = np.pad(vectors, [(0, 0)] * (vectors.ndim - 1) + [(0, room)])
    return padded.reshape(*vectors.shape[:-1], layout.num_parts, layout.num_blocks)


def row_values(layout: Layout) -> np.ndarray:
    """Row g of feature j holds the value 1 + g * d + j: all different, none zero."""
    count = layout.num_rows * layout.num_features
    return np.arange(1.0, 1 + count).reshape(layout.num_rows, layout.num_features)


def pack_all(layout: Layout) -> list[dict[int, np.ndarray]]:
    cuts = np.cumsum(layout.rows_by_party)[:-1]
    return [layout.pack_rows(x, k) for k, x in enumerate(np.split(row_values(layout), cuts))]


def grid_of(layout: Layout, slots: np.ndarray) -> np.ndarray:
    """Slots as blocks x columns."""
    return np.roll(slots, -layout.offset).reshape(layout.num_blocks, layout.block_size)


def left(slots: np.ndarray, index: int) -> np.ndarray:
    """OpenFHE's left rotation."""
    return np.roll(slots, -index)


# -- rows ----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(layouts())
def test_every_value_stands_once(layout: Layout) -> None:
    """The sum over parties holds each value of all rows exactly once, and zeros."""
    sums = np.zeros((layout.num_data_ciphertexts, layout.num_slots))
    for packed in pack_all(layout):
        for index, slots in packed.items():
            sums[index] += slots
    assert sorted(sums[sums != 0]) == row_values(layout).ravel().tolist()


@settings(deadline=None)
@given(layouts())
def test_a_row_stands_where_the_layout_says(layout: Layout) -> None:
    """Row g: group g // B, column g % B of every block; feature p k + j in part p, block j."""
    sums = np.zeros((layout.num_data_ciphertexts, layout.num_slots))
    for packed in pack_all(layout):
        for index, slots in packed.items():
            sums[index] += slots
    grid = np.stack([grid_of(layout, slots) for slots in sums])
    groups = grid.reshape(-1, layout.num_parts, layout.num_blocks, layout.block_size)
    for g, row in enumerate(parts_of(layout, row_values(layout))):
        found = groups[g // layout.block_size, :, :, g % layout.block_size]
        assert (found == row).all()


@settings(deadline=None)
@given(layouts())
def test_parties_are_disjoint(layout: Layout) -> None:
    """No slot of a ciphertext belongs to two parties, so that adding loses nothing."""
    taken = np.zeros((layout.num_data_ciphertexts, layout.num_slots), dtype=int)
    for packed in pack_all(layout):
        for index, slots in packed.items():
            taken[index] += slots != 0
    assert taken.max() == 1
    assert taken.any(axis=1).all()


@settings(deadline=None)
@given(layouts())
def test_a_party_sends_only_ciphertexts_that_it_fills(layout: Layout) -> None:
    """ciphertexts_of agrees with pack_rows, and none is empty."""
    for party, packed in enumerate(pack_all(layout)):
        assert list(packed) == list(layout.ciphertexts_of(party))
        assert all(slots.any() for slots in packed.values())
        assert len(packed) % layout.num_parts == 0


@pytest.mark.parametrize("shape", [(3, 2), (5, 2), (4, 1), (4, 3), (4,), (0, 2)])
def test_rows_of_another_shape(shape: tuple[int, ...]) -> None:
    """The plan's row count and feature count bind."""
    layout = Layout(num_slots=SLOTS, num_features=2, rows_by_party=(4, 3), rounds=1)
    with pytest.raises(ParameterError, match="the plan says"):
        layout.pack_rows(np.ones(shape), 0)


# -- side columns and heads ----------------------------------------------------------------------


@settings(deadline=None)
@given(layouts())
def test_side_columns_come_to_the_front_one_by_one(layout: Layout) -> None:
    """c = t m + p rotations by 1 bring part p of vector t to column 0 of ciphertext c // B."""
    values = np.arange(1.0, 1 + layout.rounds * layout.num_features)
    vectors = values.reshape(layout.rounds, layout.num_features)
    packed = layout.pack_side(vectors)
    assert len(packed) == layout.num_side_ciphertexts
    columns = parts_of(layout, vectors).reshape(-1, layout.num_blocks)
    assert len(columns) == layout.side_columns
    for c, column in enumerate(columns):
        index, turns = divmod(c, layout.block_size)
        assert (grid_of(layout, left(packed[index], turns))[:, 0] == column).all()
    assert sorted(np.concatenate(packed)[np.concatenate(packed) != 0]) == values.tolist()


@settings(deadline=None)
@given(layouts(), st.integers(0, 2**32))
def test_heads_are_read_back(layout: Layout, seed: int) -> None:
    """read_heads inverts heads: Horner's rule on the masked parts; all else is zero."""
    values = np.random.default_rng(seed).uniform(1, 2, layout.num_features)
    slots = layout.heads(values)
    assert (layout.read_heads(slots) == values).all()
    assert np.count_nonzero(slots) == layout.num_features
    total = np.zeros(layout.num_slots)
    for part in layout.masks(values):
        total = left(total, 1) + part
    assert (slots == total).all()
    assert (layout.read_heads(layout.heads(0.5)) == 0.5).all()


@settings(deadline=None)
@given(layouts(), st.integers(0, 2**32))
def test_replicated_fills_every_column(layout: Layout, seed: int) -> None:
    """B equal columns, part by part; used blocks alone."""
    values = np.random.default_rng(seed).integers(1, 9, layout.num_features).astype(float)
    each = parts_of(layout, values[None])[0]
    for part in range(layout.num_parts):
        grid = grid_of(layout, layout.replicated(values, part))
        assert (grid == each[part][:, None]).all()


@settings(deadline=None)
@given(layouts())
def test_the_indicator_marks_column_0(layout: Layout) -> None:
    grid = grid_of(layout, layout.indicator)
    assert (grid[:, 0] == 1).all() and not grid[:, 1:].any()


@settings(deadline=None)
@given(layouts(), st.integers(0, 2**32))
def test_rotations_sum_features(layout: Layout, seed: int) -> None:
    """The sum over blocks in every slot."""
    slots = np.random.default_rng(seed).integers(0, 9, layout.num_slots).astype(float)
    wanted = grid_of(layout, slots).sum(axis=0)
    for index in layout.feature_rotations:
        slots = slots + left(slots, index)
    assert (grid_of(layout, slots) == wanted).all()


@settings(deadline=None)
@given(layouts())
def test_no_rotation_too_many(layout: Layout) -> None:
    """Each key costs megabytes: log2 k of them."""
    assert len(set(layout.rotations)) == layout.num_blocks.bit_length() - 1
    assert set(layout.rotations) == set(layout.feature_rotations)
    assert all(0 < index < layout.num_slots for index in layout.rotations)


@settings(deadline=None)
@given(layouts())
def test_heads_stay_away_from_the_rounding_bias(layout: Layout) -> None:
    """sum_k X^k is 2 / (1 - zeta) at a slot: below 4 at every head that has room to move."""
    n = 2 * layout.num_slots
    heads = np.flatnonzero(layout.heads(1.0))
    zeta = np.array([np.exp(1j * np.pi * pow(5, int(slot), 2 * n) / n) for slot in heads])
    if layout.block_size >= 8 and layout.num_blocks == layout.num_parts == 1:
        assert np.abs(2 / (1 - zeta)).max() < 4
    assert 0 <= layout.offset < layout.block_size


# -- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [0, -1, SLOTS + 1])
def test_features_out_of_range(features: int) -> None:
    """At least one feature, at most one per slot."""
    with pytest.raises(ParameterError, match=f"num_features={features}"):
        Layout(num_slots=SLOTS, num_features=features, rows_by_party=(1,), rounds=1)


@pytest.mark.parametrize("width", [-1, 0, 3, 16, 64])
def test_features_per_ciphertext_out_of_range(width: int) -> None:
    """A power of two, at most the one above the features."""
    with pytest.raises(ParameterError, match=f"features_per_ciphertext={width} is not a power"):
        Layout(
            num_slots=SLOTS,
            num_features=5,
            rows_by_party=(1,),
            rounds=1,
            features_per_ciphertext=width,
        )


@pytest.mark.parametrize("rows", [(), (0,), (3, 0), (3, -1)])
def test_a_party_without_rows(rows: tuple[int, ...]) -> None:
    """Everyone has at least one row."""
    with pytest.raises(ParameterError, match="at least one row"):
        Layout(num_slots=SLOTS, num_features=2, rows_by_party=rows, rounds=1)


@pytest.mark.parametrize("features", [1, 3, SLOTS])
def test_more_iterations_than_the_noise_ciphertexts_hold(features: int) -> None:
    """The bound is MAX_SIDE_CIPHERTEXTS * B, sharp; 0 is refused as well."""
    limit = MAX_SIDE_CIPHERTEXTS * SLOTS // next_power_of_two(features)

    def layout(rounds: int) -> Layout:
        return Layout(num_slots=SLOTS, num_features=features, rows_by_party=(1,), rounds=rounds)

    assert layout(limit).num_side_ciphertexts == MAX_SIDE_CIPHERTEXTS
    for rounds in (limit + 1, 0):
        with pytest.raises(ParameterError, match=rf"iterations={rounds} is outside 1\.\.{limit}"):
            layout(rounds)


def test_next_power_of_two() -> None:
    """Smallest power of two at or above n."""
    for n in range(1, 300):
        power = next_power_of_two(n)
        assert power & (power - 1) == 0
        assert power / 2 < n <= power
