"""The encrypted model equals its plaintext twin, and its noise is what the plan says.

Whole runs on toy rings (INSECURE): every degree x number of features, with rule, parties, layout,
rows and noise assigned so that each level occurs. Of each run: what is released, against the twin;
what is decrypted exactly, whose noise flooding must hide, against `model_error_std`; and what the
decryption adds, against `release_error_std`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from parties.data.schema import NumericColumn, Targets
from protocols import encrypted_model
from protocols.approximation import exponential_approximation
from protocols.ckks import residues as rns
from protocols.ckks import subring
from protocols.ckks.context import CkksContext
from protocols.ckks.flooding import fresh_std
from protocols.ckks.periodic import widest
from protocols.decrypt import flooding_of
from protocols.model_plan import ModelPlan
from tests import exact, helpers
from tests.helpers import (
    NOISE,
    Floats,
    Session,
    half_of,
    make_data,
    make_plan,
    make_session,
    open_session,
    plain_weights,
)

CLOSE = 1e-4
UPDATES = ("barrier-1", "barrier-3", "gd", "nag", "ridge")
# one: a group of rows for each party; several: three groups each; skewed: single rows beside five.
SIZES = ("one", "several", "skewed")


@dataclass(frozen=True)
class Case:
    """width: log2 of the features per ciphertext, not above those there are; in 8 parts at most."""

    degree: int
    features: int
    update: str
    parties: int
    sizes: str
    width: int
    noise: bool
    ring_dim: int

    def __str__(self) -> str:
        return "-".join(str(getattr(self, f.name)) for f in fields(self))

    @property
    def held(self) -> int:
        most = widest(self.features)
        return min(max(1 << self.width, most // 8), most)

    @property
    def rows(self) -> list[int]:
        block = self.ring_dim // self.held
        if self.sizes == "one":
            return [min(block, 20)] * self.parties
        if self.sizes == "several":
            return [2 * block + 1] * self.parties
        return [1] * (self.parties - 1) + [4 * block + 1]

    def session(self, **changes: Any) -> Session:
        known = {"degree", "features", "update", "parties", "ring_dim"}
        given = {name: getattr(self, name) for name in known}
        return make_session(
            **given
            | {
                "make": ModelPlan,
                "rows": self.rows,
                "rounds": 3,
                "privacy": NOISE if self.noise else None,
                "features_per_ciphertext": self.held,
            }
            | changes
        )


def matrix() -> list[Case]:
    """Degree x features in full; the other factors drawn without replacement.

    A schema has a column beside the bias: there are two features at least.
    """
    rng = np.random.default_rng(20261122)
    full = list(product((3, 5, 7, 9, 15), (2, 3, 9, 31, 64)))
    others = list(product(UPDATES, (2, 3, 5), SIZES, (1, 2, 3, 4, 6), (False, True), (512, 1024)))
    picks = rng.permutation(len(others))[: len(full)]
    return [Case(*case, *others[pick]) for case, pick in zip(full, picks, strict=True)]


CASES = matrix()


@dataclass(frozen=True)
class Measured:
    """released, exact, twin: weights, shape (d,); noise: of the 2k coefficients of each part that
    are decrypted [integer units]; session: it was.
    """

    released: Floats
    exact: Floats
    twin: Floats
    noise: Floats
    session: Session

    @property
    def flooded(self) -> Floats:
        """What the decryption added, in stated deviations."""
        stated: Floats = (self.released - self.exact) / self.session.plan.release_error_std
        return stated


def measured(session: Session) -> Measured:
    """A whole run, and its last ciphertexts decrypted by all key shares, without noise."""
    release, taken = encrypted_model.release, []

    def watched(evaluator: Any, plan: Any, weights: Any, survivors: Any) -> Any:
        context, low = evaluator.context, evaluator.context.primes[:2]
        secret = sum(exact.secret(half_of(p).secret) for p in session.parties.values())
        key = np.array([exact.evaluations(secret, q) for q in low], np.uint64)
        for ct in weights.cts:
            c0, c1 = (each[:2] for each in context.polynomials_of(ct))
            opened = rns.add(c0, rns.product(c1, key, low), low)
            taken.append(subring.project(opened, low, plan.layout.period))
        return (yield from release(evaluator, plan, weights, survivors))

    with patch.object(encrypted_model, "release", watched):
        released = session.run().weights
    plan, twin = session.plan, session.twin()
    scale = 2.0**plan.ckks.scale_bits
    true = subring.of_slots(plan.layout.in_parts(twin / plan.unit).conj()) * scale
    coefficients = np.array(taken, object)
    noise = (coefficients - np.rint(true).astype(object)).astype(float)
    slots = [subring.to_slots(each, plan.layout.period) for each in coefficients / scale]
    opened = plan.layout.of_parts(np.stack(slots).conj()) * plan.unit
    return Measured(released, opened, twin, noise, session)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_encrypted_equals_plain(case: Case) -> None:
    found = measured(case.session())
    assert np.abs(found.twin).max() > 1e-3  # zero weights would prove nothing
    assert np.abs(found.released - found.twin).max() < CLOSE
    # Flooding adds what it says: 6.5 deviations have p = 1e-10.
    assert np.abs(found.flooded).max() < 6.5


def test_the_matrix_has_every_level() -> None:
    """And layouts of one part and of several, with rotations and without."""
    for field in fields(Case):
        assert len({getattr(case, field.name) for case in CASES}) >= 2
    assert {case.update for case in CASES} == set(UPDATES)
    assert {case.sizes for case in CASES} == set(SIZES)
    assert {case.held for case in CASES} >= {2, 4, 8, 16, 64}


@pytest.mark.parametrize("update", ["gd", "nag", "barrier-1"])
@pytest.mark.parametrize(("degree", "ring"), [(3, 3), (4, 5), (7, 7), (8, 9)])
def test_any_polynomial_link(degree: int, ring: int, update: str) -> None:
    """No symmetry: factors in z itself, on the levels of a sigmoid's degree."""
    link = exponential_approximation(degree, 3.0).polynomial
    case = Case(ring, 9, update, 3, "skewed", 2, False, 512)
    found = measured(case.session(link=link))
    assert np.abs(found.released - found.twin).max() < CLOSE


