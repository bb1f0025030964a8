"""Encrypted vectors against NumPy, with one-party keys on a toy ring (INSECURE).

Bound: fresh encryption and key switching leave less than 2^-30 at scale 2^50, whatever operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from protocols.ckks import CkksParameters, objects
from protocols.ckks.circuits.evaluator import EncryptedVector, Evaluator
from protocols.ckks.circuits.packing import Layout
from protocols.ckks.circuits.rows import ColumnSum
from protocols.ckks.evaluation import CkksContext
from tests.support.helpers import log2_error

PARAMS = CkksParameters(ring_dim=1024, depth=5, scale_bits=50, security_bits=0)
LAYOUT = Layout(num_slots=512, num_features=5, rows_by_party=(20, 30), rounds=3)
BOUND = -30


@dataclass
class Bench:
    """One key pair with every key that the layout needs."""

    context: CkksContext
    evaluator: Evaluator
    keys: Any

    def encrypt(self, values: np.ndarray, level: int = 0) -> EncryptedVector:
        vector = self.evaluator.wrap(objects.encrypt(self.context, self.keys.publicKey, values))
        return self.evaluator.drop_to(vector, level)

    def decrypt(self, vector: EncryptedVector) -> np.ndarray:
        plaintext = self.context.cc.Decrypt(self.keys.secretKey, vector.ct)
        return np.array(plaintext.GetRealPackedValue())


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    context = CkksContext(PARAMS, "evaluator")
    keys = context.cc.KeyGen()
    context.cc.EvalMultKeyGen(keys.secretKey)
    context.cc.EvalAtIndexKeyGen(keys.secretKey, list(LAYOUT.rotations))
    yield Bench(context, Evaluator(context, LAYOUT), keys)


def values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, LAYOUT.num_slots)


OPERATIONS: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "add": (0, lambda a, b: a + b),
    "sub": (0, lambda a, b: a - b),
    "mul": (1, lambda a, b: a * b),
    "square": (1, lambda a, b: a * a),
    "add scalar": (0, lambda a, b: a + 0.375),
    "add int": (0, lambda a, b: a + 2),
    "sub scalar": (0, lambda a, b: a - 0.375),
    "mul scalar": (1, lambda a, b: a * -1.7),
    "scalar mul": (1, lambda a, b: -1.7 * a),
    "mul NumPy scalar": (1, lambda a, b: np.float64(0.3) * a),
    "mul int": (1, lambda a, b: 3 * a),
    "mul zero": (1, lambda a, b: a * 0.0),
    "distributive": (1, lambda a, b: (a + b) * a - b * 0.5),
    "cube": (2, lambda a, b: a * a * b),
    "a rule": (2, lambda a, b: (a - b * 0.5) * (1 - 0.1) - (a * a) * b),
}


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operators_are_numpys(bench: Bench, name: str, level: int) -> None:
    """Values to 2^-30, and exactly the levels of the docstring."""
    levels, operation = OPERATIONS[name]
    a, b = values(1), values(2)
    result = operation(bench.encrypt(a, level), bench.encrypt(b, level))
    assert isinstance(result, EncryptedVector)
    error = log2_error(bench.decrypt(result), operation(a, b))
    assert error < BOUND, f"log2 error {error:.1f}"
    assert result.level == level + levels
    assert result.ct.GetNoiseScaleDeg() == 1


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@pytest.mark.parametrize("levels", [(0, 3), (3, 0)])
def test_operands_meet_at_the_deeper_level(
    bench: Bench, name: str, levels: tuple[int, int]
) -> None:
    """In either order, and both operands stay as they were."""
    cost, operation = OPERATIONS[name]
    a, b = values(3), values(4)
    left, right = bench.encrypt(a, levels[0]), bench.encrypt(b, levels[1])
    result = operation(left, right)
    assert result.level == max(levels) + cost
    assert log2_error(bench.decrypt(result), operation(a, b)) < BOUND
    assert (left.level, right.level) == levels
    assert log2_error(bench.decrypt(left), a) < BOUND


def test_the_deepest_product(bench: Bench) -> None:
    """Every level can be used: depth products in a row, one prime left."""
    a, vector = values(5), bench.encrypt(values(5))
    wanted = a.copy()
    for _ in range(PARAMS.depth):
        vector, wanted = vector * bench.encrypt(a), wanted * a
    assert vector.level == PARAMS.depth
    assert log2_error(bench.decrypt(vector), wanted) < BOUND


def test_dropping_primes_changes_nothing(bench: Bench) -> None:
    """drop_to keeps value and scale at every level; to the same level it is the same object."""
    vector = bench.encrypt(values(6))
    for level in range(1, PARAMS.depth + 1):
        dropped = bench.evaluator.drop_to(vector, level)
        assert dropped.level == level
        assert dropped.ct.GetScalingFactor() == vector.ct.GetScalingFactor()
        assert log2_error(bench.decrypt(dropped), values(6)) < BOUND
    assert bench.evaluator.drop_to(vector, 0) is vector


# -- what knows the packing ----------------------------------------------------------------------


def grid(slots: np.ndarray) -> np.ndarray:
    return np.roll(slots, -LAYOUT.offset).reshape(LAYOUT.num_blocks, LAYOUT.block_size)


def test_inner_product(bench: Bench) -> None:
    """rows @ weights: sum over features in every block, at every used column; one level."""
    rows = np.random.default_rng(7).uniform(-1, 1, (50, 5))
    weights = np.random.default_rng(8).uniform(-1, 1, 5)
    packed = sum(
        LAYOUT.pack_rows(part, party)[0] for party, part in enumerate(np.split(rows, [20]))
    )
    result = bench.encrypt(packed) @ bench.encrypt(LAYOUT.replicated(weights))
    assert result.level == 1
    found = grid(bench.decrypt(result))
    assert log2_error(found[:, :50], np.tile(rows @ weights, (LAYOUT.num_blocks, 1))) < BOUND
    assert log2_error(found[:, 50:], 0.0) < BOUND


def test_a_column_alone(bench: Bench) -> None:
    """One column times a number, zero elsewhere; one level."""
    a = values(9)
    for index in (0, 3, LAYOUT.block_size - 1):
        result = bench.evaluator.column(bench.encrypt(a, 1), index, -0.5)
        assert result.level == 2
        wanted = np.zeros((LAYOUT.num_blocks, LAYOUT.block_size))
        wanted[:, index] = -0.5 * grid(a)[:, index]
        assert log2_error(grid(bench.decrypt(result)), wanted) < BOUND


def test_the_total_of_parts(bench: Bench) -> None:
    """In one part, for one part and for three; no level."""
    each = [values(9), values(10), values(11)]
    for count in (1, 3):
        vector = bench.evaluator.join(bench.encrypt(a) for a in each[:count])
        result = bench.evaluator.total(vector)
        assert result.level == 0
        assert log2_error(bench.decrypt(result), sum(each[:count])) < BOUND


# What a rule makes of weights w and a gradient g, and of another vector v.
SUMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "descent": lambda w, g, v: w - g,
    "with a pull": lambda w, g, v: w - g - v * 0.25,
    "momentum": lambda w, g, v: w * 1.5 - g + v,
    "ascent": lambda w, g, v: g + w,
    "from the other side": lambda w, g, v: v + (w - g),
    "gradient first": lambda w, g, v: g - w,
    "taken off": lambda w, g, v: v - (g - w),
    "alone": lambda w, g, v: g,
}


@pytest.mark.parametrize("name", SUMS)
def test_a_column_sum_is_a_vector(bench: Bench, name: str) -> None:
    """factor * (sum over columns) as arrays have it, for one level at most."""
    w, v = (np.random.default_rng(k).uniform(-1, 1, 5) for k in (12, 13))
    terms = values(14)
    g = 0.125 * grid(terms).sum(axis=1)[:5]
    fill = LAYOUT.replicated
    left = ColumnSum(bench.encrypt(terms, 2), 0.125)
    found = SUMS[name](bench.encrypt(fill(w), 1), left, bench.encrypt(fill(v)))
    assert isinstance(found, ColumnSum)
    spread = found.spread()
    assert spread.level <= 3
    summed = found.factor * grid(bench.decrypt(spread)).sum(axis=1)[:5]
    assert log2_error(summed, SUMS[name](w, g, v)) < BOUND


@pytest.mark.parametrize("count", [1, 2, 5])
def test_sum_of_products(bench: Bench, count: int) -> None:
    """sum_k a_k b_k at mixed levels with one relinearisation; one level below the deepest."""
    pairs = [(values(20 + k), values(30 + k)) for k in range(count)]
    encrypted = [(bench.encrypt(a, k % 3), bench.encrypt(b, 2)) for k, (a, b) in enumerate(pairs)]
    result = bench.evaluator.sum_of_products(encrypted)
    assert result.level == 3
    assert result.ct.NumberCiphertextElements() == 2
    assert log2_error(bench.decrypt(result), sum(a * b for a, b in pairs)) < BOUND
