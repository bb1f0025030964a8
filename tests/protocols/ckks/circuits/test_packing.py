"""Packing: every row in exactly one place, side columns, heads, and no rotation too many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.ckks.circuits.packing import MAX_SIDE_CIPHERTEXTS, Layout, next_power_of_two
from protocols.errors import ParameterError

SLOTS = 64


@st.composite
def layouts(draw: Any) -> Layout:
    """Any layout of up to 256 slots, of vectors or of a few outputs."""
    slots = draw(st.sampled_from([8, 64, 256]))
    outputs = draw(st.none() | st.integers(1, 4))
    depth = next_power_of_two(outputs or 1)
    features = draw(st.integers(1, slots // depth))
    width = 1 << draw(st.integers(0, next_power_of_two(features).bit_length() - 1))
    width *= depth
    block, parts = slots // width, -(-features * depth // width)
    return Layout(
        num_slots=slots,
        num_features=features,
        rows_by_party=tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))),
        rounds=draw(st.integers(1, min(60, MAX_SIDE_CIPHERTEXTS * block // parts))),
        features_per_ciphertext=width,
        outputs=outputs,
    )


def parts_of(layout: Layout, vectors: np.ndarray) -> np.ndarray:
    """Shape (…, *shape) as parts x blocks: block j c' + o for an output o, zero where none is."""
    count, c = layout.outputs or 1, layout.depth
    found = np.zeros((len(vectors), layout.num_parts * layout.num_blocks))
    for o in range(count):
        found[:, o : c * layout.num_features : c] = vectors.reshape(len(vectors), -1, count)[..., o]
    return found.reshape(len(vectors), layout.num_parts, layout.num_blocks)


def numbered(layout: Layout, count: int) -> np.ndarray:
    """Vectors whose values are all different, none zero."""
    size = count * int(np.prod(layout.shape))
    return np.arange(1.0, 1 + size).reshape(count, *layout.shape)


def grid_of(layout: Layout, slots: np.ndarray) -> np.ndarray:
    """Slots as blocks x columns."""
    return np.roll(slots, -layout.offset).reshape(layout.num_blocks, layout.block_size)


def left(slots: np.ndarray, index: int) -> np.ndarray:
    """OpenFHE's left rotation."""
    return np.roll(slots, -index)