def test_a_numeric_target() -> None:
    """Weights of shape (d, 1), by a link that is no sigmoid."""
    shards = [(x, y[:, None]) for x, y in make_data([20, 30], 9, 1)]
    fields: dict[str, Any] = {
        "make": ModelPlan,
        "model": "poisson",
        "link": exponential_approximation(4, 3.0).polynomial,
        "degree": 5,
        "update": "gd",
        "ring_dim": 512,
        "features_per_ciphertext": 4,
    }
    label = Targets(columns=(NumericColumn(name="y", low=0.0, high=1.0),))
    run = open_session(lambda common: make_plan(**(fields | common)), shards, label)
    weights = run.run().weights
    twin = plain_weights(run.plan, [(x, y[:, 0]) for x, y in shards], np.zeros((2, 9)))
    assert weights.shape == (9, 1) and np.abs(twin).max() > 0.1
    assert np.abs(weights[:, 0] - twin).max() < CLOSE


# -- noise -----------------------------------------------------------------------------------------


def spread(make: Callable[[], Session], runs: int = 2) -> tuple[float, ModelPlan]:
    """Std of the noise of one computation under different keys, and its plan.

    What all runs have in common, the products' distances from the scale, says nothing of a key.
    """
    found = [measured(make()) for _ in range(runs)]
    noise = np.array([each.noise for each in found])
    plan: Any = found[0].session.plan
    return float(exact.rms(noise - noise.mean(axis=0)) * np.sqrt(runs / (runs - 1))), plan


NOISY = (
    Case(3, 64, "gd", 4, "skewed", 4, False, 512),
    Case(7, 31, "nag", 2, "several", 3, False, 512),
    Case(7, 9, "barrier-1", 3, "one", 4, False, 1024),
    Case(15, 31, "ridge", 3, "one", 6, False, 512),
    Case(9, 31, "nag", 6, "one", 3, False, 512),
)


