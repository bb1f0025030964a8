"""What the same iteration costs with other layouts, other libraries, and without encryption.

Question: how much of the speed is the packing? Both layouts below are re-implemented on the same
library, parameters rule (128 bits), polynomial and factor trick as ours, with one single-party key
(the arithmetic of a joint key is the same). They start at the level of our refreshed weights. What
is measured is the gradient; the table adds the update and the refresh of our own run, which makes
the last sum over rows in either layout. A few ciphertexts are measured, and scaled linearly to all
rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.cases import Array, Case
from protocols.ckks import objects
from protocols.ckks.circuits.choice import choose_parameters
from protocols.ckks.circuits.factors import last_operands
from protocols.ckks.circuits.packing import next_power_of_two
from protocols.ckks.circuits.rows import REFRESH_LEVEL, gradient_levels, link_factors
from protocols.ckks.evaluation import CkksContext
from protocols.rows.plan import RowsPlan

# Ciphertexts that are measured; the rest is scaled.
SAMPLES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """One layout.

    unit: seconds per ciphertext (median); ciphertexts: of all rows; tail: once per iteration
    [seconds]; error: largest difference of the measured part to NumPy.
    """

    unit: float
    ciphertexts: int
    tail: float
    error: float

    @property
    def iteration(self) -> float:
        """Seconds per full-batch iteration, scaled linearly."""
        return self.unit * self.ciphertexts + self.tail


class SingleKey:
    """A throwaway key pair with the rotations asked for, and the few operations used here."""

    def __init__(self, levels: int, rotations: Sequence[int], secure: bool) -> None:
        self.params = choose_parameters(levels, secure=secure)
        self.context = CkksContext(self.params, "benchmark")
        self.cc: Any = self.context.cc
        self.keys: Any = self.cc.KeyGen()
        self.cc.EvalMultKeyGen(self.keys.secretKey)
        self.cc.EvalRotateKeyGen(self.keys.secretKey, list(rotations))

    def encrypt(self, values: Array) -> Any:
        """Ciphertext as after a refresh."""
        return self.at(objects.encrypt(self.context, self.keys.publicKey, values), REFRESH_LEVEL)

    def decrypt(self, ct: Any, length: int) -> Array:
        """First slots."""
        plain: Any = self.cc.Decrypt(ct, self.keys.secretKey)
        plain.SetLength(length)
        return np.array(plain.GetRealPackedValue()[:length])

    def at(self, ct: Any, level: int) -> Any:
        """Primes dropped down to a level."""
        kept = self.params.num_towers - level
        return ct if ct.GetLevel() == level else self.cc.Compress(ct, kept)

    def times(self, left: Any, right: Any) -> Any:
        """Product of two ciphertexts, rescaled."""
        level = max(left.GetLevel(), right.GetLevel())
        return self.rescaled(self.cc.EvalMult(self.at(left, level), self.at(right, level)))

    def masked(self, ct: Any, plain: Any) -> Any:
        """Product with a plaintext that is encoded already."""
        return self.rescaled(self.cc.EvalMult(ct, plain))

    def rescaled(self, product: Any) -> Any:
        """One level down, in place."""
        self.cc.RescaleInPlace(product)
        return product

    def sum_of(self, products: list[Any], product: Any) -> list[Any]:
        """The only product, or the first with another one added in place."""
        if not products:
            return [product]
        self.cc.EvalAddInPlace(products[0], product)
        return products

    def sum_rotations(self, ct: Any, indices: Sequence[int]) -> Any:
        """ct <- ct + rot(ct, k) for every k."""
        for index in indices:
            rotated = self.cc.EvalRotate(ct, index)
            self.cc.EvalAddInPlace(rotated, ct)
            ct = rotated
        return ct


class _Vector:
    """Ciphertext with the operators that `FactoredPolynomial` uses."""

    __array_ufunc__ = None

    def __init__(self, key: SingleKey, ct: Any) -> None:
        self.key, self.ct = key, ct

    def __mul__(self, other: _Vector) -> _Vector:
        return _Vector(self.key, self.key.times(self.ct, other.ct))

    def __add__(self, other: float) -> _Vector:
        return _Vector(self.key, self.key.cc.EvalAdd(self.ct, float(other)))


def per_sample(plan: RowsPlan, x: Array) -> Baseline:
    """(a) One ciphertext per sample, features in slots: the barrier paper's layout.

    z is summed over the d' features cyclically, which takes no mask; the samples' products are
    relinearised once in all.
    """
    blocks = next_power_of_two(plan.num_features)
    key = SingleKey(gradient_levels(plan.link), _steps(blocks), bool(plan.security_bits))
    slots = key.params.num_slots
    samples = [key.encrypt(_tiled(row, blocks, slots)) for row in x[:SAMPLES]]
    return _measured(key, plan, x, blocks, samples, 1, lambda z: z)


def row_major(plan: RowsPlan, x: Array) -> Baseline:
    """(b) Rows one after the other in a ciphertext, z masked and spread again.

    As in Kim et al. (2018), "Logistic regression model training based on the approximate
    homomorphic encryption", and the iDASH entries after it: one level and log2(d') rotations more
    per ciphertext. Their sum over a ciphertext's rows is left to the refresh, as ours is.
    """
    blocks = next_power_of_two(plan.num_features)
    levels = gradient_levels(plan.link) + 1
    slots = choose_parameters(levels, secure=bool(plan.security_bits)).num_slots
    rows, back = slots // blocks, [slots - step for step in _steps(blocks)]
    key = SingleKey(levels, [*_steps(blocks), *back], bool(plan.security_bits))
    mask = key.context.encode(np.tile(np.eye(blocks)[0], rows), REFRESH_LEVEL + 1)
    packed = [key.encrypt(_rows(x, k, rows, blocks)) for k in range(min(2, -(-len(x) // rows)))]

    def spread(z: Any) -> Any:
        return key.sum_rotations(key.masked(z, mask), back)

    return _measured(key, plan, x, blocks, packed, rows, spread)


def _steps(blocks: int) -> list[int]:
    return [1 << k for k in range(blocks.bit_length() - 1)]


def _measured(
    key: SingleKey,
    plan: RowsPlan,
    x: Array,
    blocks: int,
    packed: Sequence[Any],
    rows: int,
    spread: Callable[[Any], Any],
) -> Baseline:
    """The gradient of some ciphertexts of so many rows each; spread: of z to all features."""
    factors, slots, w = link_factors(plan.link), key.params.num_slots, _weights(x.shape[1])
    replicated = key.encrypt(_tiled(w / plan.link.radius, blocks, slots))
    products: list[Any] = []

    def one(ct: Any) -> None:
        summed = key.sum_rotations(key.times(ct, replicated), _steps(blocks))
        z = _Vector(key, spread(summed))
        left, right = last_operands(factors, z * z, _Vector(key, ct) * z)
        level = max(left.ct.GetLevel(), right.ct.GetLevel())
        product = key.cc.EvalMultNoRelin(key.at(left.ct, level), key.at(right.ct, level))
        products[:] = key.sum_of(products, product)

    laps = [_seconds(partial(one, ct)) for ct in packed]
    total: list[Any] = []
    tail = _seconds(lambda: total.append(key.rescaled(key.cc.Relinearize(products[0]))))
    by_row = key.decrypt(total[0], rows * blocks).reshape(rows, blocks)
    found = by_row.sum(axis=0)[: x.shape[1]] * factors.leading
    return Baseline(
        unit=statistics.median(laps),
        ciphertexts=-(-len(x) // rows),
        tail=tail,
        error=_error(found, x[: rows * len(packed)], w, plan),
    )


def plain(x: Array, y: Array, plan: RowsPlan) -> float:
    """(d) The same gradient in NumPy [seconds]."""
    w = _weights(x.shape[1])
    return min(_seconds(lambda: x.T @ (plan.link(x @ w) - y)) for _ in range(5))


def shape(case: Case) -> str:
    """Rows x features."""
    return f"{case.rows:,} x {case.features}"


def _weights(features: int) -> Array:
    return np.random.default_rng(1).normal(0, 0.5, features)


def _tiled(row: Array, blocks: int, slots: int) -> Array:
    full = np.zeros(blocks)
    full[: len(row)] = row
    return np.tile(full, slots // blocks)


def _rows(x: Array, k: int, rows: int, blocks: int) -> Array:
    grid = np.zeros((rows, blocks))
    part = x[k * rows : (k + 1) * rows]
    grid[: len(part), : x.shape[1]] = part
    return grid.ravel()


def _error(found: Array, x: Array, w: Array, plan: RowsPlan) -> float:
    """Against sum_i x_i q(z_i), with the leading factor multiplied back."""
    exact = x.T @ (plan.link(x @ w) - 0.5)
    return float(np.abs(found - exact).max() / max(1.0, np.abs(exact).max()))


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