# -- rows ----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(layouts())
def test_every_row_stands_where_the_layout_says_and_nowhere_else(layout: Layout) -> None:
    """Row g: group g // B, column g % B of every block; pair p k + j in part p, block j.

    No slot belongs to two parties, so that adding loses nothing; a party sends what it fills.
    """
    rows = numbered(layout, layout.num_rows)
    sums = np.zeros((layout.num_data_ciphertexts, layout.num_slots))
    taken = np.zeros(sums.shape, dtype=int)
    for party, x in enumerate(np.split(rows, np.cumsum(layout.rows_by_party)[:-1])):
        packed = layout.pack_rows(x, party)
        assert list(packed) == list(layout.ciphertexts_of(party))
        assert len(packed) % layout.num_parts == 0
        for index, slots in packed.items():
            assert slots.any()
            sums[index] += slots
            taken[index] += slots != 0
    assert taken.max() == 1 and taken.any(axis=1).all()
    assert sorted(sums[sums != 0]) == rows.ravel().tolist()
    grid = np.stack([grid_of(layout, slots) for slots in sums])
    groups = grid.reshape(-1, layout.num_parts, layout.num_blocks, layout.block_size)
    for g, row in enumerate(parts_of(layout, rows)):
        found = groups[g // layout.block_size, :, :, g % layout.block_size]
        assert (found == row).all()


# -- side columns and heads ----------------------------------------------------------------------


@settings(deadline=None)
@given(layouts())
def test_side_columns_come_to_the_front_one_by_one(layout: Layout) -> None:
    """c = t m + p rotations by 1 bring part p of vector t to column 0 of ciphertext c // B."""
    vectors = numbered(layout, layout.rounds)
    packed = layout.pack_side(vectors)
    assert len(packed) == layout.num_side_ciphertexts
    columns = parts_of(layout, vectors).reshape(-1, layout.num_blocks)
    assert len(columns) == layout.side_columns
    for c, column in enumerate(columns):
        index, turns = divmod(c, layout.block_size)
        assert (grid_of(layout, left(packed[index], turns))[:, 0] == column).all()
    whole = np.concatenate(packed)
    assert sorted(whole[whole != 0]) == vectors.ravel().tolist()


@settings(deadline=None)
@given(layouts())
def test_heads_are_read_back(layout: Layout) -> None:
    """read_heads inverts heads: Horner's rule on the masked parts; all else is zero."""
    (values,) = numbered(layout, 1)
    slots = layout.heads(values)
    assert (layout.read_heads(slots) == values).all()
    assert np.count_nonzero(slots) == values.size == np.count_nonzero(layout.heads(1.0))
    total = np.zeros(layout.num_slots)
    for part in layout.masks(values):
        total = left(total, 1) + part
    assert (slots == total).all()
    assert (layout.read_heads(layout.heads(0.5)) == 0.5).all()


@settings(deadline=None)
@given(layouts())
def test_replicated_fills_every_column(layout: Layout) -> None:
    """B equal columns, part by part, used blocks alone; the indicator marks column 0."""
    (values,) = numbered(layout, 1)
    (each,) = parts_of(layout, values[None])
    for part in range(layout.num_parts):
        grid = grid_of(layout, layout.replicated(values, part))
        assert (grid == each[part][:, None]).all()
    grid = grid_of(layout, layout.indicator)
    assert (grid[:, 0] == 1).all() and not grid[:, 1:].any()


@settings(deadline=None)
@given(layouts(), st.integers(0, 2**32))
def test_rotations_sum_features(layout: Layout, seed: int) -> None:
    """Over the blocks of each output, in every slot; log2 of them keys of megabytes, none more."""
    slots = np.random.default_rng(seed).integers(0, 9, layout.num_slots).astype(float)
    shape = (-1, layout.depth, layout.block_size)
    wanted = grid_of(layout, slots).reshape(shape).sum(axis=0)
    for index in layout.feature_rotations:
        slots = slots + left(slots, index)
    assert (grid_of(layout, slots).reshape(shape) == wanted).all()
    assert len(set(layout.rotations)) == (layout.num_blocks // layout.depth).bit_length() - 1
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

SMALL: dict[str, Any] = {
    "num_slots": SLOTS, "num_features": 5, "rows_by_party": (1,), "rounds": 1,
}  # fmt: skip
REFUSALS: list[tuple[dict[str, Any], str]] = [
    *(({"num_features": d}, f"num_features={d}.*need >= 1") for d in (0, -1)),
    ({"num_features": SLOTS + 1}, "num_features=65 .* need 65 slots, a ciphertext has 64"),
    ({"outputs": 0}, "outputs=0 need >= 1"),
    ({"num_features": 17, "outputs": 3}, "outputs=3 need 68 slots, a ciphertext has 64"),
    *(
        ({"features_per_ciphertext": k}, f"features_per_ciphertext={k} is not a power")
        for k in (-1, 0, 3, 16, 64)
    ),
    ({"outputs": 3, "features_per_ciphertext": 2}, "features_per_ciphertext=2 is not a power"),
    *(({"rows_by_party": rows}, "at least one row") for rows in ((), (0,), (3, 0), (3, -1))),
]


@pytest.mark.parametrize(("change", "match"), REFUSALS)
def test_what_no_ciphertext_holds_is_refused(change: dict[str, Any], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        Layout(**(SMALL | change))


@pytest.mark.parametrize("features", [1, 3, SLOTS])
def test_more_iterations_than_the_noise_ciphertexts_hold(features: int) -> None:
    """The bound is MAX_SIDE_CIPHERTEXTS * B, sharp; 0 is refused as well."""
    limit = MAX_SIDE_CIPHERTEXTS * SLOTS // next_power_of_two(features)
    fields = SMALL | {"num_features": features}
    assert Layout(**(fields | {"rounds": limit})).num_side_ciphertexts == MAX_SIDE_CIPHERTEXTS
    for rounds in (limit + 1, 0):
        with pytest.raises(ParameterError, match=rf"iterations={rounds} is outside 1\.\.{limit}"):
            Layout(**(fields | {"rounds": rounds}))


@pytest.mark.parametrize("shape", [(3, 2), (5, 2), (4, 1), (4, 3), (4,), (0, 2)])
def test_values_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    """The plan's counts bind; so do row sums, where the layout has columns for them."""
    fields = SMALL | {"num_features": 2, "rows_by_party": (4, 3), "rounds": 3}
    layout = Layout(**fields)
    with pytest.raises(ParameterError, match="the plan says"):
        layout.pack_rows(np.ones(shape), 0)
    with pytest.raises(ParameterError, match="values have shape"):
        layout.replicated(np.ones(3))
    for flag, count in ((False, 4), (True, 3)):
        with_sums = Layout(**fields, curvature=flag)
        assert with_sums.side_columns == 3 + flag
        with pytest.raises(ParameterError, match="side vectors have shape"):
            with_sums.pack_side(np.zeros((count, 2)))
