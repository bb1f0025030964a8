"""The encrypted preconditioner and what it does to the gradient, on toy rings (INSECURE).

Refreshes are answered by key shares in this process; weights are decrypted exactly.
Bound 2^-30 on the weights; measured 2^-37 to 2^-41.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocols import contribute, refresh
from protocols.ckks import residues as rns
from protocols.ckks.circuit import (
    REFRESH_LEVEL,
    EncryptedGradient,
    Preconditioner,
    gradient_levels,
)
from protocols.ckks.evaluator import EncryptedVector, Evaluator
from protocols.curvature import Curvature, largest_row_sum
from protocols.decrypt import fuse
from protocols.messages import Body
from protocols.precondition import LEVELS, precondition
from protocols.train import PlainGradient, RowsCircuit, train_encrypted, train_plain
from protocols.updates.momentum import Nesterov
from protocols.updates.quadratic import QuadraticNesterov
from tests.exact import product
from tests.helpers import (
    JointKeys,
    drive,
    joint_keys,
    log2_error,
    make_link,
    make_plan,
    refreshing,
    uncommitted,
)

RING, TOWERS = 1024, 2


class Run:
    """Keys, packing and data of one case: negative entries, and a zero column if d > 2."""

    def __init__(
        self, rule: Any, rows: list[int], features: int, degree: int, width: int | None = None
    ) -> None:
        levels = gradient_levels(make_link(degree))
        self.keys: JointKeys = joint_keys(len(rows), levels + 2, RING)
        self.keys.forget()
        self.rule, self.sizes = rule, []
        rng = np.random.default_rng(degree)
        count = sum(rows)
        self.x = rng.uniform(-1, 1, (count, features))
        self.x[:, -1] = 1.0
        if features > 2:
            self.x[:, 1] = 0.0
        self.y = (self.x @ rng.normal(0, 2, features) + rng.logistic(size=count) > 0).astype(float)
        self.noise = rng.normal(0, 0.02, (len(rows), rule.rounds, features))
        self.cuts = np.cumsum(rows)[:-1]
        self.plan = make_plan(
            rows=rows,
            features=features,
            degree=degree,
            update=rule.to_dict(),
            ring_dim=RING,
            features_per_ciphertext=width,
        )
        assert self.plan.names == tuple(self.keys.shares)
        assert self.plan.ckks == self.keys.context.params
        self.evaluator = Evaluator(self.keys.context, self.plan.layout)

    def answer(self, name: str, step: str, body: Body) -> Body:
        """A party's reply; counts the refreshed ciphertexts once."""
        kind, _, index = step.partition("/")
        k = self.plan.party_index(name)
        if kind == "refresh":
            if k == 0:
                assert int(index) == len(self.sizes)
                self.sizes.append(len(body.blobs))
            context, share = self.keys.context, self.keys.shares[name]
            maps = self.plan.column_maps(int(index))
            return refresh.answer_refresh(context, share, maps, int(index), body)
        x, y = np.split(self.x, self.cuts)[k], np.split(self.y, self.cuts)[k]
        keys, packed = self.keys, RowsCircuit(self.plan).pack(name, x, y, self.noise[k])
        return contribute.contribution(keys.context, keys.shares[name], keys.public_key, packed)

    def collect(self) -> tuple[list[EncryptedVector], list[EncryptedVector]]:
        contributions = uncommitted(self.plan.names)
        return drive(contribute.collect(self.evaluator, self.plan, contributions), self.answer)

    def train(self) -> np.ndarray:
        rows, side = self.collect()
        fresh = refreshing(self.evaluator, self.plan, self.keys)
        exchange = train_encrypted(self.evaluator, self.plan, rows, side, fresh)
        weights = self.slots(drive(exchange, self.answer))
        return self.plan.layout.read_heads(weights) * self.plan.link.radius

    def twin(self) -> np.ndarray:
        preconditioner: Any = 1.0
        if isinstance(self.rule, QuadraticNesterov):
            preconditioner = self.rule.curvature.preconditioner(self.x)
        gradient = PlainGradient(
            self.x, self.y, self.noise.sum(axis=0), self.plan.link, preconditioner
        )
        weights = train_plain(self.rule, gradient, self.x.shape[1])
        assert gradient.largest <= self.plan.link.radius
        return weights

    def slots(self, vector: EncryptedVector) -> np.ndarray:
        """Exact decryption."""
        context = self.keys.context
        low = context.primes[:TOWERS]
        shallow = self.evaluator.drop_to(vector, context.params.num_towers - TOWERS)
        message, c1 = context.polynomials_of(shallow.ct)
        for secret in self.keys.secrets.values():
            message = rns.add(message, product(c1, secret[:TOWERS], low), low)
        return fuse(context, message)


def curvature(features: int, offset: float = 0.02, error: float = 1e-3) -> Curvature:
    return Curvature.for_rows(
        largest_row_sum(features, columns=[1.0] * features), offset=offset, error=error
    )


def quadratic(features: int, rounds: int = 4, **changes: Any) -> QuadraticNesterov:
    return QuadraticNesterov(rounds=rounds, curvature=curvature(features), **changes)


