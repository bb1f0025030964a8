"""Poisson regression: scikit-learn's coefficients, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

from protocols.errors import ParameterError, PrivacyError, SchemaError
from protocols.models.poisson import Poisson
from protocols.numerics.approximation import exponential_approximation
from protocols.privacy.calibrate.calibration import calibrate
from protocols.privacy.calibrate.figures import PublicFigures, Wanted
from protocols.rows.plan import RowsPlan
from protocols.rows.training import PlainGradient, train_plain
from protocols.updates.momentum import Nesterov
from sims.twin import fit_counts
from tests.support.helpers import NOISE, make_plan

HIGH = 12.0
FIGURES = PublicFigures.even(rows=200, features=2, parties=2, norm_bound=2.0)
WANTED = Wanted(model="poisson", update="nag", profile="fast-insecure")


@pytest.mark.parametrize("degree", [5, 7, 9])
def test_the_twin_converges_to_scikit_learns_coefficients(degree: int) -> None:
    """On counts as they are, with an intercept, as far as the polynomial's error moves the optimum.

    There X^T (p(Xw) - t) = 0, and the likelihood's own gradient is at most e max |x|: by strong
    convexity between both optima w is off by e max |x| / m at most.
    """
    rng, model = np.random.default_rng(1), Poisson()
    x = np.hstack([rng.uniform(-1, 1, (600, 2)), np.ones((600, 1))])
    counts = np.minimum(rng.poisson(np.exp(x @ [0.5, -0.4, 0.7])), HIGH)
    fit = exponential_approximation(degree, model.radius)
    gradient = PlainGradient(x, counts / HIGH, np.zeros((3000, 3)), fit.polynomial)
    found = train_plain(Nesterov(rounds=3000, learning_rate=1 / 3), gradient, 3)
    assert gradient.largest <= model.radius

    own = PoissonRegressor(alpha=0, tol=1e-10, max_iter=5000).fit(x[:, :-1], counts)
    coef, intercept = model.in_data_units(
        found[None, :-1], found[None, -1], np.zeros(1), np.array([HIGH])
    )
    away = np.append(coef[0] - own.coef_, intercept[0] - own.intercept_)
    least = 0.9 * (own.predict(x[:, :-1]) / HIGH)
    bend = np.linalg.eigvalsh(x.T @ (least[:, None] * x) / len(x))[0]
    bound = fit.max_error * np.linalg.norm(x, axis=1).max() / bend
    assert np.linalg.norm(away) <= bound + 1e-7
    assert bound < {5: 0.3, 7: 0.02, 9: 5e-4}[degree]
    np.testing.assert_allclose(
        fit_counts(x, counts[:, None] / HIGH)[:, 0], found, atol=bound + 1e-4
    )


def test_means_are_held_on_the_interval() -> None:
    model, z = Poisson(), np.array([-9.0, -3.0, 3.0, 9.0])
    np.testing.assert_allclose(model.decode(z), np.exp([-6.0, -6.0, 0.0, 0.0]))
    with pytest.raises(SchemaError, match="low=1 of target visits is not 0"):
        model.check_ranges({"visits": 1.0})


def test_the_step_is_that_of_its_curvature() -> None:
    plan: Any = calibrate(FIGURES, WANTED).template
    assert isinstance(plan, RowsPlan) and plan.model == "poisson" and plan.layout.shape == (3, 1)
    assert plan.link == exponential_approximation(7, 3.0).polynomial
    # p' is at most 1 + e, rows have norm 2.
    assert plan.rule.least_learning_rate == pytest.approx(1 / 4, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"epsilon": 1.0}, PrivacyError, r"epsilon=1: no certificate .* take --no-privacy"),
        ({"update": "barrier"}, ParameterError, "update=barrier: .* takes gd and nag"),
        ({"ridge": 0.1}, ParameterError, "ridge=0.1: .* has no ridge"),
        ({"radius": 2.0}, ParameterError, "radius=2.0: .* interval of its own"),
        ({"outputs": 2}, ParameterError, "target=2: .* fits one target"),
    ],
)
def test_refusals(changes: dict[str, Any], kind: type[Exception], words: str) -> None:
    outputs = changes.pop("outputs", 1)
    with pytest.raises(kind, match=words):
        calibrate(replace(FIGURES, outputs=outputs), replace(WANTED, **changes))


def test_no_plan_promises_privacy_for_its_link() -> None:
    """Certificates take p(z) + p(-z) = 1 for granted: whoever states a promise is refused."""
    link = exponential_approximation(7, 3.0).polynomial
    with pytest.raises(ParameterError, match=r"privacy with model='poisson': .*--no-privacy"):
        make_plan(link=link, model="poisson", update="nag", privacy=NOISE)