@pytest.mark.parametrize("case", NOISY, ids=str)
def test_noise_is_below_its_bound_and_not_far(case: Case) -> None:
    """Of layouts, parties, rules and degrees; flooding hides sigma_e, the bound."""
    std, plan = spread(case.session)
    assert 0.1 < std / plan.model_error_std() < 1


def alike(rows: Sequence[int], features: int, seed: int) -> list[tuple[Floats, Floats]]:
    """Rows of ones, every other one positive: the twin stays at zero, and errors add up."""
    return [(np.ones((size, features)), np.arange(size) % 2.0) for size in rows]


@pytest.mark.parametrize("mutant", [None, "centred"])
def test_noise_of_rows_that_are_all_alike(
    mutant: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mean error of key switches would be the same in every row and every round."""
    monkeypatch.setattr(helpers, "make_data", alike)
    if mutant:
        monkeypatch.setattr(CkksContext, mutant, lambda self, switched: switched)
    std, plan = spread(lambda: Case(15, 9, "gd", 2, "one", 6, False, 512).session(rounds=12))
    assert (std < plan.model_error_std() / 2) == (mutant is None)


@cache
def one_round() -> tuple[float, ModelPlan]:
    """Noise of a first round, where no rows are met: of replies' errors alone."""
    case = Case(3, 64, "gd", 4, "one", 3, False, 512)
    return spread(lambda: case.session(rounds=1), runs=3)


def test_few_coefficients_have_a_larger_bound() -> None:
    """Of two the root mean square is above three deviations with p = 1e-4, of 64 never."""
    two, many = (Case(3, d, "gd", 3, "one", 6, False, 512) for d in (2, 64))
    for case, factor in ((two, 1 + np.sqrt(14)), (many, 3.0)):
        session = case.session(rounds=1)
        session.run()
        plan: Any = session.plan
        assert flooding_of(plan) == pytest.approx(np.sqrt(12) * 2**20 * plan.model_error_std())
        with patch("protocols.model_plan.MARGIN", 0.0):
            bare = plan.model_error_std() / (1 + np.sqrt(28 / case.held))
        assert plan.model_error_std() == pytest.approx(factor * bare)


def test_the_release_error_is_as_predicted() -> None:
    """Root mean square of 192 errors over the stated std, by layouts and parties."""
    found = [
        measured(Case(3, 64, "gd", parties, "one", width, False, 512).session(rounds=1)).flooded
        for parties, width in ((2, 3), (4, 6), (3, 4))
    ]
    assert 0.8 < exact.rms(np.concatenate(found)) < 1.25


# -- mutants ---------------------------------------------------------------------------------------


def sigma_e_halved(patch: pytest.MonkeyPatch) -> None:
    true = ModelPlan.model_error_std
    patch.setattr(ModelPlan, "model_error_std", lambda self: true(self) / 2)


def replies_without_their_errors(patch: pytest.MonkeyPatch) -> None:
    """In the bound alone."""
    patch.setattr("protocols.model_plan.fresh_std", lambda params, parties: 0.0)


def one_partys_errors(patch: pytest.MonkeyPatch) -> None:
    """Those of the joint key are P times one party's."""
    patch.setattr("protocols.model_plan.fresh_std", lambda params, parties: fresh_std(params, 1))


@pytest.mark.parametrize(
    "mutant", [None, sigma_e_halved, replies_without_their_errors, one_partys_errors]
)
def test_replies_make_the_noise_of_one_round(
    mutant: Callable[[Any], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the bound says without its margin, and without rows; what another formula says is not."""
    # Rows are scaled so that replies count for little: here for more than a refresh.
    monkeypatch.setattr("protocols.ckks.circuit.MASK_VALUE", 8.0)
    monkeypatch.setattr("protocols.model_plan.LARGEST_ENTRY", 0.0)
    monkeypatch.setattr("protocols.model_plan.rounding_std", lambda params, parties: 0.0)
    std, plan = one_round()
    if mutant:
        mutant(monkeypatch)
    assert (0.8 < 3 * std / plan.model_error_std() < 1.25) == (mutant is None)
