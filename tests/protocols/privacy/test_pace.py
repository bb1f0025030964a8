"""How long steps are, and whether rows are whitened or signed: from public figures alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocols.errors import ParameterError
from protocols.numerics.approximation import Polynomial, sigmoid_approximation
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.privacy.calibrate.pace import DROWNED, FEW, MANY, pace
from protocols.privacy.calibrate.whitened import Moment, draft_whitened, expected_moment
from protocols.privacy.certificates.mechanism import Mechanism
from protocols.privacy.certificates.problem import chance
from protocols.privacy.loss import mu_for_epsilon
from tests.support.helpers import NOISE, make_plan, signed_plan

WANTED = Wanted(epsilon=1.0, colluders=1, profile="fast-insecure", update="")


def lopsided(degree: int) -> Polynomial:
    """A saturating link."""
    return sigmoid_approximation(degree, 8.0, "saturating").polynomial


def figures(s: float, columns: int = 9) -> PublicFigures:
    """Rows for s = N mu / d."""
    mu = mu_for_epsilon(epsilon=1.0, delta=WANTED.delta)
    rows = math.ceil(s * (columns + 1) / mu)
    return PublicFigures.even(rows=rows, features=columns, parties=3)


@pytest.mark.parametrize("s", [0.3 * FEW, 0.5 * (FEW + MANY), 3 * MANY])
def test_a_plan_of_every_size(s: float) -> None:
    """Few rows: no second moment; many: what the sigmoid says; between: both."""
    found = calibrate(figures(s), WANTED)
    plan: Any = found.template
    assert (found.first is not None) == plan.whitens == (s > FEW)
    assert plan.signed == (s < MANY)
    assert plan.rounds == 10 and plan.link.degree == 15
    assert found.certificate is not None and found.certificate.satisfied
    steps = pace(figures(s), WANTED).steps
    spectrum = plan.whitening.spectrum if plan.whitening else 1.0
    assert plan.update["learning_rate"] <= steps.rate / spectrum * (1 + 1e-9)
    assert steps.wander == pytest.approx(min(1.0, s / DROWNED), rel=1e-2)


def test_what_rows_and_noise_leave_to_chance() -> None:
    """Std of a weight after T steps from labels that are coins, by simulation."""
    rng, rounds, rows, d, tau, rate = np.random.default_rng(1), 8, 300, 6, 0.01, 0.01
    ends = []
    for _ in range(400):
        x = rng.standard_normal((rows, d))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        gradient = x.T @ (0.5 - rng.integers(0, 2, rows)) / rows
        noise = tau * rng.standard_normal((rounds, d)).sum(axis=0)
        ends.append(rate * (rounds * gradient + noise))
    told = rate * chance(rounds=rounds, noise=tau, rows=rows, features=d)
    assert np.std(ends) == pytest.approx(told, rel=0.05)


def test_signed_rows_are_the_same_gradient_where_the_link_is_symmetric() -> None:
    """y (p(z) - 1) x + (1 - y) (1 - p(-z)) x, written out; what is encoded has no label left."""
    rng = np.random.default_rng(3)
    x, y = rng.uniform(-1, 1, (40, 3)), rng.integers(0, 2, 40).astype(float)
    w = rng.standard_normal(3)
    plan, symmetric = signed_plan(lopsided(15)), make_plan(update="ridge", privacy=NOISE)
    assert plan.signed and not symmetric.signed
    for each in (plan, symmetric):
        p, z = each.link, x @ w
        rows, labels = each.encode(x, y)
        own = rows.T @ (p(rows @ w) - labels)
        explicit = x.T @ (y * (p(z) - 1) + (1 - y) * (1 - p(-z)))
        np.testing.assert_allclose(own, explicit, atol=1e-12)
        assert set(labels) == ({1.0} if each.signed else {0.0, 1.0})
    assert not signed_plan(lopsided(15), privacy=None).signed


@pytest.mark.parametrize("update", ["barrier-1", "nag"])
def test_other_updates_need_the_symmetry(update: str) -> None:
    plan = signed_plan(lopsided(7), update=update)
    with pytest.raises(ParameterError, match="1/2 plus an odd polynomial"):
        Mechanism.from_plan(plan, 1.0)


# -- once a second moment is opened there is a plan ------------------------------------------------


@pytest.mark.parametrize(("update", "rounds"), [("quadratic-gd", 40), ("quadratic-nag", None)])
@pytest.mark.parametrize("told", ["noise alone", "one axis", "usual"])
def test_whatever_was_opened(update: str, told: str, rounds: int | None) -> None:
    """Its part of epsilon is spent: the rest trains a model, and is all that is charged."""
    known, wanted = figures(1.2 * FEW), replace(WANTED, update=update, rounds=rounds)
    first = calibrate(known, replace(wanted, update="quadratic-gd")).first
    assert first is not None
    usual = expected_moment(known, first)
    d = known.num_features
    matrices = {
        "noise alone": -np.eye(d),
        "one axis": np.diag([1.0] + [-0.01] * (d - 1)),
        "usual": usual.matrix,
    }
    found = calibrate(known, wanted, usual._replace(matrix=matrices[told]))
    plan: Any = found.template
    assert plan.whitens and found.certificate is not None and found.certificate.satisfied
    assert found.certificate.figures["epsilon_exact"] == pytest.approx(1.0, rel=1e-4)
    if told == "noise alone":
        matrix = np.array(plan.whitening.matrix)
        np.testing.assert_array_equal(matrix, np.eye(d) / known.norm_bound)
    if update == "quadratic-gd":
        assert plan.update["kind"] == "gd"


def test_before_it_is_opened_what_has_no_plan_is_refused() -> None:
    """Nothing is spent yet."""
    known, wanted = figures(1.2 * FEW), replace(WANTED, update="quadratic-gd")
    nothing = Moment(-np.eye(known.num_features), 1e-3, "0" * 64)
    with pytest.raises(ParameterError, match="noise alone"):
        draft_whitened(known, wanted, nothing, opened=False)
