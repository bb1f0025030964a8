"""Public linear maps of columns: exact as integers, right as slots (toy rings, INSECURE)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.ckks import column_map as module
from protocols.ckks import residues as rns
from protocols.ckks import transform
from protocols.ckks.circuits.packing import Layout
from protocols.ckks.column_map import ColumnMap
from tests.support import exact

RING, SCALE_BITS = 32, 59
# 1 mod 2 RING, of 60, 59 and 25 bits.
PRIMES = (1152921504606844417, 576460752303421441, 33553537)


def layout_of(features: int, num_slots: int = RING // 2) -> Layout:
    return Layout(num_slots=num_slots, num_features=features, rows_by_party=(1,), rounds=1)


def maps(features: int) -> st.SearchStrategy[ColumnMap]:
    layout = layout_of(features)
    return st.builds(
        ColumnMap,
        st.just(layout.block_size),
        st.just(layout.offset),
        st.sampled_from([2.0**-6, -0.3, 1.0, 7.5]),
        st.none() | st.integers(0, layout.block_size - 1),
        st.none() | st.integers(-3, 3),
    )


ANY_MAP = st.sampled_from([1, 2, 3, 8, 16]).flatmap(maps)


def in_evaluation_form(coefficients: Any) -> rns.Residues:
    return np.array([exact.evaluations(coefficients, prime) for prime in PRIMES], np.uint64)


def times(left: list[int], right: list[int]) -> list[int]:
    """Schoolbook product modulo X^n + 1."""
    n = len(left)
    found = [0] * n
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            found[(i + j) % n] += a * b if i + j < n else -a * b
    return found


def rotated(polynomial: list[int], left: int) -> list[int]:
    n = len(polynomial)
    exponent = pow(5, left % (n // 2), 2 * n)
    return [int(c) for c in exact.automorphism(np.array(polynomial, object), exponent)]


def plus(*terms: list[int]) -> list[int]:
    return [sum(parts) for parts in zip(*terms, strict=True)]


def by_hand(column_map: ColumnMap, polynomial: list[int]) -> list[int]:
    """The map by automorphisms and a schoolbook product, from the mask's definition."""
    n, size = len(polynomial), column_map.block_size
    column, found = column_map.column or 0, polynomial
    if column_map.column is None:
        found = plus(*(rotated(polynomial, r) for r in range(size)))
    at = pow(5, (column_map.offset + column) % size, 4 * size)
    mask = [0] * n
    for i in range(2 * size):
        value = column_map.value * math.cos(math.pi * i * at / (2 * size)) / size
        # Floats are off by 2^-53 of it: 2^6 at this scale, which is compared below.
        mask[i * n // (2 * size)] = round(value * 2**SCALE_BITS)
    found = rotated(times(mask, found), column)
    if column_map.head is not None:
        return rotated(found, -column_map.head)
    return plus(*(rotated(found, -r) for r in range(size)))


@settings(deadline=None, max_examples=60)
@given(ANY_MAP, st.integers(0, 2**32))
def test_it_is_what_automorphisms_and_a_mask_make(column_map: ColumnMap, seed: int) -> None:
    """Of a polynomial with small coefficients, to the last digits of float cosines."""
    polynomial = np.random.default_rng(seed).integers(-8, 9, RING).tolist()
    rows = in_evaluation_form(np.array(polynomial, object))
    found = exact.whole(column_map.apply(rows, PRIMES, 1 << SCALE_BITS), PRIMES)
    wanted = by_hand(column_map, polynomial)
    # n products of at most 8 B, copied B times, each with a mask that is off by 2^8 at most.
    bound = 8 * RING * column_map.block_size**2 * max(1, abs(column_map.value)) * 2**8
    assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) < bound
    assert max(map(abs, wanted)) > 2**40


@settings(deadline=None, max_examples=60)
@given(ANY_MAP, st.integers(0, 2**32))
def test_it_is_linear_without_rounding(column_map: ColumnMap, seed: int) -> None:
    """T(x) + T(y) = T(x + y), residue by residue, for polynomials of any size."""
    rng = np.random.default_rng(seed)
    x, y = (
        np.stack([rng.integers(0, prime, RING, dtype=np.uint64) for prime in PRIMES])
        for _ in range(2)
    )
    apply = [
        column_map.apply(rows, PRIMES, 1 << SCALE_BITS) for rows in (x, y, rns.add(x, y, PRIMES))
    ]
    assert (rns.add(apply[0], apply[1], PRIMES) == apply[2]).all()
    assert apply[2].any()


@pytest.mark.parametrize("size", [1, 2, 64, 1 << 15])
def test_sums_of_the_largest_windows_are_exact(size: int) -> None:
    """At ring 2^16: the largest residues, random ones, windows that wrap around."""
    rng = np.random.default_rng(size)
    for prime in PRIMES:
        slots = rng.integers(0, prime, (2, 1 << 15), dtype=np.uint64)
        slots[0] = prime - 1
        found = module._window_sums(slots, size, prime)
        assert (found[0] == -size % prime).all()
        for i in (0, 1, size - 1, 2**15 - 1):
            window = [int(slots[1, i - r]) for r in range(size)]
            assert found[1, i] == sum(window) % prime


@pytest.mark.parametrize("features", [1, 3, 8, 16])
def test_it_acts_on_slots_as_it_says(features: int) -> None:
    """Encoded slots in, twice their scale out: the sum or one column, copied or as a head."""
    layout = layout_of(features)
    size, blocks = layout.block_size, layout.num_blocks
    slots = np.random.default_rng(features).uniform(-1, 1, layout.num_slots)
    rows = in_evaluation_form(exact.encoded(slots, RING, 2.0**50))
    grid = np.roll(slots, -layout.offset).reshape(blocks, size)
    for column in (None, 0, size - 1):
        for head in (None, 0, -1, 2):
            column_map = ColumnMap.of(layout, 0.37, column=column, head=head)
            found = exact.whole(column_map.apply(rows, PRIMES, 1 << SCALE_BITS), PRIMES)
            wanted = np.zeros((blocks, size))
            values = 0.37 * (grid.sum(axis=1) if column is None else grid[:, column])
            wanted[:, slice(None) if head is None else slice(1)] = values[:, None]
            moved = np.roll(wanted.ravel(), layout.offset + (head or 0))
            message = exact.encoded(moved, RING, 2.0**50) * 2**SCALE_BITS
            error = np.array([int(a) - b for a, b in zip(message, found, strict=True)], object)
            assert exact.rms(error) < 2.0 ** (50 + SCALE_BITS - 40), (column, head)


@pytest.mark.parametrize("size", [1, 2, 64, 1024])
def test_cosines_are_those_of_the_library(size: int) -> None:
    """Integers to 2^-150, whatever a machine's floating point does; floats err by their angle."""
    found = module._cosines(size)
    assert len(found) == 4 * size
    for j in range(0, 4 * size, max(1, size // 16)):
        assert found[j] / 2**160 == pytest.approx(math.cos(math.pi * j / (2 * size)), abs=1e-15)
    # cos^2 + sin^2 = 1 in fixed point: the recurrence loses no more than its last bits.
    one = 1 << 320
    for j in range(4 * size):
        sine = found[(j - size) % (4 * size)]
        assert abs(found[j] ** 2 + sine**2 - one) < one >> 145


def test_the_root_is_the_one_that_openfhe_takes() -> None:
    for prime in PRIMES:
        assert transform._root(prime, RING) == exact.least_root(prime, RING)
