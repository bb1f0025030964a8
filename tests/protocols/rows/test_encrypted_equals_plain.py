"""Encrypted training equals the plaintext twin: THE matrix, on toy rings (INSECURE).

49 cases: every sigmoid degree x update rule, with features, parties, sizes, noise, rounds and ring
assigned so that every pair of levels of any two factors occurs (asserted). With COHORT_SLOW=1 each
at every number of features: 245.
Bounds: 2^-19.9 (1e-6) after one iteration, 2^-13.3 (1e-4) through refreshes, decrypted exactly;
the released weights differ from those by the flooding noise, release_error_std.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from itertools import combinations, product

import numpy as np
import pytest

from protocols.numerics.approximation import (
    SIGMOID_DEGREES,
    exponential_approximation,
    sigmoid_approximation,
)
from protocols.privacy.laws.seeded import SeededRandomness
from protocols.rows.plan import RowsPlan
from protocols.steps.decrypt import release_error_std
from tests.support.helpers import (
    NOISE,
    UPDATES,
    log2_error,
    make_data,
    make_plan,
    plain_weights,
    signed_plan,
)
from tests.support.joint import encrypted_weights

LEVELED, REFRESHED = np.log2(1e-6), np.log2(1e-4)
PARTIES, FEATURES, RINGS = (2, 3, 5, 8, 16), (1, 2, 9, 30, 64), (512, 1024)
# one: all rows share a ciphertext; several: even parts over 3 ciphertexts; skewed: single rows
# beside one party that fills more than 3 ciphertexts (or has 500 rows).
SIZES = ("one", "several", "skewed")


@dataclass(frozen=True)
class Case:
    degree: int
    update: str
    features: int
    parties: int
    sizes: str
    noise: bool
    rounds: int
    ring_dim: int

    def __str__(self) -> str:
        return "-".join(str(getattr(self, f.name)) for f in fields(self))

    @property
    def rows(self) -> list[int]:
        blocks = 1 << (self.features - 1).bit_length()
        block = self.ring_dim // 2 // blocks
        if self.sizes == "one":
            return [max(1, min(block // self.parties, 30))] * self.parties
        if self.sizes == "several":
            return [-(-5 * block // (2 * self.parties))] * self.parties
        giant = max(3 * block + 1, 500 if self.features < 30 else 0)
        return [1] * (self.parties - 1) + [giant]


LEVELS = (SIGMOID_DEGREES, UPDATES, FEATURES, PARTIES, SIZES, (False, True), (1, 3), RINGS)


def matrix() -> list[Case]:
    """The orthogonal array of 7^2 rows: i, j, and i + k j modulo 7 for k = 1, ..., 6.

    Any two columns meet in all pairs modulo 7; a factor of fewer levels repeats some.
    """
    rows = [(i, j, *(i + k * j for k in range(1, 7))) for i, j in product(range(7), repeat=2)]
    return [
        Case(*(levels[v % 7 % len(levels)] for levels, v in zip(LEVELS, row, strict=True)))
        for row in rows
    ]


ARRAY = matrix()
WHOLE = [replace(case, features=features) for case in ARRAY for features in FEATURES]
# By key set, so that a process makes each once and the memory for it once.
CASES = sorted(
    WHOLE if os.environ.get("COHORT_SLOW") else ARRAY,
    key=lambda c: (c.ring_dim, c.parties, c.degree),
)


@dataclass(frozen=True)
class Errors:
    """log2 of the largest differences; flooded: of what is released, in predicted deviations."""

    circuit: float
    noise: float
    flooded: float


def compare(plan: RowsPlan, seed: int) -> Errors:
    """Encrypted weights against the twin's."""
    shards = make_data([m.rows for m in plan.members], plan.num_features, seed)
    noises = [plan.draw_noise(SeededRandomness(seed, m.name)) for m in plan.members]
    released = encrypted_weights(plan, shards, noises)
    twin = plain_weights(plan, shards, sum(noises))
    assert np.abs(twin).max() > 1e-3  # zero weights would prove nothing
    without = plain_weights(plan, shards, np.zeros_like(noises[0]))
    std = release_error_std(plan)
    return Errors(
        circuit=log2_error(released.exact, twin),
        noise=log2_error(released.exact, without),
        flooded=float(np.abs(released.weights - released.exact).max() / std),
    )