CASES: dict[str, Any] = {
    "degree 5": (quadratic(5), [12, 9, 20], 5, 5),
    "degree 3": (quadratic(5, extra=0.5), [12, 9], 5, 3),
    "degree 7, several ciphertexts": (quadratic(9, rounds=3), [40, 3], 9, 7),
    "one feature": (quadratic(1, rounds=2), [3, 5], 1, 5),
    "side columns over several ciphertexts": (quadratic(200, rounds=4), [3, 2], 200, 5),
    "one iteration": (quadratic(5, rounds=1), [12, 9], 5, 5),
    "paper's harmonic rates": (
        quadratic(5, rounds=4, schedule="harmonic", extra=10 / 21),
        [12, 9],
        5,
        5,
    ),
}


# d = 6 in 6, 3 or 2 parts: row sums, inverse and gradients part by part, the same model.
CASES |= {f"{-(-6 // k)} parts": (quadratic(6), [300, 250], 6, 7, k) for k in (1, 2, 4)}


@pytest.mark.parametrize("case", CASES)
def test_encrypted_equals_plain(case: str) -> None:
    """Weights agree with the twin's; the refreshes are those that the rule announces."""
    rule, rows, features, degree, *width = CASES[case]
    run = Run(rule, rows, features, degree, *width)
    parts = run.plan.layout.num_parts
    assert parts == (-(-features // width[0]) if width else 1)
    twin = run.twin()
    assert np.abs(twin).max() > 0.05
    error = log2_error(run.train(), twin)
    assert error <= (-28 if width else -30), f"log2 error {error:.1f}"
    announced = rule.curvature.inverse.refreshes(gradient_levels(run.plan.link), *LEVELS)
    vectors = (*announced, *(2,) * (rule.rounds - 1), 1)
    assert tuple(run.sizes) == tuple(parts * count for count in vectors) == run.plan.refreshes


def test_without_a_preconditioner_nothing_changes() -> None:
    """Rule `nag`, no column of row sums; its first momentum is 0, so v and W are one ciphertext."""
    run = Run(Nesterov(rounds=3, learning_rate=0.5), [12, 9], 5, 5)
    assert log2_error(run.train(), run.twin()) <= -30
    assert run.sizes == [1, 2, 1]


@pytest.mark.parametrize(("offset", "error"), [(0.02, 1e-3), (0.02, 1e-6), (0.002, 1e-3)])
def test_the_encrypted_inverse(offset: float, error: float) -> None:
    """1 / b in every column of its block, never above the public bound."""
    numbers = curvature(5, offset, error)
    run = Run(QuadraticNesterov(rounds=2, curvature=numbers), [30, 20], 5, 5)
    _, side = run.collect()
    keys, steps = run.keys, iter(range(9))

    def fresh(vectors: Any) -> Any:
        return refresh.refresh(
            run.evaluator, run.plan, keys.seed, next(steps), keys.public_key, vectors
        )

    found = drive(precondition(run.evaluator, numbers, side[0], fresh), run.answer)
    assert found.vector.level == REFRESH_LEVEL
    slots = run.slots(found.vector) * found.unit
    bound = numbers.bound(run.x)
    assert bound[1] == offset  # the zero column
    relative = run.plan.layout.read_heads(slots) * bound - 1
    assert np.abs(relative).max() <= numbers.inverse.relative_error
    assert slots.max() <= numbers.inverse.largest
    used = run.plan.layout.replicated(1.0)
    wanted = run.plan.layout.replicated(numbers.preconditioner(run.x))
    # Errors of at most 2^-40 in b / high are multiplied by (high / b)^2, high / b again the value.
    unit = numbers.high / offset
    assert log2_error(slots * used, wanted) < -40 + np.log2(unit / offset)


def test_the_identity_preconditioner_is_the_plain_gradient() -> None:
    """Replicated ones with unit 1: the same gradient, left to a refresh at the same level."""
    run = Run(Nesterov(rounds=2, learning_rate=0.5), [12, 9], 5, 5)
    rows, side = run.collect()
    context, layout, link = run.keys.context, run.plan.layout, run.plan.link

    def encrypt(values: np.ndarray) -> EncryptedVector:
        slots = layout.replicated(values)
        return run.evaluator.wrap(context.encrypt(run.keys.public_key, slots))

    weights = np.random.default_rng(1).uniform(-0.1, 0.1, 5)
    diagonal = np.array([1.0, 0.5, 0.25, 2.0, 1.0])
    plain = PlainGradient(run.x, run.y, run.noise.sum(axis=0), link)
    wanted = plain(weights * link.radius, 0.7)
    for values, unit in ((np.ones(5), 1.0), (diagonal, 3.0)):
        diagonal_vector = Preconditioner(vector=encrypt(values), unit=unit)
        gradient = EncryptedGradient(run.evaluator, run.plan.units, rows, side, diagonal_vector)
        result = gradient(encrypt(weights), 0.7)
        assert result.rest is None and result.terms.level == gradient_levels(link)
        columns = np.roll(run.slots(result.terms), -layout.offset)
        sums = columns.reshape(layout.num_blocks, layout.block_size).sum(axis=1)[:5]
        found = result.factor * sums * link.radius
        assert log2_error(found, values * unit * wanted) < -22
