"""Rows that weigh by propensities: statsmodels' models of the pooled rows with those weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import expit

from tests.ciphercohort.study.test_glm import fitted

ROWS, TRIM = 600, 0.05
ESTIMANDS = ("ate", "att", "overlap")
FAMILIES = {
    "gaussian": sm.families.Gaussian,
    "binomial": sm.families.Binomial,
    "poisson": sm.families.Poisson,
}


def table(family: str, seed: int = 3, rows: int = ROWS, effect: float = 0.5) -> pd.DataFrame:
    """The treatment is given to the old and to men, whose outcomes are larger."""
    rng = np.random.default_rng(seed)
    age, sex = rng.uniform(30, 90, rows).round(), rng.choice(["f", "m"], rows)
    z = (age - 60) / 15 + (sex == "m")
    treated = rng.random(rows) < expit(0.9 * z - 0.4)
    eta = 0.3 * z + effect * treated
    y = {
        "gaussian": lambda: eta + rng.normal(0, 1, rows),
        "binomial": lambda: (rng.random(rows) < expit(eta)).astype(float),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
    }[family]()
    return pd.DataFrame(
        {
            **{"y": y, "age": age, "sex": sex, "arm": np.where(treated, "b", "a")},
            **{"w": rng.uniform(0.5, 3, rows), "off": 0.0, "site": rng.choice(list("pqrs"), rows)},
        }
    )


def design(rows: pd.DataFrame, *names: str) -> pd.DataFrame:
    found = {"age": rows.age, "sex=m": rows.sex == "m", "arm=b": rows.arm == "b"}
    return sm.add_constant(pd.DataFrame({name: found[name] for name in names}).astype(float))


def weights(rows: pd.DataFrame, estimand: str, trim: float = TRIM) -> tuple[Any, np.ndarray]:
    """The model of the treatment, and w."""
    t = (rows.arm == "b").astype(float)
    model = sm.GLM(t, design(rows, "age", "sex=m"), family=sm.families.Binomial()).fit(tol=1e-13)
    p = np.clip(model.fittedvalues, trim, 1 - trim)
    own = {
        "ate": t / p + (1 - t) / (1 - p),
        "att": t + (1 - t) * p / (1 - p),
        "overlap": t * (1 - p) + (1 - t) * p,
    }[estimand]
    return model, own.to_numpy()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("more", [{}, {"weight": "w"}], ids=["plain", "weight"])
@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_weighted_model_is_that_of_the_pooled_rows(
    family: str, estimand: str, more: dict[str, Any]
) -> None:
    """Errors are HC0 of a model whose rows have these weights."""
    rows = table(family)
    asked = {"propensity": "arm=b", "estimand": estimand, "trim": TRIM, **more}
    found = fitted(rows, family, ("arm",), **asked)
    model, w = weights(rows, estimand)
    w = w * (rows.w if more else 1.0)
    # Scores of `freq_weights` weigh as w x x^T in HC0; those of scaled rows as w^2.
    x = design(rows, "arm=b")
    due = sm.GLM(rows.y, x, family=FAMILIES[family](), var_weights=w).fit(tol=1e-13, cov_type="HC0")
    names = ["const", "arm=b"]
    print(
        family,
        estimand,
        np.abs(found.coef - due.params[names]).max(),
        np.abs(found.errors["robust_se"] / due.bse[names] - 1).max(),
    )
    np.testing.assert_allclose(found.coef, due.params[names], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.errors["robust_se"], due.bse[names], rtol=1e-6)
    assert found.weighting is not None
    own = found.weighting.model
    order = ["const", "age", "sex=m"]
    np.testing.assert_allclose(own.coef, model.params[order], rtol=0, atol=1e-6)
    np.testing.assert_allclose(own.errors["se"], model.bse[order], rtol=1e-6)
    for table_ in found.tables():
        print(table_.text())