def check(plan: RowsPlan, seed: int) -> None:
    """Everything that one case shows."""
    errors = compare(plan, seed)
    bound = LEVELED if plan.rounds == 1 else REFRESHED
    assert errors.circuit <= bound, f"log2 error {errors.circuit:.1f} > {bound:.1f}"
    # What the joint decryption adds, and must add: 6.5 deviations have p = 1e-10.
    assert errors.flooded <= 6.5, f"{errors.flooded:.1f} deviations"
    # The noise is in the weights, or it is not: the oracle tells the two apart.
    assert (errors.noise > -12) == (plan.privacy is not None)


def case_plan(case: Case) -> RowsPlan:
    return make_plan(
        rows=case.rows,
        features=case.features,
        rounds=case.rounds,
        degree=case.degree,
        update=case.update,
        privacy=NOISE if case.noise else None,
        ring_dim=case.ring_dim,
    )


def test_the_matrix_covers_every_pair() -> None:
    """No two levels of two factors that never meet."""
    cases = [tuple(getattr(c, f.name) for f in fields(Case)) for c in CASES]
    assert len(set(cases)) == len(cases) and len(set(WHOLE)) == 245
    for left, right in combinations(range(len(LEVELS)), 2):
        met = {(case[left], case[right]) for case in cases}
        assert met == set(product(LEVELS[left], LEVELS[right])), (left, right)
    sizes = {(case_plan(c).layout.num_data_ciphertexts > 1, c.sizes) for c in CASES}
    assert {(False, "one"), (True, "several"), (True, "skewed")} <= sizes


@pytest.mark.parametrize("case", CASES, ids=str)
def test_encrypted_equals_plain(case: Case) -> None:
    """Weights agree to 1e-6 leveled and to 1e-4 refreshed, beside the flooding noise."""
    check(case_plan(case), seed=case.degree)


@pytest.mark.parametrize(
    ("degree", "ring", "update", "width"),
    [
        (3, 3, "gd", None),
        (4, 5, "nag", 2),
        (8, 9, "barrier-1", None),
        (15, 15, "nag", 2),
    ],
)
def test_any_polynomial_link(degree: int, ring: int, update: str, width: int | None) -> None:
    """No symmetry: factors in z itself, on the levels of a sigmoid's degree."""
    link = exponential_approximation(degree, 3.0).polynomial
    plan = make_plan(
        rows=[150, 1, 140],
        rounds=3,
        degree=ring,
        update=update,
        link=link,
        ring_dim=512,
        features_per_ciphertext=width,
    )
    assert plan.layout.num_data_ciphertexts > 1
    check(plan, seed=degree)


@pytest.mark.parametrize(("degree", "width"), [(3, 2), (7, None), (15, 2)])
def test_signed_rows(degree: int, width: int | None) -> None:
    """A saturating link: labels of both kinds, all encrypted as 1."""
    link = sigmoid_approximation(degree, 8.0, "saturating").polynomial
    plan = signed_plan(
        link, rows=[150, 1, 140], rounds=3, ring_dim=512, features_per_ciphertext=width
    )
    assert plan.signed and plan.layout.num_data_ciphertexts > 1
    check(plan, seed=degree)


@pytest.mark.parametrize(
    ("update", "degree", "width"),
    [
        ("barrier-1", 7, 1),
        ("barrier-3", 3, 2),
        ("nag", 5, 4),
        ("ridge", 15, 8),
    ],
)
def test_rows_in_several_ciphertexts(update: str, degree: int, width: int) -> None:
    """d = 9 in 9, 5, 3 or 2 parts of several groups of rows: the twin, and no more rotations."""
    plan = make_plan(
        rows=[300, 1, 299],
        features=9,
        rounds=3,
        degree=degree,
        update=update,
        privacy=NOISE,
        ring_dim=1024,
        features_per_ciphertext=width,
    )
    parts = -(-9 // width)
    assert plan.layout.num_parts == parts
    assert plan.layout.num_data_ciphertexts == parts * -(-600 // (512 // width))
    check(plan, seed=3)


def test_many_iterations() -> None:
    """T = 50, whose noise fills 13 side ciphertexts."""
    privacy = replace(NOISE, sigma=0.002)
    plan = make_plan(
        rows=[3, 1], features=64, rounds=50, update="nag", privacy=privacy, ring_dim=512
    )
    assert plan.layout.num_side_ciphertexts == 13
    check(plan, seed=2)
